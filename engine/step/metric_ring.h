// MetricRing: sums of losses and metrics of a step's updates and of its evaluation, on the device until they are read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bantam/engine/metrics/metric.h"
#include "bantam/engine/model/model.h"
#include "bantam/kernels/head/softmax_cross_entropy.h"
#include "bantam/kernels/update/update.h"
#include "bantam/memory/device/device.h"

namespace bantam {

struct UpdateReport;

/// One slot an update, kernels::kMetricSlots of them, and one for the evaluation: the loss's sums, then those of each
/// metric that the loss does not count, of an update those alone that are counted in training; and, of updates, the row
/// that the optimizer writes. Used by one thread.
class MetricRing {
 public:
  /// On the model's device, all sums zero. Throws OutOfMemory.
  MetricRing(Model& model, const std::vector<MetricPtr>& metrics);
  ~MetricRing();
  MetricRing(const MetricRing&) = delete;
  MetricRing& operator=(const MetricRing&) = delete;

  /// The sums that a loss adds to: those of updates, by slot, and that of the evaluation.
  kernels::MetricSums* updates() const { return ring_.as<kernels::MetricSums>(); }
  kernels::MetricSums* evaluation() const;
  /// The rows in which the optimizer notes its updates, by slot.
  kernels::UpdateRow* rows() const;
  /// Whether metrics read the model's output, in an update or in an evaluated batch.
  bool reads_output(bool evaluation) const { return evaluation ? !metrics_.empty() : !in_training_.empty(); }
  /// Adds a micro-batch to the metrics' sums: of the update whose slot lies at `slot` (device memory), or, null, of the
  /// evaluation.
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch, const std::int32_t* slot) const;
  /// Numbers of one update's sums: the loss's, then the metrics'.
  std::int64_t update_sums() const;
  /// As accumulate, for a training micro-batch, to the metrics' sums of such numbers that lie elsewhere on the device.
  void accumulate_apart(const Context& context, const Tensor& output, const TensorMap& batch, double* sums) const;
  /// Such numbers become the sums of the update whose slot lies at `slot` (device memory).
  void store(const Context& context, const double* sums, const std::int32_t* slot) const;
  /// An update's sums become zeros.
  void clear(int slot);

  /// An update has run, whose sums lie in `slot`.
  void note(int slot) { unsynchronised_.push_back(slot); }
  /// Updates noted since the last reading began.
  int unsynchronised() const { return static_cast<int>(unsynchronised_.size()); }
  /// Copies the updates' sums and rows and the update's scalars (kernels::UpdateControl at `control`) to the host, in
  /// order of the stream, and clears the sums. A reading that was not finished is dropped.
  void begin_reading(const void* control);
  /// Waits for it. `control` and `values`, which gets one an update, may be null.
  std::vector<Metrics> finish_reading(kernels::UpdateControl* control, std::vector<UpdateReport>* values);
  /// An evaluated batch begins; where it fails, its part of the sums is removed, in order of the stream. Without
  /// metrics there is none: the loss counts with its last kernel.
  void begin_evaluation() const;
  void undo_evaluation() const;
  /// The evaluation's sums, which are cleared; waits for the device.
  Metrics read_evaluation();
  /// The same as numbers, and what numbers of that kind mean.
  std::vector<double> take_evaluation();
  Metrics evaluation_from(const std::vector<double>& sums) const;
  /// The same as bytes, which are not cleared, and the way back.
  std::vector<std::byte> save_evaluation() const;
  void restore_evaluation(const std::vector<std::byte>& sums);

 private:
  std::size_t evaluation_bytes() const;
  std::size_t sum_bytes() const;
  std::size_t update_bytes() const;
  static Metrics metrics_at(const std::vector<MetricPtr>& metrics, const std::byte* sums, int slot, int slots);
  UpdateReport report_at(const std::byte* updates, int slot) const;
  Stream stream() const;

  Model& model_;
  std::vector<MetricPtr> metrics_;      // that the loss does not count
  std::vector<MetricPtr> in_training_;  // of those
  Tensor ring_;                         // of all updates: MetricSums, a ring a metric, rows; then all of the evaluation
  Tensor before_;                       // with metrics: the evaluation's sums before the batch under way
  std::vector<int> unsynchronised_;     // slots of updates not yet read, oldest first
  std::vector<int> read_slots_;         // of the reading under way
  Tensor reading_;                      // its host memory: the updates' sums and rows, then the update's scalars
  std::optional<Event> read_;           // when it is there
};

}  // namespace bantam
