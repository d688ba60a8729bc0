// Which kernels run on a finished batch, and on which of its tensors.
#include "bantam/data/delivery/batch_mixer.h"

#include "bantam/engine/losses/loss.h"

namespace bantam {

BatchMixer::BatchMixer(const MixOptions& options, const DatasetFacts& facts, const kernels::ImageBatchShape& shape,
                       std::uint64_t seed)
    : options_(options),
      targets_(batch_targets(options, facts)),
      writes_targets_(targets_.size() > facts.targets.size()),
      planner_(options, {shape.out_h, shape.out_w}, seed) {}

void BatchMixer::mix(const kernels::Exec& exec, const kernels::SampleMix* table, std::span<const Tensor> fields) const {
  const Tensor& images = fields[0];
  const std::int64_t batch = images.shape()[0];
  if (has_table()) {
    const bool vectors = images.shape().rank() == 2;  // one row of values
    const kernels::MixShape shape{.batch = batch,
                                  .height = vectors ? 1 : images.shape()[1],
                                  .width = images.shape()[vectors ? 1 : 2],
                                  .channels = vectors ? 1 : images.shape()[3]};
    BANTAM_KERNEL(exec, mix_images, shape, table, images.dtype(), images.data());
  }
  std::int32_t* labels = nullptr;
  const Tensor* targets = nullptr;
  for (std::size_t f = 0; f < targets_.size(); ++f) {
    if (targets_[f].name == kLabels) labels = fields[f + 1].as<std::int32_t>();
    if (targets_[f].name == kTargets) targets = &fields[f + 1];
  }
  if (targets == nullptr || (!has_table() && !writes_targets_)) return;
  const kernels::TargetMixShape shape{.batch = batch,
                                      .classes = targets->shape().elements() / batch,
                                      .smoothing = static_cast<float>(options_.smoothing),
                                      .from_labels = writes_targets_};
  BANTAM_KERNEL(exec, mix_targets, shape, table, labels, targets->as<float>());
}

}  // namespace bantam
