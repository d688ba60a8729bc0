// Zip archives that are made to cost much.
#include "bantam/data/files/zip.h"

#include "tests/data/formats/array_files.h"
#include "tests/data/formats/format_files.h"

namespace bantam::zip_test {
namespace {

using testing::message_of;

/// Entries of the directory that name one member again and again: each would be decompressed.
TEST(ZipFile, MembersDoNotOverlap) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "a.zip";
  std::string archive = testing::zip_archive({{"a", std::string(1000, 'x')}, {"b", std::string(1000, 'x')}}, false);
  testing::write_file(path, archive);
  EXPECT_EQ(ZipFile(path).members().size(), 2u);
  const std::size_t directory = archive.find("PK\1\2"), entry = archive.find("PK\1\2", directory + 1);
  for (const std::size_t at : {directory, entry})  // the number of stored bytes, low byte first: 2000
    archive.replace(at + 20, 2, "\xd0\x07");
  testing::write_file(path, archive);
  EXPECT_EQ(
      message_of<DataError>([&] { (void)ZipFile(path); }),
      path.string() + ": is no zip archive that can be read: its members overlap: together they are longer than it");
}

TEST(ZipFile, ASmallMemberDoesNotFillTheMemory) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "a.zip";
  testing::write_file(path, testing::zip_archive({{"a", std::string(192 << 20, '\0')}}, true));
  const auto member = ZipFile(path).open("a");
  member->fetch(1 << 20);
  EXPECT_EQ(member->size(), 1 << 20);
  EXPECT_CONTAINS(message_of<DataError>([&] { member->fetch(192 << 20); }), "a.zip(a): has more than");
}

}  // namespace
}  // namespace bantam::zip_test
