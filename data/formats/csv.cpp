// CSV files: images by their paths, or samples that are rows of numbers; with class names, several labels a sample,
// numbers to regress, and weights.
//
//     image,label                 a,b,c,price
//     photos/1.jpg,cat            0.5,1,3,17.2
//     photos/2.jpg,dog            0.1,4,2,11.9
//
// A file's columns are kept in host memory; images are read when they are used.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/data/formats/csv_images.h"
#include "bantam/data/formats/csv_table.h"
#include "bantam/data/formats/held_out.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

enum CsvPart : std::uint8_t { kTrain, kValidation, kTest, kParts };

/// A mean and a deviation for each feature. By which samples, whoever makes one says.
struct Standard {
  std::vector<double> mean, deviation;
};

/// How the numbers of a table become features.
struct Scaling {
  std::vector<double> fill;          // what stands for a missing number; empty: none is missing
  std::optional<Standard> standard;  // nothing: features stay as they are

  float feature(double value, std::size_t column) const {
    if (std::isnan(value)) value = fill[column];
    if (!standard) return static_cast<float>(value);
    const double deviation = standard->deviation[column];  // a feature of one value becomes zeros
    return static_cast<float>((value - standard->mean[column]) / (deviation > 0 ? deviation : 1.0));
  }
};

struct CsvOptions {
  CsvColumns columns;
  std::array<fs::path, kParts> files;  // empty: there is no such part
  std::optional<double> share;         // held out of the training file; nothing: another file is
  fs::path root;                       // of images; empty: the folder of each file
  std::string suffix;                  // of image files; empty: found
  std::int64_t channels = 3;
  std::vector<std::string> classes;  // empty: those of the training file, sorted
  bool standardize = false;          // by the training rows
  std::optional<Standard> standard;  // by these numbers
  bool says_missing = false;         // what becomes of missing numbers; else as the training samples do
  std::vector<double> fill;          // these numbers stand for missing ones; empty: the training rows' means
  std::vector<std::string> notes;

  bool standardizes() const { return standardize || standard; }
};

/// Means and deviations over some of the rows, of the numbers that are there; missing ones count as their mean.
Standard standard_of(const CsvTable& table, std::span<const std::int32_t> rows) {
  const std::size_t columns = table.features.size();
  Standard of{std::vector<double>(columns, 0), std::vector<double>(columns, 0)};
  std::vector<double> counts(columns, 0);
  const auto first = [&](std::int32_t row) { return static_cast<std::size_t>(row) * columns; };
  for (const std::int32_t row : rows)
    for (std::size_t c = 0; c < columns; ++c) {
      const double value = table.values[first(row) + c];
      if (std::isnan(value)) continue;
      of.mean[c] += value;
      ++counts[c];
    }
  for (std::size_t c = 0; c < columns; ++c) {
    if (counts[c] == 0 && !rows.empty())
      throw DataError(
          fmt::format("{}: no training sample has a number in column {}, so that it has no mean: leave it "
                      "out by data.features",
                      table.path.string(),
                      table.features[c].name.empty() ? fmt::format("{}", table.features[c].number)
                                                     : fmt::format("'{}'", shown(table.features[c].name))));
    of.mean[c] /= std::max(counts[c], 1.0);
  }
  for (const std::int32_t row : rows)
    for (std::size_t c = 0; c < columns; ++c) {
      const double value = table.values[first(row) + c];
      const double from_mean = std::isnan(value) ? 0 : value - of.mean[c];
      of.deviation[c] += from_mean * from_mean;
    }
  const double count = std::max(static_cast<double>(rows.size()), 1.0);
  for (double& value : of.deviation) value = std::sqrt(value / count);
  return of;
}

/// A column as a configuration names it: by its name, or by its number where it has none, or one that is no text of a
/// configuration.
std::string yaml_of(const CsvColumn& column) {
  fmt::memory_buffer quoted;
  quoted.push_back('"');
  for (const char c : column.name) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F) {
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", code);
      continue;
    }
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  std::string text = fmt::to_string(quoted), number = fmt::format("{}", column.number);
  if (column.name.empty()) return number;
  try {
    const ConfigDocument document = ConfigDocument::parse(fmt::format("name: {}", text), "a column");
    return document.map().text("name") == column.name ? text : number;
  } catch (const ConfigError&) {  // a control character of two bytes
    return number;
  }
}

/// The files of all parts, each read once, when it is first used, and the training one before the others.
class CsvSet {
 public:
  /// `like`: the set whose features and scaling this one has, as far as its own keys do not give them; null: there is
  /// none.
  explicit CsvSet(CsvOptions options, std::shared_ptr<const CsvSet> like = nullptr)
      : options_(std::move(options)), like_(std::move(like)) {}

