// Folders listed with the system's calls, in an order that no file system changes.
#include "bantam/data/formats/image_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

/// Whether `text` is `lower`, in letters of either case.
bool is_word(std::string_view text, std::string_view lower) {
  return std::ranges::equal(
      text, lower, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b; });
}

bool is_hidden(const fs::directory_entry& entry) { return entry.path().filename().native().starts_with('.'); }

/// A folder within `root`, and those that it lies in, as the system numbers them: a link may lead back to one.
struct Place {
  std::string name;  // relative to the root: "" or "a/b"
  std::vector<std::pair<dev_t, ino_t>> within;
};

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

/// False where the folder is one of those that it lies in.
bool enter(const fs::path& folder, Place& place) {
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0)
    throw DataError(fmt::format("{}: cannot be listed: {}", folder.string(), std::strerror(errno)));
  const std::pair<dev_t, ino_t> self{status.st_dev, status.st_ino};
  if (std::ranges::find(place.within, self) != place.within.end()) return false;
  place.within.push_back(self);
  return true;
}

/// A file that is open for reading.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail(std::strerror(errno));
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  std::size_t size() const {
    struct stat status = {};
    if (::fstat(descriptor_, &status) != 0) fail(std::strerror(errno));
    if (!S_ISREG(status.st_mode)) fail("it is no file");
    if (status.st_size > std::numeric_limits<std::int32_t>::max()) fail("it has more than 2,147,483,647 bytes");
    return static_cast<std::size_t>(status.st_size);
  }
  void read(std::vector<std::byte>& bytes) const {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t got = ::read(descriptor_, bytes.data() + done, bytes.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(std::strerror(errno));
      if (got == 0) fail(fmt::format("it ends before byte {}", bytes.size()));
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    throw DataError(fmt::format("{}: cannot be read: {}", path_.string(), reason));
  }
  const fs::path& path_;
  int descriptor_;
};

}  // namespace

bool has_image_suffix(std::string_view name) {
  constexpr std::array<std::string_view, 3> kSuffixes = {".jpg", ".jpeg", ".png"};
  return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) {
    return name.size() >= suffix.size() && is_word(name.substr(name.size() - suffix.size()), suffix);
  });
}

FolderEntries list_folder(const fs::path& folder) {
  FolderEntries entries;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (is_hidden(entry)) continue;
      (entry.is_directory() ? entries.folders : entries.files).push_back(entry.path().filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("{}: cannot be listed: {}", folder.string(), error.code().message()));
  }
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.files);
  return entries;
}

std::vector<std::string> find_folders(const fs::path& folder, std::span<const std::string_view> names) {
  std::vector<std::string> found;
  if (!fs::is_directory(folder)) return found;
  std::vector<std::string> there = list_folder(folder).folders;
  std::ranges::reverse(there);  // "train" before "Train"
  for (const std::string_view name : names)
    std::ranges::copy_if(there, std::back_inserter(found), [&](const std::string& one) { return is_word(one, name); });
  return found;
}

ImageFiles list_image_files(const fs::path& folder) {
  ImageFiles found;
  std::vector<std::pair<std::string, std::string>> files;  // folder and name
  std::vector<Place> places(1);
  while (!places.empty()) {
    Place place = std::move(places.back());
    places.pop_back();
    const fs::path here = place.name.empty() ? folder : folder / place.name;
    if (!enter(here, place)) continue;
    const FolderEntries entries = list_folder(here);
    for (const std::string& name : entries.files) {
      if (has_image_suffix(name))
        files.emplace_back(place.name, name);
      else
        found.ignored.add((here / name).string());
    }
    for (const std::string& name : entries.folders) places.push_back({below(place.name, name), place.within});
  }
  std::ranges::sort(files);
  for (const auto& [where, name] : files) found.names.push_back(below(where, name));
  return found;
}

void read_whole_file(const fs::path& path, std::vector<std::byte>& bytes) {
  const OpenFile file(path);
  bytes.resize(file.size());
  file.read(bytes);
}

std::uint64_t file_bytes(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

void ImageFileReader::read(std::int64_t index, std::span<const std::span<std::byte>>) const {
  throw Error(fmt::format("{}: is an image file, which has to be decoded: call fetch, not read", name_of(index)));
}

std::uint64_t ImageFileReader::encoded_bytes(std::int64_t index) const {
  measured_.run([this] {
    for (std::int64_t i = 0, size = facts().size; i < size; ++i) bytes_.push_back(stored_bytes(i));
  });
  return bytes_[static_cast<std::size_t>(index)];
}

fs::path read_folder(const ConfigNode& node) {
  fs::path folder = node.as_text();
  if (!node.is_described() && !fs::is_directory(folder))
    node.fail(fmt::format("there is no folder {}", folder.string()));
  return folder;
}

std::int64_t read_image_channels(ConfigMap& data) {
  const ConfigNode node = data.node(
      {"channels", "Channels of decoded images, whatever the files have: 1 (grey), 3 (RGB) or 4 (RGBA).", "1"}, "3");
  const std::int64_t channels = node.as_integer({.min = 1, .max = 4});
  if (channels == 2) node.fail("images have 1 (grey), 3 (RGB) or 4 (RGBA) channels");
  return channels;
}

}  // namespace bantam
