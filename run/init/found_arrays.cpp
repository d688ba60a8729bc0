// Arrays by their names, else by their shapes; labels by their values.
#include "bantam/run/init/found_arrays.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/data/files/npy_array.h"
#include "bantam/data/files/zip.h"
#include "bantam/run/init/found_files.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

enum class Part : std::uint8_t { none, train, validation, test };
enum class Kind : std::uint8_t { none, samples, labels };

struct NamedArray {
  std::string name;     // of a member, or a path
  std::string display;  // without folders
  Part part = Part::none;
  Kind kind = Kind::none;
  std::shared_ptr<const NpyArray> array = nullptr;
};

template <class Value, std::size_t N>
Value word_in(const std::array<std::pair<std::string_view, Value>, N>& words, std::string_view text) {
  for (const auto& [word, value] : words)
    if (word == text) return value;
  return {};
}

constexpr auto kParts = std::to_array<std::pair<std::string_view, Part>>({{"train", Part::train},
                                                                          {"training", Part::train},
                                                                          {"trn", Part::train},
                                                                          {"val", Part::validation},
                                                                          {"valid", Part::validation},
                                                                          {"validation", Part::validation},
                                                                          {"dev", Part::validation},
                                                                          {"test", Part::test},
                                                                          {"testing", Part::test},
                                                                          {"tst", Part::test}});
constexpr auto kKinds = std::to_array<std::pair<std::string_view, Kind>>(
    {{"x", Kind::samples},     {"images", Kind::samples}, {"image", Kind::samples},    {"imgs", Kind::samples},
     {"img", Kind::samples},   {"data", Kind::samples},   {"features", Kind::samples}, {"inputs", Kind::samples},
     {"input", Kind::samples}, {"pixels", Kind::samples}, {"faces", Kind::samples},    {"samples", Kind::samples},
     {"y", Kind::labels},      {"labels", Kind::labels},  {"label", Kind::labels},     {"targets", Kind::labels},
     {"target", Kind::labels}, {"classes", Kind::labels}, {"class", Kind::labels},     {"outputs", Kind::labels},
     {"masks", Kind::labels},  {"mask", Kind::labels}});

/// A word that is a part and a kind at once: "xtrain", "trainx".
void read_compound(std::string_view word, NamedArray& array) {
  for (const auto& [part, value] : kParts)
    for (const bool first : {true, false}) {
      if (!(first ? word.starts_with(part) : word.ends_with(part))) continue;
      const Kind kind = word_in(kKinds, first ? word.substr(part.size()) : word.substr(0, word.size() - part.size()));
      if (kind == Kind::none) continue;
      array.part = value;
      array.kind = std::max(array.kind, kind);
    }
}

/// By the words of its name; labels where it says both, as "faces_target" does.
NamedArray named(std::string name, const std::string& stem) {
  NamedArray array{.name = std::move(name), .display = stem};
  const std::string text = lower_case(stem);
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    if (const Part part = word_in(kParts, word); part != Part::none) array.part = part;
    array.kind = std::max(array.kind, word_in(kKinds, word));
    if (!word.empty()) read_compound(word, array);
    begin = end + 1;
  }
  return array;
}

/// Samples and labels of a part; null: there are none.
struct Pair {
  const NamedArray* samples = nullptr;
  const NamedArray* labels = nullptr;
  bool is_whole() const { return samples != nullptr && labels != nullptr; }
};

std::map<Part, Pair> pairs_by_name(const std::vector<NamedArray>& arrays) {
  std::map<Part, Pair> pairs;
  for (const NamedArray& array : arrays) {
    Pair& pair = pairs[array.part];
    if (array.kind == Kind::samples && pair.samples == nullptr) pair.samples = &array;
    if (array.kind == Kind::labels && pair.labels == nullptr) pair.labels = &array;
  }
  std::erase_if(pairs, [](const auto& entry) { return !entry.second.is_whole(); });
  // Arrays whose names say no part are the training samples.
  if (const auto none = pairs.find(Part::none); none != pairs.end()) {
    pairs.try_emplace(Part::train, none->second);
    pairs.erase(Part::none);
  }
  if (!pairs.contains(Part::train)) pairs.clear();
  return pairs;
}