  const CsvOptions& options() const { return options_; }
  const CsvTable& table(CsvPart part) const {
    if (part != kTrain) (void)table(kTrain);
    once_[part].run([&] { tables_[part] = part == kTrain ? load_training() : load_other(part); });
    return tables_[part];
  }
  /// Numbers of the training file's rows, where a share of it is held out.
  const Parts& parts() const {
    split_.run([&] { parts_ = split_training(); });
    return parts_;
  }
  std::vector<std::string> class_names() const {
    return table(kTrain).label_columns.empty() ? classes_ : table(kTrain).label_columns;
  }
  std::vector<SampleField> targets() const;
  /// Values of a row's targets.
  void write_targets(const CsvTable& table, std::int64_t row, std::span<const std::span<std::byte>> fields) const;
  /// How numbers become features: by the training rows, all of them but those that are held out.
  std::shared_ptr<const Scaling> scaling() const;
  /// From now on the training rows are these.
  void fit_to(std::span<const std::int32_t> rows) const;
  /// See SampleReader.
  std::vector<std::pair<std::string, std::string>> decided_keys() const;
  std::vector<std::string> notes(CsvPart part) const;
  bool has_presence() const {
    return (options_.columns.labels.size() > 1 && !options_.columns.one_hot) || !options_.columns.separator.empty();
  }

 private:
  CsvTable load_training() const;
  Parts split_training() const;
  CsvTable load_other(CsvPart part) const;
  CsvTable load(CsvPart part, const CsvColumns& columns) const;
  void number_labels(CsvTable& table) const;
  Scaling make_scaling(const Scaling* trained) const;

  CsvOptions options_;
  std::shared_ptr<const CsvSet> like_;
  mutable std::array<Once, kParts> once_;
  mutable std::array<CsvTable, kParts> tables_;
  mutable Once split_;
  mutable Parts parts_;  // once they are asked for: a table that is evaluated as a whole may be too small to be split
  mutable std::vector<std::string> classes_;
  mutable std::mutex scaling_;
  mutable std::vector<std::int32_t> fitted_;                 // rows that fit_to named; empty: those of parts()
  mutable std::shared_ptr<const Scaling> scaled_, trained_;  // null: not made yet; that of `like_` beside it
};

/// Notes of numbers that float32 cannot tell apart, such as seconds since 1970, where features stay as they are.
void note_large_numbers(CsvTable& table) {
  constexpr double kDigits = 1 << 24;
  const std::size_t columns = table.features.size();
  for (std::size_t c = 0; c < columns && !table.values.empty(); ++c) {
    double least = table.values[c], most = least;
    for (std::size_t i = c; i < table.values.size(); i += columns) {
      least = std::fmin(least, table.values[i]);
      most = std::fmax(most, table.values[i]);
    }
    const double size = std::max(std::fabs(least), std::fabs(most));
    if (size < kDigits || most - least > size / 4096) continue;
    table.notes.push_back(fmt::format(
        "{}: the numbers in column {}, {} to {}, differ in digits that float32 does not have: `standardize: true` "
        "keeps them",
        table.path.string(), shown(yaml_of(table.features[c])), least, most));
  }
}

/// Notes of rows that are copies of others.
void note_copies(CsvTable& table) {
  std::unordered_map<std::size_t, std::int64_t> seen;  // a row's hash → its line
  std::int64_t copies = 0, first = 0, of = 0;
  const std::size_t columns = table.features.size();
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    const auto r = static_cast<std::size_t>(row);
    std::size_t hash = table.images.empty() ? 0 : std::hash<std::string>()(table.images[r]);
    for (std::size_t c = 0; table.images.empty() && c < columns; ++c)
      hash = hash * 0x9E3779B97F4A7C15u + std::hash<double>()(table.values[r * columns + c]);
    if (table.images.empty() && !table.labels.empty()) hash = hash * 31 + static_cast<std::size_t>(table.labels[r]);
    const auto [entry, is_new] = seen.emplace(hash, table.lines[r]);
    if (is_new) continue;
    if (copies++ == 0) {
      first = table.lines[r];
      of = entry->second;
    }
  }
  // Rows of few or rounded numbers are equal by chance: a few among many, or most of them.
  const bool is_chance = table.images.empty() && (copies * 100 < table.rows() || copies > table.rows() / 2);
  if (copies == 0 || is_chance) return;
  table.notes.push_back(fmt::format(
      "{}: {} row{} {} an earlier row, the first in line {} that in line {}: where one is held out and the other is "
      "not, the evaluation is of samples that were trained on",
      table.path.string(), format_count(copies), copies == 1 ? "" : "s",
      table.images.empty() ? (copies == 1 ? "is a copy of" : "are copies of")
                           : (copies == 1 ? "names the image of" : "name the images of"),
      first, of));
}

CsvTable CsvSet::load(CsvPart part, const CsvColumns& columns) const {
  CsvTable table = read_csv_table(options_.files[part], columns);
  if (columns.image) {
    std::vector<std::string> notes =
        find_csv_images({.table = table.path, .root = options_.root, .suffix = options_.suffix}, table.images);
    std::ranges::move(notes, std::back_inserter(table.notes));
  }
  note_copies(table);
  if (!options_.standardizes() && (like_ == nullptr || !like_->options_.standardizes())) note_large_numbers(table);
  return table;
}

