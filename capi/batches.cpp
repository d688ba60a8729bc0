// Uploads of batches, checked on the host first.
#include "bantam/capi/batches.h"

#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/capi/status.h"
#include "bantam/engine/losses/loss.h"

namespace bantam::capi {
namespace {

/// One class number a sample, each among the classes.
void check_labels(const HostArray& labels, std::int64_t classes) {
  for (std::int64_t i = 0; i < labels.samples(); ++i) {
    std::int32_t label = 0;
    std::memcpy(&label, labels.data + static_cast<std::size_t>(i) * sizeof label, sizeof label);
    if (label < 0 || label >= classes)
      throw DataError(fmt::format("sample {} of the batch has the label {}; expected one of {} classes, 0 to {}", i,
                                  label, classes, classes - 1));
  }
}

Tensor upload(const HostArray& array, const Context& context) {
  const Tensor tensor = context.upload_bytes(array.shape, array.dtype, array.data, Category::input);
  if (array.name != kImages) return tensor;
  return ops::cast(context, tensor, context.precision.compute());
}

}  // namespace

void require_read(const std::string& name, const LossOptions& loss, const Shape& output, std::string_view what,
                  bool stored) {
  const std::vector<TensorFacts> targets = targets_of(loss, output);
  if (name == kImages || find_facts(targets, name) != nullptr || (stored && name == kLabels)) return;
  std::string read(kImages);
  for (const TensorFacts& target : targets) read += " and " + target.name;
  throw BadArgument(
      fmt::format("{} array '{}' is read by nothing: the network and its loss read {}", what, name, read));
}

std::vector<TensorFacts> facts_of(const std::vector<HostArray>& arrays, TrainingStep& step) {
  const std::vector<TensorFacts> expected = targets_of(step.loss(), step.model().graph().output_shape());
  std::vector<TensorFacts> facts;
  for (const HostArray& array : arrays) {
    if (array.name == kImages && array.dtype != DType::float32)
      throw DTypeError(fmt::format("{}: the network reads float32 images, scaled and normalised as it shall see them",
                                   to_string(array)));
    const TensorFacts* target = find_facts(expected, array.name);
    facts.push_back({.name = array.name,
                     .shape = array.shape.without_first(),
                     .dtype = array.name == kImages ? std::nullopt : std::optional(array.dtype),
                     .classes = target != nullptr ? target->classes : 0});
  }
  return facts;
}

Batch uploaded(const std::vector<HostArray>& arrays, TrainingStep& step, const Context& context,
               std::string_view what) {
  const std::vector<TensorFacts> facts = facts_of(arrays, step);
  step.check_fits(facts, what);
  for (const HostArray& array : arrays)
    require_read(array.name, step.loss(), step.model().graph().output_shape(), what);
  Batch batch{.size = arrays[0].samples()};
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (facts[i].classes > 0 && facts[i].shape.rank() == 0 && arrays[i].dtype == DType::int32)
      check_labels(arrays[i], facts[i].classes);
    batch.tensors.set(arrays[i].name, upload(arrays[i], context));
  }
  synchronize(context.stream);  // the caller may change its memory when we return, page-locked memory too
  return batch;
}

}  // namespace bantam::capi
