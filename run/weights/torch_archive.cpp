// Members by name, each of them checked. Source: PyTorch, caffe2/serialize/inline_container.cc.
#include "bantam/run/weights/torch_archive.h"

#include <algorithm>
#include <bit>
#include <memory>

#include <fmt/format.h>
#include <zlib.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::run {
namespace {

constexpr std::string_view kPickle = "data.pkl";
constexpr std::int64_t kMostPickle = std::int64_t{1} << 27;
/// Weights do not become a hundredth by compression; a megabyte more is no matter.
constexpr std::uint64_t kMostInflation = 100, kAnyFile = std::uint64_t{1} << 20;

/// The path, of a file that begins as a zip archive does.
const std::filesystem::path& checked(const std::filesystem::path& path) {
  const std::unique_ptr<FileBytes> file = open_plain_bytes(path);
  std::vector<std::uint8_t> begin(static_cast<std::size_t>(std::min<std::int64_t>(file->size(), 4)));
  file->read(0, begin);
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (text.starts_with("\x80\x02"))
    throw DataError(
        fmt::format("{}: is in the form that PyTorch wrote before 1.6 (a pickle, no zip archive), which is not read\n  "
                    "convert it in Python: torch.save(torch.load(\"old.pth\", map_location=\"cpu\"), \"new.pth\")",
                    path.string()));
  if (!text.starts_with("PK"))
    throw DataError(fmt::format("{}: is no file of PyTorch: it is no zip archive", path.string()));
  return path;
}

}  // namespace

TorchArchive::TorchArchive(const std::filesystem::path& path) : path_(checked(path)), zip_(path_) {
  find_pickle();
  check_members();
  read_byte_order();
}

void TorchArchive::fail(const std::string& what) const {
  throw DataError(fmt::format("{}: is no file of PyTorch that is read here: {}", path_.string(), what));
}

void TorchArchive::find_pickle() {
  bool found = false;
  for (const auto& [name, member] : zip_.members()) {
    if (name != kPickle && !name.ends_with("/data.pkl")) continue;
    if (found) fail("it has more than one data.pkl");
    found = true;
    prefix_ = name.substr(0, name.size() - kPickle.size());
    // Values need a hundred times their bytes in the pickle: no room for inflation.
    const auto file_size = static_cast<std::int64_t>(std::filesystem::file_size(path_));
    if (member.size > std::min(kMostPickle, std::max(file_size, static_cast<std::int64_t>(kAnyFile))))
      fail("its data.pkl is too large for a file of its size");
  }
  if (!found) fail("it is a zip archive without data.pkl");
}

/// Also of those that are not needed: a damaged name of `byteorder`, say, must not pass for a file without one.
void TorchArchive::check_members() {
  const std::uint64_t most = kMostInflation * std::filesystem::file_size(path_) + kAnyFile;
  for (const auto& [name, member] : zip_.members()) {
    member_bytes_ += static_cast<std::uint64_t>(member.size);
    if (member_bytes_ > most) fail("its members are too large for a file of its size");
  }
  for (const auto& [name, member] : zip_.members()) (void)read_member(name);
}

void TorchArchive::read_byte_order() {
  const std::string name = prefix_ + "byteorder";
  if (!zip_.members().contains(name)) return;  // PyTorch before 2.1 did not say: little-endian
  const std::vector<std::uint8_t> bytes = read_member(name);
  const std::string order(bytes.begin(), bytes.end());
  if (order != "little" && order != "big") fail(fmt::format("its order of bytes is '{}'", shown(order)));
  swaps_ = (order == "big") != (std::endian::native == std::endian::big);
}

std::vector<std::uint8_t> TorchArchive::read_member(const std::string& name) const {
  const ZipFile::Member& member = zip_.members().at(name);
  const std::unique_ptr<FileBytes> file = zip_.open(name);
  file->fetch(member.size);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(member.size));
  file->read(0, bytes);
  if (static_cast<std::uint32_t>(::crc32_z(0, bytes.data(), bytes.size())) != member.checksum)
    fail(fmt::format("'{}' is damaged: its checksum is another", shown(name)));
  return bytes;
}

std::vector<std::uint8_t> TorchArchive::pickle() const { return read_member(prefix_ + std::string(kPickle)); }

std::string TorchArchive::pickle_name() const { return fmt::format("{}({}{})", path_.string(), prefix_, kPickle); }

std::optional<std::int64_t> TorchArchive::storage_bytes(std::string_view key) const {
  const auto found = zip_.members().find(storage_name(key));
  if (found == zip_.members().end()) return std::nullopt;
  return found->second.size;
}

const std::vector<std::uint8_t>& TorchArchive::storage(std::string_view key) {
  if (const std::string name = storage_name(key); name != open_) {
    bytes_ = read_member(name);
    open_ = name;
  }
  return bytes_;
}

}  // namespace bantam::run
