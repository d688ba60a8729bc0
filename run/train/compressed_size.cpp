// A file through zlib, of whose output only the length counts.
#include "bantam/run/train/compressed_size.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"

namespace bantam::run {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 18;

/// A stream in gzip's format.
class Gzip {
 public:
  Gzip() : output_(kPart) {
    constexpr int kLevel = 6, kWindowBits = 15 + 16, kMemoryLevel = 8;  // 16: with gzip's header
    if (deflateInit2(&stream_, kLevel, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error("zlib: no memory to compress with");
  }
  ~Gzip() { (void)deflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  void add(std::string_view part, bool last) {
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(part.data()));  // which zlib does not change
    stream_.avail_in = static_cast<uInt>(part.size());
    do {
      stream_.next_out = output_.data();
      stream_.avail_out = static_cast<uInt>(output_.size());
      (void)deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);  // which has no way to fail here
      bytes_ += output_.size() - stream_.avail_out;
    } while (stream_.avail_out == 0);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  z_stream stream_{};
  std::vector<Bytef> output_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

CompressedSize compressed_size_of(const std::filesystem::path& path) {
  Gzip gzip;
  CompressedSize size;
  const bool is_there = read_parts({.path = path}, 0, [&](std::string_view part) {
    size.bytes += part.size();
    gzip.add(part, false);
    return true;
  });
  if (!is_there) throw DataError(fmt::format("cannot read {}: it is not there", path.string()));
  gzip.add({}, true);
  size.gzip_bytes = gzip.bytes();
  return size;
}

}  // namespace bantam::run
