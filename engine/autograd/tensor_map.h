// TensorMap: a few tensors by name, in the order in which they were added: what a batch is made of; and TensorFacts,
// what is known of them beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/engine/autograd/tensor.h"

namespace bantam {

/// The names of a batch's tensors that the built-in sources make: a model's input, (batch, height, width, channels) in
/// the context's compute type, and class numbers, (batch) int32.
inline constexpr std::string_view kImages = "images";
inline constexpr std::string_view kLabels = "labels";

/// What is known of a batch's tensor before there is a batch.
struct TensorFacts {
  std::string name;
  Shape shape;                 ///< of one sample: without the batch axis
  std::optional<DType> dtype;  ///< none: the type that the model computes in
  std::int64_t classes = 0;    ///< of class numbers: each is in [0, classes); 0: they are none
};

/// Null where there is no such name.
const TensorFacts* find_facts(std::span<const TensorFacts> tensors, std::string_view name);

/// A value: copies share the tensors' memory. Names are compared one by one, since there are few. Not thread-safe.
///
///     TensorMap tensors = {{"images", images}, {"labels", labels}};
class TensorMap {
 public:
  struct Entry {
    Entry(std::string_view name, Tensor tensor) : name(name), tensor(std::move(tensor)) {}
    std::string name;
    Tensor tensor;
  };

  TensorMap() = default;
  /// Throws Error for a name that comes twice.
  TensorMap(std::initializer_list<Entry> entries);

  /// Throws Error naming what there is, where there is no such name.
  const Tensor& at(std::string_view name) const;
  /// Null where there is no such name.
  const Tensor* find(std::string_view name) const;
  /// Replaces the tensor of that name, whose memory is then released, or adds one at the end.
  void set(std::string_view name, Tensor tensor);

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace bantam
