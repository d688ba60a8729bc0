// Where each sum lies, and its copy to the host.
#include "bantam/engine/step/metric_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam {
namespace {

constexpr std::size_t kLossBytes = sizeof(kernels::MetricSums);
constexpr std::int64_t kLossSums = kLossBytes / sizeof(double);
constexpr std::size_t kControlBytes = sizeof(kernels::UpdateControl);

std::size_t bytes_of(const Metric& metric) { return static_cast<std::size_t>(metric.sums()) * sizeof(double); }

/// One slot: of the loss and of `metrics`.
std::size_t slot_bytes(const std::vector<MetricPtr>& metrics) {
  std::size_t bytes = kLossBytes;
  for (const MetricPtr& metric : metrics) bytes += bytes_of(*metric);
  return bytes;
}

/// Host memory of `bytes` that the device can copy to while the host continues. Where the device is the host, or none
/// at all, it is no part of a run's memory.
Tensor reading_memory(Runtime& runtime, Device device, std::size_t bytes) {
  const Shape shape{static_cast<std::int64_t>(bytes)};
  if (device.is_cuda())
    return {std::make_shared<Storage>(runtime.pinned_allocator(), bytes, Stream{},
                                      AllocationTag{Category::other, "metrics"}),
            shape, DType::uint8};
  auto memory = std::make_unique<std::byte[]>(bytes);
  auto storage = std::make_shared<Storage>(memory.get(), bytes, Device::cpu(),
                                           [](void* data) { delete[] static_cast<std::byte*>(data); });
  memory.release();  // NOLINT: the storage owns it
  return {std::move(storage), shape, DType::uint8};
}

}  // namespace

MetricRing::MetricRing(Model& model, const std::vector<MetricPtr>& metrics) : model_(model) {
  std::ranges::copy_if(metrics, std::back_inserter(metrics_), [](const MetricPtr& m) { return !m->counted_by_loss(); });
  in_training_ = metrics_of_updates(metrics);
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("metrics"));
  ring_ =
      context.allocate({static_cast<std::int64_t>(update_bytes() + evaluation_bytes())}, DType::uint8, Category::other);
  zero_bytes(ring_.data(), ring_.bytes(), context.stream);
  if (reads_output(true))
    before_ = context.allocate({static_cast<std::int64_t>(evaluation_bytes())}, DType::uint8, Category::other);
}

MetricRing::~MetricRing() {
  try {
    if (read_) read_->synchronize();  // the host's memory goes
  } catch (const Error&) {            // a broken device: the call that broke it has thrown
  }
}

Stream MetricRing::stream() const { return model_.runtime().stream(model_.device()); }

std::size_t MetricRing::evaluation_bytes() const { return slot_bytes(metrics_); }

std::size_t MetricRing::sum_bytes() const { return slot_bytes(in_training_) * kernels::kMetricSlots; }

std::size_t MetricRing::update_bytes() const {
  return sum_bytes() + sizeof(kernels::UpdateRow) * kernels::kMetricSlots;
}

kernels::MetricSums* MetricRing::evaluation() const {
  return reinterpret_cast<kernels::MetricSums*>(ring_.as<std::byte>() + update_bytes());
}

kernels::UpdateRow* MetricRing::rows() const {
  return reinterpret_cast<kernels::UpdateRow*>(ring_.as<std::byte>() + sum_bytes());
}

void MetricRing::accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                            const std::int32_t* slot) const {
  Context local = context.at(context.runtime->intern("metrics"));
  local.tape = nullptr;
  const std::size_t slots = slot != nullptr ? kernels::kMetricSlots : 1;
  std::byte* place = ring_.as<std::byte>() + (slot != nullptr ? 0 : update_bytes()) + kLossBytes * slots;
  for (const MetricPtr& metric : slot != nullptr ? in_training_ : metrics_) {
    metric->accumulate(local, output, batch, {reinterpret_cast<double*>(place), slot});
    place += bytes_of(*metric) * slots;
  }
}

std::int64_t MetricRing::update_sums() const {
  return static_cast<std::int64_t>(slot_bytes(in_training_) / sizeof(double));
}

void MetricRing::accumulate_apart(const Context& context, const Tensor& output, const TensorMap& batch,
                                  double* sums) const {
  Context local = context.at(context.runtime->intern("metrics"));
  local.tape = nullptr;
  sums += kLossSums;
  for (const MetricPtr& metric : in_training_) {
    metric->accumulate(local, output, batch, {sums, nullptr});
    sums += metric->sums();
  }
}

void MetricRing::store(const Context& context, const double* sums, const std::int32_t* slot) const {
  auto* ring = ring_.as<double>();
  const auto store = [&](std::int64_t count) {
    BANTAM_KERNEL(context.exec, store_at_slot, count, sums, slot, ring);
    sums += count;
    ring += count * kernels::kMetricSlots;
  };
  store(kLossSums);
  for (const MetricPtr& metric : in_training_) store(metric->sums());
}

