// KernelLog: what the kernels of a step read, write and compute, told by their contracts as they would be called.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace bantam::kernels {

/// The part of a step that a kernel runs in.
enum class KernelPhase : std::uint8_t {
  input,      ///< outside of the others: the transfer of the batch
  forward,    ///< forward, the first time
  backward,   ///< gradients
  recompute,  ///< a checkpoint segment's second forward, during backward
  rebuild,    ///< a recipe's tensor (engine/autograd/saved_tensor.h), during backward
  update      ///< the optimizer
};
inline constexpr std::size_t kKernelPhases = 6;

constexpr std::string_view to_string(KernelPhase phase) {
  constexpr std::array<std::string_view, kKernelPhases> names = {"input",     "forward", "backward",
                                                                 "recompute", "rebuild", "update"};
  return names[static_cast<std::size_t>(phase)];
}

/// A kernel's kind says what bounds it, as far as its contract shows: which share of the device's rates it can reach.
enum class KernelKind : std::uint8_t {
  pass,         ///< streams its operands: element-wise work, norms, pooling, the update
  product,      ///< a GEMM: dense layers and 1x1 convolutions
  convolution,  ///< any other convolution on matrix units
  stencil,      ///< few operations on each of a window's elements: depthwise convolutions
  fused,        ///< several of these in one kernel, which does more for each byte than a pass
  attention     ///< products whose scores pass through registers and exponentials
};
inline constexpr std::size_t kKernelKinds = 6;

/// The work of one call.
struct KernelWork {
  KernelKind kind = KernelKind::pass;
  /// Bytes of device memory read plus bytes written: each operand once, or twice where all of it must be known before
  /// the result can begin (a batch's statistics). An output that is null is not written. Partial sums of a call in its
  /// own workspace are not counted.
  std::int64_t bytes = 0;
  /// Counts convolutions and matrix products, a multiply-add as 2; passes' few operations an element are left out.
  std::int64_t flops = 0;
  /// The same on tensor cores, with depths rounded up to whole steps (matrix_depth); 0: none runs on tensor cores.
  std::int64_t matrix_flops = 0;
  int passes = 1;  ///< kernels that follow one another, each of which begins and ends
};

/// Channels as tensor cores multiply them: rounded up to whole steps.
constexpr std::int64_t matrix_depth(std::int64_t channels) { return (channels + 7) / 8 * 8; }

/// One kernel call.
struct KernelEntry {
  const char* kernel = "";  ///< its contract's name: "conv2d_forward"
  const char* owner = "";   ///< layer path, interned by the runtime
  KernelPhase phase = KernelPhase::input;
  KernelWork work;
  std::int64_t at = 0;  ///< when it was called (KernelLog::set_clock)
};

/// Calls in order. Attached to a device (Runtime::set_kernel_log): to a meta device, to learn a step's work without
/// running it, or to a real one, to learn when each call was made. Not thread-safe.
class KernelLog {
 public:
  void note(const char* kernel, const char* owner, const KernelWork& work) {
    entries_.push_back({kernel, owner, phase_, work, clock_ ? clock_() : 0});
  }
  const std::vector<KernelEntry>& entries() const { return entries_; }
  KernelPhase phase() const { return phase_; }
  void set_phase(KernelPhase phase) { phase_ = phase; }
  /// Tells KernelEntry::at: a time, or how much a capture has recorded.
  void set_clock(std::function<std::int64_t()> clock) { clock_ = std::move(clock); }

 private:
  std::vector<KernelEntry> entries_;
  std::function<std::int64_t()> clock_;
  KernelPhase phase_ = KernelPhase::input;
};

/// Makes calls that are logged within the scope belong to `phase`. Does nothing without a log.
class KernelPhaseScope {
 public:
  KernelPhaseScope(KernelLog* log, KernelPhase phase) : log_(log) {
    if (log_ == nullptr) return;
    before_ = log_->phase();
    log_->set_phase(phase);
  }
  ~KernelPhaseScope() {
    if (log_ != nullptr) log_->set_phase(before_);
  }
  KernelPhaseScope(const KernelPhaseScope&) = delete;
  KernelPhaseScope& operator=(const KernelPhaseScope&) = delete;

 private:
  KernelLog* log_;
  KernelPhase before_ = KernelPhase::input;
};

}  // namespace bantam::kernels
