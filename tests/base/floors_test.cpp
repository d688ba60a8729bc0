// The rules of includes: which folder may include which, and what is installed.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "tests/public/public_headers.h"

namespace bantam::floors_test {
namespace {

namespace fs = std::filesystem;
using testing::includes_of;
using testing::public_headers;

/// Path from the repository's root, e.g. "engine/ops/add.cpp" → text.
using Files = std::map<std::string, std::string>;

/// A floor with its rooms, from the bottom up. A room is a folder; a floor's own folder is a room, too ("" here) where
/// files lie in it; a unit there that is listed by its name is a room of its own, as commands of one file are. A room
/// includes rooms before it on its floor, and whatever lies on floors before its own, except for those in `not_below`.
/// In kernels/ the rooms cpu/ and cuda/ of all families come after the families' own, and neither includes the other.
struct Floor {
  std::string name;
  std::vector<std::string> rooms;
  std::set<std::string> not_below;
};

const std::vector<Floor> kHouse = {
    {"base", {"", "config"}, {}},
    {"packing", {""}, {}},
    {"memory", {"device", "cuda", "no_cuda", "pages", "allocator", "limits", "reports"}, {}},
    {"kernels",
     {"common",
      "elementwise",
      "exchange",
      "image",
      "join",
      "matmul",
      "head",
      "loss",
      "metric",
      "input",
      "norm",
      "depthwise",
      "pointwise",
      "pool",
      "conv",
      "update",
      "separable",
      "common/cpu",
      "common/cuda",
      "common/cuda/mma",
      "common/cuda/reduce",
      "conv/cpu/no_onednn",
      "conv/cpu/onednn",
      "elementwise/cpu",
      "norm/cpu",
      "matmul/cpu",
      "pointwise/cpu",
      "conv/cpu",
      "depthwise/cpu",
      "separable/cpu",
      "head/cpu",
      "loss/cpu",
      "metric/cpu",
      "pool/cpu",
      "image/cpu",
      "update/cpu",
      "input/cpu",
      "exchange/cpu",
      "join/cpu",
      "elementwise/cuda",
      "norm/cuda",
      "matmul/cuda",
      "depthwise/cuda",
      "pointwise/cuda",
      "conv/cuda",
      "separable/cuda",
      "head/cuda",
      "loss/cuda",
      "metric/cuda",
      "pool/cuda",
      "image/cuda",
      "update/cuda",
      "input/cuda",
      "exchange/cuda",
      "join/cuda",
      ""},
     {}},
    {"engine",
     {"runtime", "comm", "comm/device", "program", "autograd", "interop", "ops", "ops/join", "ops/fused", "ops/image",
      "layers", "losses", "metrics", "graph", "step", "plan", "train"},
     {}},
    {"data", {"files", "formats", "images", "augment", "pipeline", "delivery", "survey"}, {}},
    {"models", {"infer", "zoo", "yaml", "onnx", "onnx/import"}, {"data"}},
    {"run",
     {"run",     "config",  "weights", "fit",     "ranks",   "log",     "train",    "bench",
      "runs",    "compare", "devices", "doctor",  "init",    "trained", "evaluate", "explain",
      "find_lr", "inspect", "plan",    "predict", "profile", "report",  "schema",   "sweep"},
     {}},
    {"capi", {""}, {}},
    {"cli",
     {"options", "print",   "failure",    "signals", "train_printer", "pages",  "sweep",    "train",
      "bench",   "compare", "completion", "data",    "devices",       "doctor", "evaluate", "predict",
      "profile", "explain", "export",     "find_lr", "import",        "init",   "inspect",  "plan",
      "report",  "runs",    "schema",     "summary", "validate",      "main"},
     {"capi"}},
};

/// Where a file lies: its floor and room, as places in kHouse; -1 where there are none.
struct Place {
  int floor = -1, room = -1;
  auto operator<=>(const Place&) const = default;
};

Place place_of(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const std::size_t slash = folder.find('/');
  const std::string floor = folder.substr(0, slash);
  const std::string room = slash == std::string::npos ? "" : folder.substr(slash + 1);
  for (std::size_t f = 0; f < kHouse.size(); ++f) {
    if (kHouse[f].name != floor) continue;
    const std::vector<std::string>& rooms = kHouse[f].rooms;
    auto at = std::ranges::find(rooms, room);
    if (room.empty())
      if (const auto own = std::ranges::find(rooms, fs::path(path).stem().string()); own != rooms.end()) at = own;
    return {static_cast<int>(f), at == rooms.end() ? -1 : static_cast<int>(at - rooms.begin())};
  }
  return {};
}

/// "bantam/engine/ops/add.h" → "engine/ops/add.h"; empty where the include is none of ours.
std::string own_path(const std::string& include) {
  return include.starts_with("bantam/") ? include.substr(7) : std::string();
}

/// Whether `path` lies in a folder `name` of kernels/.
bool is_kernel_of(const std::string& path, const std::string& name) {
  return path.starts_with("kernels/") && path.find("/" + name + "/") != std::string::npos;
}

bool is_cuda_header(const std::string& include) {
  for (const char* prefix : {"cuda", "cudnn", "cublas", "cub/", "thrust/", "nccl", "nvml", "nvrtc", "curand", "mma.h",
                             "cooperative_groups", "device_launch", "sm_"})
    if (include.starts_with(prefix)) return true;
  return false;
}

/// What is wrong with `path` including `include`, a file of ours; empty where nothing is.
std::string fault_of(const Files& files, const std::set<std::string>& installed, const std::string& path, Place from,
                     const std::string& include) {
  if (!files.contains(include)) return path + " includes " + include + ", which does not exist";
  const Place to = place_of(include);
  if (to.floor > from.floor || (to.floor == from.floor && to.room > from.room))
    return path + " points up to " + include;
  if ((is_kernel_of(path, "cpu") && is_kernel_of(include, "cuda")) ||
      (is_kernel_of(path, "cuda") && is_kernel_of(include, "cpu")))
    return path + " includes " + include + " of the other backend";
  const auto& not_below = kHouse[static_cast<std::size_t>(from.floor)].not_below;
  if (not_below.contains(kHouse[static_cast<std::size_t>(to.floor)].name))
    return path + " points sideways to " + include;
  if (installed.contains(path) && !installed.contains(include))
    return path + " is installed, and includes " + include + ", which is not";
  return "";
}

/// `installed`: the headers that `cmake --install` takes along.
std::vector<std::string> wall_faults(const Files& files, const std::set<std::string>& installed) {
  std::vector<std::string> bad;
  for (const auto& [path, text] : files) {
    const Place from = place_of(path);
    if (from.room < 0) {
      bad.push_back(path + " is in no known room");
      continue;
    }
    // Its exceptions pass through a function of libc that ends a packed program: data/files/once.h.
    if (text.find("call_once(") != std::string::npos) bad.push_back(path + " calls std::call_once: use Once");
    if (path.starts_with("cli/") && path != "cli/print/output.cpp")
      for (const char* call : {"fmt::print(", "std::printf(", "std::fprintf(", "std::puts(", "std::fputs(",
                               "std::putchar(", "std::cout", "std::cerr"})
        if (text.find(call) != std::string::npos)
          bad.push_back(path + " has " + call + ": write by cli/print/output.h, which escapes names");
    const bool cuda_allowed = path.starts_with("memory/cuda/") || is_kernel_of(path, "cuda");
    for (const std::string& include : includes_of(text)) {
      if (is_cuda_header(include) && !cuda_allowed) bad.push_back(path + " includes the CUDA header " + include);
      if (include == "nlohmann/json.hpp" && path != "base/json.h")
        bad.push_back(path + " includes nlohmann/json.hpp: include base/json.h");
      if (include.starts_with(".")) bad.push_back(path + " includes by a relative path " + include);
      if (own_path(include).empty()) continue;
      // The C header lies at the top, as it is installed; it includes nothing of ours.
      if (own_path(include) == "bantam_c.h" && path.starts_with("capi/")) continue;
      const std::string fault = fault_of(files, installed, path, from, own_path(include));
      if (!fault.empty()) bad.push_back(fault);
    }
  }
  return bad;
}

/// Units (paths without their endings) by room.
std::map<Place, std::set<std::string>> units_of(const Files& files) {
  std::map<Place, std::set<std::string>> units;
  for (const auto& [path, text] : files)
    if (const Place place = place_of(path); place.room >= 0) units[place].insert(path.substr(0, path.rfind('.')));
  return units;
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
  for (const std::string& include : includes_of(files.at(path)))
    find_circles(files, own_path(include), open, done, circles);
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
  for (const Floor& floor : kHouse)
    for (const auto& entry : fs::recursive_directory_iterator(root / floor.name))
      if (entry.is_regular_file() && kinds.contains(entry.path().extension().string()))
        files[fs::relative(entry.path(), root).generic_string()] = read_file(entry.path());
  return files;
}

TEST(Walls, IncludesPointDown) {
  const Files files = source_files();
  ASSERT_TRUE(files.contains("base/error.h")) << "the source tree was not found";
  const auto bad = wall_faults(files, public_headers());
  EXPECT_TRUE(bad.empty()) << lines_of(bad);
}

TEST(Walls, IncludesHaveNoCircles) {
  const auto circles = include_circles(source_files());
  EXPECT_TRUE(circles.empty()) << lines_of(circles);
}

TEST(Walls, ListedRoomsExist) {
  const auto units = units_of(source_files());
  for (std::size_t f = 0; f < kHouse.size(); ++f)
    for (std::size_t r = 0; r < kHouse[f].rooms.size(); ++r)
      EXPECT_TRUE(units.contains({static_cast<int>(f), static_cast<int>(r)}))
          << kHouse[f].name << "/" << kHouse[f].rooms[r];
}

// The checker itself, on small trees with known faults.

TEST(WallChecker, AcceptsDownwardIncludes) {
  const Files good = {{"base/a.h", "#include <vector>\n"},
                      {"kernels/head/cuda/k.cu", "#include <cuda_runtime.h>\n#include \"bantam/base/a.h\"\n"},
                      {"kernels/head/k.h", "// #include \"bantam/cli/main.h\"\n"},
                      {"kernels/head/cpu/k.cpp", "#include \"bantam/kernels/head/k.h\"\n"},
                      {"data/formats/d.cpp", "#include \"bantam/kernels/head/k.h\"\n"}};
  EXPECT_EQ(wall_faults(good, {}), std::vector<std::string>{});
}

TEST(WallChecker, FindsEachFault) {
  const Files bad = {{"base/a.h", "  #  include \"bantam/memory/device/b.h\"\n"},
                     {"memory/device/b.h", "#include <cudnn.h>\n"},
                     {"data/formats/d.h", "#include \"bantam/models/zoo/m.h\"\n"},
                     {"models/zoo/m.h", "#include \"bantam/data/formats/d.h\"\n#include \"../x.h\"\n"},
                     {"cli/print/c.h", "#include \"bantam/base/gone.h\"\n"},
                     {"cli/runs.cpp", "#include <nlohmann/json.hpp>\nfmt::print(\"{}\", name);\n"},
                     {"engine/ops/o.h", "#include \"bantam/engine/train/t.h\"\n"},
                     {"engine/train/t.h", "std::call_once(flag, work);\n"},
                     {"kernels/norm/cpu/n.h", ""},
                     {"kernels/norm/cuda/n.cu", "#include \"bantam/kernels/norm/cpu/n.h\"\n"},
                     {"kernels/norm/n.h", "#include \"bantam/kernels/norm/cpu/n.h\"\n"},
                     {"kernels/pool/p.h", "#include <cuda_fp16.h>\n"},
                     {"kernels/libraries.h", "#include \"bantam/kernels/norm/cpu/n.h\"\n"},
                     {"engine/attic/x.h", ""}};
  EXPECT_EQ(wall_faults(bad, {"kernels/libraries.h"}),
            (std::vector<std::string>{
                "base/a.h points up to memory/device/b.h",
                "cli/print/c.h includes base/gone.h, which does not exist",
                "cli/runs.cpp has fmt::print(: write by cli/print/output.h, which escapes names",
                "cli/runs.cpp includes nlohmann/json.hpp: include base/json.h",
                "data/formats/d.h points up to models/zoo/m.h",
                "engine/attic/x.h is in no known room",
                "engine/ops/o.h points up to engine/train/t.h",
                "engine/train/t.h calls std::call_once: use Once",
                "kernels/libraries.h is installed, and includes kernels/norm/cpu/n.h, which is not",
                "kernels/norm/cuda/n.cu includes kernels/norm/cpu/n.h of the other backend",
                "kernels/norm/n.h points up to kernels/norm/cpu/n.h",
                "kernels/pool/p.h includes the CUDA header cuda_fp16.h",
                "memory/device/b.h includes the CUDA header cudnn.h",
                "models/zoo/m.h points sideways to data/formats/d.h",
                "models/zoo/m.h includes by a relative path ../x.h",
            }));
}

TEST(WallChecker, FindsCircles) {
  const Files circle = {{"base/a.h", "#include \"bantam/base/b.h\"\n"},
                        {"base/b.h", "#include \"bantam/base/c.h\"\n"},
                        {"base/c.h", "#include \"bantam/base/b.h\"\n"}};
  EXPECT_EQ(include_circles(circle), std::vector<std::string>{"base/b.h > base/c.h > base/b.h"});
}

}  // namespace
}  // namespace bantam::floors_test
