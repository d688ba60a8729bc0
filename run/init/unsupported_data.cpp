// Names and beginnings of files.
#include "bantam/run/init/unsupported_data.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/run/init/found_files.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 2000;

/// Files of a folder and, three deep, of those in it.
void list(const fs::path& at, int depth, std::vector<fs::path>& files) {
  try {
    const FolderEntries entries = list_folder(at);
    for (const std::string& name : entries.files)
      if (files.size() < kMostFiles) files.push_back(at / name);
    if (depth < 3)
      for (const std::string& name : entries.folders) list(at / name, depth + 1, files);
  } catch (const DataError&) {  // one that may not be listed
  }
}

std::vector<fs::path> files_below(const fs::path& at) {
  if (!is_folder(at)) return {at};
  std::vector<fs::path> files;
  list(at, 0, files);
  return files;
}

/// The first bytes of a file.
std::string beginning(const fs::path& file, std::size_t bytes = std::size_t{1} << 16) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(bytes, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  return text;
}

constexpr std::string_view kNoDetection =
    "detection is not supported: Bantam learns classes, labels and numbers of whole images, and masks. To learn what "
    "is in an image, put the images into a folder for each class, or name them in a CSV file; to learn which pixels "
    "are of what, let the labelling tool write masks as PNG (CVAT's \"Segmentation mask\", Roboflow's \"Semantic "
    "Segmentation Masks\", LabelMe's VOC)";
constexpr std::string_view kNoOutlines =
    "outlines are not drawn here: let the labelling tool write masks as PNG (CVAT's \"Segmentation mask\", Roboflow's "
    "\"Semantic Segmentation Masks\", LabelMe's VOC), which `format: segmentation_folder` reads";
constexpr std::string_view kNoTasks =
    "let it write a table (\"CSV\"), which `format: csv` reads, or brush labels as PNG, a mask for each image";

/// Numbers of one line between blanks; empty where something else is there.
std::vector<double> numbers_of(std::string_view line) {
  std::vector<double> numbers;
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    const std::string_view word = line.substr(0, end);
    double value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || stop != word.data() + word.size()) return {};
    numbers.push_back(value);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return numbers;
}

/// A line of YOLO's: a class and four numbers of 0 to 1; an outline, a turned box or points have more.
bool is_yolo(const std::string& text) {
  const std::vector<double> numbers = numbers_of(std::string_view(text).substr(0, text.find('\n')));
  if (numbers.size() < 5 || numbers[0] < 0 || numbers[0] != std::floor(numbers[0])) return false;
  return std::all_of(numbers.begin() + 1, numbers.end(), [](double value) { return value >= 0 && value <= 1; });
}

/// A line of KITTI's: a name and fourteen numbers.
bool is_kitti(const std::string& text) {
  const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  const std::size_t name = line.find(' ');
  return name != std::string_view::npos && numbers_of(line.substr(name + 1)).size() >= 14;
}

/// The contents of a labelling tool's file, in words, and advice on what to do with them.
struct ToolFile {
  std::string_view what, remedy;
};

ToolFile of_json(const std::string& text) {
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("\"shape_attributes\"") || has("\"_via_"))
    return {"regions of images, as the VGG Image Annotator has them", kNoDetection};
  if (has("\"shapes\"") && has("\"imagePath\"")) return {"outlines of one image, as LabelMe has them", kNoOutlines};
  if (has("\"classTitle\"")) return {"objects of one image, as Supervisely has them", kNoOutlines};
  if (has("rectanglelabels")) return {"boxes around objects, as Label Studio has them", kNoDetection};
  if (has("\"result\"") && (has("\"from_name\"") || has("\"choices\"") || has("\"annotations\"")))
    return {"tasks of Label Studio", kNoTasks};
  if (has("\"coordinates\"") && has("\"annotations\""))
    return {"boxes around objects, as CreateML has them", kNoDetection};
  if (has("\"bbox\"") || (has("\"images\"") && (has("\"annotations\"") || has("\"file_name\""))))
    return {"boxes around objects, as COCO has them", kNoDetection};
  return {};
}

ToolFile of_xml(const std::string& text) {
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("<bndbox")) return {"boxes around objects, as Pascal VOC has them", kNoDetection};
  if (has("<annotations>")) return {"labels as \"CVAT for images\" has them", kNoDetection};
  return {};
}

/// The first of the files that holds boxes, outlines or tasks.
std::string tool_file_in(const std::vector<fs::path>& files) {
  constexpr int kMostLooked = 200;
  std::map<std::string, int> looked;  // of each suffix: a thousand captions hide no table of boxes
  for (const fs::path& file : files) {
    const std::string suffix = lower_case(file.extension().string()), name = lower_case(file.filename().string());
    const bool is_text = suffix == ".txt";
    if ((suffix != ".json" && suffix != ".xml" && suffix != ".yaml" && suffix != ".names" && !is_text) ||
        ++looked[suffix] > kMostLooked)
      continue;
    const std::string text = beginning(file);
    ToolFile found;
    if (suffix == ".json") found = of_json(text);
    if (suffix == ".xml") found = of_xml(text);
    const bool is_list = name == "obj.names" || (suffix == ".yaml" && text.find("names:") != std::string::npos &&
                                                 text.find("train:") != std::string::npos);
    if (is_list || (is_text && is_yolo(text))) found = {"boxes around objects, as YOLO has them", kNoDetection};
    if (is_text && is_kitti(text)) found = {"boxes around objects, as KITTI has them", kNoDetection};
    if (!found.what.empty()) return fmt::format("{}: {}; {}", file.string(), found.what, found.remedy);
  }
  return "";
}

