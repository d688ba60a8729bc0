// The floor rule: includes in bantam/ point down or sideways, never up, never in circles; CUDA headers stay in the cuda
// folders; headers that are installed include only such as are installed.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

/// Path (from the repository's root) → text.
using Files = std::map<std::string, std::string>;

/// What each floor may include besides itself.
const std::map<std::string, std::set<std::string>> kBelow = {
    {"base", {}},
    {"memory", {"base"}},
    {"kernels", {"base", "memory"}},
    {"engine", {"base", "memory", "kernels"}},
    {"data", {"base", "memory", "kernels", "engine"}},
    {"models", {"base", "memory", "kernels", "engine"}},
    {"cli", {"base", "memory", "kernels", "engine", "data", "models"}},
};

/// "bantam/engine/ops/add.cpp" → "engine".
std::string floor_of(const std::string& path) {
  const std::size_t begin = path.find('/') + 1;
  return path.substr(begin, path.find('/', begin) - begin);
}

/// What stands between the quotes or brackets of each #include.
std::vector<std::string> includes_of(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    if (!line.starts_with("#include\"") && !line.starts_with("#include<")) continue;
    const std::size_t begin = 9;
    found.push_back(line.substr(begin, line.find_first_of("\">", begin) - begin));
  }
  return found;
}

bool is_cuda_header(const std::string& include) {
  for (const char* prefix : {"cuda", "cudnn", "cublas", "cub/", "thrust/", "nccl", "nvml", "nvrtc", "curand", "mma.h",
                             "cooperative_groups", "device_launch", "sm_"})
    if (include.starts_with(prefix)) return true;
  return false;
}

/// Whether `cmake --install` takes it along (cmake/BantamInstall.cmake).
bool is_installed(const std::string& path) {
  if (!path.ends_with(".h") || floor_of(path) == "cli") return false;
  for (const char* folder : {"/cuda/", "/cpu/", "/reference/"})
    if (path.find(folder) != std::string::npos) return false;
  return true;
}

std::vector<std::string> floor_violations(const Files& files) {
  std::vector<std::string> bad;
  for (const auto& [path, text] : files) {
    const auto below = kBelow.find(floor_of(path));
    if (below == kBelow.end()) {
      bad.push_back(path + " is on no known floor");
      continue;
    }
    const bool cuda_allowed = path.starts_with("bantam/memory/cuda/") || path.starts_with("bantam/kernels/cuda/");
    for (const std::string& include : includes_of(text)) {
      if (is_cuda_header(include) && !cuda_allowed) bad.push_back(path + " includes the CUDA header " + include);
      if (include.starts_with("..") || include.starts_with("./"))
        bad.push_back(path + " includes by a relative path " + include);
      if (!include.starts_with("bantam/")) continue;
      const std::string floor = floor_of(include);
      if (floor != below->first && !below->second.contains(floor)) bad.push_back(path + " points up to " + include);
      if (!files.contains(include)) bad.push_back(path + " includes " + include + ", which does not exist");
      if (is_installed(path) && !is_installed(include))
        bad.push_back(path + " is installed, and includes " + include + ", which is not");
    }
  }
  return bad;
}

/// Depth-first walk over includes; a file met again while it is still open closes a circle.
void find_circles(const Files& files, const std::string& path, std::vector<std::string>& open,
                  std::set<std::string>& done, std::vector<std::string>& circles) {
  if (done.contains(path) || !files.contains(path)) return;
  if (const auto again = std::ranges::find(open, path); again != open.end()) {
    std::string circle;
    for (auto it = again; it != open.end(); ++it) circle += *it + " > ";
    circles.push_back(circle + path);
    return;
  }
  open.push_back(path);
  for (const std::string& include : includes_of(files.at(path))) find_circles(files, include, open, done, circles);
  open.pop_back();
  done.insert(path);
}

std::vector<std::string> include_circles(const Files& files) {
  std::vector<std::string> circles;
  std::set<std::string> done;
  std::vector<std::string> open;
  for (const auto& [path, text] : files) find_circles(files, path, open, done, circles);
  return circles;
}