CsvTable CsvSet::load_training() const {
  CsvColumns columns = options_.columns;
  const std::size_t expected = like_ != nullptr ? like_->table(kTrain).features.size() : 0;
  if (like_ != nullptr && columns.features.empty()) columns.features = like_->table(kTrain).features;
  if (like_ != nullptr && !options_.says_missing) columns.missing = like_->options_.columns.missing;
  CsvTable table = load(kTrain, columns);
  if (like_ != nullptr && table.features.size() != expected)
    throw DataError(fmt::format("{}: has {} features, but the training samples have {}", table.path.string(),
                                table.features.size(), expected));
  const auto check = [&](std::string_view key, std::size_t numbers) {
    if (numbers > 0 && numbers != table.features.size())
      throw DataError(fmt::format("{}: has {} features, but data.{} for {}", table.path.string(), table.features.size(),
                                  key, numbers));
  };
  if (options_.standard) check("standardize has a mean and a std", options_.standard->mean.size());
  check("missing has a mean", options_.fill.size());
  classes_ = options_.classes;
  if (classes_.empty()) {
    classes_ = table.label_names;
    if (!columns.one_hot) sort_class_names(classes_);
  }
  number_labels(table);
  return table;
}

Parts CsvSet::split_training() const {
  const CsvTable& table = this->table(kTrain);
  if (options_.share)
    return hold_out({.samples = table.rows(), .labels = table.labels, .groups = table.groups}, *options_.share);
  Parts all;
  for (std::int64_t row = 0; row < table.rows(); ++row) all.train.push_back(static_cast<std::int32_t>(row));
  return all;
}

CsvTable CsvSet::load_other(CsvPart part) const {
  CsvColumns columns = options_.columns;
  columns.features = tables_[kTrain].features;
  CsvTable table = load(part, columns);
  number_labels(table);
  return table;
}

std::shared_ptr<const Scaling> CsvSet::scaling() const {
  const std::scoped_lock lock(scaling_);
  const std::shared_ptr<const Scaling> trained = like_ != nullptr ? like_->scaling() : nullptr;
  if (scaled_ == nullptr || trained != trained_) scaled_ = std::make_shared<const Scaling>(make_scaling(trained.get()));
  trained_ = trained;
  return scaled_;
}

/// `trained`: that of the set that this one is like; null: there is none.
Scaling CsvSet::make_scaling(const Scaling* trained) const {
  const CsvTable& training = table(kTrain);
  Scaling scaling{.fill = options_.fill, .standard = options_.standard};
  if (trained != nullptr) {
    if (!scaling.standard) scaling.standard = trained->standard;
    if (scaling.fill.empty()) scaling.fill = trained->fill;
  }
  const bool standardizes = options_.standardize && !scaling.standard;
  const bool fills = options_.columns.missing == CsvMissing::mean && scaling.fill.empty();
  if (!standardizes && !fills) return scaling;
  const Standard own = standard_of(training, fitted_.empty() ? parts().train : fitted_);
  if (fills) scaling.fill = own.mean;
  if (standardizes) scaling.standard = own;
  return scaling;
}

void CsvSet::fit_to(std::span<const std::int32_t> rows) const {
  const std::scoped_lock lock(scaling_);
  fitted_.assign(rows.begin(), rows.end());
  scaled_ = nullptr;
}

std::vector<std::string> CsvSet::notes(CsvPart part) const {
  std::vector<std::string> notes = part == kTrain ? options_.notes : std::vector<std::string>();
  const CsvTable& of = table(part);
  notes.insert(notes.end(), of.notes.begin(), of.notes.end());
  return notes;
}

/// Places in the table's names become class numbers.
void CsvSet::number_labels(CsvTable& table) const {
  std::unordered_map<std::string_view, std::int32_t> classes;
  for (const std::string& name : classes_) classes.emplace(name, static_cast<std::int32_t>(classes.size()));
  std::vector<std::int32_t> numbers;
  for (std::size_t i = 0; i < table.label_names.size(); ++i) {
    const auto found = classes.find(table.label_names[i]);
    if (found == classes.end())
      throw DataError(fmt::format("{}:{}: '{}' is no class {}, which are {}", table.path.string(), table.label_lines[i],
                                  shown(table.label_names[i]),
                                  options_.classes.empty() ? "of the training samples" : "of data.classes",
                                  shown(join(classes_, ", ", " and "), 400)));
    numbers.push_back(found->second);
  }
  for (std::int32_t& label : table.labels) label = numbers[static_cast<std::size_t>(label)];
  for (std::vector<std::int32_t>& set : table.sets)
    for (std::int32_t& label : set) label = numbers[static_cast<std::size_t>(label)];
}

