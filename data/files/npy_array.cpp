// The header of a .npy file, and its elements as numbers of the machine.
#include "bantam/data/files/npy_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/dtype.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/table_text.h"

namespace bantam {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::int64_t kMagicBytes = 8, kMostHeader = 1 << 16;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::size_t kMostAxes = 8;

/// The values in the header's dictionary, each under its key's name.
struct Dictionary {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Reads the literal of a Python dictionary with the three keys, each once, and nothing else.
class DictionaryReader {
 public:
  DictionaryReader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  Dictionary read() {
    expect('{');
    while (!accept('}')) {
      const std::string key = read_string();
      expect(':');
      if (std::ranges::find(seen_, key) != seen_.end()) fail(fmt::format("the key '{}' comes twice", key));
      seen_.push_back(key);
      read_value(key);
      if (!accept(',') && next() != '}') fail("expected ',' or '}'");
    }
    if (next() != '\0') fail("there is more after the dictionary");
    if (seen_.size() != 3) fail("expected the keys 'descr', 'fortran_order' and 'shape'");
    return found_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{}: its .npy header is damaged: {}, at byte {} of its dictionary", file_, what, at_));
  }
  /// The next character that is no blank; 0 at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("expected '{}'", wanted));
  }
  std::string read_string() {
    const char quote = next();
    if (quote != '\'' && quote != '"') fail("expected a text in quotes");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a text does not end");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return shown(value);
  }
  bool accept_word(std::string_view word) {
    (void)next();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void read_value(const std::string& key) {
    if (key == "descr") {
      if (next() == '[')
        throw DataError(fmt::format("{}: holds records of several fields; expected an array of numbers", file_));
      found_.descr = read_string();
    } else if (key == "fortran_order") {
      found_.fortran_order = accept_word("True");
      if (!found_.fortran_order && !accept_word("False")) fail("expected True or False");
    } else if (key == "shape") {
      read_shape();
    } else {
      fail(fmt::format("the key '{}' is unknown", key));
    }
  }
  void read_shape() {
    expect('(');
    while (!accept(')')) {
      (void)next();
      std::int64_t extent = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) fail("expected a whole number from 0 on");
      at_ += static_cast<std::size_t>(end - begin);
      found_.shape.push_back(extent);
      if (!accept(',') && next() != ')') fail("expected ',' or ')'");
    }
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> seen_;
  Dictionary found_;
};

NpyType type_of(const std::string& file, const std::string& descr) {
  constexpr std::array<std::string_view, 12> kKnown = {"b1", "u1", "u2", "u4", "u8", "i1",
                                                       "i2", "i4", "i8", "f2", "f4", "f8"};
  const char order = descr.empty() ? '?' : descr[0];
  if (descr.size() > 2 && (descr[1] == 'U' || descr[1] == 'S')) {
    constexpr int kMostCharacters = 1 << 20;
    int characters = 0;
    const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), characters);
    if (error == std::errc() && end == descr.data() + descr.size() && characters > 0 && characters <= kMostCharacters)
      return {descr[1], descr[1] == 'U' ? 4 * characters : characters, order == '>' && descr[1] == 'U'};
  }
  const bool known = descr.size() == 3 && std::ranges::find(kKnown, std::string_view(descr).substr(1)) != kKnown.end();
  const bool ordered = order == '<' || order == '>' || (order == '|' && descr.ends_with('1'));
  if (!known || !ordered)
    throw DataError(
        fmt::format("{}: holds elements of type '{}'; expected bool, integers of 8 to 64 bits, floating point of 16, "
                    "32 or 64 bits, or, of labels, text{}",
                    file, descr,
                    descr.ends_with('O') ? " (objects are those of Python: a CSV file with a column of labels is read "
                                           "by `format: csv`)"
                                         : ""));
  return {descr[1], descr[2] - '0', order == '>' && descr[2] != '1'};
}

template <class S, class T>
void convert(std::span<const std::uint8_t> bytes, std::span<T> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    S stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(S), sizeof(S));
    values[i] = static_cast<T>(static_cast<std::conditional_t<std::is_same_v<S, Half>, float, S>>(stored));
  }
}

/// Elements of any type as T.
template <class T>
void convert_from(const NpyType& type, std::span<const std::uint8_t> bytes, std::span<T> values) {
  const bool is_signed = type.kind == 'i';
  if (type.kind == 'f')
    return type.bytes == 2   ? convert<Half>(bytes, values)
           : type.bytes == 4 ? convert<float>(bytes, values)
                             : convert<double>(bytes, values);
  switch (type.bytes) {
    case 1:
      return is_signed ? convert<std::int8_t>(bytes, values) : convert<std::uint8_t>(bytes, values);
    case 2:
      return is_signed ? convert<std::int16_t>(bytes, values) : convert<std::uint16_t>(bytes, values);
    case 4:
      return is_signed ? convert<std::int32_t>(bytes, values) : convert<std::uint32_t>(bytes, values);
    default:
      return is_signed ? convert<std::int64_t>(bytes, values) : convert<std::uint64_t>(bytes, values);
  }
}