struct KnownFile {
  std::string_view suffix, what, remedy;
};

constexpr std::string_view kTables = "save it as CSV, which `format: csv` reads";
constexpr std::string_view kArrays =
    "save its arrays as .npy or .npz files, which `format: npy` and `format: npz` read, or its images as files";
constexpr std::string_view kImages =
    "save its images as files in a folder for each class, which `format: image_folder` "
    "reads, or its arrays as .npy files";
constexpr std::string_view kUnpack = "unpack it, and name the folder that it unpacks to";

constexpr auto kKnownFiles = std::to_array<KnownFile>({
    {".tfrecord", "TensorFlow's records", kImages},
    {".tfrecords", "TensorFlow's records", kImages},
    {".tfrec", "TensorFlow's records", kImages},
    {".mdb", "an LMDB database", kImages},
    {".lmdb", "an LMDB database", kImages},
    {".rec", "MXNet's records", kImages},
    {".parquet", "a Parquet table", kTables},
    {".feather", "a Feather table", kTables},
    {".arrow", "an Arrow table", kTables},
    {".xlsx", "an Excel workbook", kTables},
    {".xls", "an Excel workbook", kTables},
    {".ods", "a spreadsheet", kTables},
    {".sqlite", "an SQLite database", kTables},
    {".db", "a database", kTables},
    {".arff", "Weka's table", kTables},
    {".jsonl", "lines of JSON", kTables},
    {".ndjson", "lines of JSON", kTables},
    {".h5", "an HDF5 file", kArrays},
    {".hdf5", "an HDF5 file", kArrays},
    {".hdf", "an HDF5 file", kArrays},
    {".mat", "a MATLAB file", kArrays},
    {".pt", "a file of PyTorch", kArrays},
    {".pth", "a file of PyTorch", kArrays},
    {".pkl", "a Python pickle", kArrays},
    {".pickle", "a Python pickle", kArrays},
    {".joblib", "a file of joblib", kArrays},
    {".zip", "an archive", kUnpack},
    {".tar", "an archive", kUnpack},
    {".tar.gz", "an archive", kUnpack},
    {".tgz", "an archive", kUnpack},
    {".tar.xz", "an archive", kUnpack},
    {".tar.bz2", "an archive", kUnpack},
    {".7z", "an archive", kUnpack},
    {".rar", "an archive", kUnpack},
});

std::string known_file_in(const std::vector<fs::path>& files) {
  for (const KnownFile& known : kKnownFiles)
    for (const fs::path& file : files) {
      const std::string name = lower_case(file.filename().string());
      if (name.ends_with(known.suffix))
        return fmt::format("{}: {}, which is not read; {}", file.string(), known.what, known.remedy);
    }
  return "";
}

/// Returns a name's letters before its first digit, dot, dash or underscore.
std::string word_of(const std::string& name) {
  const auto end = std::ranges::find_if(name, [](unsigned char c) { return std::isalpha(c) == 0; });
  return lower_case(std::string(name.begin(), end));
}

}  // namespace

std::string name_images_alone(const fs::path& at) {
  if (!is_folder(at)) return "";
  const std::vector<std::string> images = list_image_files(at).names;
  if (images.empty()) return "";
  std::map<std::string, std::int64_t> words;
  std::string folder;
  for (const std::string& image : images) {
    const fs::path path = image;
    const std::string word = word_of(path.filename().string());
    if (word.empty()) continue;  // numbers alone, as a competition's test images
    ++words[word];
    folder = path.parent_path().string();
  }
  std::string advice;
  if (words.size() > 1 && words.size() <= 100 && words.size() * 4 <= images.size()) {
    std::vector<std::string> names;
    for (const auto& [word, count] : words) names.push_back(word);
    advice = fmt::format(
        " (names begin with {}; in the shell, a folder for each: `cd {}; for c in {}; do mkdir -p classes/$c; mv "
        "$c[._-]* "
        "classes/$c; done`, then name the folder {})",
        shown(join(names, ", ", " and "), 200), (folder.empty() ? at : at / folder).string(),
        shown(join(names, " ", " "), 200), (at / folder / "classes").string());
  }
  return fmt::format(
      "{}: has {} image{}, but nothing says their classes: put them into two or more folders, one a class, or name "
      "them "
      "in a CSV file with the columns image and label{}",
      at.string(), format_count(std::ssize(images)), images.size() == 1 ? "" : "s", advice);
}

std::string name_labels_of_tools(const fs::path& at) { return tool_file_in(files_below(at)); }

std::string name_unread_file(const fs::path& at) {
  if (!is_folder(at)) {
    const std::string suffix = lower_case(at.extension().string());
    if (suffix == ".json") return fmt::format("{}: a JSON file, which is not read; {}", at.string(), kTables);
    if (suffix == ".npy")
      return fmt::format(
          "{}: one array; labels are expected in another file beside it, such as labels.npy: name the folder of both",
          at.string());
  }
  return known_file_in(files_below(at));
}

}  // namespace bantam::run