std::vector<std::pair<std::string, std::string>> CsvSet::decided_keys() const {
  std::vector<std::pair<std::string, std::string>> keys;
  const std::vector<CsvColumn>& features = table(kTrain).features;
  const auto is_named = [](const CsvColumn& column) { return !column.name.empty(); };
  if (options_.columns.features.empty() && std::ranges::any_of(features, is_named)) {
    std::vector<std::string> columns;
    for (const CsvColumn& feature : features) columns.push_back(yaml_of(feature));
    keys.emplace_back("features", fmt::format("[{}]", fmt::join(columns, ", ")));
  }
  const std::shared_ptr<const Scaling> made = scaling();
  if (options_.columns.missing == CsvMissing::mean && options_.fill.empty())
    keys.emplace_back("missing", fmt::format("{{mean: [{}]}}", fmt::join(made->fill, ", ")));
  if (options_.standardize && made->standard)
    keys.emplace_back("standardize", fmt::format("{{mean: [{}], std: [{}]}}", fmt::join(made->standard->mean, ", "),
                                                 fmt::join(made->standard->deviation, ", ")));
  return keys;
}

std::vector<SampleField> CsvSet::targets() const {
  std::vector<SampleField> fields;
  const auto vector = [](std::size_t values) {
    return SampleField{"targets", {static_cast<std::int64_t>(values)}, DType::float32};
  };
  if (has_presence())
    fields.push_back(vector(class_names().size()));
  else if (!options_.columns.labels.empty())
    fields.push_back({"labels", {}, DType::int32});
  if (!options_.columns.targets.empty()) fields.push_back(vector(options_.columns.targets.size()));
  return fields;
}

void CsvSet::write_targets(const CsvTable& table, std::int64_t row,
                           std::span<const std::span<std::byte>> fields) const {
  std::size_t field = 0;
  const auto copy_row = [&](const auto& values) {
    const std::span<std::byte> out = fields[field++];
    std::memcpy(out.data(),
                reinterpret_cast<const std::byte*>(values.data()) + static_cast<std::size_t>(row) * out.size(),
                out.size());
  };
  if (!table.sets.empty()) {  // as zeros and ones, which all rows at once would have no room for
    const std::span<std::byte> out = fields[field++];
    std::ranges::fill(out, std::byte{0});
    constexpr float kPresent = 1;
    for (const std::int32_t label : table.sets[static_cast<std::size_t>(row)])
      std::memcpy(out.data() + static_cast<std::size_t>(label) * sizeof kPresent, &kPresent, sizeof kPresent);
  } else if (has_presence()) {
    copy_row(table.presence);
  } else if (!options_.columns.labels.empty()) {
    copy_row(table.labels);
  }
  if (!options_.columns.targets.empty()) copy_row(table.targets);
}

/// Whether the rows of each class stand together, and there are two classes or more.
bool stands_class_after_class(const CsvTable& table) {
  std::set<std::int32_t> seen;
  for (std::size_t row = 0; row < table.labels.size(); ++row) {
    const bool goes_on = row > 0 && table.labels[row] == table.labels[row - 1];
    if (!goes_on && !seen.insert(table.labels[row]).second) return false;
  }
  return seen.size() > 1;
}

/// Images of one file.
class CsvImages : public ImageFileReader {
 public:
  CsvImages(std::shared_ptr<const CsvSet> set, CsvPart part) : set_(std::move(set)), part_(part) {}

  DatasetFacts facts() const override {
    DatasetFacts facts{table().rows(), {0, 0, set_->options().channels}, set_->class_names()};
    facts.targets = set_->targets();
    return facts;
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    try {
      read_whole_file(path(index), fields[0]);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{} (named in {})", error.what(), row_text(index)));
    }
    const std::vector<SampleField> targets = set_->targets();
    std::vector<std::span<std::byte>> buffers;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      fields[t + 1].resize(targets[t].bytes());
      buffers.emplace_back(fields[t + 1]);
    }
    read_targets(index, buffers);
  }
  std::string name_of(std::int64_t index) const override {
    return fmt::format("{} ({})", path(index).string(), row_text(index));
  }
  std::vector<std::string> files_of(std::int64_t index) const override {
    return {path(index).string(), table().path.string()};
  }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    set_->write_targets(table(), index, targets);
  }
  std::vector<float> weights() const override { return table().weights; }
  std::vector<std::int32_t> groups() const override { return table().groups; }
  std::vector<std::string> notes() const override { return set_->notes(part_); }
  bool sorted_by_class() const override { return stands_class_after_class(table()); }
  std::uint64_t resident_bytes() const override { return static_cast<std::uint64_t>(table().bytes()); }

 private:
  std::uint64_t stored_bytes(std::int64_t index) const override { return file_bytes(path(index)); }
  const CsvTable& table() const { return set_->table(part_); }
  fs::path path(std::int64_t index) const {
    const fs::path& root = set_->options().root;
    return (root.empty() ? table().path.parent_path() : root) / table().images[static_cast<std::size_t>(index)];
  }
  std::string row_text(std::int64_t index) const {
    return fmt::format("{}:{}", table().path.string(), table().lines[static_cast<std::size_t>(index)]);
  }

  std::shared_ptr<const CsvSet> set_;
  CsvPart part_;
};

