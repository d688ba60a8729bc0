// Constants: values of a model that do not depend on its input, computed while it is read.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

/// Stands for the batch's extent in integer constants, which nodes that compute a shape pass on.
inline constexpr std::int64_t kBatch = std::numeric_limits<std::int64_t>::min();
/// So are multiples of it: `of_batch(n)` is n times the batch's extent, n from 1 to below 2³².
constexpr std::int64_t of_batch(std::int64_t multiple) { return kBatch + (multiple - 1); }
/// The n of `of_batch(n)`; 0 of a number.
constexpr std::int64_t batch_multiple(std::int64_t value) {
  return value < kBatch + 0xffffffff ? value - kBatch + 1 : 0;
}

class Constants {
 public:
  /// The initializers of `model`, which must outlive the constants.
  explicit Constants(const Model& model);

  /// Null where the value is none.
  const Tensor* find(const std::string& name) const;
  /// Whether nodes compute it: the file does not have its values.
  bool is_computed(const std::string& name) const { return computed_names_.contains(name); }
  /// Throws DataError where there is one of the name.
  void set(const std::string& name, Tensor tensor);
  /// Whether the node's outputs depend on nothing else: its inputs that are not left out are constants, but for those
  /// whose type alone is read.
  bool reads_constants_alone(const Node& node) const;
  /// Counts the elements of constants that the node reads. Throws DataError where the nodes so far read far more than
  /// the file has: each of thousands of nodes could name the same large one.
  void count_reading(const Node& node);
  /// Computes the node's output. False where the op is none that is computed here. Throws DataError naming the node.
  bool compute(const Node& node);
  /// How many elements may be made of those that the file has, as constants or, once more, as tensors of layers: a
  /// damaged file could ask for any number.
  std::int64_t most_elements() const;

 private:
  std::map<std::string, const Tensor*> by_name_;
  std::deque<Tensor> computed_;
  std::set<std::string> computed_names_;
  std::int64_t elements_ = 0;           // of initializers and Constant nodes
  std::int64_t computed_elements_ = 0;  // of computed_
  std::int64_t read_elements_ = 0;      // by nodes, each time
};

/// The result of a node whose inputs are constants (null: an input left out), of up to `most_elements` elements;
/// whoever calls `compute` names it. Ops that are not known compute nothing: then `known` is false.
struct Computed {
  bool known = true;
  Tensor tensor;
};
Computed compute(const Node& node, const std::vector<const Tensor*>& inputs, std::int64_t most_elements);

/// The extents that a Shape node names: those from its `start` to before its `end`.
std::vector<std::int64_t> named_extents(const Node& node, const std::vector<std::int64_t>& extents);

/// The cut of one axis by a Slice node.
struct SliceRange {
  std::int64_t axis = 0, start = 0, end = 0, step = 1;
};
/// `starts`, `ends`, `axes` and `steps` of the node's attributes or of its inputs 1 to 4, with axes from 0 to below
/// `rank`. Throws DataError for an axis outside or named twice.
std::vector<SliceRange> slice_ranges(const Node& node, const std::vector<const Tensor*>& inputs, std::size_t rank);
/// With start and end from 0 to the extent. Throws DataError for steps backwards, where `node` is not computed.
SliceRange resolved(const Node& node, SliceRange range, const std::vector<std::int64_t>& extents);

}  // namespace bantam::onnx
