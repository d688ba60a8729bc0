// How torchvision and other programs name and lay out the weights of the zoo's networks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/shape.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

/// A parameter or running statistic of a network, here and in torchvision.
struct TorchvisionTensor {
  std::string own;      ///< "stem/weight"
  Shape own_shape;      ///< (filters, kernel, kernel, C)
  std::string torch;    ///< "conv1.weight"
  Shape torch_shape;    ///< (filters, C, kernel, kernel)
  Shape own_axes;       ///< own_shape, so cut or joined that its axes are those of torch_shape in another order
  std::vector<int> to;  ///< by axis of torch's order, the axis of own_axes; empty: elements lie in the same order
};

/// Whether the names of this network's tensors are known: those of torchvision's networks (resnet18_cifar is its
/// resnet18 with another stem), and of some that timm alone has.
bool has_known_names(std::string_view zoo_name);
/// The program whose network it is, "torchvision" or "timm": the first of naming_programs.
std::string_view naming_program(std::string_view zoo_name);
/// Whether torchvision's function of it has `width_mult`.
bool torchvision_has_width(std::string_view zoo_name);
/// "resnet18" of "resnet18_cifar": the function in torchvision.models; the model's name in timm, where it is timm's.
std::string torchvision_function(std::string_view zoo_name);
/// A line of Python that makes that function's `model` the zoo's network; empty where it is.
std::string torchvision_changes(std::string_view zoo_name);

/// The programs whose names for this network are known: "torchvision", if it has the network, then "timm",
/// "transformers" and others, where they have other names.
std::vector<std::string_view> naming_programs(std::string_view zoo_name);
/// Epsilon of that program's batch norms in this network, where the zoo's (torchvision's) is another; else 0.
float other_epsilon(std::string_view zoo_name, std::string_view program);

/// All tensors of `graph`, which the zoo has built under this name, in its order, as the program names them; empty:
/// naming_program's. Throws ConfigError for a network whose names are not known.
std::vector<TorchvisionTensor> torchvision_tensors(std::string_view zoo_name, const Graph& graph,
                                                   std::string_view program = {});

/// The name that the program has for the classifier's weight, whose rows are classes.
std::string torchvision_classifier(std::string_view zoo_name, std::string_view program = {});

/// The tensor's float32 values in the other order.
std::vector<std::byte> own_order(const TorchvisionTensor& tensor, const std::vector<std::byte>& torch);
std::vector<std::byte> torch_order(const TorchvisionTensor& tensor, const std::vector<std::byte>& own);

}  // namespace bantam::run
