// The table of schedules.
#include "bantam/engine/train/trainer.h"

namespace bantam {
namespace {

ScheduleMaker read_constant(ConfigMap& options) {
  options.describe("The optimizer's learning rate throughout.", "constant");
  return [](const ScheduleFacts& facts) -> Schedule {
    return [rate = facts.learning_rate](std::int64_t) { return rate; };
  };
}

}  // namespace

Registry<Reader<ScheduleMaker>>& schedules() {
  static Registry<Reader<ScheduleMaker>> table("schedule", {{"constant", read_constant}});
  return table;
}

ScheduleMaker read_schedule(ConfigMap& section) {
  const auto node = section.find({"schedule", "The learning rate of each update. A program adds schedules of its own.",
                                  "constant", "the optimizer's learning rate throughout"});
  return node ? read_registered(schedules(), *node) : ScheduleMaker();
}

}  // namespace bantam
