// Marks of formats: the bytes that files begin with, else the endings of their names.
#include "bantam/run/weights/file_kinds.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"

namespace bantam::run {
namespace {

using namespace std::string_view_literals;
namespace fs = std::filesystem;

/// The advice for a file that is not read.
enum class Road : std::uint8_t { onnx, keras, jax, unpack, none };

std::string road_text(Road road) {
  switch (road) {
    case Road::onnx:
      return "\n  a network of another program comes as an ONNX model, which most can write: `bantam import FILE.onnx`";
    case Road::keras:
      return "\n  networks of TensorFlow and Keras come as ONNX models, which model.export(…, format=\"onnx\") and "
             "tf2onnx "
             "write: `bantam import FILE.onnx`";
    case Road::jax:
      return "\n  a network of JAX comes as an ONNX model (jax2onnx, or jax2tf and tf2onnx): `bantam import FILE.onnx`";
    case Road::unpack:
      return "\n  unpack it, and import the .pth, .pt, .bin, .safetensors or .onnx file that is in it";
    case Road::none:
      return "";
  }
  return "";
}

struct KnownKind {
  std::string_view what;
  Road road = Road::onnx;
};

/// The mark of a format, at its place in the file.
struct Mark {
  std::size_t at;
  std::string_view bytes;
  KnownKind kind;
};
constexpr Mark kMarks[] = {
    {0, "\x89HDF\r\n\x1a\n"sv, {"an HDF5 file, as Keras writes models and weights (.h5, .hdf5)", Road::keras}},
    {4, "TFL3"sv, {"a model of TensorFlow Lite (.tflite)", Road::keras}},
    {0, "GGUF"sv, {"a model of llama.cpp (.gguf)"}},
    {0, "ggjt"sv, {"a model of llama.cpp of old (GGML)"}},
    {0, "lmgg"sv, {"a model of llama.cpp of old (GGML)"}},
    {0, "ftrt"sv, {"an engine of TensorRT, which is compiled for one GPU (.engine, .plan)"}},
    {0, "ptrt"sv, {"an engine of TensorRT, which is compiled for one GPU (.engine, .plan)"}},
    {4, "ORTM"sv, {"a model in ONNX Runtime's own format (.ort)"}},
    {4, "ET12"sv, {"a program of ExecuTorch (.pte)"}},
    {0, "\x93NUMPY"sv, {"a NumPy array (.npy), without a network's names"}},
    {0, "MATLAB 5.0 MAT-file"sv, {"a file of MATLAB (.mat)"}},
    {0, "7767517\n"sv, {"a network of ncnn (.param)"}},
    {0, "\x12\x01\0\0\0\0\0\0"sv, {"a file of MXNet's arrays (.params)"}},
    {0,
     "version https://git-lfs"sv,
     {"a pointer of Git LFS, not the file itself: it was cloned without its large files; `git lfs pull` downloads them",
      Road::none}},
    {0, "<?xml"sv, {"an XML file: a network of OpenVINO, or a server's error in the place of a download"}},
    {0, "\x1f\x8b"sv, {"compressed by gzip", Road::unpack}},
    {0, "BZh"sv, {"compressed by bzip2", Road::unpack}},
    {0,
     "\xfd"
     "7zXZ"sv,
     {"compressed by xz", Road::unpack}},
    {0, "\x28\xb5\x2f\xfd"sv, {"compressed by zstd", Road::unpack}},
    {0, "7z\xbc\xaf"sv, {"a 7z archive", Road::unpack}},
    {0, "Rar!"sv, {"a RAR archive", Road::unpack}},
    {0, "x\x9c"sv, {"compressed by zlib, as joblib writes models of scikit-learn"}},
    {257, "ustar"sv, {"a tar archive", Road::unpack}}};

/// Formats without a mark: what their names end with.
struct Ending {
  std::string_view ending;
  KnownKind kind;
};
constexpr Ending kEndings[] = {{"saved_model.pb", {"a SavedModel of TensorFlow", Road::keras}},
                               {".pb", {"a graph of TensorFlow or another protocol buffer (.pb)", Road::keras}},
                               {".meta", {"a graph of a TensorFlow checkpoint (.meta)", Road::keras}},
                               {".index", {"the index of a TensorFlow checkpoint (.index)", Road::keras}},
                               {".ckpt", {"a checkpoint, as TensorFlow writes them", Road::keras}},
                               {".mlmodel", {"a model of Core ML (.mlmodel)"}},
                               {".caffemodel", {"weights of Caffe (.caffemodel)"}},
                               {".weights", {"weights of Darknet (.weights)"}},
                               {".msgpack", {"weights of Flax (.msgpack)", Road::jax}},
                               {".t7", {"a file of Torch7 (.t7)"}},
                               {".pdparams", {"weights of PaddlePaddle (.pdparams)"}},
                               {".mnn", {"a model of MNN (.mnn)"}},
                               {".onnx", {"an ONNX model", Road::none}},
                               {".engine", {"an engine of TensorRT, which is compiled for one GPU (.engine)"}}};

std::string lower(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

std::string text_of(const KnownKind& kind) { return fmt::format("it is {}{}", kind.what, road_text(kind.road)); }

/// A tar archive whose first member is one of the four that PyTorch's had.
bool is_oldest_torch(std::string_view begin) {
  constexpr std::string_view kMembers[] = {"sys_info", "pickle", "tensors", "storages"};
  return begin.size() > 262 && begin.substr(257).starts_with("ustar") &&
         std::ranges::find(kMembers, begin.substr(0, begin.find('\0'))) != std::end(kMembers);
}

bool begins_as_page(std::string_view begin) {
  const std::size_t first = begin.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) return false;
  const std::string text = lower(begin.substr(first, 14));
  return text.starts_with("<!doctype html") || text.starts_with("<html");
}

/// The "module.name" of the first class that a pickle names; empty: none in these bytes.
std::string first_class(std::string_view begin) {
  const std::size_t at = begin.find('c');
  const std::size_t line = at == std::string_view::npos ? at : begin.find('\n', at);
  const std::size_t end = line == std::string_view::npos ? line : begin.find('\n', line + 1);
  if (end == std::string_view::npos) return "";
  std::string name(begin.substr(at + 1, line - at - 1));
  name += '.';
  name += begin.substr(line + 1, end - line - 1);
  const bool plain =
      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_'; });
  return plain ? name : "";
}

std::string pickle_text(std::string_view begin) {
  const std::string name = first_class(begin);
  return fmt::format(
      "it is a pickle of Python that torch.save has not written{}: scikit-learn, joblib and PaddlePaddle save models "
      "so. "
      "None is executed here{}",
      name.empty() ? "" : fmt::format(" (it begins with a {})", shown(name)), road_text(Road::onnx));
}

/// The table of a TensorFlow checkpoint ends with this.
bool ends_as_table(const fs::path& path) {
  constexpr std::string_view kEnd = "\x57\xfb\x80\x8b\x24\x75\x47\xdb"sv;
  const auto file = open_plain_bytes(path);
  if (file->size() < 48) return false;
  std::vector<std::uint8_t> end(kEnd.size());
  file->read(file->size() - static_cast<std::int64_t>(kEnd.size()), end);
  return std::equal(end.begin(), end.end(), kEnd.begin(),
                    [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); });
}

}  // namespace