/// Two arrays of as many rows belong together, and the one of more values a row has the samples; of two such pairs the
/// larger one is the training's.
std::map<Part, Pair> pairs_by_shape(const std::vector<NamedArray>& arrays) {
  std::map<std::int64_t, std::vector<const NamedArray*>, std::greater<>> by_rows;
  for (const NamedArray& array : arrays)
    if (array.array != nullptr && !array.array->extents().empty()) by_rows[array.array->rows()].push_back(&array);
  std::map<Part, Pair> pairs;
  for (const auto& [rows, group] : by_rows) {
    if (group.size() != 2 || rows < 2) continue;
    const bool first = group[0]->array->row_values() >= group[1]->array->row_values();
    const Pair pair{group[first ? 0 : 1], group[first ? 1 : 0]};
    if (pair.samples->array->row_values() == pair.labels->array->row_values()) continue;
    if (pairs.size() < 2) pairs.emplace(pairs.empty() ? Part::train : Part::test, pair);
  }
  return pairs;
}

/// Facts of the labels' values, over all parts.
struct LabelFacts {
  bool whole = true, zeros_and_ones = true, one_each = true;
  double least = 0, greatest = 0;
  std::set<double> values;  // so many at most
  std::int64_t rows = 0;

  static constexpr std::size_t kMostValues = 2000;
};

void add_labels(const NpyArray& labels, LabelFacts& facts) {
  constexpr std::int64_t kMostRows = 1 << 22;
  std::vector<float> row(static_cast<std::size_t>(labels.row_values()));
  for (std::int64_t r = 0; r < std::min(labels.rows(), kMostRows); ++r, ++facts.rows) {
    labels.read_rows(r, std::span(row));
    int ones = 0;
    for (const float value : row) {
      if (facts.values.empty()) facts.least = facts.greatest = value;
      facts.least = std::min<double>(facts.least, value);
      facts.greatest = std::max<double>(facts.greatest, value);
      facts.whole = facts.whole && value == std::floor(value) && std::isfinite(value);
      facts.zeros_and_ones = facts.zeros_and_ones && (value == 0 || value == 1);
      ones += value == 1 ? 1 : 0;
      if (facts.values.size() < LabelFacts::kMostValues && !std::isnan(value)) facts.values.insert(value);
    }
    facts.one_each = facts.one_each && ones == 1;
  }
}

/// Whole numbers that are few, and close together, are classes. Many of them have several samples each; where they are
/// stored as floating point, as measured numbers are, more of them.
bool are_classes(const LabelFacts& facts, bool integers) {
  constexpr std::int64_t kFew = 20;
  const auto different = std::ssize(facts.values);
  const std::int64_t samples_each = different <= kFew ? 2 : integers ? 3 : 10;
  return facts.whole && facts.values.size() < LabelFacts::kMostValues && different * samples_each <= facts.rows &&
         facts.greatest - facts.least < 4.0 * static_cast<double>(different) + 10;
}

