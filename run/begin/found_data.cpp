// One function a format, tried in order.
#include "bantam/run/begin/found_data.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/data/files/zip.h"
#include "bantam/data/formats/csv_cells.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/run/begin/found_masks.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;
using Names = std::span<const std::string_view>;

std::string small(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string path_key(const fs::path& path) { return "path: " + yaml_text(path.string()); }

/// A folder's files, and itself where it is one.
std::vector<fs::path> files_at(const fs::path& at) {
  if (fs::is_regular_file(at)) return {at};
  std::vector<fs::path> files;
  for (const std::string& name : list_folder(at).files) files.push_back(at / name);
  return files;
}

std::vector<fs::path> with_suffix(const fs::path& at, Names suffixes) {
  std::vector<fs::path> found;
  for (const fs::path& file : files_at(at)) {
    const std::string name = small(file.filename().string());
    if (std::ranges::any_of(suffixes, [&](std::string_view suffix) { return name.ends_with(suffix); }))
      found.push_back(file);
  }
  return found;
}

/// The first of `names` that is among `known`, in letters of either case; empty: none is.
std::string first_of(const std::vector<std::string>& known, Names names) {
  for (const std::string_view name : names)
    for (const std::string& other : known)
      if (small(other) == name) return other;
  return "";
}

std::optional<FoundData> find_idx(const fs::path& at) {
  if (!fs::is_directory(at)) return std::nullopt;
  for (const char* name : {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"})
    if (fs::exists(at / name)) return FoundData{"idx", {path_key(at)}};
  return std::nullopt;
}

std::optional<FoundData> find_cifar(const fs::path& at) {
  const auto begins = [](const std::string& name, std::string_view with) { return small(name).starts_with(with); };
  for (const fs::path& file : files_at(at)) {
    const std::string name = file.filename().string();
    if (begins(name, "data_batch_1") || begins(name, "cifar-10-")) return FoundData{"cifar10", {path_key(at)}};
    if (begins(name, "cifar-100-")) return FoundData{"cifar100", {path_key(at)}};
  }
  if (!fs::is_directory(at)) return std::nullopt;
  for (const char* name : {"train.bin", "train.bin.xz", "train.bin.gz", "train"})
    if (fs::is_regular_file(at / name) && fs::exists(at / (std::string(name) == "train" ? "meta" : name)))
      return FoundData{"cifar100", {path_key(at)}};
  return std::nullopt;
}

constexpr std::array<std::string_view, 6> kTrainArrays = {"x_train", "train_images", "images", "x", "data", "features"};
constexpr std::array<std::string_view, 6> kTrainLabels = {"y_train", "train_labels", "labels", "y", "label", "classes"};
constexpr std::array<std::string_view, 3> kTrainTargets = {"train_targets", "targets", "target"};
constexpr std::array<std::string_view, 2> kTestArrays = {"x_test", "test_images"};
constexpr std::array<std::string_view, 2> kTestLabels = {"y_test", "test_labels"};
constexpr std::array<std::string_view, 1> kTestTargets = {"test_targets"};

/// Arrays of a set by what they are for.
struct ArrayKeys {
  std::string images, labels, targets, test_images, test_labels, test_targets;
  explicit ArrayKeys(const std::vector<std::string>& known)
      : images(first_of(known, kTrainArrays)),
        labels(first_of(known, kTrainLabels)),
        targets(labels.empty() ? first_of(known, kTrainTargets) : ""),
        test_images(first_of(known, kTestArrays)),
        test_labels(labels.empty() ? "" : first_of(known, kTestLabels)),
        test_targets(targets.empty() ? "" : first_of(known, kTestTargets)) {}
  bool is_set() const { return !images.empty() && (!labels.empty() || !targets.empty()); }
  bool has_test() const { return !test_images.empty() && (!test_labels.empty() || !test_targets.empty()); }
  /// "{images: a.npy, labels: b.npy}" of names as `spelled`.
  std::string yaml(bool test, std::string_view before,
                   const std::function<std::string(const std::string&)>& spelled) const {
    const std::string& x = test ? test_images : images;
    const std::string& label = test ? test_labels : labels;
    const std::string& target = test ? test_targets : targets;
    const bool has_labels = !label.empty();
    return fmt::format("{0}images: {1}, {0}{2}: {3}", before, spelled(x), has_labels ? "labels" : "targets",
                       spelled(has_labels ? label : target));
  }
};

std::optional<FoundData> find_npz(const fs::path& at) {
  constexpr std::array<std::string_view, 1> kSuffix = {".npz"};
  for (const fs::path& file : with_suffix(at, kSuffix)) {
    std::vector<std::string> arrays;
    const ZipFile archive(file);
    for (const auto& [member, facts] : archive.members()) arrays.push_back(member.substr(0, member.rfind(".npy")));
    const ArrayKeys keys(arrays);
    if (!keys.is_set())
      throw DataError(
          fmt::format("{}: none of its arrays ({}) is called like images and labels: expected x_train and "
                      "y_train, images and labels, or data.keys",
                      file.string(), fmt::join(arrays, ", ")));
    std::string named = "keys: {" + keys.yaml(false, "", yaml_text);
    if (keys.has_test()) named += ", " + keys.yaml(true, "test_", yaml_text);
    return FoundData{"npz", {path_key(file), named + "}"}};
  }
  return std::nullopt;
}

std::optional<FoundData> find_npy(const fs::path& at) {
  constexpr std::array<std::string_view, 2> kSuffixes = {".npy", ".npy.gz"};
  if (!fs::is_directory(at)) return std::nullopt;
  std::vector<std::string> stems, files;
  for (const fs::path& file : with_suffix(at, kSuffixes)) {
    const std::string name = file.filename().string();
    stems.push_back(name.substr(0, name.find('.')));
    files.push_back(file.string());
  }
  const ArrayKeys keys(stems);
  if (!keys.is_set()) return std::nullopt;
  const auto file_of = [&](const std::string& stem) {
    return yaml_text(files[static_cast<std::size_t>(std::ranges::find(stems, stem) - stems.begin())]);
  };
  if (keys.has_test())
    return FoundData{
        "npy", {"train: {" + keys.yaml(false, "", file_of) + "}", "test: {" + keys.yaml(true, "", file_of) + "}"}};
  return FoundData{"npy", {"train: {" + keys.yaml(false, "", file_of) + "}"}};
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

bool is_whole(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// A CSV's first row and, of up to a thousand rows, what its columns hold.
struct CsvHead {
  struct Column {
    std::string name;
    bool numbers = true, whole = true, images = true;
    std::set<std::string> values;
  };
  std::vector<Column> columns;
  char delimiter = ',';
  std::int64_t rows = 0;
};

char delimiter_of(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const auto count = [&](char c) { return std::ranges::count(line, c); };
  char most = ',';
  for (const char c : {';', '\t'})
    if (count(c) > count(most)) most = c;
  return most;
}

CsvHead read_head(const fs::path& file) {
  constexpr std::int64_t kMostRows = 1000;
  const std::string text = read_file(file);
  CsvHead head;
  head.delimiter = delimiter_of(text);
  CsvCells cells(text, head.delimiter, file.string());
  std::vector<std::string_view> row;
  if (!cells.next(row)) throw DataError(fmt::format("{}: is empty", file.string()));
  for (const std::string_view name : row) head.columns.push_back({std::string(name), true, true, true, {}});
  for (; head.rows < kMostRows && cells.next(row); ++head.rows) {
    for (std::size_t c = 0; c < std::min(row.size(), head.columns.size()); ++c) {
      CsvHead::Column& column = head.columns[c];
      column.numbers = column.numbers && is_number(row[c]);
      column.whole = column.whole && is_whole(row[c]);
      column.images = column.images && has_image_suffix(row[c]);
      column.values.insert(std::string(row[c]));
    }
  }
  return head;
}

/// Class names or few whole numbers; else a number to predict.
bool is_label(const CsvHead::Column& column, std::int64_t rows) {
  constexpr std::size_t kMostNumbers = 20;
  if (!column.numbers) return true;
  return column.whole && column.values.size() <= kMostNumbers && std::ssize(column.values) * 2 < rows;
}

const CsvHead::Column* predicted_column(const CsvHead& head) {
  constexpr std::array<std::string_view, 9> kUsual = {"label", "class",  "target",  "category", "species",
                                                      "kind",  "labels", "variety", "y"};
  for (const std::string_view name : kUsual)
    for (const CsvHead::Column& column : head.columns)
      if (small(column.name) == name) return &column;
  for (auto column = head.columns.rbegin(); column != head.columns.rend(); ++column)
    if (!column->images && (column->numbers || column->values.size() * 2 < static_cast<std::size_t>(head.rows)))
      return &*column;
  return nullptr;
}

/// Lines of the columns, by the header's names.
std::vector<std::string> column_keys(const CsvHead& head, const fs::path& file) {
  std::vector<std::string> keys;
  const auto image = std::ranges::find_if(head.columns, &CsvHead::Column::images);
  const CsvHead::Column* predicted = predicted_column(head);
  if (predicted == nullptr || head.rows == 0)
    throw DataError(
        fmt::format("{}: no column looks like a class or a number to predict: expected a header with a "
                    "column such as label, class or target",
                    file.string()));
  if (image != head.columns.end()) keys.push_back("image: " + yaml_text(image->name));
  keys.push_back(
      fmt::format("{}: {}", is_label(*predicted, head.rows) ? "label" : "target", yaml_text(predicted->name)));
  if (head.delimiter == '\t' || head.delimiter == ';')
    keys.push_back(head.delimiter == '\t' ? "delimiter: tab" : "delimiter: ';'");
  if (image != head.columns.end()) return keys;
  std::vector<std::string> features;
  for (const CsvHead::Column& column : head.columns)
    if (&column != predicted && column.numbers && small(column.name) != "id")
      features.push_back(yaml_text(column.name));
  if (features.empty()) throw DataError(fmt::format("{}: no column of numbers, and none of images", file.string()));
  keys.push_back(fmt::format("features: [{}]", fmt::join(features, ", ")));
  keys.emplace_back("standardize: true");
  return keys;
}

std::optional<FoundData> find_csv(const fs::path& at) {
  constexpr std::array<std::string_view, 2> kSuffixes = {".csv", ".tsv"};
  constexpr std::array<std::string_view, 2> kTrain = {"train", "training"};
  constexpr std::array<std::string_view, 5> kHeldOut = {"validation", "valid", "val", "test", "testing"};
  const std::vector<fs::path> files = with_suffix(at, kSuffixes);
  if (files.empty()) return std::nullopt;
  std::vector<std::string> stems;
  for (const fs::path& file : files) stems.push_back(file.stem().string());
  const std::string train = first_of(stems, kTrain), held_out = first_of(stems, kHeldOut);
  const auto file_of = [&](const std::string& stem) {
    return files[static_cast<std::size_t>(std::ranges::find(stems, stem) - stems.begin())];
  };
  const fs::path first = train.empty() ? files.front() : file_of(train);
  FoundData found{"csv", {}};
  if (!train.empty() && !held_out.empty())
    found.keys = {path_key(at), "train: " + yaml_text(first.filename().string()),
                  "validation: " + yaml_text(file_of(held_out).filename().string())};
  else
    found.keys = {path_key(first)};
  const std::vector<std::string> columns = column_keys(read_head(first), first);
  found.keys.insert(found.keys.end(), columns.begin(), columns.end());
  return found;
}

bool has_images(const fs::path& folder) { return !list_image_files(folder).names.empty(); }

std::optional<FoundData> find_classes(const fs::path& at) {
  if (!fs::is_directory(at)) return std::nullopt;
  fs::path training = at;
  for (const std::string& part : find_folders(at, kTrainFolders)) training = at / part;
  const std::vector<std::string> classes = list_folder(training).folders;
  const auto is_class = [&](const std::string& name) { return has_images(training / name); };
  if (std::ranges::count_if(classes, is_class) < 2) return std::nullopt;
  return FoundData{"image_folder", {path_key(at)}};
}

/// The one folder of a folder that has nothing else.
fs::path inner_folder(const fs::path& at) {
  if (!fs::is_directory(at)) return {};
  const FolderEntries entries = list_folder(at);
  return entries.folders.size() == 1 && entries.files.empty() ? at / entries.folders.front() : fs::path();
}

}  // namespace

std::string yaml_text(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  const bool is_word = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/' ||
                                         text.starts_with("./") || text.starts_with("../"));
  static const std::set<std::string, std::less<>> words = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  if (is_word && std::ranges::all_of(text, is_plain) && !words.contains(small(text))) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

FoundData find_data(const fs::path& at) {
  if (!fs::exists(at)) throw DataError(fmt::format("{}: there is no such file or folder", at.string()));
  for (const auto find : {find_idx, find_cifar, find_masks, find_npz, find_npy, find_csv, find_classes})
    if (const std::optional<FoundData> found = find(at)) return *found;
  constexpr int kMostFolders = 4;
  fs::path inner = at;
  for (int i = 0; i < kMostFolders && !(inner = inner_folder(inner)).empty(); ++i)
    for (const auto find : {find_idx, find_cifar, find_masks, find_npz, find_npy, find_csv, find_classes})
      if (const std::optional<FoundData> found = find(inner)) return *found;
  throw DataError(fmt::format(
      "{}: no data set was found: expected two or more class folders of .jpg and .png files (or train/ and val/ with "
      "those), images/ and masks/, a .csv or .tsv file, .npz or .npy arrays of images and labels, MNIST's idx files, "
      "or "
      "CIFAR's files",
      at.string()));
}

}  // namespace bantam::run
