// TorchSource: a file of PyTorch, whichever of its forms it has: a value with tensors, and the storages of these.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/files/pickle.h"

namespace bantam::run {

/// Throws DataError that names the file.
class TorchSource {
 public:
  explicit TorchSource(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~TorchSource() = default;
  TorchSource(const TorchSource&) = delete;
  TorchSource& operator=(const TorchSource&) = delete;

  /// The value that was saved, made of `values`; both refer to this object. Call it once, and before the rest.
  virtual const PickledValue& load(PickledValues& values) = 0;
  /// Bytes of the storage `key`; nothing where there is none.
  virtual std::optional<std::int64_t> storage_bytes(std::string_view key) const = 0;
  /// The storage itself, in the file's order of bytes. Valid until the next call.
  virtual const std::vector<std::uint8_t>& storage(std::string_view key) = 0;
  /// Whether elements are in another order of bytes than this machine's.
  virtual bool swaps_bytes() const = 0;
  /// All bytes that storages may have, decompressed: bounded by the file's size.
  virtual std::uint64_t member_bytes() const = 0;

  const std::filesystem::path& path() const { return path_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::filesystem::path path_;
};

/// A zip archive (PyTorch from 1.6 on) or the form before. Throws DataError where the file is neither, and says what it
/// is.
std::unique_ptr<TorchSource> open_torch_source(const std::filesystem::path& path);

}  // namespace bantam::run