/// A class a pixel: classes up to the greatest number, but for 255 far above the others, which counts for nothing.
void add_pixel_classes(const NpyArray& labels, FoundData& found) {
  constexpr std::int64_t kMostRows = 200;
  std::set<std::int64_t> values;
  std::vector<std::int64_t> row(static_cast<std::size_t>(labels.row_values()));
  for (std::int64_t r = 0; r < std::min(labels.rows(), kMostRows); ++r) {
    labels.read_rows(r, std::span(row));
    values.insert(row.begin(), row.end());
  }
  const bool ignores = values.contains(255) && *std::prev(values.end()) == 255;
  if (ignores) values.erase(255);
  const std::int64_t most = values.empty() ? -1 : *values.rbegin();
  if (most < 1 || most > 1000 || *values.begin() < 0)
    throw DataError(fmt::format(
        "{}: is {}, whose pixels are {}{}: expected class numbers 0, 1, …, as masks in a folder may be written in "
        "colours or other numbers (docs/tasks/OWN-DATA.md)",
        labels.name(), labels.description(), fmt::join(values, ", "), ignores ? " and 255" : ""));
  std::vector<std::string> names;
  for (std::int64_t c = 0; c <= most; ++c) names.push_back(fmt::format("'{}'", c));
  found.keys.push_back(fmt::format("classes: [{}]", fmt::join(names, ", ")));
  found.pixel_classes = most + 1;
  found.ignored = ignores;
}

/// Adds the keys that say what labels are.
void add_label_keys(const std::map<Part, Pair>& pairs, FoundData& found) {
  const NpyArray& labels = *pairs.at(Part::train).labels->array;
  if (labels.extents().size() >= 3 && labels.row_values() > 1) {
    if (labels.type().is_integer()) add_pixel_classes(labels, found);
    return;
  }
  if (labels.type().is_text()) return;
  LabelFacts facts;
  for (const auto& [part, pair] : pairs) add_labels(*pair.labels->array, facts);
  const bool integers = labels.type().is_integer();
  if (labels.row_values() > 1) {
    if (facts.zeros_and_ones && facts.one_each)
      found.keys.emplace_back("label_form: one_hot");
    else if (facts.zeros_and_ones)
      found.are_presences = true;
    return;
  }
  if (!are_classes(facts, integers)) {
    if (integers) found.keys.emplace_back("label_form: values     # too many numbers for classes: to be predicted");
    return;
  }
  if (!integers) found.keys.emplace_back("label_form: classes    # whole numbers, stored as floating point");
  if (facts.least != 0) found.keys.push_back(fmt::format("first_label: {}", static_cast<std::int64_t>(facts.least)));
}

/// (samples, channels, height, width), as PyTorch has images.
bool has_channels_first(const NpyArray& images) {
  const std::vector<std::int64_t>& extents = images.extents();
  const auto is_count = [](std::int64_t extent) { return extent == 1 || extent == 3 || extent == 4; };
  return extents.size() == 4 && is_count(extents[1]) && !is_count(extents[3]);
}

std::string shapes(const std::vector<NamedArray>& arrays) {
  std::vector<std::string> texts;
  for (const NamedArray& array : arrays)
    texts.push_back(array.array == nullptr ? array.display
                                           : fmt::format("{} {}", array.display, array.array->description()));
  return shown(join(texts, ", ", " and "), 400);
}

/// Arrays of a set, opened where they can be; those that cannot have no array.
std::map<Part, Pair> pairs_of(std::vector<NamedArray>& arrays,
                              const std::function<std::unique_ptr<FileBytes>(const NamedArray&)>& open) {
  std::string fault;
  for (NamedArray& array : arrays) {
    try {
      array.array = std::make_shared<const NpyArray>(open(array));
    } catch (const DataError& error) {
      if (array.kind != Kind::none) fault = error.what();
    }
  }
  std::map<Part, Pair> pairs = pairs_by_name(arrays);
  if (pairs.empty()) pairs = pairs_by_shape(arrays);
  std::erase_if(pairs, [](const auto& entry) {
    return entry.second.samples->array == nullptr || entry.second.labels->array == nullptr;
  });
  if (!pairs.contains(Part::train)) {
    if (!fault.empty()) throw DataError(fault);
    pairs.clear();
  }
  return pairs;
}

/// Returns the pair for the key `test`: of val and test both, val is what the run is evaluated on while it trains.
const Pair* held_out(const std::map<Part, Pair>& pairs) {
  for (const Part part : {Part::test, Part::validation})
    if (const auto found = pairs.find(part); found != pairs.end()) return &found->second;
  return nullptr;
}