/// Rows of numbers of one file.
class CsvNumbers : public SampleReader {
 public:
  CsvNumbers(std::shared_ptr<const CsvSet> set, CsvPart part) : set_(std::move(set)), part_(part) {}

  DatasetFacts facts() const override { return facts_with(set_->class_names()); }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const CsvTable& rows = table();
    const std::shared_ptr<const Scaling> scaling = set_->scaling();
    const double* const first = rows.values.data() + static_cast<std::size_t>(index) * rows.features.size();
    for (std::size_t c = 0; c < rows.features.size(); ++c) {
      const float feature = scaling->feature(first[c], c);
      std::memcpy(fields[0].data() + c * sizeof feature, &feature, sizeof feature);
    }
    read_targets(index, fields.subspan(1));
  }
  std::string name_of(std::int64_t index) const override {
    return fmt::format("{}:{}", table().path.string(), table().lines[static_cast<std::size_t>(index)]);
  }
  std::vector<std::string> files_of(std::int64_t) const override { return {table().path.string()}; }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    set_->write_targets(table(), index, targets);
  }
  std::vector<float> weights() const override { return table().weights; }
  std::vector<std::int32_t> groups() const override { return table().groups; }
  std::vector<std::string> notes() const override { return set_->notes(part_); }
  bool sorted_by_class() const override { return stands_class_after_class(table()); }
  std::uint64_t resident_bytes() const override { return static_cast<std::uint64_t>(table().bytes()); }
  std::vector<std::pair<std::string, std::string>> decided_keys() const override { return set_->decided_keys(); }
  void fit_to(std::span<const std::int32_t> samples) const override {
    if (part_ == kTrain) set_->fit_to(samples);
  }
  std::shared_ptr<const SampleReader> read_alike(std::shared_ptr<const SampleReader> other) const override {
    const auto* rows = dynamic_cast<const CsvNumbers*>(other.get());
    if (rows == nullptr) return other;
    const CsvOptions& options = rows->set_->options();
    if (options.standardize && !set_->options().standardizes())
      throw ConfigError("standardize: true, but the training samples are not standardized");
    return std::make_shared<CsvNumbers>(std::make_shared<const CsvSet>(options, set_), rows->part_);
  }

 private:
  std::vector<SampleField> fields() const override { return facts_with({}).fields(); }
  DatasetFacts facts_with(std::vector<std::string> class_names) const {
    DatasetFacts facts{table().rows(), {std::ssize(table().features)}, std::move(class_names)};
    facts.targets = set_->targets();
    facts.image_dtype = DType::float32;
    return facts;
  }
  const CsvTable& table() const { return set_->table(part_); }

  std::shared_ptr<const CsvSet> set_;
  CsvPart part_;
};

std::shared_ptr<const SampleReader> reader_of_part(const std::shared_ptr<const CsvSet>& set, CsvPart part) {
  if (set->options().files[part].empty()) return nullptr;
  if (set->options().columns.image) return std::make_shared<CsvImages>(set, part);
  return std::make_shared<CsvNumbers>(set, part);
}

CsvColumn read_column(const ConfigNode& node) {
  CsvColumn column;
  try {
    column.name = node.as_text();
  } catch (const ConfigError&) {
    column.number = node.as_integer({.min = 0});
    return column;
  }
  if (column.name.empty()) node.fail("expected a column's name, or its number, from 0");
  return column;
}

/// One column or a list of them; none for `all`.
std::vector<CsvColumn> columns_in(const ConfigNode& node) {
  std::vector<CsvColumn> columns;
  if (node.is_text("all")) return columns;
  if (!node.is_list()) return {read_column(node)};
  for (const ConfigNode& item : node.items()) columns.push_back(read_column(item));
  if (columns.empty()) node.fail("expected at least one column");
  return columns;
}

/// None where the key is missing.
std::vector<CsvColumn> read_columns(ConfigMap& data, ConfigKey key) {
  const auto node = data.find(key);
  return node ? columns_in(*node) : std::vector<CsvColumn>();
}

std::optional<char> read_delimiter(ConfigMap& data) {
  const auto node = data.find({"delimiter",
                               "Character between cells, or tab, or space (any number of blanks). auto: the one of , ; "
                               "tab and | that cuts the first lines into equal numbers of cells.",
                               "';' | auto", "auto"});
  if (!node || node->is_text("auto")) return std::nullopt;
  const std::string text = node->as_text();
  if (text == "tab" || text == "\t") return '\t';
  if (text == "space") return ' ';
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    node->fail(fmt::format("expected one character, tab, space or auto, got '{}'", shown(text)));
  return text[0];
}

