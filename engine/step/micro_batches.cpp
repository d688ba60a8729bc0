// Slicing batches, and halving the slices.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/step/training_step.h"

namespace bantam {
namespace {

constexpr std::uintptr_t kAlignment = 16;  // of the widest loads, and what cuDNN is told of its tensors

bool is_aligned(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data()) % kAlignment == 0; }

Tensor view_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const Shape sample = tensor.shape().without_first();
  return tensor.slice(first * sample.elements(), sample.prepend(count));
}

/// `count` samples of a tensor (batch, …) from `first` on, aligned.
Tensor samples_of(const Context& context, const Tensor& tensor, std::int64_t first, std::int64_t count) {
  Tensor view = view_of(tensor, first, count);
  if (is_aligned(view)) return view;
  Tensor copy = context.allocate(view.shape(), view.dtype(), Category::input);
  copy_bytes(copy.data(), view.data(), view.bytes(), context.stream);
  return copy;
}

}  // namespace

std::string_view to_string(OnOutOfMemory policy) {
  switch (policy) {
    case OnOutOfMemory::accumulate:
      return "accumulate";
    case OnOutOfMemory::accumulate_with_batch_norm:
      return "accumulate_with_batch_norm";
    case OnOutOfMemory::fail:
      break;
  }
  return "fail";
}

bool uses_batch_statistics(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const GraphNode& node) {
    return node.layer != nullptr && node.layer->uses_batch_statistics();
  });
}

void check_on_oom(OnOutOfMemory policy, const Graph& graph) {
  if (policy != OnOutOfMemory::accumulate || !uses_batch_statistics(graph)) return;
  throw ConfigError(
      "on_oom: smaller micro-batches change what batch normalisation computes; if that is wanted, say "
      "accumulate_with_batch_norm");
}

Batch slice(const Context& context, const Batch& batch, std::int64_t first, std::int64_t count) {
  if (first < 0 || count < 1 || first + count > batch.size)
    throw ShapeError(fmt::format("samples {} to {} of a batch of {}", first, first + count, batch.size));
  const Context inputs = context.at(context.runtime->intern("input"));
  Batch samples{.size = count, .index = batch.index};
  for (const auto& [name, tensor] : batch.tensors) samples.tensors.set(name, samples_of(inputs, tensor, first, count));
  return samples;
}

bool MicroBatches::copies(const Batch& batch) const {
  if (most_ == 0) return false;
  for (std::int64_t first = most_; first < batch.size; first += most_)
    for (const auto& [name, tensor] : batch.tensors)
      if (!is_aligned(view_of(tensor, first, 1))) return true;
  return false;
}

void MicroBatches::train(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch) {
  if (most_ == 0 || most_ >= batch.size) return step_.micro_batch(batch, first_sample, effective_batch);
  const Context context = step_.model().context(Pass::train);
  for (std::int64_t done = 0; done < batch.size; done += most_) {
    Batch micro_batch;
    try {
      micro_batch = slice(context, batch, done, std::min(most_, batch.size - done));
    } catch (...) {  // micro_batch does the same for what it throws itself
      step_.discard();
      throw;
    }
    step_.micro_batch(micro_batch, first_sample + done, effective_batch);
  }
}

bool MicroBatches::accumulate(std::int64_t count, std::int64_t samples,
                              const std::function<std::optional<Batch>(std::int64_t i)>& next,
                              std::int64_t first_sample) {
  const ReplicaOptions& replicas = step_.replicas();
  const std::int64_t own = replicas.count(), each = count / own;
  if (each * own != count)
    throw Error(fmt::format("an update of {} batches on a rank with {} replicas: expected a multiple", count, own));
  std::int64_t done = first_sample;
  for (std::int64_t i = 0; i < count; ++i) {
    std::optional<Batch> batch;
    try {
      batch = next(i);
    } catch (...) {  // of a data source, say: the next update is not to train on what came before
      step_.discard();
      throw;
    }
    if (!batch) {
      step_.discard();
      return false;
    }
    if (samples == 0) samples = replicas.replicas * each * batch->size;
    if (i % each == 0) step_.begin_replica();
    if (i == count - 1 && (most_ == 0 || most_ >= batch->size)) step_.expect_last_micro_batch();
    train(*batch, done, samples);
    done += batch->size;
  }
  return true;
}

void MicroBatches::evaluate(const Batch& batch, bool may_halve) {
  for (std::int64_t done = 0; done < batch.size;) {
    const std::int64_t left = batch.size - done, count = most_evaluated_ == 0 ? left : std::min(most_evaluated_, left);
    try {
      // Sums are added to by the last kernel of an evaluation, after all that allocates: a micro_batch counts once or
      // not.
      step_.evaluate(count == batch.size ? batch : slice(step_.model().context(Pass::evaluate), batch, done, count));
      done += count;
    } catch (const OutOfMemory&) {
      if (!may_halve || !halve(most_evaluated_, count)) throw;
    }
  }
}

bool MicroBatches::halve(std::int64_t batch) {
  if (!halve(most_, batch)) return false;
  step_.drop_plans_above(most_);
  return true;
}

bool MicroBatches::halve(std::int64_t& most, std::int64_t batch) {
  const std::int64_t now = most == 0 ? batch : std::min(most, batch);
  if (now <= 1) return false;
  most = (now + 1) / 2;
  step_.model().runtime().allocator(step_.model().device()).trim();
  return true;
}

}  // namespace bantam