bool has_own_validation(const std::map<Part, Pair>& pairs) {
  return pairs.contains(Part::validation) && pairs.contains(Part::test);
}

std::string layout_key(const std::map<Part, Pair>& pairs) {
  return has_channels_first(*pairs.at(Part::train).samples->array) ? "layout: nchw" : "";
}

}  // namespace

std::optional<FoundData> find_npz(const fs::path& at) {
  constexpr std::array<std::string_view, 1> kSuffix = {".npz"};
  const std::vector<fs::path> files = with_suffix(at, kSuffix);
  for (const fs::path& file : files) {
    const ZipFile archive(file);
    std::vector<NamedArray> arrays;
    for (const auto& [member, facts] : archive.members()) {
      const std::string stem = member.ends_with(".npy") ? member.substr(0, member.size() - 4) : member;
      arrays.push_back(named(stem, stem));
    }
    const std::map<Part, Pair> pairs =
        pairs_of(arrays, [&](const NamedArray& array) { return archive.open(array.name + ".npy"); });
    if (pairs.empty()) {
      if (&file != &files.back()) continue;
      throw DataError(fmt::format(
          "{}: it is not clear which of its arrays are samples and which labels ({}): expected names such as x_train "
          "and y_train, or images and labels; data.keys of `format: npz` names others",
          file.string(), shapes(arrays)));
    }
    FoundData found{.format = "npz", .keys = {path_key(file)}};
    const Pair& training = pairs.at(Part::train);
    std::string keys = fmt::format("keys: {{images: {}, labels: {}", yaml_text(training.samples->name),
                                   yaml_text(training.labels->name));
    if (const Pair* out = held_out(pairs))
      keys += fmt::format(", test_images: {}, test_labels: {}", yaml_text(out->samples->name),
                          yaml_text(out->labels->name));
    found.keys.push_back(keys + "}");
    if (const std::string layout = layout_key(pairs); !layout.empty()) found.keys.push_back(layout);
    add_label_keys(pairs, found);
    if (has_own_validation(pairs)) {
      const Pair& own = pairs.at(Part::validation);
      found.keys.push_back(fmt::format("validation: {{{}, keys: {{images: {}, labels: {}}}}}", path_key(file),
                                       yaml_text(own.samples->name), yaml_text(own.labels->name)));
    }
    return found;
  }
  return std::nullopt;
}

std::optional<FoundData> find_npy(const fs::path& at) {
  constexpr std::array<std::string_view, 3> kSuffixes = {".npy", ".npy.gz", ".npy.xz"};
  if (!is_folder(at)) return std::nullopt;
  std::vector<NamedArray> arrays;
  for (const fs::path& file : with_suffix(at, kSuffixes)) {
    const std::string name = file.filename().string();
    arrays.push_back(named(file.string(), name.substr(0, lower_case(name).find(".npy"))));
  }
  if (arrays.size() < 2) return std::nullopt;
  const std::map<Part, Pair> pairs =
      pairs_of(arrays, [](const NamedArray& array) { return open_file_bytes(array.name); });
  if (pairs.empty()) return std::nullopt;
  const auto files_of = [](const Pair& pair) {
    return fmt::format("{{images: {}, labels: {}}}", yaml_text(pair.samples->name), yaml_text(pair.labels->name));
  };
  FoundData found{.format = "npy", .keys = {"train: " + files_of(pairs.at(Part::train))}};
  if (const Pair* out = held_out(pairs)) found.keys.push_back("test: " + files_of(*out));
  if (const std::string layout = layout_key(pairs); !layout.empty()) found.keys.push_back(layout);
  add_label_keys(pairs, found);
  if (has_own_validation(pairs)) found.keys.push_back("validation: " + files_of(pairs.at(Part::validation)));
  return found;
}

}  // namespace bantam::run