/// How the text is read: keys whose defaults are found in it.
void read_dialect(ConfigMap& data, CsvColumns& columns) {
  columns.dialect.separator = columns.separator;
  columns.dialect.delimiter = read_delimiter(data);
  const auto decimal = data.find({"decimal",
                                  "Character between the whole part and the fraction of numbers; the other one may "
                                  "group thousands. auto: a comma where numbers can only be read with one.",
                                  "',' | '.' | auto", "auto"});
  if (decimal && !decimal->is_text("auto")) columns.dialect.decimal = decimal->as_choice({".", ","})[0];
  if (const auto comment = data.find({"comment", "Text that lines begin with that are no rows; empty: there are none.",
                                      "'#'", "lines that begin with # and have not as many cells as rows"}))
    columns.dialect.comment = comment->as_text();
  const std::string encoding = data.choice(
      {"encoding",
       "Of the file. auto: UTF-8, UTF-16 with its byte order mark, or Latin-1 (Windows-1252), with a warning, where "
       "the bytes are no UTF-8.",
       "latin-1"},
      {"auto", "utf-8", "utf-16", "latin-1"}, "auto");
  columns.encoding = encoding == "utf-8"    ? TextEncoding::utf8
                     : encoding == "utf-16" ? TextEncoding::utf16
                     : encoding == "auto"   ? TextEncoding::automatic
                                            : TextEncoding::latin1;
}

CsvHeader read_header_key(ConfigMap& data) {
  const ConfigNode node = data.node({"header",
                                     "Whether the first row has the columns' names. auto: it has where a key names a "
                                     "column, or where none of its cells is a number or an image's path.",
                                     "true | false"},
                                    "auto");
  if (node.is_text("auto")) return CsvHeader::automatic;
  return node.as_boolean() ? CsvHeader::present : CsvHeader::absent;
}

/// Labels, targets and weights.
void read_target_columns(ConfigMap& data, CsvColumns& columns) {
  const auto label = data.find(
      {"label",
       "Column of class names (text or numbers); or a list of columns that hold 0 or 1 for the absence or presence "
       "of a class each: then samples have several labels, the float32 vector 'targets'. one_hot: columns of which "
       "one holds 1, the sample's class.",
       "label | [cat, dog] | {one_hot: [cat, dog]}", "no labels"});
  columns.one_hot = label && label->is_map();
  if (columns.one_hot) {
    ConfigMap map = label->as_map();
    columns.labels = columns_in(map.node({"one_hot",
                                          "Columns of the classes, in the order of their numbers: in each "
                                          "row one of them holds 1, the others 0.",
                                          "[cat, dog]"}));
    map.finish();
    if (columns.labels.size() < 2 && !label->is_described()) label->fail("one_hot needs two columns or more");
  } else if (label) {
    columns.labels = columns_in(*label);
  }
  if (const auto separator = data.find({"separator",
                                        "Text between the class names in a cell of the column `label`: samples then "
                                        "have several labels, the float32 vector 'targets'.",
                                        "'|'", "a cell has one name"})) {
    columns.separator = separator->as_text();
    if (columns.separator.empty() || columns.labels.size() != 1)
      if (!data.self().is_described())
        separator->fail_at_key("a separator is of the class names in one column: it needs `label: COLUMN`");
  }
  const auto target = data.find(
      {"target", "Column of numbers to be regressed, or a list of them: 'targets'.", "price | [x, y]", "none"});
  if (target) columns.targets = read_columns(data, "target");
  if (target && (columns.labels.size() > 1 || !columns.separator.empty()) && !data.self().is_described())
    target->fail_at_key("samples with several labels have no other targets: both would be called 'targets'");
  if (const auto weight = data.find({"weight",
                                     "Column of weights: how often a sample is drawn where data.sampling says "
                                     "`weights: true`.",
                                     "weight", "none"}))
    columns.weight = read_column(*weight);
  if (const auto group = data.find({"group",
                                    "Column whose values stay together where a share is held out (split, "
                                    "validation.split): all samples of a patient, say, on one side.",
                                    "patient_id", "each sample by itself"}))
    columns.group = read_column(*group);
}

std::vector<double> read_numbers(ConfigMap& map, ConfigKey key, NumberRange range) {
  std::vector<double> numbers;
  for (const ConfigNode& item : map.list(key)) numbers.push_back(item.as_number(range));
  return numbers;
}

