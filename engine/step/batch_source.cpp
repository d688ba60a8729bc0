// Facts that follow from a source's description of its tensors and batches: image shape, classes, samples.
#include "bantam/engine/step/batch_source.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {

Shape BatchSource::image_shape() const {
  const std::vector<TensorFacts> all = tensors();
  if (const TensorFacts* images = find_facts(all, kImages)) return images->shape;
  std::vector<std::string> names;
  for (const TensorFacts& facts : all) names.push_back(facts.name);
  throw Error(fmt::format("the data have no {}; they have {}", kImages,
                          names.empty() ? "nothing" : join(names, ", ", " and ")));
}

std::int64_t BatchSource::classes() const {
  const std::vector<TensorFacts> all = tensors();
  const TensorFacts* labels = find_facts(all, kLabels);
  return labels != nullptr ? labels->classes : 0;
}

std::int64_t BatchSource::epoch_samples() const {
  std::int64_t samples = 0;
  for (std::int64_t batch = 0; batch < batches_per_epoch(); ++batch) samples += size_of(batch);
  return samples;
}

void BatchSource::set_share(std::int64_t first, std::int64_t count, std::int64_t of) {
  if (first == 0 && count == of) return;
  throw Error(fmt::format("these data cannot be read in shares (batches {} to {} of each {}): BatchSource::set_share",
                          first, first + count, of));
}

}  // namespace bantam
