// Test support: .npy files and zip archives, written without the code that reads them; and damaged copies of files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "tests/data/formats/format_files.h"

namespace bantam::testing {

/// Little-endian.
inline void append_number(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

/// As numpy.save writes it: version 1, the header padded to a multiple of 64.
inline std::string npy_header(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", descr, order, shape);
  while ((10 + dictionary.size() + 1) % 64 != 0) dictionary.push_back(' ');
  dictionary.push_back('\n');
  std::string bytes("\x93NUMPY\1\0", 8);
  append_number(bytes, dictionary.size(), 2);
  return bytes + dictionary;
}

template <class T>
std::string raw(const std::vector<T>& values, bool big_endian = false) {
  std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  if (big_endian)
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T))
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                   bytes.begin() + static_cast<std::ptrdiff_t>(i + sizeof(T)));
  return bytes;
}

template <class T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& values) {
  return npy_header(descr, shape) + raw(values, descr[0] == '>');
}

inline std::string deflated(const std::string& bytes, int window) {
  z_stream stream = {};
  std::string out(bytes.size() + 1000, '\0');
  if (deflateInit2(&stream, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string gzipped(const std::string& bytes) { return deflated(bytes, 15 + 16); }

using Members = std::vector<std::pair<std::string, std::string>>;

/// As numpy.savez (stored) and numpy.savez_compressed (deflated) write them: local headers with zip64 fields.
inline std::string zip_archive(const Members& members, bool deflate) {
  std::string archive, directory;
  for (const auto& [name, bytes] : members) {
    const std::string stored = deflate ? deflated(bytes, -15) : bytes;
    const auto crc = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
    const std::size_t offset = archive.size();
    std::string common;  // from "version needed" to "crc"
    append_number(common, 45, 2);
    append_number(common, 0, 2);
    append_number(common, deflate ? 8 : 0, 2);
    append_number(common, 0x21 << 16, 4);
    append_number(common, crc, 4);
    archive += "PK\3\4" + common;
    append_number(archive, 0xffffffff, 4);
    append_number(archive, 0xffffffff, 4);
    append_number(archive, name.size(), 2);
    append_number(archive, 20, 2);
    archive += name;
    append_number(archive, 1, 2);
    append_number(archive, 16, 2);
    append_number(archive, bytes.size(), 8);
    append_number(archive, stored.size(), 8);
    archive += stored;
    directory += std::string("PK\1\2") + std::string("\x2d\3", 2) + common;
    append_number(directory, stored.size(), 4);
    append_number(directory, bytes.size(), 4);
    append_number(directory, name.size(), 2);
    append_number(directory, 0, 8);
    append_number(directory, 0, 4);
    append_number(directory, offset, 4);
    directory += name;
  }
  const std::size_t at = archive.size();
  archive += directory + "PK\5\6";
  append_number(archive, 0, 4);
  append_number(archive, members.size(), 2);
  append_number(archive, members.size(), 2);
  append_number(archive, directory.size(), 4);
  append_number(archive, at, 4);
  append_number(archive, 0, 2);
  return archive;
}

/// The bytes with some of them changed, cut, doubled or inserted; a pure function of `seed`.
inline std::string mutated(std::string bytes, std::uint64_t seed) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  for (std::uint64_t change = 0, changes = 1 + random.below(4); change < changes && !bytes.empty(); ++change) {
    const std::size_t place =
        random.below(random.below(2) == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 140));
    switch (random.below(6)) {
      case 0:
        bytes.resize(place);
        break;
      case 1:
        bytes.insert(place, bytes.substr(place, random.below(40)));
        break;
      case 2:
        bytes[place] = static_cast<char>(random.below(2) == 0 ? 0xff : 0);
        break;
      case 3:
        bytes.erase(place, 1 + random.below(8));
        break;
      default:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << random.below(8)));
    }
  }
  return bytes;
}

/// Damaged copies of a file are read to their end: each is refused with a message that names `name`, or read. Returns
/// how many were refused.
inline int read_damaged(const std::filesystem::path& path, const std::string& whole, int copies,
                        const std::function<void()>& read, const std::string& name) {
  int refused = 0;
  for (int seed = 0; seed < copies; ++seed) {
    write_file(path, mutated(whole, static_cast<std::uint64_t>(seed)));
    try {
      read();
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << seed << ": " << error.what();
    }
  }
  write_file(path, whole);
  return refused;
}

/// All samples of both splits.
inline void read_all(const SampleSplits& splits) {
  for (const auto& reader : {splits.train, splits.validation}) {
    check_facts(reader->facts());
    reader->check(false, 1);
    for (std::int64_t i = 0, size = reader->facts().size; i < size; ++i) (void)fetched(*reader, i);
  }
}

}  // namespace bantam::testing
