// The header has a fixed size, in which any number of rows finds room.
#include "bantam/data/files/npy_writer.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

std::string dictionary(std::int64_t rows, const Shape& row) {
  std::string extents = fmt::format("{},", rows);
  for (const std::int64_t extent : row.extents()) extents += fmt::format(" {},", extent);
  if (row.rank() > 0) extents.pop_back();  // (3,) but (3, 4)
  return fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", extents);
}

}  // namespace

NpyWriter::NpyWriter(std::filesystem::path path, Shape row) : row_(row), file_(std::move(path)) {
  file_.write(header());
  file_.rewrite_beginning(header());  // what cannot be done at the end is an error now
}

/// Magic, version, length of the dictionary, the dictionary, and spaces up to a multiple of 64 bytes.
std::string NpyWriter::header() const {
  constexpr std::size_t kBefore = 10, kAlignment = 64;
  const std::size_t most = kBefore + dictionary(std::numeric_limits<std::int64_t>::max(), row_).size() + 1;
  const std::size_t length = (most + kAlignment - 1) / kAlignment * kAlignment - kBefore;
  std::string text = dictionary(rows_, row_);
  text.resize(length - 1, ' ');
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes.push_back(static_cast<char>(length & 0xff));
  bytes.push_back(static_cast<char>(length >> 8));
  return bytes + text + '\n';
}

void NpyWriter::append(std::span<const float> row) {
  if (std::ssize(row) != row_.elements())
    throw ShapeError(
        fmt::format("{}: a row of {} values, expected {}", file_.path().string(), row.size(), to_string(row_)));
  file_.write(std::as_bytes(row));
  ++rows_;
}

void NpyWriter::commit() {
  file_.rewrite_beginning(header());
  file_.commit();
}

}  // namespace bantam
