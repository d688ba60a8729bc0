// TorchArchive: the zip archive that a file of PyTorch is from 1.6 on: a pickle, a member a storage, and the order of
// bytes.
#pragma once

#include "bantam/data/files/zip.h"
#include "bantam/run/weights/torch_source.h"

namespace bantam::run {

/// Opened, every member is sound: read once, with its checksum compared.
class TorchArchive : public TorchSource {
 public:
  explicit TorchArchive(const std::filesystem::path& path);

  const PickledValue& load(PickledValues& values) override;
  std::optional<std::int64_t> storage_bytes(std::string_view key) const override;
  const std::vector<std::uint8_t>& storage(std::string_view key) override;
  bool swaps_bytes() const override { return swaps_; }
  std::uint64_t member_bytes() const override { return member_bytes_; }

 private:
  void find_pickle();
  void check_members();
  void read_byte_order();
  std::string storage_name(std::string_view key) const { return prefix_ + "data/" + std::string(key); }
  std::vector<std::uint8_t> read_member(const std::string& name) const;

  ZipFile zip_;
  std::string prefix_;  // of members' names: "resnet50/"
  std::uint64_t member_bytes_ = 0;
  bool swaps_ = false;
  std::vector<std::uint8_t> pickle_;
  std::string open_;  // the member whose bytes these are
  std::vector<std::uint8_t> bytes_;
};

}  // namespace bantam::run
