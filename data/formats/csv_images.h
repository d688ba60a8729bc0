// Internal: where the image files are that a table names: by other folders, without suffix, or as another system wrote
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

struct CsvImageNames {
  std::filesystem::path table;  ///< for notes, and, where `root` is empty, the folder that paths are relative to
  std::filesystem::path root;
  std::string suffix;  ///< that is added to names that lack it; empty: it is found
};

/// Replaces names by paths relative to the root, where the files are not simply there: backslashes are separators, and
/// a file is found by its name, with or without its suffix, in the root's folders (and, without `root`, in those beside
/// the table's folder), of several the one whose folders agree best with the name. Names of no file stay. Returns
/// sentences for the user. Lists folders once, and only where a sample of the names is not there as written.
std::vector<std::string> find_csv_images(const CsvImageNames& where, std::vector<std::string>& names);

/// How well a folder's name suits a table's, where both train/ and test/ have files of the same names: the more the
/// better. A folder called as the table, or as the same part of the set, comes first, one of test images last.
int folder_kinship(std::string_view folder, std::string_view table);
/// Whether a table's name says that it is of test samples: "test", "sample_submission".
bool is_test_table(std::string_view table);

}  // namespace bantam
