// CIFAR-10 as it is distributed: six files of records, each a label byte and three planes of 32 by 32 bytes.
// Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
// https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

struct Cifar10Options {
  /// See cifar_readers (cifar.h): a folder of the files, one that holds them, or an archive.
  std::filesystem::path path;
  /// Records that each file must hold. The official files have 10,000; tests make smaller ones.
  std::int64_t records_per_file = 10000;
  /// The SHA-256 that each binary file must have, training files first; nothing: the published ones.
  std::optional<std::array<std::string, 6>> sha256 = {};
};

/// Readers of both splits, a record a read, with planes made to NHWC. Targets: "labels", a class number. `check` throws
/// DataError for a missing file (where to get it, and which SHA-256 it must have), a wrong size and, with `verify`
/// (about a fifth of a second a file), a wrong SHA-256; `read` for a label above 9 (file, record, byte offset).
SampleSplits cifar10_readers(const Cifar10Options& options);

}  // namespace bantam