void read_standardize(ConfigMap& data, CsvOptions& options) {
  const auto node = data.find(
      {"standardize",
       "Features less their mean, over their deviation. true: those of the training samples, for all other samples, "
       "too, data.validation among them. A run's config.yaml has the numbers, a mean and a std for each feature.",
       "true | {mean: [0.5, 20], std: [0.1, 4]}", "false"});
  if (!node) return;
  if (!node->is_map()) {
    options.standardize = node->as_boolean();
    return;
  }
  ConfigMap map = node->as_map();
  Standard standard;
  standard.mean = read_numbers(map, {"mean", "Subtracted from each feature.", "[0.5, 20]"}, {});
  standard.deviation =
      read_numbers(map, {"std", "What each difference is divided by; 0 counts as 1.", "[0.1, 4]"}, {.min = 0});
  map.finish();
  if (standard.mean.empty() || standard.mean.size() != standard.deviation.size())
    node->fail(fmt::format("expected a mean and a std for each feature, got {} of mean and {} of std",
                           standard.mean.size(), standard.deviation.size()));
  options.standard = std::move(standard);
}

/// Reads the key `missing`: how rows that lack a number are treated.
void read_missing(ConfigMap& data, CsvOptions& options) {
  const auto node = data.find(
      {"missing",
       "Rows with a missing number (an empty cell, NA, nan, null, None, ?, -) among their features. error: the file is "
       "refused; drop: they are left out; mean: the training samples' mean stands for it, for all other samples, too. "
       "drop and mean also leave out rows without label, target or image. A run's config.yaml has the means, one for "
       "each feature.",
       "drop | mean | {mean: [0.5, 20]}", "error"});
  if (!node) return;
  options.says_missing = true;
  if (!node->is_map()) {
    const std::string what = node->as_choice({"error", "drop", "mean"});
    options.columns.missing = what == "drop" ? CsvMissing::drop : what == "mean" ? CsvMissing::mean : CsvMissing::error;
    return;
  }
  ConfigMap map = node->as_map();
  options.columns.missing = CsvMissing::mean;
  options.fill = read_numbers(map, {"mean", "What stands for a missing number of each feature.", "[0.5, 20]"}, {});
  map.finish();
  if (options.fill.empty()) node->fail("expected a number for each feature");
}

/// Reads the keys for a sample's values: image files with their folder, suffix and channels, or columns of numbers.
void read_sample_columns(ConfigMap& data, CsvOptions& options) {
  if (const auto image = data.find({"image",
                                    "Column of paths of image files, relative to `root`. Without it samples are "
                                    "rows of numbers.",
                                    "image", "none: samples are numbers"}))
    options.columns.image = read_column(*image);
  options.root = as_path(
      data.node({"root", "Folder that images' paths are relative to; empty: that of the CSV file.", "photos"}, ""));
  options.suffix =
      data.text({"suffix", "Suffix of the image files, where the column has names without; empty: found.", ".jpg"}, "");
  if (!options.suffix.empty() && !options.suffix.starts_with('.')) options.suffix.insert(0, 1, '.');
  options.channels = read_image_channels(data);
  options.columns.features = read_columns(
      data, {"features",
             "Columns of numbers that are a sample; without images. all: of the training samples those of no other "
             "use, without columns of text and those that number the rows (id, index, 0 to n - 1), which a warning "
             "names; of data.validation the training samples' by their names. A run's config.yaml has the names.",
             "all | [a, b]", "all of no other use"});
  read_missing(data, options);
  read_standardize(data, options);
  if (options.columns.image && !data.self().is_described()) {
    if (!options.columns.features.empty()) data.node("features").fail_at_key("samples are images: `image` names them");
    if (options.standardizes())
      data.node("standardize").fail_at_key("standardize is for features; images have `normalize`");
    if (options.columns.missing == CsvMissing::mean)
      data.node("missing").fail_at_key("images have no mean: `missing: drop` leaves out rows without image or label");
  }
}

