// The headers that are installed (cmake/PublicHeaders.cmake): what they may show, and that each of
// them compiles by itself.
#include "tests/public/public_headers.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"

namespace bantam::public_headers_test {
namespace {

namespace fs = std::filesystem;
using testing::public_headers;

const fs::path kRoot = BANTAM_SOURCE_DIR;

/// A folder of this process that is removed with it.
class ScratchFolder {
 public:
  ScratchFolder() : path_(fs::temp_directory_path() / ("bantam_public_headers_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~ScratchFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

/// What the compiler says of each header that it refuses alone, on as many threads as there are processors.
std::vector<std::string> refused_by(const std::string& compiler) {
  const ScratchFolder scratch;
  const std::set<std::string> all = public_headers();
  const std::vector<std::string> headers(all.begin(), all.end());
  std::vector<std::string> refused;
  std::mutex guard;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < headers.size(); i = next++) {
      const fs::path source = scratch.path() / (std::to_string(i) + ".cpp");
      const fs::path said = scratch.path() / (std::to_string(i) + ".txt");
      write_file_atomically(source, "#include \"bantam/" + headers[i] + "\"\n");
      const std::string command =
          compiler + " -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I'" BANTAM_INCLUDE_DIR "' '" +
          source.string() + "' >'" + said.string() + "' 2>&1";
      if (std::system(command.c_str()) == 0) continue;
      const std::lock_guard lock(guard);
      refused.push_back(headers[i] + ":\n" + read_file(said));
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  threads.clear();
  std::ranges::sort(refused);
  return refused;
}

void expect_each_compiles(const std::string& compiler) {
  for (const std::string& message : refused_by(compiler)) ADD_FAILURE() << compiler << " refuses " << message;
}

TEST(PublicHeaders, ExistAndIncludeOnlyEachOther) {
  EXPECT_TRUE(public_headers().contains("bantam.h"));
  for (const std::string& header : public_headers()) {
    ASSERT_TRUE(fs::is_regular_file(kRoot / header)) << header;
    for (const std::string& included : testing::includes_of(read_file(kRoot / header))) {
      if (!included.starts_with("bantam/")) continue;
      EXPECT_TRUE(public_headers().contains(included.substr(7)))
          << header << " includes " << included << ", which is not installed";
    }
  }
}

TEST(PublicHeaders, ShowNoBackend) {
  for (const std::string& header : public_headers()) {
    const std::string text = read_file(kRoot / header);
    for (const std::string& included : testing::includes_of(text))
      for (const char* prefix :
           {"cuda", "cudnn", "cublas", "nccl", "dnnl", "oneapi", "Eigen", "fmt/", "nlohmann/", "yaml-cpp/", "CLI/"})
        EXPECT_FALSE(included.starts_with(prefix)) << header << " includes " << included;
    for (const char* word :
         {"cudnnHandle", "dnnl::", "Eigen::", "reference_gpu", "_parts.h", "_rules.h", "__global__", "BANTAM_KERNEL("})
      EXPECT_EQ(text.find(word), std::string::npos) << header << " shows " << word;
  }
}

TEST(PublicHeaders, ExportWhatTheyDeclare) {
  for (const std::string& header : public_headers()) {
    const std::string text = read_file(kRoot / header);
    const std::size_t first = text.find("\nnamespace bantam");
    if (first == std::string::npos) continue;  // macros, C
    const std::size_t begin = text.find("\nBANTAM_API_BEGIN\n"), end = text.find("\nBANTAM_API_END\n");
    EXPECT_LT(begin, first) << header << " declares names that the shared library hides: begin with BANTAM_API_BEGIN";
    EXPECT_NE(end, std::string::npos) << header << " lacks BANTAM_API_END";
    EXPECT_EQ(text.find("\nnamespace bantam", end == std::string::npos ? text.size() : end), std::string::npos)
        << header << " declares names after BANTAM_API_END";
  }
}

TEST(PublicHeaders, CompileAloneWithTheBuildsCompiler) { expect_each_compiles("'" BANTAM_COMPILER "'"); }

TEST(PublicHeaders, CompileAloneWithClang) {
  const char* const names[] = {"clang++", "clang++-14", "clang++-16", "clang++-19"};
  const auto found = std::ranges::find_if(names, is_installed);
  if (found == std::end(names)) GTEST_SKIP() << "no clang++: skipped";
  expect_each_compiles(*found);
}

TEST(PublicHeaders, ThoseForCProgramsCompileAsC99) {
  if (!is_installed("cc")) GTEST_SKIP() << "no cc: skipped";
  const ScratchFolder scratch;
  const fs::path source = scratch.path() / "program.c", said = scratch.path() / "said.txt";
  write_file_atomically(source,
                        "#include \"bantam/engine/interop/dlpack_abi.h\"\n"
                        "#include \"bantam/engine/interop/pool_functions.h\"\n"
                        "bantam_pool *pool; DLManagedTensorVersioned *tensor;\n");
  EXPECT_EQ(std::system(("cc -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -I'" BANTAM_INCLUDE_DIR "' '" +
                         source.string() + "' >'" + said.string() + "' 2>&1")
                            .c_str()),
            0)
      << read_file(said);
}

}  // namespace
}  // namespace bantam::public_headers_test
