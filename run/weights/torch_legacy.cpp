// Source: PyTorch, torch/serialization.py (_legacy_load) and torch/csrc/serialization.cpp.
#include "bantam/run/weights/torch_legacy.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/text.h"
#include "bantam/run/weights/torch_pickle.h"

namespace bantam::run {

using Kind = PickledValue::Kind;

namespace {

/// A whole number of ten bytes, 0x1950a86a20f9469cfc6c, as pickles have it.
constexpr std::string_view kMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
constexpr std::int64_t kVersion = 1001;
/// A state_dict of 100,000 tensors has 20 MB of pickles.
constexpr std::int64_t kMostPickle = std::int64_t{1} << 27;

}  // namespace

bool is_torch_legacy(std::string_view bytes) {
  if (bytes.size() < 2 || bytes[0] != '\x80' || bytes[1] < 2 || bytes[1] > 5) return false;
  bytes.remove_prefix(2);
  if (bytes.starts_with('\x95') && bytes.size() >= 9) bytes.remove_prefix(9);  // the length of a frame of protocol 4
  return bytes.starts_with(kMagic);
}

TorchLegacyFile::TorchLegacyFile(const std::filesystem::path& path)
    : TorchSource(path),
      file_(open_plain_bytes(path)),
      pickles_(static_cast<std::size_t>(std::min(file_->size(), kMostPickle))) {
  file_->read(0, pickles_);
}

const PickledValue& TorchLegacyFile::load(PickledValues& values) {
  std::size_t at = 0;
  std::map<std::string, TorchStorage, std::less<>> storages;
  const auto next = [&](const char* what) {
    const std::string name = fmt::format("{}({}, from byte {} on)", path().string(), what, at);
    TorchPickle pickle(name, std::span<const std::uint8_t>(pickles_).subspan(at), values);
    PickledValue* value = pickle.run();
    at += pickle.end();
    storages.merge(pickle.storages());
    return value;
  };
  (void)next("its magic number");
  if (const PickledValue* version = next("its version"); version->kind != Kind::integer || version->integer != kVersion)
    fail(fmt::format("its version is not {}", kVersion));
  (void)next("facts of the machine that wrote it");
  const PickledValue* root = next("the saved value");
  const PickledValue* keys = next("the keys of its storages");
  if (keys->kind != Kind::list) fail("the keys of its storages are no list");
  auto offset = static_cast<std::int64_t>(at);
  for (const PickledValue* key : keys->items) {
    if (key->kind != Kind::text) fail("the key of a storage is no text");
    const std::string name(key->text);
    const auto found = storages.find(name);
    if (found == storages.end()) fail(fmt::format("there is a storage '{}' that no tensor names", shown(name)));
    const std::int64_t size = torch_element_bytes(found->second.type);
    if (size == 0) fail(fmt::format("the storage '{}' is of {}, which is not known", shown(name), found->second.type));
    const std::int64_t left = file_->size() - offset;
    std::uint8_t bytes[8] = {};
    if (left >= 8) file_->read(offset, bytes);
    std::uint64_t count = 0;
    for (std::size_t i = 8; i-- > 0;) count = count << 8 | bytes[i];
    if (left < 8 || count > static_cast<std::uint64_t>((left - 8) / size))
      fail(
          fmt::format("it is cut short: it ends within the storage '{}', which begins at byte {}; a download that was "
                      "not completed?",
                      shown(name), offset));
    if (std::cmp_not_equal(count, found->second.elements))
      fail(fmt::format("the storage '{}' has {} elements, its tensors say {}", shown(name), count,
                       found->second.elements));
    const std::int64_t stored = static_cast<std::int64_t>(count) * size;
    if (!storages_.emplace(name, Place{offset + 8, stored}).second)
      fail(fmt::format("there are two storages '{}'", shown(name)));
    offset += 8 + stored;
  }
  return *root;
}

std::optional<std::int64_t> TorchLegacyFile::storage_bytes(std::string_view key) const {
  const auto found = storages_.find(key);
  if (found == storages_.end()) return std::nullopt;
  return found->second.bytes;
}

const std::vector<std::uint8_t>& TorchLegacyFile::storage(std::string_view key) {
  if (open_ == key && !bytes_.empty()) return bytes_;
  const Place& place = storages_.find(key)->second;
  bytes_.resize(static_cast<std::size_t>(place.bytes));
  file_->read(place.offset, bytes_);
  open_ = key;
  return bytes_;
}

/// Little-endian on every machine, whatever the facts say: PyTorch swaps on others, and does not read them either.
bool TorchLegacyFile::swaps_bytes() const { return std::endian::native != std::endian::little; }

}  // namespace bantam::run
