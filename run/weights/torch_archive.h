// TorchArchive: the zip archive that a .pt file is: a pickle, a member a storage, and the order of bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/files/zip.h"

namespace bantam::run {

/// Opened, every member is sound: read once, with its checksum compared. Throws DataError that names the file.
class TorchArchive {
 public:
  explicit TorchArchive(const std::filesystem::path& path);

  /// data.pkl, and its name for messages.
  std::vector<std::uint8_t> pickle() const;
  std::string pickle_name() const;
  /// Bytes of the storage `key`; nothing where there is none.
  std::optional<std::int64_t> storage_bytes(std::string_view key) const;
  /// The storage itself, in the file's order of bytes. Valid until the next call.
  const std::vector<std::uint8_t>& storage(std::string_view key);
  /// Whether elements are in another order of bytes than this machine's.
  bool swaps_bytes() const { return swaps_; }
  /// Of all members, decompressed: bounded by the file's size.
  std::uint64_t member_bytes() const { return member_bytes_; }

  [[noreturn]] void fail(const std::string& what) const;

 private:
  void find_pickle();
  void check_members();
  void read_byte_order();
  std::string storage_name(std::string_view key) const { return prefix_ + "data/" + std::string(key); }
  std::vector<std::uint8_t> read_member(const std::string& name) const;

  std::filesystem::path path_;
  ZipFile zip_;
  std::string prefix_;  // of members' names: "resnet50/"
  std::uint64_t member_bytes_ = 0;
  bool swaps_ = false;
  std::string open_;  // the member whose bytes these are
  std::vector<std::uint8_t> bytes_;
};

}  // namespace bantam::run
