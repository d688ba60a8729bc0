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
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/data/formats/csv_table.h"
#include "bantam/data/formats/held_out.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

enum CsvPart : std::uint8_t { kTrain, kValidation, kTest, kParts };

/// Mean and deviation of each feature.
struct Standard {
  std::vector<double> mean, deviation;

  /// A feature of one value becomes zeros. Throws DataError where the table has other features than these.
  void apply(CsvTable& table) const {
    if (mean.size() != table.features.size())
      throw DataError(fmt::format("{}: has {} features, but data.standardize has a mean and a std for {}",
                                  table.path.string(), table.features.size(), mean.size()));
    for (std::size_t i = 0; i < table.values.size(); ++i) {
      const std::size_t c = i % mean.size();
      const double divisor = deviation[c] > 0 ? deviation[c] : 1.0;
      table.values[i] = static_cast<float>((table.values[i] - mean[c]) / divisor);
    }
  }
};

struct CsvOptions {
  CsvColumns columns;
  std::array<fs::path, kParts> files;  // empty: there is no such part
  std::optional<double> share;         // held out of the training file; nothing: another file is
  fs::path root;                       // of images; empty: the folder of each file
  std::int64_t channels = 3;
  std::vector<std::string> classes;  // empty: those of the training file, sorted
  bool standardize = false;          // by the training rows
  std::optional<Standard> standard;  // by these numbers

  bool standardizes() const { return standardize || standard; }
};

/// Sorted as numbers where all are whole numbers, else as bytes.
void sort_classes(std::vector<std::string>& names) {
  std::vector<std::pair<std::int64_t, std::string>> numbered;
  for (const std::string& name : names) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size()) return std::ranges::sort(names), void();
    numbered.emplace_back(number, name);
  }
  std::ranges::sort(numbered);
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = numbered[i].second;
}

Standard standard_of(const CsvTable& table, std::span<const std::int32_t> rows) {
  const std::size_t columns = table.features.size();
  Standard of{std::vector<double>(columns, 0), std::vector<double>(columns, 0)};
  const auto count = static_cast<double>(rows.size());
  for (const std::int32_t row : rows)
    for (std::size_t c = 0; c < columns; ++c) of.mean[c] += table.values[static_cast<std::size_t>(row) * columns + c];
  for (double& value : of.mean) value /= count;
  for (const std::int32_t row : rows)
    for (std::size_t c = 0; c < columns; ++c) {
      const double from_mean = table.values[static_cast<std::size_t>(row) * columns + c] - of.mean[c];
      of.deviation[c] += from_mean * from_mean;
    }
  for (double& value : of.deviation) value = std::sqrt(value / count);
  return of;
}

/// A column as a configuration names it: by its name, or by its number where it has none, or one that is no text of a
/// configuration.
std::string yaml_of(const CsvColumn& column) {
  std::string quoted = "\"";
  for (const char c : column.name) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F)
      quoted += fmt::format("\\x{:02x}", code);
    else
      quoted += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  quoted += '"';
  std::string number = fmt::format("{}", column.number);
  if (column.name.empty()) return number;
  try {
    const bool is_same = ConfigDocument::parse("name: " + quoted, "a column").map().text("name") == column.name;
    return is_same ? quoted : number;
  } catch (const ConfigError&) {  // a control character of two bytes
    return number;
  }
}

/// The files of all parts, each read once, when it is first used, and the training one before the others.
class CsvSet {
 public:
  /// `like`: the set whose features and standardization this one has, as far as its own keys do not give them; null:
  /// there is none.
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
    (void)table(kTrain);
    return parts_;
  }
  std::vector<std::string> class_names() const {
    return table(kTrain).label_columns.empty() ? classes_ : table(kTrain).label_columns;
  }
  std::vector<SampleField> targets() const;
  /// Values of a row's targets.
  void write_targets(const CsvTable& table, std::int64_t row, std::span<const std::span<std::byte>> fields) const;
  /// See SampleReader.
  std::vector<std::pair<std::string, std::string>> settled_keys() const;
  bool has_presence() const { return options_.columns.labels.size() > 1 || !options_.columns.separator.empty(); }

 private:
  CsvTable load_training() const;
  CsvTable load_other(CsvPart part) const;
  void number_labels(CsvTable& table) const;
  std::optional<Standard> own_standard(const CsvTable& training) const;

  CsvOptions options_;
  std::shared_ptr<const CsvSet> like_;
  mutable std::array<Once, kParts> once_;
  mutable std::array<CsvTable, kParts> tables_;
  mutable Parts parts_;
  mutable std::vector<std::string> classes_;
  mutable std::optional<Standard> standard_;
};