/// Reverses the bytes of each element of `size` bytes, as big-endian values need it.
void reverse_elements(std::span<std::uint8_t> bytes, int size) {
  for (std::size_t i = 0; i < bytes.size(); i += static_cast<std::size_t>(size))
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i) + size);
}

void append_utf8(std::uint32_t character, std::string& text) {
  constexpr std::uint32_t kReplacement = 0xFFFD;
  if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) character = kReplacement;
  const int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr std::array<std::uint32_t, 4> kFirst = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kFirst[static_cast<std::size_t>(more)] | character >> (6 * more));
  for (int i = more; i-- > 0;) text += static_cast<char>(0x80 | (character >> (6 * i) & 0x3F));
}

/// Bytes of a row before they are converted; a thread keeps them.
std::span<std::uint8_t> scratch(std::size_t bytes) {
  thread_local std::vector<std::uint8_t> kept;
  if (kept.size() < bytes) kept.resize(bytes);
  return std::span(kept).first(bytes);
}

}  // namespace

std::string NpyType::name() const {
  if (kind == 'b') return "bool";
  if (is_text()) return fmt::format("text of {} characters", kind == 'U' ? bytes / 4 : bytes);
  return fmt::format("{}{}", kind == 'u' ? "uint" : kind == 'i' ? "int" : "float", 8 * bytes);
}

NpyArray::NpyArray(std::unique_ptr<FileBytes> file) : file_(std::move(file)) { read_header(); }

void NpyArray::read_header() {
  file_->fetch(kMagicBytes + 4);
  std::array<std::uint8_t, kMagicBytes + 4> begin = {};
  if (file_->size() >= std::ssize(begin)) file_->read(0, begin);
  if (std::string_view(reinterpret_cast<const char*>(begin.data()), 6) != "\x93NUMPY")
    throw DataError(fmt::format("{}: is no .npy file: it does not begin with \\x93NUMPY", name()));
  const int version = begin[6];
  if (version < 1 || version > 3 || begin[7] != 0)
    throw DataError(
        fmt::format("{}: is of version {}.{} of .npy files; expected 1.0, 2.0 or 3.0", name(), version, begin[7]));
  const int length_bytes = version == 1 ? 2 : 4;
  std::int64_t length = 0;
  for (int i = length_bytes; i-- > 0;) length = length << 8 | begin[static_cast<std::size_t>(kMagicBytes + i)];
  data_offset_ = kMagicBytes + length_bytes + length;
  file_->fetch(std::min(data_offset_, kMostHeader));
  if (data_offset_ > kMostHeader || file_->size() < data_offset_)
    throw DataError(fmt::format("{}: its .npy header of {} bytes is cut short", name(), length));
  std::string text(static_cast<std::size_t>(length), '\0');
  file_->read(kMagicBytes + length_bytes, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  Dictionary found = DictionaryReader(name(), text).read();
  type_ = type_of(name(), found.descr);
  set_extents(std::move(found.shape));
  is_transposed_ = found.fortran_order && extents_.size() > 1;
}

void NpyArray::set_extents(std::vector<std::int64_t> extents) {
  extents_ = std::move(extents);
  if (extents_.size() > kMostAxes)
    throw DataError(fmt::format("{}: has {} axes, expected at most {}", name(), extents_.size(), kMostAxes));
  std::int64_t bytes = type_.bytes;  // as if no extent were 0: then no product of some of them is too large either
  for (const std::int64_t extent : extents_) {
    if (extent > kMostBytes / bytes)
      throw DataError(fmt::format("{}: has the shape ({}), more than can be read", name(), fmt::join(extents_, ", ")));
    bytes *= std::max<std::int64_t>(extent, 1);
  }
  data_bytes_ = type_.bytes * rows();
  for (std::size_t axis = 1; axis < extents_.size(); ++axis) row_values_ *= extents_[axis];
  data_bytes_ *= row_values_;
}

std::string NpyArray::description() const {
  return fmt::format("({}{}) {}", fmt::join(extents_, ", "), extents_.size() == 1 ? "," : "", type_.name());
}

std::uint64_t NpyArray::resident_bytes() const {
  const auto whole = static_cast<std::uint64_t>(data_offset_ + data_bytes_);
  return (file_->in_memory() ? whole : 0) + (is_transposed_ ? static_cast<std::uint64_t>(data_bytes_) : 0);
}

/// Elements in Fortran order, whose first index changes fastest, in C order. The file is read once, in blocks of what
/// belongs to one value of all rows; rows are written in bands that stay in the processor's caches.
void NpyArray::transpose() const {
  constexpr std::int64_t kBand = 64;
  const std::int64_t rows = this->rows(), size = type_.bytes;
  transposed_.resize(static_cast<std::size_t>(data_bytes_));
  if (data_bytes_ == 0) return;
  // Where each value of a row in C order lies among the file's blocks.
  std::vector<std::int64_t> place_of_block(static_cast<std::size_t>(row_values_));
  std::vector<std::int64_t> index(extents_.size(), 0);
  for (std::int64_t& place : place_of_block) {
    place = 0;
    for (std::size_t axis = 1; axis < extents_.size(); ++axis) place = place * extents_[axis] + index[axis];
    for (std::size_t axis = 1; axis < extents_.size() && ++index[axis] == extents_[axis]; ++axis) index[axis] = 0;
  }
  const std::int64_t most = std::max<std::int64_t>(1, std::min(kBand, row_values_));
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(most * rows * size));
  for (std::int64_t first = 0; first < row_values_; first += most) {
    const std::int64_t count = std::min(most, row_values_ - first);
    file_->read(data_offset_ + first * rows * size,
                std::span(blocks).first(static_cast<std::size_t>(count * rows * size)));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t place = place_of_block[static_cast<std::size_t>(first + b)];
        std::memcpy(transposed_.data() + (row * row_values_ + place) * size, blocks.data() + (b * rows + row) * size,
                    static_cast<std::size_t>(size));
      }
  }
}