void MetricRing::clear(int slot) {
  const auto at = static_cast<std::size_t>(slot);
  zero_bytes(updates() + at, kLossBytes, stream());
  std::byte* place = ring_.as<std::byte>() + kLossBytes * kernels::kMetricSlots;
  for (const MetricPtr& metric : in_training_) {
    zero_bytes(place + at * bytes_of(*metric), bytes_of(*metric), stream());
    place += bytes_of(*metric) * kernels::kMetricSlots;
  }
}

/// Computes the metrics of slot `slot` from the sums of `slots` slots that lie at `sums`, in host memory.
Metrics MetricRing::metrics_at(const std::vector<MetricPtr>& counted, const std::byte* sums, int slot, int slots) {
  kernels::MetricSums loss;
  std::memcpy(&loss, sums + static_cast<std::size_t>(slot) * kLossBytes, kLossBytes);
  if (static_cast<std::int64_t>(loss.samples) == 0) return {};
  Metrics metrics{loss.loss / loss.samples, loss.correct / loss.samples, static_cast<std::int64_t>(loss.samples)};
  const std::byte* place = sums + kLossBytes * static_cast<std::size_t>(slots);
  for (const MetricPtr& metric : counted) {
    MetricValue value{metric, std::vector<double>(static_cast<std::size_t>(metric->sums()))};
    std::memcpy(value.sums.data(), place + static_cast<std::size_t>(slot) * bytes_of(*metric), bytes_of(*metric));
    if (metric->is_accuracy())
      metrics.accuracy = value.value();
    else
      metrics.values.push_back(std::move(value));
    place += bytes_of(*metric) * static_cast<std::size_t>(slots);
  }
  return metrics;
}

/// Reads the report of slot `slot` from `updates`, a copy in host memory of the updates' part of the ring.
UpdateReport MetricRing::report_at(const std::byte* updates, int slot) const {
  kernels::UpdateRow row;
  std::memcpy(&row, updates + sum_bytes() + static_cast<std::size_t>(slot) * sizeof(row), sizeof(row));
  return {.learning_rate = row.learning_rate,
          .gradient_norm = row.gradient_norm,
          .loss_scale = row.loss_scale,
          .skipped = row.outcome != kernels::UpdateOutcome::done,
          .halted = row.outcome == kernels::UpdateOutcome::halted};
}

void MetricRing::begin_reading(const void* control) {
  if (!reading_.defined()) {
    reading_ = reading_memory(model_.runtime(), model_.device(), update_bytes() + kControlBytes);
    read_.emplace(model_.device());
  }
  read_->synchronize();  // one that was not finished is dropped
  copy_bytes(reading_.data(), ring_.data(), update_bytes(), stream());
  copy_bytes(reading_.as<std::byte>() + update_bytes(), control, kControlBytes, stream());
  zero_bytes(ring_.data(), sum_bytes(), stream());
  read_->record(stream());
  read_slots_ = std::exchange(unsynchronised_, {});
}

std::vector<Metrics> MetricRing::finish_reading(kernels::UpdateControl* control, std::vector<UpdateReport>* values) {
  std::vector<Metrics> metrics;
  if (!reading_.defined()) return metrics;
  read_->synchronize();
  const bool meta = model_.device().meta;  // which has no values
  const auto* sums = reading_.as<std::byte>();
  if (control != nullptr && !meta) std::memcpy(control, sums + update_bytes(), kControlBytes);
  for (const int slot : read_slots_) {
    metrics.push_back(meta ? Metrics{} : metrics_at(in_training_, sums, slot, kernels::kMetricSlots));
    if (values != nullptr) values->push_back(meta ? UpdateReport{} : report_at(sums, slot));
  }
  read_slots_.clear();
  return metrics;
}

std::vector<std::byte> MetricRing::save_evaluation() const {
  std::vector<std::byte> sums(evaluation_bytes());
  copy_bytes(sums.data(), evaluation(), sums.size(), stream());
  synchronize(stream());
  return sums;
}

void MetricRing::restore_evaluation(const std::vector<std::byte>& sums) {
  copy_bytes(evaluation(), sums.data(), sums.size(), stream());
  synchronize(stream());  // before the host's values go
}

void MetricRing::begin_evaluation() const {
  if (before_.defined()) copy_bytes(before_.data(), evaluation(), before_.bytes(), stream());
}

void MetricRing::undo_evaluation() const {
  if (before_.defined()) copy_bytes(evaluation(), before_.data(), before_.bytes(), stream());
}

std::vector<double> MetricRing::take_evaluation() {
  const std::vector<std::byte> bytes = save_evaluation();
  zero_bytes(evaluation(), evaluation_bytes(), stream());
  std::vector<double> sums(bytes.size() / sizeof(double));
  std::memcpy(sums.data(), bytes.data(), bytes.size());
  return sums;
}

Metrics MetricRing::evaluation_from(const std::vector<double>& sums) const {
  return metrics_at(metrics_, reinterpret_cast<const std::byte*>(sums.data()), 0, 1);
}

Metrics MetricRing::read_evaluation() { return evaluation_from(take_evaluation()); }

}  // namespace bantam
