// Workloads: made up, from a model's step, or from a file's lifetimes.
#include "bantam/run/bench/allocator_workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bantam/base/philox.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/models/zoo/zoo.h"

namespace bantam::run {
namespace {

/// Counts what the calls add up to.
AllocatorWorkload finished(std::string name, std::vector<AllocatorCall> calls, std::size_t slots) {
  AllocatorWorkload workload{.name = std::move(name), .calls = std::move(calls), .slots = slots};
  std::vector<std::uint64_t> live(slots);
  std::uint64_t bytes = 0;
  for (const AllocatorCall& call : workload.calls) {
    bytes += call.bytes - live[call.slot];  // a free: modulo 2^64, less what was there
    live[call.slot] = call.bytes;
    workload.allocations += call.bytes != 0 ? 1 : 0;
    workload.peak_live_bytes = std::max(workload.peak_live_bytes, bytes);
  }
  return workload;
}

}  // namespace

AllocatorWorkload pair_workload() { return finished("1 MiB pair", {{0, 1u << 20}, {0, 0}}, 1); }

AllocatorWorkload mixed_workload() {
  constexpr std::uint32_t kLive = 512;
  constexpr int kChanges = 4096;
  constexpr double kLeast = 8, kMost = 22;  // log2 of the sizes
  PhiloxSequence random(philox_key(42, RandomPurpose::test));
  const auto size = [&random] { return static_cast<std::uint64_t>(std::exp2(random.uniform(kLeast, kMost))); };
  std::vector<AllocatorCall> calls;
  for (std::uint32_t slot = 0; slot < kLive; ++slot) calls.push_back({slot, size()});
  for (int i = 0; i < kChanges; ++i) {
    const auto slot = static_cast<std::uint32_t>(random.below(kLive));
    calls.push_back({slot, 0});
    calls.push_back({slot, size()});
  }
  for (std::uint32_t slot = 0; slot < kLive; ++slot) calls.push_back({slot, 0});
  return finished("mixed, 512 live", std::move(calls), kLive);
}

AllocatorWorkload step_workload() {
  const models::ZooModel& model = *models::find_zoo_model("resnet50");
  const StepPlan plan = plan_step(model.build(model.defaults),
                                  {.model = {.precision = {.kind = PrecisionKind::mixed_float16}},
                                   .batch = 64,
                                   .device = Device::cuda(),
                                   .planner = {.alignment = BfcAllocator::kAllocationUnit, .iterations = 0}});
  std::vector<PlannerBuffer> buffers;
  for (const StepBuffer& buffer : plan.step) buffers.push_back(buffer.buffer);
  return trace_workload("resnet50 step", buffers);
}

AllocatorWorkload trace_workload(const std::string& name, std::span<const PlannerBuffer> buffers) {
  struct Event {
    std::int64_t time;
    bool begins;
    std::uint32_t slot;
  };
  std::vector<Event> events;
  for (std::uint32_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size == 0) continue;
    events.push_back({buffers[i].lower, true, i});
    events.push_back({buffers[i].upper, false, i});
  }
  std::ranges::stable_sort(
      events, [](const Event& a, const Event& b) { return a.time != b.time ? a.time < b.time : a.begins < b.begins; });
  std::vector<AllocatorCall> calls;
  for (const Event& event : events) calls.push_back({event.slot, event.begins ? buffers[event.slot].size : 0});
  return finished(name, std::move(calls), buffers.size());
}

}  // namespace bantam::run