std::string small_letters(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// A table's name without its suffixes, in small letters; empty where the file is none.
std::string table_stem(const std::string& file) {
  const std::string lower = small_letters(file);
  for (const std::string_view suffix :
       {".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.xz", ".csv.bz2", ".csv.zst", ".csv.zip"})
    if (lower.ends_with(suffix)) return lower.substr(0, lower.size() - suffix.size());
  return "";
}

/// The tables of a folder: its only one, or those that are called train, val and test.
void find_tables(const ConfigNode& path, const fs::path& folder, CsvOptions& options) {
  std::vector<std::string> tables;
  for (const std::string& file : list_folder(folder).files)
    if (!table_stem(file).empty()) tables.push_back(file);
  const auto find = [&](std::span<const std::string_view> names) -> fs::path {
    for (const std::string_view name : names)
      for (const std::string& file : tables)
        if (table_stem(file) == name) return folder / file;
    return {};
  };
  options.files = {find(kTrainFolders), find(kValidationFolders), find(kTestFolders)};
  if (tables.size() == 1) options.files = {folder / tables[0]};
  if (!options.files[kTrain].empty()) return;
  path.fail(tables.empty()
                ? fmt::format("the folder {} holds no .csv or .tsv file", folder.string())
                : fmt::format("the folder {} holds {}: name the one of the training samples by `train: FILE`, or the "
                              "file itself by `path`",
                              folder.string(), shown(join(tables, ", ", " and "), 200)));
}

/// The file, or one that is compressed beside it: train.csv.gz for train.csv.
fs::path file_or_compressed(fs::path file) {
  std::error_code error;
  if (file.empty() || fs::exists(file, error)) return file;
  for (const std::string_view suffix : {".gz", ".zip", ".xz", ".bz2", ".zst"}) {
    fs::path compressed = file;
    compressed += suffix;
    if (fs::exists(compressed, error)) return compressed;
  }
  return file;
}

void find_files(ConfigMap& data, CsvOptions& options) {
  const auto path = data.find({"path",
                               "A CSV file of which a share is held out, or the folder of those that `train`, "
                               "`validation` and `test` name, or of files that are called so. Files may be compressed "
                               "(.gz, .xz, .bz2, .zst, or a .zip of one file).",
                               "data/flowers.csv", "the current folder"});
  const PartNames names = read_part_names(data, "CSV file");
  const FoundPath found = path ? find_path(*path) : FoundPath{};
  const fs::path& base = found.path;
  const std::array<std::string, kParts> parts = {names.train, names.validation, names.test};
  for (std::size_t p = 0; p < kParts; ++p)
    if (!parts[p].empty())
      options.files[p] = path ? base / expanded_path(parts[p]) : find_path(data.self(), parts[p]).path;
  if (data.self().is_described()) return;
  std::error_code error;
  if (names.train.empty()) {
    if (!names.validation.empty() || !names.test.empty() || !path)
      data.self().fail("name the CSV file: `path: FILE`, or `train: FILE` and `validation: FILE`");
    if (fs::is_directory(base, error))
      find_tables(*path, base, options);
    else
      options.files[kTrain] = base;
  }
  for (fs::path& file : options.files) {
    file = file_or_compressed(std::move(file));
    if (!file.empty() && !fs::exists(file))
      data.self().fail(fmt::format("there is no file {}{}", file.string(), found.places()));
  }
  const bool has_parts = !options.files[kValidation].empty() || !options.files[kTest].empty();
  if (!has_parts) options.share = names.share();
  if (has_parts && names.split) data.node("split").fail_at_key("nothing is split off where another file is held out");
}

/// Files of samples to be predicted have no column of labels: they are no part of the set.
void leave_out_unlabelled(ConfigMap& data, CsvOptions& options) {
  const auto needed = [&] {
    std::vector<std::string> names;
    for (const auto* columns : {&options.columns.labels, &options.columns.targets})
      for (const CsvColumn& column : *columns)
        if (!column.name.empty()) names.push_back(column.name);
    return names;
  }();
  if (needed.empty() || data.self().is_described()) return;
  bool is_changed = false;
  for (const CsvPart part : {kValidation, kTest}) {
    fs::path& file = options.files[part];
    if (file.empty()) continue;
    const std::vector<std::string> header = csv_header(file, options.columns);
    const auto is_there = [&](const std::string& name) { return std::ranges::find(header, name) != header.end(); };
    if (header.empty() || std::ranges::any_of(needed, is_there)) continue;
    options.notes.push_back(fmt::format("{}: has no column {}, so that nothing can be evaluated on it: it is left out",
                                        file.string(), shown(join(needed, ", ", " or "), 200)));
    file.clear();
    is_changed = true;
  }
  if (is_changed && options.files[kValidation].empty() && options.files[kTest].empty()) {
    const auto split = data.find("split");
    options.share = split ? split->as_number() : PartNames::kSplit;
  }
}

}  // namespace

/// `data: {format: csv}`: path, train, validation, test, split, image, root, suffix, channels, features, missing,
/// standardize, label, separator, target, weight, group, classes, header, delimiter, decimal, comment, encoding.
SampleSplits csv_format(ConfigMap& data) {
  data.describe(
      "CSV files: images by their paths, or samples that are rows of numbers (float32 vectors), with class names, "
      "several labels a sample, or numbers to regress. Keys that name a column say its name in the header, or its "
      "number, from 0.");
  CsvOptions options;
  find_files(data, options);
  read_sample_columns(data, options);
  read_target_columns(data, options.columns);
  if (const auto classes = data.find({"classes", "Class names in the order of their numbers.", "[cat, dog]",
                                      "those of the training samples, sorted (numbers as numbers)"}))
    options.classes = read_class_names(*classes);
  options.columns.header = read_header_key(data);
  read_dialect(data, options.columns);
  leave_out_unlabelled(data, options);
  const bool split = options.share.has_value();
  const auto set = std::make_shared<const CsvSet>(std::move(options));
  const auto all = reader_of_part(set, kTrain);
  if (split)
    return {reader_made_by([set, all] { return chosen_samples(all, set->parts().train); }),
            reader_made_by([set, all] { return chosen_samples(all, set->parts().held_out); }), nullptr, true, all};
  return splits_of_parts(all, reader_of_part(set, kValidation), reader_of_part(set, kTest), {});
}

}  // namespace bantam