std::string lines_of(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += "\n  " + item;
  return text;
}

Files source_files() {
  const fs::path root = BANTAM_SOURCE_DIR;
  const std::set<std::string> kinds = {".h", ".cpp", ".cu", ".cuh", ".inc"};
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(root / "bantam"))
    if (entry.is_regular_file() && kinds.contains(entry.path().extension().string()))
      files[fs::relative(entry.path(), root).generic_string()] = read_file(entry.path());
  return files;
}

TEST(Floors, IncludesPointDown) {
  const Files files = source_files();
  ASSERT_TRUE(files.contains("bantam/base/error.h")) << "the source tree was not found";
  const auto bad = floor_violations(files);
  EXPECT_TRUE(bad.empty()) << lines_of(bad);
}

TEST(Floors, IncludesHaveNoCircles) {
  const auto circles = include_circles(source_files());
  EXPECT_TRUE(circles.empty()) << lines_of(circles);
}

// The checker itself, on small trees with known faults.

TEST(FloorChecker, AcceptsDownwardIncludes) {
  const Files good = {{"bantam/base/a.h", "#include <vector>\n"},
                      {"bantam/kernels/cuda/k.cu", "#include <cuda_runtime.h>\n#include \"bantam/base/a.h\"\n"},
                      {"bantam/data/d.cpp", "#include \"bantam/kernels/k.h\"\n"},
                      {"bantam/kernels/cuda/rules.h", "#include \"bantam/kernels/k.h\"\n"},
                      {"bantam/kernels/k.cpp", "#include \"bantam/kernels/cuda/rules.h\"\n"},
                      {"bantam/kernels/k.h", "// #include \"bantam/cli/main.h\"\n"}};
  EXPECT_EQ(floor_violations(good), std::vector<std::string>{});
}

TEST(FloorChecker, FindsEachFault) {
  const Files bad = {{"bantam/base/a.h", "  #  include \"bantam/memory/b.h\"\n"},
                     {"bantam/memory/b.h", "#include <cudnn.h>\n"},
                     {"bantam/data/d.h", "#include \"bantam/models/m.h\"\n"},
                     {"bantam/models/m.h", "#include \"bantam/cli/c.h\"\n#include \"../x.h\"\n"},
                     {"bantam/cli/c.h", "#include \"bantam/base/gone.h\"\n"},
                     {"bantam/kernels/cuda/rules.h", ""},
                     {"bantam/kernels/parts.h", "#include \"bantam/kernels/cuda/rules.h\"\n"},
                     {"bantam/attic/x.h", ""}};
  EXPECT_EQ(floor_violations(bad),
            (std::vector<std::string>{
                "bantam/attic/x.h is on no known floor",
                "bantam/base/a.h points up to bantam/memory/b.h",
                "bantam/cli/c.h includes bantam/base/gone.h, which does not exist",
                "bantam/data/d.h points up to bantam/models/m.h",
                "bantam/kernels/parts.h is installed, and includes bantam/kernels/cuda/rules.h, which is not",
                "bantam/memory/b.h includes the CUDA header cudnn.h",
                "bantam/models/m.h points up to bantam/cli/c.h",
                "bantam/models/m.h is installed, and includes bantam/cli/c.h, which is not",
                "bantam/models/m.h includes by a relative path ../x.h",
            }));
}

TEST(FloorChecker, FindsCircles) {
  const Files circle = {{"bantam/base/a.h", "#include \"bantam/base/b.h\"\n"},
                        {"bantam/base/b.h", "#include \"bantam/base/c.h\"\n"},
                        {"bantam/base/c.h", "#include \"bantam/base/b.h\"\n"}};
  EXPECT_EQ(include_circles(circle), std::vector<std::string>{"bantam/base/b.h > bantam/base/c.h > bantam/base/b.h"});
}

}  // namespace
}  // namespace bantam
