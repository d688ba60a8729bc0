// A training step's captured mode: updates recorded from the arena's places, and run again as long as it lies there.
#include "bantam/engine/captured_updates.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/training_step.h"

namespace bantam {

std::unique_ptr<CapturedUpdates> TrainingStep::capture(const std::function<void()>& record) {
  if (accumulating_) throw Error("training step: capture() between micro_batch() and update()");
  if (!placements_ || !reserve_arena()) throw Error("steps are not planned");
  const Graph& graph = model_.graph();
  if (const NodeId node = graph.first_without_meta(); node != 0)  // what it does on the host would not be recorded
    throw Error(fmt::format("{} does not support meta devices (Layer::supports_meta)", graph.describe(node)));
  const Stream stream = model_.runtime().stream(model_.device());
  const int slot = optimizer_.metric_slot();
  const void* arena = memory().arena_address();
  recorded_updates_ = 0;
  PendingGradients& pending = model_.parameters().pending();
  const kernels::NarrowGradients narrow = pending.narrow();
  const auto end = [&] {  // the host is where it was: nothing has run
    accumulating_ = false;
    model_.parameters().begin_accumulation();
    pending.set_narrow(narrow);
    optimizer_.set_metric_slot(slot);
    return std::exchange(recorded_updates_, kNotRecording);
  };
  try {
    CapturedWork work(stream, record);
    if (accumulating_) throw Error("training step: what is captured must end with update()");
    if (memory().arena_address() != arena) throw Error("the planned step's arena moved");
    const kernels::NarrowGradients left = pending.narrow();
    const int updates = end();
    return std::make_unique<CapturedUpdates>(
        CapturedUpdates{std::move(work), updates, arena, placements_->arena_bytes(), left});
  } catch (...) {
    (void)end();
    throw;
  }
}

bool TrainingStep::replay(const CapturedUpdates& captured) {
  if (accumulating_) throw Error("training step: replay() between micro_batch() and update()");
  require_metric_slots(captured.updates);
  if (!placements_ || !reserve_arena()) return false;
  const Stream stream = model_.runtime().stream(model_.device());
  const ArenaHold hold(memory(), captured.arena, captured.arena_bytes, stream);
  if (!hold.held()) return false;
  captured.work.launch();
  model_.parameters().pending().set_narrow(captured.narrow);
  for (int i = 0; i < captured.updates; ++i) note_update();
  return true;
}

/// Runs a part while it is recorded: all of its memory must be the arena's.
void TrainingStep::record_part(StepPart part, std::int64_t batch, const std::function<void()>& work) {
  const std::shared_ptr<const PlacementPlan> plan = plan_for(part, batch);
  const MemoryStats before = memory().stats();
  const PlacementScope scope(memory(), plan, model_.runtime().stream(model_.device()));
  work();
  const MemoryStats after = memory().stats();  // a part that takes no memory has no plan, and needs none
  if (after.allocations - before.allocations != after.planned_allocations - before.planned_allocations)
    throw Error("the step did not allocate as planned");
}

}  // namespace bantam
