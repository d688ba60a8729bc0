// Which algorithm a library runs each problem with, by name, so that a choice can be repeated.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace bantam::kernels {

class DeviceLibraries;

/// Choices of one device's libraries. A problem's text names pass, shapes, types and the library with its version; what
/// a choice's text means, only that library knows. Results of different choices differ in their last bits, so a run
/// with the same bits needs the same choices. Thread-safe.
class AlgorithmChoices {
 public:
  /// Whether a problem without a choice is timed where it is first met: each eligible algorithm runs a few times on the
  /// call's own operands and workspace, the fastest is kept. While a stream is captured, and where a call adds to its
  /// result, the library's choice without timing is used, and kept. Off, it is used and not kept.
  void set_timing(bool on) { timing_ = on; }
  bool timing() const { return timing_; }

  std::optional<std::string> find(const std::string& problem) const;
  /// A later choice replaces an earlier one.
  void keep(const std::string& problem, const std::string& choice);
  /// Adds choices for problems that have none.
  void add(const std::map<std::string, std::string>& choices);
  std::map<std::string, std::string> all() const;

 private:
  std::atomic<bool> timing_{false};
  mutable std::mutex guard_;
  std::map<std::string, std::string> choices_;
};

/// The choices of a device's libraries, which live as long as these; null where there is nothing to choose (the CPU,
/// meta).
AlgorithmChoices* algorithm_choices(DeviceLibraries* libraries);

}  // namespace bantam::kernels
