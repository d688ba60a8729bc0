// One training step of a configuration on synthetic batches: measured on a device, and described for plans.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bantam/cli/config/run_config.h"
#include "bantam/cli/measure/resident_batches.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/step/step_mode.h"
#include "bantam/engine/train/captured_steps.h"

namespace bantam::cli {

/// What is varied between rows of a bench.
struct StepCase {
  std::int64_t batch = 1;
  Precision precision;
  RecomputeOptions recompute;
  StepMode mode = StepMode::planned;
  std::optional<double> predicted_extra = {};  ///< share of a step's time, where the program chose the recompute
};

struct StepMeasurement {
  double ms_per_step = 0;  ///< median of windows of at least 50 ms
  double images_per_s = 0;
  std::int64_t windows = 0;
  double kernels = 0;  ///< a step's, of captured ones; else 0
  std::int64_t parameters = 0;
  MemoryStats memory;  ///< after some steps with one batch resident; peaks are of the whole run up to there
};

/// A fresh runtime, model, optimizer and step on one device, with one resident batch of random images. Keeps all alive.
/// Planned steps, captured ones too, have their pool reserved first.
class StepSession {
 public:
  /// Throws OutOfMemory where it does not fit. `trace` hears the device's allocator from its first call on, until it is
  /// told otherwise; it must live as long as the session.
  StepSession(const RunConfig& config, const StepCase& options, Device device, int threads,
              AllocationTrace* trace = nullptr);
  ~StepSession();

  /// Runs `count` steps, going round the resident batches; captured ones in whole launches, so that there may be more.
  /// Returns how many. Waits for nothing but full metric rings and, captured, for a few launches before.
  std::int64_t run(std::int64_t count);
  /// One update over `micro_batches` of them.
  void update(std::int64_t micro_batches);
  /// Runs one more step, and all later ones in launches that go round the resident batches, which are all there now.
  void start_capturing();
  /// What `run` runs at once.
  std::int64_t steps_a_launch() const { return captured_ ? captured_->updates_a_launch() : 1; }
  /// Kernels a captured step takes; 0 otherwise.
  double kernels_a_step() const { return captured_ ? captured_->kernels_an_update() : 0.0; }
  /// Adds resident batches until there are `count`, or memory beside the step's own ends.
  void add_batches(std::int64_t count);
  void wait() const;
  MemoryStats memory() const;
  /// The context of a training forward; give it a tape.
  Context training_context() const;
  Runtime& runtime() const { return *runtime_; }
  Model& model() const { return *model_; }
  const Batch& batch() const { return batches_.front(); }

 private:
  Batch make_batch(std::int64_t index) const;
  void make_room_for_metrics(std::int64_t updates);

  std::unique_ptr<Runtime> runtime_;
  StepCase case_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainingStep> step_;
  ResidentBatches batches_;
  std::unique_ptr<CapturedSteps> captured_;
};

/// Measures a step: warm-up, a window grown until it lasts 50 ms, then windows for `seconds`, the
/// median. Memory is read after the warm-up, with one batch resident; timing goes round 8 different ones.
StepMeasurement measure_step(const RunConfig& config, const StepCase& options, int threads, double seconds);

/// The step as plan_step takes it: one micro-batch an update, as benches have it.
StepPlanOptions step_plan_options(const RunConfig& config, const StepCase& options);
/// The same with the configuration's accumulation, as `bantam train` runs it.
StepPlanOptions train_plan_options(const RunConfig& config, const StepCase& options);

/// model, batch, precision, recompute, device.
nlohmann::ordered_json describe(const RunConfig& config, const StepCase& options);
/// peak_bytes, pool_bytes, by_category (at the peak).
void add_memory(nlohmann::ordered_json& row, const MemoryStats& memory);
void add_timing(nlohmann::ordered_json& row, const StepMeasurement& measured);
/// {"parameter": bytes, …}.
nlohmann::ordered_json categories_json(const CategoryBytes& bytes);

}  // namespace bantam::cli
