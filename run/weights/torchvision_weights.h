// Weights of torchvision's networks to files that the zoo's networks begin with, and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

struct TorchvisionOptions {
  std::string model = {};    ///< the zoo's name; empty: the one that has the file's tensors
  std::int64_t classes = 0;  ///< of the network to train: where the file has others, its classifier is left out; 0: any
  double width = 1.0;        ///< as the zoo's; torchvision's width_mult, which only its MobileNets have
  /// Which of a file's several networks: the keys to a state_dict of a .pt file ("state_dict_ema"), or the beginning of
  /// its tensors' names ("teacher", "model.ema"). Empty: the usual one.
  std::string key = {};
};

/// A file that was converted.
struct ConvertedWeights {
  std::string model;                       ///< the zoo's name
  std::int64_t classes = 0;                ///< of the file that was read; 0: it has no classifier, or another one
  SafetensorsFile file;                    ///< float32
  std::string program = "torchvision";     ///< whose names the tensors have: "timm", "transformers"
  std::int64_t channels = 3;               ///< of the images
  std::int64_t side = 0;                   ///< of the square images that position embeddings are for; 0: the zoo's
  std::string found_at = {};               ///< the keys to the state_dict of a .pt file
  std::string module = {};                 ///< the class of the module that a .pt file has as a whole
  std::string prefix = {};                 ///< that the network's names had and was dropped: "module.backbone."
  std::string head = {};                   ///< the module that the classifier is, where it has another name: "fc.1"
  std::vector<std::string> ignored = {};   ///< num_batches_tracked, what is no tensor, and what is not the network's
  std::vector<std::string> left_out = {};  ///< our names of a classifier that is missing or of other classes
  std::vector<std::string> notes = {};     ///< for the user: other networks in the file, what was put together
};

/// Reads a state_dict (.safetensors, .pt or .pth) of a network of torchvision and names and lays out its tensors as the
/// zoo's network has them; names may also be those of timm, transformers and others (naming_programs). What stands
/// before the network's names ("backbone.") is dropped. Tensors beside the network's are left out, and are of any type.
/// A file without the classifier, or with another one in its place, is a network, too; so is one whose position
/// embeddings are of square images of another size. Throws DataError that names what is missing, unexpected, of another
/// shape or not finite, what the file holds instead, or what a vision transformer has that the zoo's have not.
ConvertedWeights import_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options = {});

/// Weights of one of the zoo's networks as a state_dict of torchvision's, or of timm's where torchvision has no such
/// network, without num_batches_tracked, which load_state_dict does not need. Throws as import_torchvision does.
ConvertedWeights export_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options = {});

}  // namespace bantam::run
