// Internal: what the trainer tells, as events of the C interface, and what a run came to.
#pragma once

#include <atomic>
#include <string>

#include "bantam/bantam_c.h"
#include "bantam/capi/handles.h"
#include "bantam/engine/train/trainer.h"

namespace bantam::capi {

/// Passes the trainer's events to a program's function, and remembers that it asked to stop. Used by the thread that
/// trains; `warn` by any.
class Events : public Callback {
 public:
  /// `on_event` may be null.
  Events(bantam_on_event on_event, void* user) : on_event_(on_event), user_(user) {}

  /// The engine that events show; null: none.
  void set_engine(bantam_engine* engine) { engine_ = engine; }
  void begin(std::int64_t epochs);
  void warn(std::string_view message);
  bool stops() const { return stops_; }

  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_evaluated(const EvaluatedEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_test(const TestEvent& event) override;

 private:
  bantam_event of(std::int32_t kind, std::int64_t epoch, std::int64_t epochs) const;
  void tell(bantam_event& event, const std::vector<MetricValue>& values);

  bantam_on_event on_event_;
  void* user_;
  std::atomic<bantam_engine*> engine_ = nullptr;
  std::atomic<bool> stops_ = false;
};

/// {"top_k": 0.98}; {} where there are none.
std::string metrics_json(const std::vector<MetricValue>& values);

/// Fills in the results of training itself; memory, parameters and so on stay zero.
bantam_train_result result_of(const TrainResult& trained);

}  // namespace bantam::capi
