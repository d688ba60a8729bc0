// Internal: the four files of a set of IDX files in a folder, by the names that people's copies have.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace bantam {

/// Paths of one set's files; empty: it is not there.
struct IdxFiles {
  std::filesystem::path train_images, train_labels, test_images, test_labels;
};

/// The sets of a folder by what comes before "train" and "t10k" in their files' names: "" of MNIST, "emnist-letters" of
/// one of EMNIST's. A name is read without case, .gz and the ends -idx3-ubyte, -idx1-ubyte, -ubyte and .idx; dots and
/// underscores count as dashes; "test" stands for "t10k"; a folder of such a name stands for the one file in it
/// (train-images-idx3-ubyte/train-images-idx3-ubyte). Of two files of one role the plain one counts. Sets without
/// training images are left out. Empty where `folder` is none. Throws DataError where it cannot be listed.
std::map<std::string, IdxFiles> find_idx_sets(const std::filesystem::path& folder);

}  // namespace bantam
