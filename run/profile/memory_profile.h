// A few training steps with the device's allocator traced from its first call on: the source of every profile file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/memory/allocator/accounting.h"
#include "bantam/memory/reports/memory_report.h"
#include "bantam/run/bench/step_session.h"

namespace bantam::run {

struct MemoryProfileOptions {
  std::int64_t first_step = 2, last_step = 4;  ///< those to look at; steps 1 … last_step are run
  bool planned = false;                        ///< on a stand-in for the device: no kernel runs
  int threads = 0;
  std::vector<std::int64_t> curve_batches;  ///< batch sizes to plan beside the run's
};

/// One update: ticks [lower, upper) of the trace.
struct StepSpan {
  std::int64_t number = 1;
  std::int64_t lower = 0, upper = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  ///< the trace's clock
};

/// An address range, and its offset in the row of all ranges.
struct RunRange {
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  bool reserved = true;  ///< false: released to the source during the run
};

/// All addresses that a run used, put in a row in the order of their first use: offsets in it are the same in each run,
/// which addresses are not.
class AddressRow {
 public:
  AddressRow(std::span<const MemoryRegion> regions, std::span<const TraceEvent> events);
  const std::vector<RunRange>& ranges() const { return ranges_; }
  /// Returns the offset of an address in one of the ranges.
  std::uint64_t offset(std::uintptr_t address) const;

 private:
  std::size_t find(std::uintptr_t address) const;
  std::vector<RunRange> ranges_;         // by offset
  std::vector<std::size_t> by_address_;  // places in ranges_
};

/// The planned peak of another batch size.
struct CurvePoint {
  std::int64_t batch = 1;
  std::uint64_t peak_bytes = 0;
  CategoryBytes by_category;
};

struct MemoryProfile {
  std::unique_ptr<AllocationTrace> trace;
  std::unique_ptr<StepSession> session;  ///< owns the names and the memory in the report
  MemoryProfileOptions options;
  std::string model;  ///< its name
  StepCase step;
  Device device;                ///< where the steps ran: a stand-in, where `planned`
  std::string target;           ///< the device that the stand-in represents, as a text; empty: the device itself
  std::int64_t accumulate = 1;  ///< micro-batches an update
  std::vector<StepSpan> steps;
  std::vector<std::uint64_t> in_use;  ///< bytes after each tick
  std::int64_t peak_tick = 0;         ///< the first tick at which most bytes are in use
  MemoryReport report;                ///< after the last step
  std::unique_ptr<AddressRow> addresses;
  std::uint64_t planned_peak_bytes = 0;
  std::vector<CurvePoint> curve;
  std::string headline;            ///< profile_headline of this run
  std::uint64_t limit_bytes = 0;   ///< of the device's allocator; 0: none
  std::uint64_t device_bytes = 0;  ///< the device's memory; 0 where the device is not in this machine

  /// 0 before the first step.
  std::int64_t step_at(std::int64_t tick) const;
};

/// Runs the steps on synthetic resident batches, as `bench memory` does. Throws OutOfMemory where they do not fit.
MemoryProfile profile_steps(const RunConfig& config, const StepCase& row, const MemoryProfileOptions& options);

}  // namespace bantam::run
