// Internal: image files below a folder: their list, and their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/files/image_types.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// The files below a folder whose suffix says that they are images.
struct ImageFiles {
  std::vector<std::string> names;  ///< relative to the folder; sorted by folder, then by name
  IgnoredFiles ignored;
  IgnoredFiles system_files;  ///< see FolderEntries
};

/// Adds a file that is no sample; one that is an image of a type that is not read is counted by its suffix.
void add_ignored(std::string file, std::string_view name, IgnoredFiles& ignored);

/// Lists `folder` and all folders in it but the system's, following links, none into a folder that it is within; at
/// most `most_folders` of them. Throws DataError.
ImageFiles list_image_files(const std::filesystem::path& folder,
                            std::size_t most_folders = std::numeric_limits<std::size_t>::max());

/// Whether there is any image file below the folder. Stops at the first. Throws DataError.
bool has_image_files(const std::filesystem::path& folder);

/// "holds no image (JPEG, PNG, …)", and, where images of other types were found, how many of which suffixes, and what
/// to do.
std::string no_images_text(const IgnoredFiles& ignored);

/// How many images of which class or folder are not read because of their type, and what to do; empty: none. Lists
/// folders.
std::string unsupported_images_warning(const SampleSplits& splits);

/// Names of what lies in a folder, sorted as bytes.
struct FolderEntries {
  std::vector<std::string> folders, files;
  /// Entries that operating systems, archives and programs create, and that are nobody's data: hidden files and folders
  /// (.DS_Store, ._a.jpg, .ipynb_checkpoints), __MACOSX, @eaDir, lost+found, Thumbs.db, desktop.ini and their likes.
  std::vector<std::string> system_files;
};

/// Throws DataError.
FolderEntries list_folder(const std::filesystem::path& folder);

/// Names of the folders of a set's parts, where none is named; the first that is there is the part.
inline constexpr std::array<std::string_view, 2> kTrainFolders = {"train", "training"};
inline constexpr std::array<std::string_view, 4> kValidationFolders = {"val", "valid", "validation", "dev"};
inline constexpr std::array<std::string_view, 2> kTestFolders = {"test", "testing"};

/// Folders in `folder` that are called one of `names` (lower case), in letters of either case: in the order of `names`,
/// lower case first. None where `folder` is no folder. Throws DataError.
std::vector<std::string> find_folders(const std::filesystem::path& folder, std::span<const std::string_view> names);

/// The same for folders in whose names one of `names` is a word: "seg_train", "training_set", "Train-Data". Those that
/// are called so and no more are not among them.
std::vector<std::string> find_likely_folders(const std::filesystem::path& folder,
                                             std::span<const std::string_view> names);

/// Whether there is any image file in a folder of `folder`, but none in itself. Throws DataError.
bool has_images_in_folders_alone(const std::filesystem::path& folder);

/// The folder that has the content of `folder`, where an archive wrapped it: while a folder has image files in one of
/// its folders alone, and `is_wrapped` says so of that, that one. `folder` itself where nothing wraps. Throws
/// DataError.
std::filesystem::path unwrapped_folder(const std::filesystem::path& folder,
                                       const std::function<bool(const std::filesystem::path& inner)>& is_wrapped);

/// Replaces `bytes` by those of the file. Throws DataError that names it, also for more than 2^31 - 1 bytes.
void read_whole_file(const std::filesystem::path& path, std::vector<std::byte>& bytes);

/// Bytes of a file; 0 where there is none: whoever reads it reports that.
std::uint64_t file_bytes(const std::filesystem::path& path);

/// A reader whose images are files: `fetch` returns them.
class ImageFileReader : public SampleReader {
 public:
  /// Throws Error: there is nothing to read without decoding.
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const final;
  /// The system is asked for each file's size once, however many plans and caches want to know it.
  std::uint64_t encoded_bytes(std::int64_t index) const final;

 private:
  /// Counts the bytes of sample `index`'s files, which `encoded_bytes` asks for once.
  virtual std::uint64_t stored_bytes(std::int64_t index) const = 0;

  mutable Once measured_;
  mutable std::vector<std::uint64_t> bytes_;  // of each sample
};

/// The folder that a key names. Throws ConfigError at it where there is none.
std::filesystem::path read_folder(const ConfigNode& node);

/// Number of image channels that a format's users ask for.
std::int64_t read_image_channels(ConfigMap& data);

}  // namespace bantam
