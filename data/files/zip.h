// Zip archives, as NumPy's .npz files are: members by name, those that are stored in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "bantam/data/files/file_bytes.h"

namespace bantam {

/// The members of a zip archive, also of more than 4 GiB (zip64). Any thread may call `open`.
class ZipFile {
 public:
  /// Reads the list of members. Throws DataError that names the file and what is wrong with it.
  explicit ZipFile(const std::filesystem::path& path);

  struct Member {
    std::uint32_t method = 0;  ///< 0: stored, 8: deflated
    std::uint32_t checksum = 0;
    std::int64_t stored = 0, size = 0;  ///< bytes in the archive, and of the member
    std::int64_t header = 0;            ///< where its local header is
  };
  const std::map<std::string, Member>& members() const { return members_; }

  /// A stored member is read in place, a deflated one decompressed into memory at its first `fetch`, where its checksum
  /// is compared. Throws DataError, for a member that is not there with the names of those that are.
  std::unique_ptr<FileBytes> open(const std::string& name) const;

 private:
  std::int64_t data_offset(const std::string& name, const Member& member) const;

  std::shared_ptr<const FileBytes> file_;
  std::map<std::string, Member> members_;
};

}  // namespace bantam
