// The rules of includes: levels in order, no circles of files or folders, backends apart, installed headers closed.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "tests/public/public_headers.h"

namespace bantam::include_rules_test {
namespace {

namespace fs = std::filesystem;
using testing::includes_of;
using testing::public_headers;

/// Path from the repository's root, e.g. "engine/ops/add.cpp" → text.
using Files = std::map<std::string, std::string>;
/// Node → the nodes that it points to: files or folders that include others.
using Graph = std::map<std::string, std::set<std::string>>;

/// A file includes files of its level and of levels before it.
const std::vector<std::string> kLevels = {"base", "packing", "memory", "kernels", "engine",
                                          "data", "models",  "run",    "capi",    "cli"};
/// Levels that stand side by side.
const std::set<std::pair<std::string, std::string>> kApart = {{"models", "data"}, {"cli", "capi"}};

std::string level_of(const std::string& path) { return path.substr(0, path.find('/')); }
std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::ptrdiff_t height_of(const std::string& path) {
  return std::ranges::find(kLevels, level_of(path)) - kLevels.begin();
}

/// "bantam/engine/ops/add.h" → "engine/ops/add.h"; empty where the include is not one of ours.
std::string own_path(const std::string& include) {
  return include.starts_with("bantam/") ? include.substr(7) : std::string();
}

/// "cpu" or "cuda" for a kernel of that backend, else empty.
std::string backend_of(const std::string& path) {
  for (const char* name : {"cpu", "cuda"})
    if (path.starts_with("kernels/") && path.find("/" + std::string(name) + "/") != std::string::npos) return name;
  return "";
}

bool is_cuda_header(const std::string& include) {
  for (const char* prefix : {"cuda", "cudnn", "cublas", "cub/", "thrust/", "nccl", "nvml", "nvrtc", "curand", "mma.h",
                             "cooperative_groups", "device_launch", "sm_"})
    if (include.starts_with(prefix)) return true;
  return false;
}

/// Why `path` must not include `include`, a file of ours; empty where it may. `installed`: headers of the library.
std::string fault_of(const Files& files, const std::set<std::string>& installed, const std::string& path,
                     const std::string& include) {
  if (include == "bantam_c.h" && path.starts_with("capi/")) return "";  // lies at the top, where it is installed
  if (!files.contains(include)) return path + " includes " + include + ", which does not exist";
  if (height_of(include) > height_of(path)) return path + " points up to " + include;
  if (kApart.contains({level_of(path), level_of(include)})) return path + " points sideways to " + include;
  const std::string from = backend_of(path), to = backend_of(include);
  if (level_of(path) == "kernels" && folder_of(path) != "kernels" && !to.empty() && from != to)
    return path + " includes " + include + (from.empty() ? " of a backend" : " of the other backend");
  if (installed.contains(path) && !installed.contains(include))
    return path + " is installed, and includes " + include + ", which is not";
  return "";
}

std::vector<std::string> faults(const Files& files, const std::set<std::string>& installed) {
  std::vector<std::string> bad;
  for (const auto& [path, text] : files) {
    // Its exceptions pass through a function of libc that ends a packed program: data/files/once.h.
    if (text.find("call_once(") != std::string::npos) bad.push_back(path + " calls std::call_once: use Once");
    if (path.starts_with("cli/") && path != "cli/print/output.cpp")
      for (const char* call : {"fmt::print(", "std::printf(", "std::fprintf(", "std::puts(", "std::fputs(",
                               "std::putchar(", "std::cout", "std::cerr"})
        if (text.find(call) != std::string::npos)
          bad.push_back(path + " has " + call + ": write by cli/print/output.h, which escapes names");
    const bool cuda_allowed = path.starts_with("memory/cuda/") || backend_of(path) == "cuda";
    for (const std::string& include : includes_of(text)) {
      if (is_cuda_header(include) && !cuda_allowed) bad.push_back(path + " includes the CUDA header " + include);
      if (include == "nlohmann/json.hpp" && path != "base/json.h")
        bad.push_back(path + " includes nlohmann/json.hpp: include base/json.h");
      if (include.starts_with(".")) bad.push_back(path + " includes by a relative path " + include);
      if (own_path(include).empty()) continue;
      if (const std::string fault = fault_of(files, installed, path, own_path(include)); !fault.empty())
        bad.push_back(fault);
    }
  }
  return bad;
}

/// The folder of a file. A command's file in run/ or cli/ itself stands for its own, its header and source together:
/// "run/plan".
std::string unit_of(const std::string& path) {
  const std::string folder = folder_of(path);
  return folder == "run" || folder == "cli" ? path.substr(0, path.rfind('.')) : folder;
}

/// Includes among files, and among folders: a folder includes another where one of its files does.
Graph file_graph(const Files& files) {
  Graph graph;
  for (const auto& [path, text] : files)
    for (const std::string& include : includes_of(text)) graph[path].insert(own_path(include));
  return graph;
}
Graph folder_graph(const Files& files) {
  Graph graph;
  for (const auto& [path, includes] : file_graph(files))
    for (const std::string& include : includes)
      if (unit_of(include) != unit_of(path)) graph[unit_of(path)].insert(unit_of(include));
  return graph;
}

/// Depth-first walk; a node met again while it is still open closes a circle.
void find_circles(const Graph& graph, const std::string& node, std::vector<std::string>& open,
                  std::set<std::string>& done, std::vector<std::string>& circles) {
  if (done.contains(node) || !graph.contains(node)) return;
  if (const auto again = std::ranges::find(open, node); again != open.end()) {
    std::string circle;
    for (auto it = again; it != open.end(); ++it) circle += *it + " > ";
    circles.push_back(circle + node);
    return;
  }
  open.push_back(node);
  for (const std::string& next : graph.at(node)) find_circles(graph, next, open, done, circles);
  open.pop_back();
  done.insert(node);
}

std::vector<std::string> circles_of(const Graph& graph) {
  std::vector<std::string> circles, open;
  std::set<std::string> done;
  for (const auto& [node, next] : graph) find_circles(graph, node, open, done, circles);
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
  for (const std::string& level : kLevels)
    for (const auto& entry : fs::recursive_directory_iterator(root / level))
      if (entry.is_regular_file() && kinds.contains(entry.path().extension().string()))
        files[fs::relative(entry.path(), root).generic_string()] = read_file(entry.path());
  return files;
}

TEST(IncludeRules, Hold) {
  const Files files = source_files();
  ASSERT_TRUE(files.contains("base/error.h")) << "the source tree was not found";
  const auto bad = faults(files, public_headers());
  EXPECT_TRUE(bad.empty()) << lines_of(bad);
  for (const Graph& graph : {file_graph(files), folder_graph(files)}) {
    const auto circles = circles_of(graph);
    EXPECT_TRUE(circles.empty()) << lines_of(circles);
  }
}

// The checker itself, on small trees with known faults.

TEST(IncludeRulesChecker, AcceptsDownwardIncludes) {
  const Files good = {{"base/a.h", "#include <vector>\n"},
                      {"kernels/head/cuda/k.cu", "#include <cuda_runtime.h>\n#include \"bantam/base/a.h\"\n"},
                      {"kernels/head/k.h", "// #include \"bantam/cli/main.h\"\n"},
                      {"kernels/head/cpu/k.cpp", "#include \"bantam/kernels/head/k.h\"\n"},
                      {"kernels/libraries.cpp", "#include \"bantam/kernels/head/cpu/k.cpp\"\n"},
                      {"data/formats/d.cpp", "#include \"bantam/kernels/head/k.h\"\n"}};
  EXPECT_EQ(faults(good, {}), std::vector<std::string>{});
}

TEST(IncludeRulesChecker, FindsEachFault) {
  const Files bad = {{"base/a.h", "  #  include \"bantam/memory/device/b.h\"\n"},
                     {"cli/print/c.h", "#include \"bantam/base/gone.h\"\n"},
                     {"cli/runs.cpp", "#include <nlohmann/json.hpp>\nfmt::print(\"{}\", name);\n"},
                     {"data/formats/d.h", "#include \"../x.h\"\n"},
                     {"engine/train/t.h", "std::call_once(flag, work);\n"},
                     {"kernels/norm/cpu/n.h", ""},
                     {"kernels/norm/cuda/n.cu", "#include \"bantam/kernels/norm/cpu/n.h\"\n"},
                     {"kernels/norm/n.h", "#include \"bantam/kernels/norm/cpu/n.h\"\n"},
                     {"kernels/pool/p.h", "#include \"bantam/base/a.h\"\n"},
                     {"memory/device/b.h", "#include <cudnn.h>\n"},
                     {"models/zoo/m.h", "#include \"bantam/data/formats/d.h\"\n"}};
  EXPECT_EQ(faults(bad, {"kernels/pool/p.h"}),
            (std::vector<std::string>{
                "base/a.h points up to memory/device/b.h",
                "cli/print/c.h includes base/gone.h, which does not exist",
                "cli/runs.cpp has fmt::print(: write by cli/print/output.h, which escapes names",
                "cli/runs.cpp includes nlohmann/json.hpp: include base/json.h",
                "data/formats/d.h includes by a relative path ../x.h",
                "engine/train/t.h calls std::call_once: use Once",
                "kernels/norm/cuda/n.cu includes kernels/norm/cpu/n.h of the other backend",
                "kernels/norm/n.h includes kernels/norm/cpu/n.h of a backend",
                "kernels/pool/p.h is installed, and includes base/a.h, which is not",
                "memory/device/b.h includes the CUDA header cudnn.h",
                "models/zoo/m.h points sideways to data/formats/d.h",
            }));
}

TEST(IncludeRulesChecker, FindsCircles) {
  const Files files = {{"base/a.h", "#include \"bantam/base/b.h\"\n"},
                       {"base/b.h", "#include \"bantam/base/c.h\"\n"},
                       {"base/c.h", "#include \"bantam/base/b.h\"\n"}};
  EXPECT_EQ(circles_of(file_graph(files)), std::vector<std::string>{"base/b.h > base/c.h > base/b.h"});
  const Files folders = {{"run/fit/a.h", "#include \"bantam/run/log/b.h\"\n"},
                         {"run/fit/c.h", ""},
                         {"run/log/b.h", ""},
                         {"run/log/d.h", "#include \"bantam/run/fit/c.h\"\n"}};
  EXPECT_EQ(circles_of(folder_graph(folders)), std::vector<std::string>{"run/fit > run/log > run/fit"});
}

}  // namespace
}  // namespace bantam::include_rules_test
