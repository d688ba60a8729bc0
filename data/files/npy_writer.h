// NpyWriter: a float32 array of NumPy's .npy format, written row by row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "bantam/base/atomic_file.h"
#include "bantam/base/shape.h"

namespace bantam {

/// An array (rows, …) in C order, format 1.0, whose number of rows is known once the last one is written. Nothing
/// appears at the path until `commit` (AtomicFile). Used by one thread. Source: NumPy, "NEP 1, A simple file format for
/// NumPy arrays".
class NpyWriter {
 public:
  /// `row`: the shape of each row; of a scalar the array has one axis. Throws DataError with the system's reason, and
  /// for a pipe, whose header could not be written at the end.
  NpyWriter(std::filesystem::path path, Shape row);

  /// Appends a row, of as many values as its shape has. Throws ShapeError for another number, DataError where there is
  /// no room.
  void append(std::span<const float> row);
  std::int64_t rows() const { return rows_; }
  /// The file with all rows is there. Throws DataError.
  void commit();

 private:
  std::string header() const;

  Shape row_;
  std::int64_t rows_ = 0;
  AtomicFile file_;
};

}  // namespace bantam
