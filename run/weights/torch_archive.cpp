// Members by name, each of them checked. Source: PyTorch, caffe2/serialize/inline_container.cc.
#include "bantam/run/weights/torch_archive.h"

#include <algorithm>
#include <bit>
#include <memory>

#include <fmt/format.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/run/weights/file_kinds.h"
#include "bantam/run/weights/torch_pickle.h"

namespace bantam::run {
namespace {

constexpr std::string_view kPickle = "data.pkl";
constexpr std::int64_t kMostPickle = std::int64_t{1} << 27;
/// PyTorch compresses nothing, and weights do not become an eighth by it; a megabyte more is no matter.
constexpr std::uint64_t kMostInflation = 8, kAnyFile = std::uint64_t{1} << 20;

}  // namespace

TorchArchive::TorchArchive(const std::filesystem::path& path) : TorchSource(path), zip_(path) {
  find_pickle();
  check_members();
  read_byte_order();
}

void TorchArchive::find_pickle() {
  bool found = false;
  for (const auto& [name, member] : zip_.members()) {
    if (name != kPickle && !name.ends_with("/data.pkl")) continue;
    if (found) fail("it has more than one data.pkl");
    found = true;
    prefix_ = name.substr(0, name.size() - kPickle.size());
    // Values need a hundred times their bytes in the pickle: no room for inflation.
    const auto file_size = static_cast<std::int64_t>(size_of_file(path()));
    if (member.size > std::min(kMostPickle, std::max(file_size, static_cast<std::int64_t>(kAnyFile))))
      fail("its data.pkl is too large for a file of its size");
  }
  if (found) return;
  std::vector<std::string> names;
  for (const auto& [name, member] : zip_.members()) names.push_back(name);
  throw DataError(fmt::format("{}: is no file of PyTorch: {}", path().string(), other_archive(names)));
}

/// Also of those that are not needed: a damaged name of `byteorder`, say, must not pass for a file without one.
void TorchArchive::check_members() {
  const std::uint64_t most = kMostInflation * size_of_file(path()) + kAnyFile;
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

const PickledValue& TorchArchive::load(PickledValues& values) {
  pickle_ = read_member(prefix_ + std::string(kPickle));
  return *TorchPickle(fmt::format("{}({}{})", path().string(), prefix_, kPickle), pickle_, values).run();
}

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
