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

#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

/// Whether `text` is `lower`, in letters of either case.
bool is_word(std::string_view text, std::string_view lower) {
  return std::ranges::equal(
      text, lower, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b; });
}

/// See FolderEntries.
bool is_system_file(std::string_view name) {
  constexpr std::array<std::string_view, 16> kNames = {"__macosx",
                                                       "@eadir",
                                                       "#recycle",
                                                       "#snapshot",
                                                       "@recycle",
                                                       "@tmp",
                                                       "lost+found",
                                                       "thumbs.db",
                                                       "ehthumbs.db",
                                                       "ehthumbs_vista.db",
                                                       "desktop.ini",
                                                       "$recycle.bin",
                                                       "system volume information",
                                                       "__pycache__",
                                                       "icon\r",
                                                       "recycler"};
  return name.starts_with('.') || name.starts_with("~$") ||
         std::ranges::any_of(kNames, [&](std::string_view known) { return is_word(name, known); });
}

/// Whether one of `words` (lower case) is a word of `name`: letters between other characters, or before a capital.
bool has_one_of(std::string_view name, std::span<const std::string_view> words) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  for (std::size_t begin = 0; begin < name.size();) {
    std::size_t end = begin;
    while (end < name.size() && is_letter(name[end]) &&
           (end == begin || !is_capital(name[end]) || is_capital(name[end - 1])))
      ++end;
    for (const std::string_view word : words)
      if (is_word(name.substr(begin, end - begin), word)) return true;
    begin = end > begin ? end : begin + 1;
  }
  return false;
}

/// A folder within `root`, and those that it lies in, as the system numbers them: a link may lead back to one.
struct ImageFolder {
  std::string name;  // relative to the root: "" or "a/b"
  std::vector<std::pair<dev_t, ino_t>> within;
};

std::string below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

/// False where the folder is one of those that it lies in.
bool enter(const fs::path& folder, ImageFolder& place) {
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0)
    throw DataError(fmt::format("{}: cannot be listed: {}", printable_line(folder.string()), std::strerror(errno)));
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
    throw DataError(fmt::format("{}: cannot be read: {}", printable_line(path_.string()), reason));
  }
  const fs::path& path_;
  int descriptor_;
};

}  // namespace

namespace {

using SuffixCounts = std::map<std::string, std::int64_t>;

/// "14 (.avif 10, .heic 4)".
std::string counts_text(const SuffixCounts& counts) {
  std::int64_t all = 0;
  std::vector<std::string> parts;
  for (const auto& [suffix, files] : counts) {
    all += files;
    parts.push_back(counts.size() == 1 ? suffix : fmt::format("{} {}", suffix, format_count(files)));
  }
  return fmt::format("{} ({})", format_count(all), join(parts, ", ", ", "));
}

constexpr std::string_view kRemedy = "convert them to JPEG or PNG to train on them, or remove them";

}  // namespace

std::string no_images_text(const IgnoredFiles& ignored) {
  std::string text = fmt::format("holds no image ({})", read_image_types());
  SuffixCounts all;
  for (const auto& [place, suffixes] : ignored.unsupported_images)
    for (const auto& [suffix, files] : suffixes) all[suffix] += files;
  if (!all.empty()) text += fmt::format("; of types that are not read it has {}: {}", counts_text(all), kRemedy);
  return text;
}

std::string unsupported_images_warning(const SampleSplits& splits) {
  std::map<std::string, SuffixCounts> by_place;
  std::vector<const SampleReader*> seen;
  const auto& whole = splits.whole != nullptr ? splits.whole : splits.train;
  for (const SampleReader* reader :
       {whole.get(), splits.whole != nullptr ? nullptr : splits.validation.get(), splits.test.get()}) {
    if (reader == nullptr || std::ranges::find(seen, reader) != seen.end()) continue;
    seen.push_back(reader);
    try {
      for (const auto& [place, suffixes] : reader->ignored().unsupported_images)
        for (const auto& [suffix, files] : suffixes) by_place[place][suffix] += files;
    } catch (const DataError&) {  // whoever reads the samples reports that
    }
  }
  if (by_place.empty()) return {};
  std::int64_t all = 0;
  constexpr std::size_t kMost = 20;
  std::vector<std::string> places;
  for (const auto& [place, suffixes] : by_place) {
    for (const auto& [suffix, files] : suffixes) all += files;
    if (places.size() < kMost)
      places.push_back(fmt::format("{} {}", place.empty() ? "the folder" : shown(place), counts_text(suffixes)));
  }
  if (by_place.size() > kMost) places.push_back(fmt::format("{} more classes", by_place.size() - kMost));
  return fmt::format("{} image{} of types that are not read: {}; {} are read: {}", format_count(all),
                     all == 1 ? " is" : "s are", join(places, ", ", " and "), read_image_types(), kRemedy);
}

