// Runs traced steps, and works out what the trace says: bytes after each call, the peak, where addresses lie.
#include "bantam/cli/profile_run.h"

#include <algorithm>
#include <utility>

#include "bantam/engine/step_plan.h"

namespace bantam::cli {
namespace {

bool contains(const AddressRange& range, std::uintptr_t address) {
  return address >= range.address && address - range.address < range.bytes;
}

/// Addresses that were used but are held no more, merged into ranges.
std::vector<AddressRange> given_back(std::span<const MemoryRegion> held, std::span<const TraceEvent> events) {
  std::vector<AddressRange> ranges;
  for (const TraceEvent& event : events) {
    const auto next = std::ranges::upper_bound(held, event.address, {}, &MemoryRegion::address);
    if (next != held.begin() && event.address - std::prev(next)->address < std::prev(next)->bytes) continue;
    ranges.push_back({.address = event.address, .bytes = event.bytes, .held = false});
  }
  std::ranges::sort(ranges, {}, &AddressRange::address);
  std::vector<AddressRange> merged;
  for (const AddressRange& range : ranges) {
    if (merged.empty() || range.address > merged.back().address + merged.back().bytes)
      merged.push_back(range);
    else
      merged.back().bytes =
          std::max<std::uint64_t>(merged.back().bytes, range.address + range.bytes - merged.back().address);
  }
  return merged;
}

StepPlanOptions plan_options(const RunConfig& config, const StepCase& row, std::int64_t batch) {
  return {.model = {.precision = row.precision, .seed = config.seed, .recompute = row.recompute},
          .optimizer = config.train.optimizer,
          .loss = config.train.loss,
          .batch = batch,
          .accumulate = config.train.accumulate,
          .device = config.device,
          .planner = {.alignment = BfcAllocator::kGranule, .iterations = 0}};  // the arena is not asked about
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
  ranges_ = given_back(regions, events);
  for (const MemoryRegion& region : regions) ranges_.push_back({.address = region.address, .bytes = region.bytes});
  std::ranges::sort(ranges_, {}, &AddressRange::address);
  for (std::size_t i = 0; i < ranges_.size(); ++i) by_address_.push_back(i);
  std::vector<AddressRange> in_order;
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
    const auto next = std::ranges::upper_bound(ranges_, event.address, {}, &AddressRange::address);
    place(static_cast<std::size_t>(next - ranges_.begin()) - 1);
  }
  for (std::size_t i = 0; i < placed.size(); ++i) place(i);  // held, never used
  ranges_ = std::move(in_order);
}

std::size_t AddressRow::find(std::uintptr_t address) const {
  const auto next =
      std::ranges::upper_bound(by_address_, address, {}, [this](std::size_t i) { return ranges_[i].address; });
  if (next != by_address_.begin() && contains(ranges_[*std::prev(next)], address)) return *std::prev(next);
  throw Error("profile: an address lies in no range of the run");
}

std::uint64_t AddressRow::offset(std::uintptr_t address) const {
  const AddressRange& range = ranges_[find(address)];
  return range.offset + (address - range.address);
}

std::int64_t MemoryProfile::step_at(std::int64_t tick) const {
  const auto next = std::ranges::upper_bound(steps, tick, {}, &StepSpan::lower);
  return next == steps.begin() ? 0 : std::prev(next)->number;
}

MemoryProfile profile_steps(const RunConfig& config, const StepCase& row, const ProfileOptions& options) {
  MemoryProfile profile{.trace = std::make_unique<AllocationTrace>(), .options = options};
  const Device device = options.planned ? Device::meta_of(config.device) : config.device;
  RunConfig limited = config;  // the stand-in has the device's limit
  if (const auto limit = config.memory.limits.find(to_string(config.device)); limit != config.memory.limits.end())
    limited.memory.limits[to_string(device)] = limit->second;
  profile.session = std::make_unique<StepSession>(limited, row, device, options.threads, profile.trace.get());
  run_steps(profile, config.train.accumulate);
  BfcAllocator& memory = profile.session->runtime().allocator(device);
  memory.set_trace(nullptr);
  find_peak(profile);
  profile.report = memory_report(memory);
  profile.addresses = std::make_unique<AddressRow>(memory.snapshot().regions, profile.trace->events());
  profile.about = describe(config, row);
  profile.about["device"] = to_string(device);
  profile.about["accumulate"] = config.train.accumulate;
  profile.planned_peak_bytes = plan_step(config.model.graph, plan_options(config, row, row.batch)).peak_bytes;
  for (const std::int64_t batch : options.curve_batches) {
    const StepPlan plan = plan_step(config.model.graph, plan_options(config, row, batch));
    profile.curve.push_back({batch, plan.peak_bytes, plan.by_category});
  }
  profile.limit_bytes = profile.report.stats.limit_bytes;
  const bool here = config.device.is_cpu() || config.device.index < cuda_device_count();
  if (here) profile.device_bytes = device_info(config.device).total_bytes;
  return profile;
}

}  // namespace bantam::cli