void NpyArray::load() const {
  loaded_.run([this] {
    const std::int64_t whole = data_offset_ + data_bytes_;
    file_->fetch(whole + 1);  // one more tells whether there is more, and lets checksums be compared
    if (const std::int64_t bytes = file_->size(); bytes != whole)
      throw DataError(fmt::format("{}: has {}{} bytes, expected {}: a header of {}, then {}", name(),
                                  bytes > whole ? "more than " : "", format_count(std::min(bytes, whole)),
                                  format_count(whole), data_offset_, description()));
    if (is_transposed_) transpose();
  });
}

void NpyArray::read_bytes(std::int64_t row, std::span<std::uint8_t> bytes) const {
  load();
  const std::int64_t at = row * row_values_ * type_.bytes;
  if (is_transposed_)
    std::ranges::copy(std::span(transposed_).subspan(static_cast<std::size_t>(at), bytes.size()), bytes.begin());
  else
    file_->read(data_offset_ + at, bytes);
  if (type_.big_endian) reverse_elements(bytes, type_.is_text() ? 4 : type_.bytes);
}

void NpyArray::read_rows(std::int64_t row, std::span<std::uint8_t> values) const {
  if (type_.bytes != 1 || (type_.kind != 'u' && type_.kind != 'b'))
    throw DTypeError(fmt::format("{}: holds {}; expected uint8 or bool", name(), type_.name()));
  read_bytes(row, values);
}

void NpyArray::read_rows(std::int64_t row, std::span<std::int64_t> values) const {
  if (!type_.is_integer()) throw DTypeError(fmt::format("{}: holds {}; expected integers", name(), type_.name()));
  const std::span<std::uint8_t> bytes = scratch(values.size() * static_cast<std::size_t>(type_.bytes));
  read_bytes(row, bytes);
  convert_from<std::int64_t>(type_, bytes, values);
}

void NpyArray::read_rows(std::int64_t row, std::span<float> values) const {
  if (type_.is_text()) throw DTypeError(fmt::format("{}: holds {}; expected numbers", name(), type_.name()));
  if (type_.kind == 'f' && type_.bytes == sizeof(float))
    return read_bytes(row, {reinterpret_cast<std::uint8_t*>(values.data()), values.size_bytes()});
  const std::span<std::uint8_t> bytes = scratch(values.size() * static_cast<std::size_t>(type_.bytes));
  read_bytes(row, bytes);
  convert_from<float>(type_, bytes, values);
}

std::string NpyArray::read_text(std::int64_t row) const {
  if (!type_.is_text()) throw DTypeError(fmt::format("{}: holds {}; expected text", name(), type_.name()));
  const std::span<std::uint8_t> bytes = scratch(static_cast<std::size_t>(row_values_ * type_.bytes));
  read_bytes(row, bytes);
  const auto size = static_cast<std::size_t>(type_.bytes);
  std::string text;
  if (type_.kind == 'S') {
    text.assign(reinterpret_cast<const char*>(bytes.data()), size);
    text.resize(text.find_last_not_of('\0') + 1);
    return as_utf8(text);
  }
  for (std::size_t at = 0; at < size; at += 4) {
    std::uint32_t character = 0;
    std::memcpy(&character, bytes.data() + at, sizeof character);
    if (character == 0) break;
    append_utf8(character, text);
  }
  return text;
}

}  // namespace bantam
