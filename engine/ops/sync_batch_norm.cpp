// Synchronised batch norm: a rank's statistics and sums by the kernels of batch_norm, added up among ranks, then
// applied.
#include "bantam/engine/ops/sync_batch_norm.h"

#include <utility>

#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/norm_sync.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/kernels/norm/sync_norm.h"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam::ops {
namespace {

/// One call's shapes, and its norm with the statistics of all rows.
struct Call {
  kernels::BatchNormShape shape;
  DType dtype;
  Norm norm;
  Tensor inv_rows;  // (1), float32

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::batch_norm_workspace_bytes(shape, dtype, context.device.kind));
  }
};

/// Mean and variance of this rank's rows: running statistics of rate 1, which is what they would move to.
void own_moments(const Context& context, const Call& call, const Tensor& x, const Tensor& mean,
                 const Tensor& variance) {
  const Tensor unused = context.allocate({2 * call.shape.channels}, DType::float32);
  zero_bytes(mean.data(), mean.bytes(), context.stream);  // times 0
  zero_bytes(variance.data(), variance.bytes(), context.stream);
  const kernels::StatisticsOutput statistics{.epsilon = call.norm.epsilon,
                                             .update = {.rate = 1.0f, .unbiased = false},
                                             .running_mean = mean.as<float>(),
                                             .running_variance = variance.as<float>(),
                                             .mean = unused.as<float>(),
                                             .inv_std = unused.as<float>() + call.shape.channels};
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, batch_norm_forward_training, call.shape, call.dtype, x.data(), kernels::BatchNormAffine{},
                nullptr, statistics, scratch.get());
}

/// The call's norm gets the statistics of all ranks' rows; the running ones move by them.
void exchange_moments(const Context& context, Call& call, const Norm& norm, const Tensor& x) {
  const std::int64_t channels = call.shape.channels;
  const Tensor message = context.allocate({kernels::norm_message_elements(channels)}, DType::float64);
  {
    const Tensor mean = context.allocate({channels}, DType::float32),
                 variance = context.allocate({channels}, DType::float32);
    own_moments(context, call, x, mean, variance);
    BANTAM_KERNEL(context.exec, pack_moments, channels, call.shape.rows, mean.as<float>(), variance.as<float>(),
                  message.as<double>());
  }
  context.step.norms->sum(context, message);
  BANTAM_KERNEL(context.exec, unpack_moments, channels, message.as<double>(),
                norm.statistics_output(context, call.norm.mean, call.norm.inv_std), call.inv_rows.as<float>());
}

/// Statistics of the first pass where a segment is recomputed, else of the ranks; in a segment's first pass they are
/// saved.
void find_statistics(const Context& context, Call& call, const Norm& norm, const Tensor& x) {
  SavedStatistics* const saved = context.step.saved;
  Tensor vectors[3];
  for (std::size_t i = 0; i < 3; ++i)
    vectors[i] =
        context.replays() ? saved->next() : context.allocate({i < 2 ? call.shape.channels : 1}, DType::float32);
  call.norm = norm.of_batch(vectors[0], vectors[1]);
  call.inv_rows = vectors[2];
  if (context.replays()) return;
  exchange_moments(context, call, norm, x);
  for (Tensor& vector : vectors)
    if (saved != nullptr) saved->save(vector);
}

Tensor apply(const Context& context, const Call& call, const Tensor& x) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(context.exec, batch_norm_apply, call.shape, call.dtype, x.data(), call.norm.affine(),
                call.norm.mean.as<float>(), call.norm.inv_std.as<float>(), y.data());
  return y;
}

/// target (+)= sums: this rank's own.
void store_sums(const Context& context, std::int64_t channels, const float* sums, const FloatGradient& target) {
  if (target.data == nullptr) return;
  kernels::TreeTerms terms;
  terms.add(sums);
  if (target.accumulate) terms.add(target.data);
  BANTAM_KERNEL(context.exec, tree_sum, DType::float32, channels, terms, 1.0, target.data);
}

void backward(const Context& context, NormSync& ranks, const Call& call, SavedTensor& saved, const Tensor& dy,
              GradientStore& store) {
  const std::int64_t channels = call.shape.channels;
  FloatGradient scale(context, call.norm.scale, store), shift(context, call.norm.shift, store);
  const bool wants_dx = wants_gradient(saved.ref());
  Tensor dx = wants_dx ? reuse_or_allocate(context, dy) : Tensor();
  {
    const Tensor x = saved.unpack(context);
    const std::int64_t line = (channels + 3) / 4 * 4;  // so that both are aligned to 16 bytes
    const Tensor own = context.allocate({2 * line}, DType::float32);
    const kernels::NormGradients to{.dscale = own.as<float>() + line, .dshift = own.as<float>()};
    {
      const Scratch scratch = call.scratch(context);
      BANTAM_KERNEL(context.exec, batch_norm_backward_training, call.shape, call.dtype, call.norm.operand(x), dy.data(),
                    to, scratch.get());
    }
    store_sums(context, channels, to.dscale, scale);
    store_sums(context, channels, to.dshift, shift);
    if (wants_dx) {
      const Tensor sums = context.allocate({4 * channels}, DType::float32);
      copy_bytes(sums.data(), to.dshift, static_cast<std::size_t>(channels) * sizeof(float), context.stream);
      copy_bytes(sums.as<float>() + channels, to.dscale, static_cast<std::size_t>(channels) * sizeof(float),
                 context.stream);
      ranks.sum(context, sums.slice(0, {2 * channels}));
      BANTAM_KERNEL(context.exec, sync_norm_input_gradient, call.shape, call.dtype, call.norm.operand(x), dy.data(),
                    call.inv_rows.as<float>(), sums.as<float>(), dx.data());
    }
  }
  scale.add_to(context, call.norm.scale, store);
  shift.add_to(context, call.norm.shift, store);
  if (wants_dx) store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor sync_batch_norm(const Context& context, const Tensor& x, const Norm& norm) {
  if (context.step.norms == nullptr || context.pass == Pass::evaluate || norm.frozen)
    return batch_norm(context, x, norm);
  check_batch_norm(context, x, norm);
  const std::int64_t channels = x.shape()[-1];
  Call call{{.rows = channels == 0 ? 0 : x.elements() / channels, .channels = channels}, x.dtype(), norm, {}};
  find_statistics(context, call, norm, x);
  Tensor y = apply(context, call, x);
  if (!records(context, {&x, &norm.scale, &norm.shift})) return y;
  const SavedTensor saved(x);
  context.tape->record(
      context, y,
      [=, x = saved, ranks = context.step.norms](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        backward(ctx, *ranks, call, x, dy, store);
      });
  attach_recipe(context, y, {&saved}, [=](const Context& ctx) { return apply(ctx, call, saved.get(ctx)); });
  return y;
}

}  // namespace bantam::ops
