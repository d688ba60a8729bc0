// StateSnapshot: all of a registry at one moment, on the host, to be written while training goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/atomic_file.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// Memory for one copy of a registry's tensors, reserved once and used for every snapshot. One thread makes snapshots;
/// between `wait` and the next `copy` any thread may write them, without a device.
class StateSnapshot {
 public:
  /// In plain host memory. Throws DeviceError for tensors on a meta device. The registry must outlive the snapshot.
  StateSnapshot(const StateRegistry& registry, Stream stream);
  /// For a run on `device`: on a CUDA device the host memory is page-locked, so that copies run at the full rate and
  /// the host goes on meanwhile. Throws OutOfMemory.
  StateSnapshot(const StateRegistry& registry, Runtime& runtime, Device device);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  /// Bytes of a copy.
  static std::uint64_t bytes_of(const StateRegistry& registry);

  /// Copies all tensors, as they are after the work submitted to the stream so far; on a CUDA device this returns
  /// before it is done.
  void copy();
  /// Reads the registry's counters and numbers.
  void read_host();
  /// Whether the copy of the tensors is complete; `wait` blocks until it is.
  bool done() const { return copied_.done(); }
  void wait() const { copied_.synchronize(); }

  /// Sets the metadata of all files, and what those of weights have beside it.
  void set_metadata(std::map<std::string, std::string> of_all, std::map<std::string, std::string> of_weights);
  /// All entries under their names, in the safetensors format; the caller commits the file. Throws DataError.
  void write(AtomicFile& file) const;
  /// The model's entries alone ("weights/…", "buffers/…"), under the parameters' and buffers' own names; `more` joins
  /// the metadata.
  void write_weights(AtomicFile& file, const std::map<std::string, std::string>& more = {}) const;
  /// The same of their averages ("ema/weights/…", "ema/buffers/…"). Throws Error where there are none.
  void write_average(AtomicFile& file, const std::map<std::string, std::string>& more = {}) const;

 private:
  /// Where the copy of a tensor is.
  struct Place {
    std::string name;
    Tensor tensor;
    std::size_t offset = 0;
  };
  void place_tensors();
  NamedTensor view(const Place& place, std::string_view name) const;
  std::vector<NamedTensor> model_below(std::string_view prefix) const;
  std::map<std::string, std::string> metadata_with(std::map<std::string, std::string> more) const;

  const StateRegistry& registry_;
  Stream stream_;
  std::vector<Place> places_;
  Tensor host_;
  Event copied_;
  std::vector<std::pair<std::string, std::int64_t>> counters_;
  std::vector<std::pair<std::string, std::vector<double>>> numbers_;
  std::map<std::string, std::string> metadata_ = {{"format", "bantam"}};  // of all files
  std::map<std::string, std::string> weights_metadata_;                   // of files of weights, beside it
};

}  // namespace bantam
