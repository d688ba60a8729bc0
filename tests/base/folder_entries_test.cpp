// Folders: what lies in them, and what is said of those that cannot be read.
#include "bantam/base/folder_entries.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"

namespace bantam::folder_entries_test {
namespace {

namespace fs = std::filesystem;

TEST(FolderEntries, AreFilesFoldersAndLinks) {
  const fs::path folder = fs::temp_directory_path() / ("bantam_folder_entries_" + std::to_string(getpid()));
  fs::create_directories(folder / "b");
  write_file_atomically(folder / ".a", "x");
  fs::create_symlink("nowhere", folder / "c");
  fs::create_directory_symlink("b", folder / "d");
  std::error_code error = std::make_error_code(std::errc::io_error);
  std::vector<fs::path> found = folder_entries(folder, error);
  std::ranges::sort(found);
  EXPECT_EQ(found, (std::vector<fs::path>{folder / ".a", folder / "b", folder / "c", folder / "d"}));
  EXPECT_FALSE(error);
  std::vector<std::string> folders;
  for (const FolderEntry& entry : list_entries(folder, error))
    if (entry.is_folder) folders.push_back(entry.name);
  std::ranges::sort(folders);
  EXPECT_EQ(folders, (std::vector<std::string>{"b", "d"})) << "a link to a folder is one";
  EXPECT_EQ(folder_entries(folder / "b", error), std::vector<fs::path>());
  fs::remove_all(folder);
  EXPECT_EQ(folder_entries(folder, error), std::vector<fs::path>());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  EXPECT_EQ(folder_entries("/proc/self/maps", error), std::vector<fs::path>());
  EXPECT_EQ(error, std::errc::not_a_directory);
}

TEST(RemoveFolder, RemovesLinksAndNotWhatTheyName) {
  const fs::path folder = fs::temp_directory_path() / ("bantam_remove_folder_" + std::to_string(getpid()));
  fs::create_directories(folder / "kept");
  fs::create_directories(folder / "gone/inner");
  write_file_atomically(folder / "kept/file", "x");
  write_file_atomically(folder / "gone/inner/file", "x");
  fs::create_directory_symlink(folder / "kept", folder / "gone/link");
  std::error_code error = std::make_error_code(std::errc::io_error);
  remove_folder(folder / "gone", error);
  EXPECT_FALSE(error) << error.message();
  EXPECT_FALSE(fs::exists(folder / "gone"));
  EXPECT_TRUE(fs::exists(folder / "kept/file"));
  remove_folder(folder / "gone", error);
  EXPECT_FALSE(error) << "nothing there is no error";
  remove_folder(folder / "kept/file", error);
  EXPECT_FALSE(error);
  remove_folder(folder / "kept", error);
  EXPECT_FALSE(fs::exists(folder / "kept"));
  remove_folder("/proc/self/task", error);
  EXPECT_TRUE(error);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace bantam::folder_entries_test
