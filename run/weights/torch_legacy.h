// The form that PyTorch wrote before 1.6, and still writes with _use_new_zipfile_serialization=False: five pickles, one
// after the other (a magic number, a version, facts of the machine, the value, the keys of its storages), then the
// storages in the order of the keys, each with the number of its elements before it.
#pragma once

#include <map>

#include "bantam/data/files/file_bytes.h"
#include "bantam/run/weights/torch_source.h"

namespace bantam::run {

/// Nothing of it is under a checksum: damage is noticed where sizes and places do not fit one another.
class TorchLegacyFile : public TorchSource {
 public:
  explicit TorchLegacyFile(const std::filesystem::path& path);

  const PickledValue& load(PickledValues& values) override;
  std::optional<std::int64_t> storage_bytes(std::string_view key) const override;
  const std::vector<std::uint8_t>& storage(std::string_view key) override;
  bool swaps_bytes() const override;
  std::uint64_t member_bytes() const override { return static_cast<std::uint64_t>(file_->size()); }

 private:
  struct Place {
    std::int64_t offset = 0, bytes = 0;
  };

  std::unique_ptr<FileBytes> file_;
  std::vector<std::uint8_t> pickles_;  // the file's beginning: the values refer to it
  std::map<std::string, Place, std::less<>> storages_;
  std::string open_;  // the storage whose bytes these are
  std::vector<std::uint8_t> bytes_;
};

/// How many bytes is_torch_legacy() needs.
inline constexpr std::size_t kTorchLegacyBegin = 25;
/// Whether a file begins with the magic number of this form.
bool is_torch_legacy(std::string_view first_bytes);

}  // namespace bantam::run
