// Runs traced steps, and works out what the trace says: bytes after each call, the peak, where addresses lie.
#include "bantam/run/profile/memory_profile.h"

#include <algorithm>
#include <utility>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/profile/profile_headline.h"

namespace bantam::run {
namespace {

bool contains(const RunRange& range, std::uintptr_t address) {
  return address >= range.address && address - range.address < range.bytes;
}

/// Addresses that were used but are no longer reserved, merged into ranges.
std::vector<RunRange> released_ranges(std::span<const MemoryRegion> reserved, std::span<const TraceEvent> events) {
  std::vector<RunRange> ranges;
  for (const TraceEvent& event : events) {
    const auto next = std::ranges::upper_bound(reserved, event.address, {}, &MemoryRegion::address);
    if (next != reserved.begin() && event.address - std::prev(next)->address < std::prev(next)->bytes) continue;
    ranges.push_back({.address = event.address, .bytes = event.bytes, .reserved = false});
  }
  std::ranges::sort(ranges, {}, &RunRange::address);
  std::vector<RunRange> merged;
  for (const RunRange& range : ranges) {
    if (merged.empty() || range.address > merged.back().address + merged.back().bytes)
      merged.push_back(range);
    else
      merged.back().bytes =
          std::max<std::uint64_t>(merged.back().bytes, range.address + range.bytes - merged.back().address);
  }
  return merged;
}

/// The plan of the row with another batch size.
StepPlan plan_of(const RunConfig& config, StepCase row, std::int64_t batch) {
  row.batch = batch;
  StepPlanOptions options = train_plan_options(config, row);
  options.planner.iterations = 0;  // the arena is not asked about
  return plan_step(config.model.graph, options);
}

void run_steps(MemoryProfile& profile, std::int64_t accumulate) {
  const AllocationTrace& trace = *profile.trace;
  for (std::int64_t number = 1; number <= profile.options.last_step; ++number) {
    StepSpan step{.number = number, .lower = trace.now(), .begin_ns = trace.nanoseconds()};
    profile.session->update(accumulate);
    profile.session->wait();
    step.upper = trace.now();
    step.end_ns = trace.nanoseconds();
    profile.steps.push_back(step);
  }
}

void find_peak(MemoryProfile& profile) {
  std::uint64_t in_use = 0, most = 0;
  for (const TraceEvent& event : profile.trace->events()) {
    in_use = event.allocation ? in_use + event.bytes : in_use - event.bytes;
    if (in_use > most) {
      most = in_use;
      profile.peak_tick = static_cast<std::int64_t>(profile.in_use.size());
    }
    profile.in_use.push_back(in_use);
  }
}

}  // namespace

AddressRow::AddressRow(std::span<const MemoryRegion> regions, std::span<const TraceEvent> events) {
  ranges_ = released_ranges(regions, events);
  for (const MemoryRegion& region : regions) ranges_.push_back({.address = region.address, .bytes = region.bytes});
  std::ranges::sort(ranges_, {}, &RunRange::address);
  for (std::size_t i = 0; i < ranges_.size(); ++i) by_address_.push_back(i);
  std::vector<RunRange> in_order;
  std::vector<bool> placed(ranges_.size());
  std::uint64_t offset = 0;
  const auto place = [&](std::size_t i) {
    if (placed[i]) return;
    placed[i] = true;
    by_address_[i] = in_order.size();
    in_order.push_back(ranges_[i]);
    in_order.back().offset = offset;
    offset += ranges_[i].bytes;
  };
  for (const TraceEvent& event : events) {
    const auto next = std::ranges::upper_bound(ranges_, event.address, {}, &RunRange::address);
    place(static_cast<std::size_t>(next - ranges_.begin()) - 1);
  }
  for (std::size_t i = 0; i < placed.size(); ++i) place(i);  // reserved, never used
  ranges_ = std::move(in_order);
}

std::size_t AddressRow::find(std::uintptr_t address) const {
  const auto next =
      std::ranges::upper_bound(by_address_, address, {}, [this](std::size_t i) { return ranges_[i].address; });
  if (next != by_address_.begin() && contains(ranges_[*std::prev(next)], address)) return *std::prev(next);
  throw Error("profile: an address lies in no range of the run");
}

std::uint64_t AddressRow::offset(std::uintptr_t address) const {
  const RunRange& range = ranges_[find(address)];
  return range.offset + (address - range.address);
}

std::int64_t MemoryProfile::step_at(std::int64_t tick) const {
  const auto next = std::ranges::upper_bound(steps, tick, {}, &StepSpan::lower);
  return next == steps.begin() ? 0 : std::prev(next)->number;
}

MemoryProfile profile_steps(const RunConfig& config, const StepCase& row, const MemoryProfileOptions& options) {
  MemoryProfile profile{.trace = std::make_unique<AllocationTrace>(), .options = options};
  profile.model = config.model.name;
  profile.step = row;
  profile.accumulate = config.train.accumulate;
  const Device device = options.planned ? Device::meta_of(config.device) : config.device;
  profile.device = device;
  RunConfig limited = config;
  if (options.planned)  // the stand-in has as much as the device's pool would have
    if (const std::uint64_t bytes = bytes_to_fit(config.memory, plan_target(config, std::nullopt)); bytes > 0)
      limited.memory.limits[to_string(device)] = bytes;
  profile.session = std::make_unique<StepSession>(limited, row, device, options.threads, profile.trace.get());
  run_steps(profile, config.train.accumulate);
  BfcAllocator& memory = profile.session->runtime().allocator(device);
  memory.set_trace(nullptr);
  find_peak(profile);
  profile.report = memory_report(memory);
  profile.addresses = std::make_unique<AddressRow>(memory.snapshot().regions, profile.trace->events());
  profile.planned_peak_bytes = plan_of(config, row, row.batch).peak_bytes;
  for (const std::int64_t batch : options.curve_batches) {
    const StepPlan plan = plan_of(config, row, batch);
    profile.curve.push_back({batch, plan.peak_bytes, plan.by_category});
  }
  const MemoryStats& stats = profile.report.stats;
  profile.headline = profile_headline(stats.peak_bytes, stats.by_category_at_peak, plan_changes(config, row));
  profile.limit_bytes = stats.limit_bytes;
  if (is_here(config.device)) profile.device_bytes = device_info(config.device).total_bytes;
  return profile;
}

}  // namespace bantam::run