/// Nothing where features stay as they are.
std::optional<Standard> CsvSet::own_standard(const CsvTable& training) const {
  if (options_.standard) return options_.standard;
  if (like_ != nullptr) return like_->standard_;  // whose training file is read
  if (options_.standardize) return standard_of(training, parts_.train);
  return std::nullopt;
}

CsvTable CsvSet::load_training() const {
  CsvColumns columns = options_.columns;
  const std::size_t expected = like_ != nullptr ? like_->table(kTrain).features.size() : 0;
  if (like_ != nullptr && columns.features.empty()) columns.features = like_->table(kTrain).features;
  CsvTable table = read_csv_table(options_.files[kTrain], columns);
  if (like_ != nullptr && table.features.size() != expected)
    throw DataError(fmt::format("{}: has {} features, but the training samples have {}", table.path.string(),
                                table.features.size(), expected));
  classes_ = options_.classes;
  if (classes_.empty()) {
    classes_ = table.label_names;
    sort_classes(classes_);
  }
  number_labels(table);
  if (options_.share)
    parts_ = hold_out(table.rows(), table.labels, *options_.share);
  else
    for (std::int64_t row = 0; row < table.rows(); ++row) parts_.train.push_back(static_cast<std::int32_t>(row));
  standard_ = own_standard(table);
  if (standard_) standard_->apply(table);
  return table;
}

CsvTable CsvSet::load_other(CsvPart part) const {
  CsvColumns columns = options_.columns;
  columns.features = tables_[kTrain].features;
  CsvTable table = read_csv_table(options_.files[part], columns);
  number_labels(table);
  if (standard_) standard_->apply(table);
  return table;
}

/// Places in the table's names become class numbers; sets of them become zeros and ones.
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
  if (table.sets.empty()) return;
  table.presence.assign(table.sets.size() * classes_.size(), 0.0f);
  for (std::size_t row = 0; row < table.sets.size(); ++row)
    for (const std::int32_t label : table.sets[row])
      table.presence[row * classes_.size() + static_cast<std::size_t>(numbers[static_cast<std::size_t>(label)])] = 1.0f;
  table.sets = {};
}

