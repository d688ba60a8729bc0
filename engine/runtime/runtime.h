// Runtime: owns devices' allocators, streams, library handles, names and the log sink. Nothing is global: two runtimes
// in one process do not see each other. Precision: which type a device computes in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/dtype.h"
#include "bantam/kernels/common/exec.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/pages/region_source.h"
#include "bantam/memory/reports/memory_report.h"

BANTAM_API_BEGIN
namespace bantam {

enum class PrecisionKind : std::uint8_t { float32, mixed_float16, mixed_bfloat16, float16 };

/// float32: everything float32. mixed_*: activations and compute copies in 16 bits; master weights, gradients in the
/// arena, sums, batch-norm parameters and statistics and the loss in float32. Source of the scheme: Micikevicius et al.
/// 2018. float16: as mixed_float16, but the weights have no masters: they are stored in float16, which each update
/// reads, changes in float32 and rounds once, so that a change of less than half a unit in the last place is lost. For
/// short trainings with large steps, whose optimizer keeps the weights' norm.
struct Precision {
  PrecisionKind kind = PrecisionKind::float32;
  DType compute() const;
  /// float16 and mixed_float16: dynamic loss scale, kept on the device.
  bool scales_loss() const { return kind == PrecisionKind::mixed_float16 || kind == PrecisionKind::float16; }
  /// Whether weights that have a copy in the compute type are kept in float32 as well.
  bool keeps_masters() const { return kind != PrecisionKind::float16; }
  bool operator==(const Precision&) const = default;
};

/// "float32", "mixed_float16", "mixed_bfloat16", "float16".
std::string_view to_string(Precision precision);
/// The inverse, and "auto": mixed_float16 on CUDA, float32 on the CPU. Throws ConfigError naming the text.
Precision parse_precision(std::string_view text, Device device);

/// How a runtime treats its devices.
struct RuntimeOptions {
  /// Threads of CPU kernels; 0: all processors this process may use. Results do not depend on it.
  int threads = 0;
  /// Most bytes of this process on a device, by device name ("cpu", "cuda:0"); devices not named have no limit. On a
  /// GPU everything counts: context, libraries, kernels and pool. On the CPU, and on meta devices, the pool alone.
  std::map<std::string, std::uint64_t> limits = {};
  /// Splits devices, by name: share K of "cuda:0" is the device cuda:0/K, whose pool has at most so many bytes. The
  /// rest of the limit (or of the card), without overhead and shares, is the device's own.
  std::map<std::string, std::vector<std::uint64_t>> logical = {};
  /// Most bytes of a device's pool, by name, whatever its limit is: what a run may hold there.
  std::map<std::string, std::uint64_t> budgets = {};
  /// true: the pool grows as memory is needed; false: where a device has a limit, the pool reserves all that the limit
  /// allows at the first allocation (see `reserve` for a known amount).
  bool growth = true;
  /// Makes the source of a device's allocator, for programs that bring, count or refuse memory themselves; null:
  /// make_device_source. The device must be able to use the source's memory.
  std::function<std::unique_ptr<MemorySource>(Device)> source = {};
  /// Receives one line a message, at times while the runtime is locked: it must not call the runtime. Null: messages
  /// are dropped.
  std::function<void(std::string_view)> log = {};
};

/// One process-wide set of devices. Thread-safe. Must outlive every tensor made from it.
class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The device's allocator, made at first use. Throws DeviceError where the device does not exist, OutOfMemory where
  /// the limit has no room for it.
  BfcAllocator& allocator(Device device);
  /// Reports what the device's allocator has reserved, for whom, and what `trim` would release. Thread-safe.
  MemoryReport memory_report(Device device);
  /// The allocator of page-locked host memory for copies to and from CUDA devices.
  BfcAllocator& pinned_allocator();
  /// The device's compute stream.
  Stream stream(Device device);
  /// Returns the argument with which kernels run on the device: its compute stream, threads, libraries and log.
  kernels::Exec exec(Device device);
  /// Kernels called on the device from here on note their work in `log` (internal); null: nowhere. Contexts that
  /// were made before keep the log they have.
  void set_kernel_log(Device device, kernels::KernelLog* log);
  int threads() const;

  /// The limit of the process on a device, or of a share's pool; 0: none.
  std::uint64_t limit(Device device);
  /// Raises or lowers it (0: none; a share always has one), from any thread, and on a GPU at any time but while a step
  /// is recorded. Lowering releases idle memory to the device; throws OutOfMemory with what is needed, changing
  /// nothing, where live memory does not allow it.
  void set_limit(Device device, std::uint64_t bytes);
  /// Throws OutOfMemory, with the limit that would do, unless a pool of `pool_bytes` fits under the device's limit.
  void require_pool(Device device, std::uint64_t pool_bytes);
  /// The run's kernels are loaded (TrainingStep::warm_up): their memory is overhead, and what was kept free for them
  /// goes to the pool. Throws OutOfMemory where the limit has no room for them.
  void settle_limit(Device device);
  /// Measures the process' overhead again, which may have grown (about 30 µs on a GPU with a limit, else nothing), and
  /// shrinks the pool by as much. Throws OutOfMemory where live memory does not allow it.
  void refresh_limit(Device device);
  /// The same at once for something that has just been made, which gets a line of its own in reports.
  void note_overhead(Device device, const std::string& name);
  /// Counts `bytes` of memory that no allocator of this runtime holds, but another library does or will, under `name`:
  /// a line of the overhead in reports, and that much less for the pool under a limit. Replaces what was counted under
  /// `name`; 0 ends it. On a GPU the driver's figure for the process is not added to it: memory of that size which
  /// appears before or after the call is the reservation's. Throws OutOfMemory, changing nothing, where the limit or
  /// live memory does not allow it; ConfigError for an empty name or that of a measured line ("CUDA context").
  /// Thread-safe.
  void set_reservation(Device device, const std::string& name, std::uint64_t bytes);
  /// BfcAllocator::reserve_pool of the device's allocator, which must succeed: throws OutOfMemory where the limit or
  /// the device does not allow a pool of `bytes` at once.
  void reserve(Device device, std::uint64_t bytes);

  /// Measures now the memory that the process uses on a device besides its pools: named lines, never less than a limit
  /// has been charged with, and the named reservations; on the CPU and on meta devices the reservations alone. Changes
  /// no limit. Two runtimes on one GPU see each other's pools as overhead.
  std::vector<OverheadLine> memory_overhead(Device device);
  /// Reads the process' memory on the device, pools included, as driver or system count it; zeros for meta devices.
  ProcessMemory process_memory(Device device);

  /// A copy of `text` that lives as long as the runtime; equal texts have equal pointers.
  const char* intern(std::string_view text);
  /// A new number, for identities of values on tapes.
  std::uint64_t new_value_id();
  void log(std::string_view message) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
BANTAM_API_END
