// Internal: what CIFAR-10 and CIFAR-100 have in common: batches of records, in every form they are distributed in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bantam/base/config/config_path.h"
#include "bantam/data/files/file_bytes.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// A file of records: label bytes, then three planes of 32 by 32 bytes.
struct CifarBatch {
  std::string binary;  ///< its name in the binary version
  std::string python;  ///< and in the Python version
  std::string sha256;  ///< digest of the binary file; empty: none is published
};

/// How a data set is distributed.
struct CifarSet {
  std::string name;  ///< "CIFAR-10"
  std::vector<CifarBatch> train, test;
  std::string binary_folder, python_folder;    ///< that the archives unpack to
  std::string binary_archive, python_archive;  ///< the archives' names
  std::vector<std::string> label_keys;         ///< of the Python version, in the order of a record's label bytes
  std::size_t label = 0;                       ///< which label byte is read
  std::vector<std::string> classes;

  std::int64_t record_bytes() const { return static_cast<std::int64_t>(label_keys.size()) + 3 * 32 * 32; }
};

/// Readers of both splits. `path` is a folder of the binary or Python files (also compressed: .xz, .gz), one that holds
/// such a folder or an archive, or an archive. Plain binary files are read in place; all others are read into memory
/// once, 154 MB of the training records. `records`: of each training and each test file.
SampleSplits cifar_readers(const CifarSet& set, const FoundPath& path, std::int64_t train_records,
                           std::int64_t test_records);

/// The key `path`.
FoundPath read_cifar_path(ConfigMap& data, const CifarSet& set);

}  // namespace bantam
