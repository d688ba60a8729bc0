// A file through zlib, of whose output only the length counts.
#include "bantam/run/session/compressed_size.h"

#include <cerrno>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
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

  void add(std::vector<char>& part, std::size_t bytes, bool last) {
    stream_.next_in = reinterpret_cast<Bytef*>(part.data());
    stream_.avail_in = static_cast<uInt>(bytes);
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
  const FileDescriptor file = open_file({.path = path}, O_RDONLY);
  if (!file) throw DataError(fmt::format("cannot read {}: it is not there", path.string()));
  Gzip gzip;
  CompressedSize size;
  std::vector<char> part(kPart);
  for (ssize_t bytes = 1; bytes > 0;) {
    bytes = ::read(file.get(), part.data(), part.size());
    if (bytes < 0)
      throw DataError(fmt::format("cannot read {}: {}", path.string(), std::generic_category().message(errno)));
    size.bytes += static_cast<std::uint64_t>(bytes);
    gzip.add(part, static_cast<std::size_t>(bytes), bytes == 0);
  }
  size.gzip_bytes = gzip.bytes();
  return size;
}

}  // namespace bantam::run