std::string first_bytes(const fs::path& path, std::size_t most) {
  const auto file = open_plain_bytes(path);
  std::vector<std::uint8_t> begin(std::min(static_cast<std::size_t>(file->size()), most));
  file->read(0, begin);
  return {begin.begin(), begin.end()};
}

std::string other_kind(const fs::path& path, std::string_view begin) {
  if (begin.empty()) return "it is empty: a download that failed?";
  if (is_oldest_torch(begin))
    return "it is in the form that PyTorch wrote before 0.1.10 (a tar archive), which is not read\n  torch.load of "
           "today "
           "reads it, and torch.save writes what is read here";
  for (const Mark& mark : kMarks)
    if (begin.size() > mark.at && begin.substr(mark.at).starts_with(mark.bytes)) return text_of(mark.kind);
  if (begins_as_page(begin)) return "it is a web page (HTML) that was saved in the place of the file";
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  const std::string name = lower(path.filename().string());
  if (first != std::string_view::npos && begin[first] == '{')
    return name.ends_with(".index.json")
               ? "it is the index of a checkpoint in several files: import the files that it names"
               : "it is JSON, a configuration without weights; those lie in .safetensors, .bin, .pt or .pth files";
  if (begin.size() > 1 && begin[0] == '\x80' && begin[1] >= 0 && begin[1] <= 5) return pickle_text(begin);
  if (ends_as_table(path)) return text_of({"the index of a TensorFlow checkpoint", Road::keras});
  if (name.find(".data-0") != std::string::npos) return text_of({"a part of a TensorFlow checkpoint", Road::keras});
  for (const Ending& each : kEndings)
    if (name.ends_with(each.ending)) return text_of(each.kind);
  return "";
}

std::string other_archive(std::span<const std::string> members) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(members, [&](const std::string& each) { return each == name; });
  };
  if (has("model.weights.h5")) return text_of({"a model of Keras 3 (.keras)", Road::keras});
  if (!members.empty() && std::ranges::all_of(members, [](const std::string& each) { return each.ends_with(".npy"); }))
    return text_of({"an archive of NumPy arrays (.npz), as programs of JAX and Flax save weights", Road::jax});
  if (std::ranges::any_of(members, [](const std::string& each) { return each.ends_with("saved_model.pb"); }))
    return text_of({"a zip archive of a SavedModel of TensorFlow", Road::keras});
  std::vector<std::string> first(members.begin(), members.begin() + std::min<std::ptrdiff_t>(3, std::ssize(members)));
  for (std::string& name : first) name = fmt::format("'{}'", shown(name));
  return fmt::format("it is a zip archive without data.pkl, of {} file{}{}{}{}", members.size(),
                     members.size() == 1 ? "" : "s", first.empty() ? "" : ", ", join(first, ", ", ", "),
                     road_text(Road::unpack));
}

void refuse_folder(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return;
  std::vector<std::string> names;
  bool saved_model = false;
  for (const auto& [name, is_folder] : list_entries(path, error)) {
    saved_model = saved_model || name == "saved_model.pb";
    constexpr std::string_view kEnds[] = {".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".onnx"};
    if (std::ranges::any_of(kEnds, [&](std::string_view each) { return lower(name).ends_with(each); }))
      names.push_back(shown((path / name).string()));
  }
  std::ranges::sort(names);
  if (names.size() > 5) names.resize(5);
  if (saved_model)
    throw DataError(
        fmt::format("{}: {}", path.string(), text_of({"a SavedModel of TensorFlow, a folder", Road::keras})));
  throw DataError(fmt::format("{}: is a folder; expected a file{}", path.string(),
                              names.empty() ? "" : fmt::format(": {}", join(names, ", ", " or "))));
}

void refuse_other_kinds(const fs::path& path, std::string_view begin) {
  if (begin.size() > 8 && begin[8] == '{') return;
  if (const std::string kind = other_kind(path, begin); !kind.empty())
    throw DataError(fmt::format("{}: holds no weights that are read: {}", path.string(), kind));
}

}  // namespace bantam::run
