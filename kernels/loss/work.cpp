// Work of the losses.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/loss/dice_loss.h"
#include "bantam/kernels/loss/value_loss.h"

namespace bantam::kernels::work {
namespace {

constexpr auto kMetricBytes = static_cast<std::int64_t>(2 * sizeof(MetricSums));  // read and written
constexpr std::int64_t kFloat = sizeof(float), kLabel = sizeof(std::int32_t);

/// The gradient, the loss and its counts.
std::int64_t output_bytes(const LossOutputs& out, std::int64_t elements, DType dtype) {
  return unless_null(out.dx, bytes_of(elements, dtype)) + unless_null(out.loss, kFloat) +
         unless_null(out.ring, kMetricBytes);
}

}  // namespace

void store_constants(const Exec& exec, const float*, std::int64_t count, float*) {
  note(exec, "store_constants", {.bytes = kFloat * count});
}

void class_loss(const Exec& exec, const ClassLossShape& s, DType dtype, const ClassLossInputs& in,
                const LossOutputs& out, Workspace) {
  const std::int64_t rows = s.batch * s.positions, elements = rows * s.classes;
  note(exec, "class_loss",
       {.bytes = bytes_of(elements, dtype) + unless_null(in.labels, kLabel * rows) +
                 unless_null(in.targets, kFloat * elements) + unless_null(in.class_weights, kFloat * s.classes) +
                 output_bytes(out, elements, dtype),
        .passes = 2});  // positions, and the batch
}

void value_loss(const Exec& exec, const ValueLossShape& s, DType dtype, const ValueLossInputs& in,
                const LossOutputs& out, Workspace) {
  const std::int64_t elements = s.batch * s.values;
  note(exec, "value_loss",
       {.bytes = bytes_of(elements, dtype) + kFloat * elements + unless_null(in.positive_weights, kFloat * s.channels) +
                 output_bytes(out, elements, dtype),
        .passes = 2});
}

void dice_loss(const Exec& exec, const DiceLossShape& s, DType dtype, const DiceLossInputs& in, const LossOutputs& out,
               Workspace) {
  const std::int64_t rows = s.batch * s.positions, elements = rows * s.classes;
  const std::int64_t reads =
      bytes_of(elements, dtype) + unless_null(in.labels, kLabel * rows) + unless_null(in.targets, kFloat * elements);
  note(exec, "dice_loss",
       {.bytes = reads * (out.dx != nullptr ? 2 : 1) + output_bytes(out, elements, dtype),  // sums come first
        .passes = out.dx != nullptr ? 4 : 3});
}

}  // namespace bantam::kernels::work
