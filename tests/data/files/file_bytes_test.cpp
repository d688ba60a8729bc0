// Files of data: how much of compressed ones comes into memory, and files that change beside the reader.
#include "bantam/data/files/file_bytes.h"

#include "tests/data/formats/array_files.h"
#include "tests/data/formats/format_files.h"

namespace bantam::file_bytes_test {
namespace {

using testing::message_of;

/// Streams of zeros become a thousandth: small files would fill the memory.
TEST(FileBytes, AFewBytesDoNotFillTheMemory) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "zeros.gz";
  const std::int64_t compressed = std::int64_t{1} << 20, most = most_decompressed(compressed);
  EXPECT_EQ(most, (std::int64_t{128} << 20) + 100 * compressed);
  const std::string zeros = testing::gzipped(std::string(192 << 20, '\0'));
  ASSERT_LT(most_decompressed(std::ssize(zeros)), std::int64_t{192} << 20);
  testing::write_file(path, zeros);
  const auto file = open_file_bytes(path);
  file->fetch(1 << 20);
  EXPECT_EQ(file->size(), 1 << 20) << "as far as it is needed";
  EXPECT_CONTAINS(message_of<DataError>([&] { file->fetch(std::int64_t{1} << 30); }),
                  path.string() + ": has more than");
  EXPECT_LE(file->size(), most_decompressed(std::ssize(zeros)) + (1 << 20));
}

TEST(FileBytes, WhatIsNoMoreIsRead) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path() / "some.gz", testing::gzipped(std::string(64 << 20, 'a')));
  const auto file = open_file_bytes(folder.path() / "some.gz");
  file->fetch(std::int64_t{1} << 40);
  EXPECT_EQ(file->size(), 64 << 20);
}

/// Files are read, not mapped: the bytes that another program cuts off are an error of who asks for them, and no
/// signal.
TEST(FileBytes, AFileThatShrinksBesideItsReaderIsAnError) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "samples";
  testing::write_file(path, std::string(1 << 20, 'a'));
  const auto file = open_file_bytes(path);
  std::vector<std::uint8_t> bytes(4096);
  file->read((1 << 20) - 4096, bytes);
  std::filesystem::resize_file(path, 1 << 19);
  file->read(0, bytes);
  EXPECT_EQ(message_of<DataError>([&] { file->read((1 << 20) - 4096, bytes); }),
            path.string() + ": cannot be read: it ends before byte 1048576");
}

}  // namespace
}  // namespace bantam::file_bytes_test