std::vector<std::pair<std::string, std::string>> CsvSet::settled_keys() const {
  std::vector<std::pair<std::string, std::string>> keys;
  const std::vector<CsvColumn>& features = table(kTrain).features;
  const auto is_named = [](const CsvColumn& column) { return !column.name.empty(); };
  if (options_.columns.features.empty() && std::ranges::any_of(features, is_named)) {
    std::vector<std::string> columns;
    for (const CsvColumn& feature : features) columns.push_back(yaml_of(feature));
    keys.emplace_back("features", fmt::format("[{}]", fmt::join(columns, ", ")));
  }
  if (options_.standardize && standard_)
    keys.emplace_back("standardize", fmt::format("{{mean: [{}], std: [{}]}}", fmt::join(standard_->mean, ", "),
                                                 fmt::join(standard_->deviation, ", ")));
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
  if (has_presence())
    copy_row(table.presence);
  else if (!options_.columns.labels.empty())
    copy_row(table.labels);
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

  DatasetFacts facts() const override {
    DatasetFacts facts{table().rows(), {std::ssize(table().features)}, set_->class_names()};
    facts.targets = set_->targets();
    facts.image_dtype = DType::float32;
    return facts;
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const float* first = table().values.data() + static_cast<std::size_t>(index) * table().features.size();
    std::memcpy(fields[0].data(), first, fields[0].size());
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
  bool sorted_by_class() const override { return stands_class_after_class(table()); }
  std::uint64_t resident_bytes() const override { return static_cast<std::uint64_t>(table().bytes()); }
  std::vector<std::pair<std::string, std::string>> settled_keys() const override { return set_->settled_keys(); }
  std::shared_ptr<const SampleReader> read_alike(std::shared_ptr<const SampleReader> other) const override {
    const auto* rows = dynamic_cast<const CsvNumbers*>(other.get());
    if (rows == nullptr) return other;
    const CsvOptions& options = rows->set_->options();
    if (options.standardize && !set_->options().standardizes())
      throw ConfigError("standardize: true, but the training samples are not standardized");
    return std::make_shared<CsvNumbers>(std::make_shared<const CsvSet>(options, set_), rows->part_);
  }

 private:
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

/// One column or a list of them; none where the key is missing.
std::vector<CsvColumn> read_columns(ConfigMap& data, ConfigKey key) {
  std::vector<CsvColumn> columns;
  const auto node = data.find(key);
  if (!node || node->is_text("all")) return columns;
  if (!node->is_list()) return {read_column(*node)};
  for (const ConfigNode& item : node->items()) columns.push_back(read_column(item));
  if (columns.empty()) node->fail("expected at least one column");
  return columns;
}

char read_delimiter(ConfigMap& data, const fs::path& file) {
  const auto node = data.find({"delimiter", "Character between cells, or tab.", "';'", "',', of .tsv files tab"});
  if (!node) return file.extension() == ".tsv" ? '\t' : ',';
  const std::string text = node->as_text();
  if (text == "tab" || text == "\t") return '\t';
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    node->fail(fmt::format("expected one character or tab, got '{}'", shown(text)));
  return text[0];
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
  columns.labels = read_columns(
      data,
      {"label",
       "Column of class names (text or numbers), or a list of columns that hold 0 or 1 for the absence or presence "
       "of a class each: then samples have several labels, the float32 vector 'targets'.",
       "label | [cat, dog]", "no labels"});
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

/// What samples are: images or numbers.
void read_sample_columns(ConfigMap& data, CsvOptions& options) {
  if (const auto image = data.find({"image",
                                    "Column of paths of JPEG and PNG files, relative to `root`. Without it samples are "
                                    "rows of numbers.",
                                    "image", "none: samples are numbers"}))
    options.columns.image = read_column(*image);
  options.root =
      data.text({"root", "Folder that images' paths are relative to; empty: that of the CSV file.", "photos"}, "");
  options.channels = read_image_channels(data);
  options.columns.features = read_columns(
      data, {"features",
             "Columns of numbers that are a sample; without images. all: of the training samples those of no other "
             "use, of data.validation the training samples' by their names. A run's config.yaml has the names.",
             "all | [a, b]", "all of no other use"});
  read_standardize(data, options);
  if (options.columns.image && !data.self().is_described()) {
    if (!options.columns.features.empty()) data.node("features").fail_at_key("samples are images: `image` names them");
    if (options.standardizes())
      data.node("standardize").fail_at_key("standardize is for features; images have `normalize`");
  }
}

void find_files(ConfigMap& data, CsvOptions& options) {
  const auto path = data.find({"path",
                               "A CSV file of which a share is held out, or the folder of those that `train`, "
                               "`validation` and `test` name. Relative to the current folder.",
                               "data/flowers.csv", "the current folder"});
  const PartNames names = read_part_names(data, "CSV file");
  const fs::path base = path ? path->as_text() : "";
  const std::array<std::string, kParts> parts = {names.train, names.validation, names.test};
  for (std::size_t p = 0; p < kParts; ++p)
    if (!parts[p].empty()) options.files[p] = base / parts[p];
  const bool has_parts = !names.validation.empty() || !names.test.empty();
  if (data.self().is_described()) return;
  if (names.train.empty()) {
    if (has_parts || !path)
      data.self().fail("name the CSV file: `path: FILE`, or `train: FILE` and `validation: FILE`");
    options.files[kTrain] = base;
  }
  if (!has_parts) options.share = names.share();
  if (has_parts && names.split) data.node("split").fail_at_key("nothing is split off where another file is held out");
  for (const fs::path& file : options.files)
    if (!file.empty() && !fs::exists(file)) data.self().fail(fmt::format("there is no file {}", file.string()));
}

}  // namespace

/// `data: {format: csv}`: path, train, validation, test, split, image, root, channels, features, standardize, label,
/// separator, target, weight, classes, header, delimiter.
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
  options.columns.delimiter = read_delimiter(data, options.files[kTrain]);
  const bool split = options.share.has_value();
  const auto set = std::make_shared<const CsvSet>(std::move(options));
  const auto all = reader_of_part(set, kTrain);
  if (split)
    return {reader_made_by([set, all] { return chosen_samples(all, set->parts().train); }),
            reader_made_by([set, all] { return chosen_samples(all, set->parts().held_out); }), nullptr, true, all};
  return splits_of_parts(all, reader_of_part(set, kValidation), reader_of_part(set, kTest), {});
}

}  // namespace bantam