FolderEntries list_folder(const fs::path& folder) {
  std::error_code error;
  FolderEntries entries;
  for (FolderEntry& entry : list_entries(folder, error)) {
    auto& kind = is_system_file(entry.name) ? entries.system_files : entry.is_folder ? entries.folders : entries.files;
    kind.push_back(std::move(entry.name));
  }
  if (error) throw DataError(fmt::format("{}: cannot be listed: {}", printable_line(folder.string()), error.message()));
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.files);
  std::ranges::sort(entries.system_files);
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

std::vector<std::string> find_likely_folders(const fs::path& folder, std::span<const std::string_view> names) {
  std::vector<std::string> found;
  if (!fs::is_directory(folder)) return found;
  for (const std::string& one : list_folder(folder).folders)
    if (has_one_of(one, names) &&
        std::ranges::none_of(names, [&](std::string_view name) { return is_word(one, name); }))
      found.push_back(one);
  return found;
}

void add_ignored(std::string file, std::string_view name, IgnoredFiles& ignored) {
  ignored.add(std::move(file));
  if (const std::string_view suffix = unsupported_image_suffix(name); !suffix.empty())
    ++ignored.unsupported_images[""][std::string(suffix)];
}

namespace {

/// Calls `visit` with each folder's name below `root` ("" for itself) and its entries, as list_image_files goes, until
/// it returns false.
void visit_folders(const fs::path& root, std::size_t most_folders,
                   const std::function<bool(const std::string& name, const FolderEntries& entries)>& visit) {
  std::vector<ImageFolder> places(1);
  for (std::size_t visited = 0; !places.empty() && visited < most_folders; ++visited) {
    ImageFolder place = std::move(places.back());
    places.pop_back();
    const fs::path here = place.name.empty() ? root : root / place.name;
    if (!enter(here, place)) continue;
    const FolderEntries entries = list_folder(here);
    if (!visit(place.name, entries)) return;
    for (const std::string& name : entries.folders) places.push_back({below(place.name, name), place.within});
  }
}

}  // namespace

ImageFiles list_image_files(const fs::path& folder, std::size_t most_folders) {
  ImageFiles found;
  std::vector<std::pair<std::string, std::string>> files;  // folder and name
  visit_folders(folder, most_folders, [&](const std::string& where, const FolderEntries& entries) {
    for (const std::string& name : entries.files) {
      if (has_image_suffix(name))
        files.emplace_back(where, name);
      else
        add_ignored((folder / below(where, name)).string(), name, found.ignored);
    }
    for (const std::string& name : entries.system_files) found.system_files.add((folder / below(where, name)).string());
    return true;
  });
  std::ranges::sort(files);
  for (const auto& [where, name] : files) found.names.push_back(below(where, name));
  return found;
}

bool has_image_files(const fs::path& folder) {
  bool found = false;
  visit_folders(folder, std::numeric_limits<std::size_t>::max(), [&](const std::string&, const FolderEntries& entries) {
    found = std::ranges::any_of(entries.files, has_image_suffix);
    return !found;
  });
  return found;
}

bool has_images_in_folders_alone(const fs::path& folder) {
  const FolderEntries entries = list_folder(folder);
  return std::ranges::none_of(entries.files, has_image_suffix) &&
         std::ranges::any_of(entries.folders, [&](const std::string& name) { return has_image_files(folder / name); });
}

fs::path unwrapped_folder(const fs::path& folder, const std::function<bool(const fs::path& inner)>& is_wrapped) {
  constexpr int kMostFolders = 8;
  fs::path at = folder;
  for (int i = 0; i < kMostFolders; ++i) {
    const FolderEntries entries = list_folder(at);
    std::vector<std::string> with_images;
    if (std::ranges::none_of(entries.files, has_image_suffix))
      std::ranges::copy_if(entries.folders, std::back_inserter(with_images),
                           [&](const std::string& name) { return has_image_files(at / name); });
    if (with_images.size() != 1 || !is_wrapped(at / with_images[0])) break;
    at /= with_images[0];
  }
  return at;
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
  throw Error(fmt::format("{}: is an image file, which has to be decoded: call fetch, not read",
                          printable_line(name_of(index))));
}

std::uint64_t ImageFileReader::encoded_bytes(std::int64_t index) const {
  measured_.run([this] {
    for (std::int64_t i = 0, size = facts().size; i < size; ++i) bytes_.push_back(stored_bytes(i));
  });
  return bytes_[static_cast<std::size_t>(index)];
}

fs::path read_folder(const ConfigNode& node) { return as_folder(node); }

std::int64_t read_image_channels(ConfigMap& data) {
  const ConfigNode node = data.node(
      {"channels", "Channels of decoded images, whatever the files have: 1 (grey), 3 (RGB) or 4 (RGBA).", "1"}, "3");
  const std::int64_t channels = node.as_integer({.min = 1, .max = 4});
  if (channels == 2) node.fail("images have 1 (grey), 3 (RGB) or 4 (RGBA) channels");
  return channels;
}

}  // namespace bantam
