// Every file of the corpus, by the readers as they are built for everybody.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fuzz/readers.h"

namespace bantam::testing::replay_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FuzzCorpus, EveryReaderHasFilesThatItAcceptsAndFilesThatItRefuses) {
  for (const FuzzedReader& reader : fuzzed_readers()) {
    int accepted = 0, refused = 0;
    for (const fs::directory_entry& file :
         fs::directory_iterator(fs::path(BANTAM_SOURCE_DIR) / "tests/fuzz/corpus" / reader.name))
      (accepts(reader, bytes_of(file.path())) ? accepted : refused) += 1;
    EXPECT_GE(accepted, 1) << reader.name;
    EXPECT_GE(refused, 1) << reader.name;
  }
}

}  // namespace
}  // namespace bantam::testing::replay_test
