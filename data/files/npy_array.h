// NpyArray: an array of NumPy's .npy format, read row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/files/file_bytes.h"
#include "bantam/data/files/once.h"

namespace bantam {

/// The type of an array's elements.
struct NpyType {
  char kind = 'u';  ///< b: bool, u: unsigned, i: signed integers, f: floating point, U: UTF-32 text, S: bytes of text
  int bytes = 1;
  bool big_endian = false;

  bool is_text() const { return kind == 'U' || kind == 'S'; }
  bool is_integer() const { return kind != 'f' && !is_text(); }
  /// As NumPy calls it: "uint8".
  std::string name() const;
};

/// An array of any number of axes, either byte order; of those in Fortran order a copy in C order is kept in memory.
/// The header is read and checked when it is made: formats 1, 2 and 3, a dictionary of the keys descr, fortran_order
/// and shape; objects and records are refused. Rows may be read by any thread. Throws DataError that names the
/// file. Source: NumPy, "NEP 1, A simple file format for NumPy arrays".
class NpyArray {
 public:
  explicit NpyArray(std::unique_ptr<FileBytes> file);

  const std::string& name() const { return file_->name(); }
  const NpyType& type() const { return type_; }
  const std::vector<std::int64_t>& extents() const { return extents_; }
  /// "(60000, 28, 28) uint8".
  std::string description() const;
  /// The first extent, and elements of one row: all others.
  std::int64_t rows() const { return extents_.empty() ? 1 : extents_[0]; }
  std::int64_t row_values() const { return row_values_; }
  /// Bytes of memory that it occupies once rows are read: of a compressed file, and of one in Fortran order.
  std::uint64_t resident_bytes() const;

  /// Makes rows readable, once; `read_rows` does so, too. Throws where the file has fewer or more bytes than the header
  /// says.
  void load() const;
  /// Rows from `row` on, as many as `values` holds (row_values() each), converted to the type asked for: to uint8 from
  /// bool and uint8 only, to int64 from integers, to float32 from all, rounded to nearest. Throws DTypeError for
  /// another conversion.
  void read_rows(std::int64_t row, std::span<std::uint8_t> values) const;
  void read_rows(std::int64_t row, std::span<std::int64_t> values) const;
  void read_rows(std::int64_t row, std::span<float> values) const;
  /// The first element of a row of text, as UTF-8.
  std::string read_text(std::int64_t row) const;

 private:
  void read_header();
  void set_extents(std::vector<std::int64_t> extents);
  void transpose() const;
  /// Whole rows in the machine's order of bytes.
  void read_bytes(std::int64_t row, std::span<std::uint8_t> bytes) const;

  std::unique_ptr<FileBytes> file_;
  NpyType type_;
  std::vector<std::int64_t> extents_;
  std::int64_t row_values_ = 1, data_offset_ = 0, data_bytes_ = 0;
  bool is_transposed_ = false;  // the file is in Fortran order
  mutable std::vector<std::uint8_t> transposed_;
  mutable Once loaded_;
};

}  // namespace bantam
