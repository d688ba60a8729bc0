// Other libraries' exceptions in sentences.
#include "bantam/base/plain_words.h"

#include <cstdlib>
#include <future>
#include <stdexcept>
#include <system_error>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"

namespace bantam::plain_words_test {
namespace {

namespace fs = std::filesystem;

/// The sentence of what `work` throws.
template <class Work>
std::string words_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return plain_words(error);
  }
  return "nothing was thrown";
}

TEST(PlainWords, NameTheFileAndTheReason) {
  EXPECT_EQ(words_of([] { (void)fs::file_size("/nowhere/at/all"); }),
            "/nowhere/at/all: cannot be used: No such file or directory");
  EXPECT_EQ(words_of([] { fs::rename("/nowhere/a", "/nowhere/b"); }),
            "/nowhere/a and /nowhere/b: cannot be used: No such file or directory");
}

TEST(PlainWords, SayWhichLimitIsReached) {
  const std::string threads =
      words_of([] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); });
  EXPECT_NE(threads.find("ulimit -u"), std::string::npos) << threads;
  EXPECT_NE(threads.find("--threads"), std::string::npos) << threads;
  const std::string memory = words_of([] { throw std::bad_alloc(); });
  EXPECT_NE(memory.find("memory"), std::string::npos) << memory;
}

TEST(PlainWords, HaveNoLibrarysNames) {
  const std::string json =
      words_of([] { (void)nlohmann::ordered_json::parse("{\"a\": 1}").at("a").get<std::string>(); });
  EXPECT_EQ(json, "JSON is not as it is expected: type must be string, but is number");
  const std::string number = words_of([] { (void)std::stoi("x"); });
  EXPECT_EQ(number.find("a fault of Bantam itself"), 0u) << number;
  EXPECT_EQ(words_of([] { throw DataError("a.csv:3: as it is"); }), "a.csv:3: as it is");
}

TEST(PlainWords, TemporaryFolderIsTMPDIR) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("TMPDIR", "/nowhere/at/all", 1);
  const std::string missing = words_of([] { (void)temporary_folder(); });
  EXPECT_EQ(missing,
            "/nowhere/at/all: is no folder, and temporary files go there because TMPDIR says so: set TMPDIR to a "
            "folder that is there");
  setenv("TMPDIR", "/", 1);
  EXPECT_EQ(temporary_folder(), "/");
  unsetenv("TMPDIR");
  if (is_folder("/tmp")) {
    EXPECT_EQ(temporary_folder(), "/tmp");
  }
  if (before != nullptr) setenv("TMPDIR", kept.c_str(), 1);
}

TEST(PathQuestions, HaveAnAnswerWhereThePathCannotBeAskedAbout) {
  const std::string long_name(5000, 'x');
  EXPECT_FALSE(is_folder(long_name));
  EXPECT_FALSE(is_file(long_name));
  EXPECT_EQ(size_of_file(long_name), 0u);
  EXPECT_TRUE(is_folder("/"));
  EXPECT_FALSE(is_file("/"));
}

}  // namespace
}  // namespace bantam::plain_words_test
