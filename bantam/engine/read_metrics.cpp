// Metrics on their way from the device's ring to the host.
#include <cstddef>
#include <cstring>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/training_step.h"

namespace bantam {
namespace {

constexpr std::size_t kRingBytes = sizeof(kernels::MetricSums) * TrainingStep::kMetricRing;
constexpr std::size_t kControlBytes = sizeof(kernels::UpdateControl);

Metrics to_metrics(const kernels::MetricSums& sums) {
  const auto samples = static_cast<std::int64_t>(sums.samples);
  if (samples == 0) return {};
  return {sums.loss / sums.samples, sums.correct / sums.samples, samples};
}

/// Host memory of `bytes` that the device can copy to while the host goes on. Where the device is the host, or none at
/// all, it is no part of a run's memory.
Tensor reading_memory(Runtime& runtime, Device device, std::size_t bytes) {
  const Shape shape{static_cast<std::int64_t>(bytes)};
  if (device.is_cuda())
    return {std::make_shared<Storage>(runtime.pinned_allocator(), bytes, Stream{},
                                      AllocationTag{Category::other, "metrics"}),
            shape, DType::uint8};
  return {std::make_shared<Storage>(new std::byte[bytes](), bytes, Device::cpu(),
                                    [](void* data) { delete[] static_cast<std::byte*>(data); }),
          shape, DType::uint8};
}

}  // namespace

void TrainingStep::begin_reading() {
  if (accumulating_) throw Error("training step: metrics are read between micro_batch() and update()");
  model_.runtime().refresh_limit(model_.device());  // first: where it throws, the metrics can still be read
  if (!reading_.defined()) {
    reading_ = reading_memory(model_.runtime(), model_.device(), kRingBytes + kControlBytes);
    read_.emplace(model_.device());
  }
  read_->synchronize();  // one that was not finished is dropped
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(reading_.data(), ring_.data(), kRingBytes, stream);
  copy_bytes(reading_.as<std::byte>() + kRingBytes, optimizer_.control_address(), kControlBytes, stream);
  zero_bytes(ring_.data(), kRingBytes, stream);
  read_->record(stream);
  read_slots_ = std::exchange(pending_slots_, {});
}

std::vector<Metrics> TrainingStep::finish_reading(kernels::UpdateControl* control) {
  std::vector<Metrics> metrics;
  if (!reading_.defined()) return metrics;
  read_->synchronize();
  const bool meta = model_.device().meta;  // which has no values
  if (control != nullptr && !meta) std::memcpy(control, reading_.as<std::byte>() + kRingBytes, kControlBytes);
  for (const int slot : read_slots_)
    metrics.push_back(meta ? Metrics{} : to_metrics(reading_.as<kernels::MetricSums>()[slot]));
  read_slots_.clear();
  return metrics;
}

std::vector<Metrics> TrainingStep::read_metrics() {
  begin_reading();
  return finish_reading();
}

Metrics TrainingStep::read_evaluation() {
  kernels::MetricSums sums;
  auto* place = ring_.as<kernels::MetricSums>() + kMetricRing;
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(&sums, place, sizeof(sums), stream);
  zero_bytes(place, sizeof(sums), stream);
  synchronize(stream);
  return to_metrics(sums);
}

}  // namespace bantam
