// Columns by the configuration's names, rows to samples.
#include "bantam/run/trained/predicted_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/files/file_bytes.h"
#include "bantam/data/files/table_text.h"
#include "bantam/data/files/zip.h"
#include "bantam/data/formats/array_reader.h"
#include "bantam/data/formats/csv_cells.h"
#include "bantam/data/formats/csv_images.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/run/init/found_files.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

/// A column of the training samples: by its name, or by its number where that is empty.
struct FeatureColumn {
  std::string name;
  std::int64_t number = 0;
};

/// How a CSV configuration makes a sample of a row; without features it does not say.
struct RowKeys {
  std::vector<FeatureColumn> features;
  std::vector<double> mean, deviation;  // empty: values stay as they are
  std::vector<double> fill;             // of missing cells; empty: they are errors
};

std::vector<FeatureColumn> read_features(const ConfigNode& node) {
  std::vector<FeatureColumn> columns;
  if (node.is_text("all")) return columns;
  for (const ConfigNode& item : node.is_list() ? node.items() : std::vector<ConfigNode>{node}) {
    FeatureColumn column;
    try {
      column.name = item.as_text();
    } catch (const ConfigError&) {
      column.number = item.as_integer({.min = 0});
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

/// Keys that a run's config.yaml has; true: `standardize` still has to be measured.
bool read_row_keys(ConfigMap map, RowKeys& keys) {
  if (const auto features = map.find("features")) keys.features = read_features(*features);
  if (const auto missing = map.find("missing"); missing && missing->is_map())
    for (const ConfigNode& item : missing->as_map().list("mean")) keys.fill.push_back(item.as_number());
  const auto standardize = map.find("standardize");
  if (!standardize) return false;
  if (!standardize->is_map()) return standardize->as_boolean();
  ConfigMap numbers = standardize->as_map();
  for (const ConfigNode& item : numbers.list("mean")) keys.mean.push_back(item.as_number());
  for (const ConfigNode& item : numbers.list("std")) keys.deviation.push_back(item.as_number());
  return false;
}

/// A configuration that was not a run's leaves them to its training samples.
RowKeys row_keys(const ConfigNode& section) {
  RowKeys keys;
  const bool open = read_row_keys(section.as_map(), keys);
  if (!open && !keys.features.empty()) return keys;
  std::string text;
  try {
    const DataOptions data = read_data_config(section, StagesFor::survey);
    for (const auto& [key, value] : data.source.train->decided_keys()) text += fmt::format("{}: {}\n", key, value);
  } catch (const Error& error) {
    if (!open) return keys;
    section.fail_at_key(
        fmt::format("standardize: true needs the training samples, which cannot be read ({}); a run's "
                    "own config.yaml has their numbers: name the run's folder",
                    error.what()));
  }
  if (!text.empty()) (void)read_row_keys(ConfigDocument::parse(text, "the training samples").map(), keys);
  return keys;
}

std::optional<double> number_in(std::string_view cell, char decimal = '.') {
  const std::optional<double> value = csv_number(cell, decimal);
  return value && std::isfinite(static_cast<float>(*value)) ? value : std::nullopt;
}

/// A CSV file's rows as text.
struct TextTable {
  std::vector<std::string> columns;
  bool header = false;
  char decimal = '.';
  std::vector<std::vector<std::string>> rows;
  std::vector<std::int64_t> lines;
};

bool is_header(const std::vector<std::string>& row, const std::vector<FeatureColumn>& features) {
  const auto is_name = [&](const std::string& cell) {
    return std::ranges::any_of(features, [&](const FeatureColumn& feature) { return feature.name == cell; });
  };
  if (std::ranges::any_of(row, is_name)) return true;
  return std::ranges::none_of(
      row, [](const std::string& cell) { return number_in(cell).has_value() || has_image_suffix(cell); });
}

TextTable read_text_table(const fs::path& file, const std::vector<FeatureColumn>& features) {
  const TableText text = read_table_text(file);
  const CsvDialect dialect = find_csv_dialect(text.text, {});
  CsvCells cells(text.text, dialect, file.string());
  TextTable table;
  table.decimal = dialect.decimal;
  std::vector<std::string_view> row;
  while (cells.next(row)) {
    std::vector<std::string> copy;
    for (const std::string_view cell : row) copy.emplace_back(trimmed_cell(cell));
    if (table.columns.empty()) {
      table.header = is_header(copy, features);
      table.columns = copy;
      if (table.header) continue;
      for (std::size_t c = 0; c < copy.size(); ++c) table.columns[c] = fmt::format("{}", c);
    }
    if (copy.size() != table.columns.size())
      throw DataError(fmt::format("{}:{}: has {} columns, expected {} as in the first row", file.string(), cells.line(),
                                  copy.size(), table.columns.size()));
    table.rows.push_back(std::move(copy));
    table.lines.push_back(cells.line());
  }
  if (table.rows.empty()) throw DataError(fmt::format("{}: has no rows", file.string()));
  return table;
}

std::string columns_text(const std::vector<std::string>& columns) { return shown(join(columns, ", ", " and "), 400); }

std::string features_text(const std::vector<FeatureColumn>& features) {
  std::vector<std::string> names;
  for (const FeatureColumn& feature : features)
    names.push_back(feature.name.empty() ? fmt::format("{}", feature.number) : feature.name);
  return columns_text(names);
}

std::optional<std::size_t> column_called(const TextTable& table, const std::string& name) {
  const auto same = std::ranges::find(table.columns, name);
  if (same != table.columns.end()) return same - table.columns.begin();
  const auto alike = std::ranges::find(table.columns, lower_case(name), [](const auto& c) { return lower_case(c); });
  if (alike != table.columns.end()) return alike - table.columns.begin();
  return std::nullopt;
}

/// Columns of numbers, where the configuration names none: all, but for one that is called as a label.
std::vector<std::size_t> unnamed_columns(const TextTable& table, std::size_t wanted) {
  constexpr auto kLabels =
      std::to_array<std::string_view>({"label", "labels", "class", "target", "y", "id", "index", ""});
  std::vector<std::size_t> all, features;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    all.push_back(c);
    if (!table.header || std::ranges::find(kLabels, lower_case(table.columns[c])) == kLabels.end())
      features.push_back(c);
  }
  return all.size() == wanted ? all : features;
}

/// The column of each value that the model reads.
std::vector<std::size_t> feature_columns(const TextTable& table, const RowKeys& keys, std::size_t wanted,
                                         const fs::path& file) {
  const std::vector<FeatureColumn>& features = keys.features;
  const auto width = static_cast<std::int64_t>(table.columns.size());
  std::vector<std::size_t> columns;
  const bool named = std::ranges::any_of(features, [](const FeatureColumn& f) { return !f.name.empty(); });
  const bool by_place = std::ssize(features) == width &&
                        ((named && !table.header) || std::ranges::any_of(features, [&](const FeatureColumn& feature) {
                           return feature.name.empty() && feature.number >= width;
                         }));
  if (features.empty())
    columns = unnamed_columns(table, wanted);
  else
    for (const FeatureColumn& feature : features) {
      if (by_place) {
        columns.push_back(columns.size());
      } else if (feature.name.empty() && feature.number < width) {
        columns.push_back(static_cast<std::size_t>(feature.number));
      } else if (const auto found = table.header ? column_called(table, feature.name) : std::nullopt) {
        columns.push_back(*found);
      } else if (!table.header) {
        throw DataError(
            fmt::format("{}: has no header and {} columns, but the model reads {}: {}; name the columns in a "
                        "first row",
                        file.string(), width, features.size(), features_text(features)));
      } else {
        throw DataError(fmt::format("{}: has no column '{}', which the model reads; its columns are {}", file.string(),
                                    feature.name.empty() ? fmt::format("{}", feature.number) : shown(feature.name),
                                    columns_text(table.columns)));
      }
    }
  if (columns.size() != wanted)
    throw DataError(fmt::format("{}: has {} columns of numbers ({}), but the model reads {}", file.string(),
                                columns.size(), columns_text(table.columns), wanted));
  return columns;
}

float standardized(double value, std::size_t column, const RowKeys& keys) {
  if (keys.mean.empty()) return static_cast<float>(value);
  return static_cast<float>((value - keys.mean[column]) / (keys.deviation[column] > 0 ? keys.deviation[column] : 1.0));
}

/// Rows of arrays, standardized; a label 0 beside each: a batch has labels in any case.
class ArrayRows : public SampleReader {
 public:
  ArrayRows(std::shared_ptr<const SampleReader> samples, RowKeys keys)
      : samples_(std::move(samples)), keys_(std::move(keys)) {}

  DatasetFacts facts() const override {
    DatasetFacts facts = samples_->facts();
    facts.class_names.clear();
    facts.targets = DatasetFacts{}.targets;
    return facts;
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    samples_->read(index, fields.first(1));
    std::ranges::fill(fields[1], std::byte{0});
    if (keys_.mean.empty()) return;
    const std::span<float> values{reinterpret_cast<float*>(fields[0].data()), fields[0].size() / sizeof(float)};
    for (std::size_t c = 0; c < values.size(); ++c) values[c] = standardized(values[c], c, keys_);
  }
  std::string name_of(std::int64_t index) const override { return samples_->name_of(index); }
  std::uint64_t resident_bytes() const override { return samples_->resident_bytes(); }

 private:
  std::shared_ptr<const SampleReader> samples_;
  RowKeys keys_;
};

/// Rows of a CSV file, parsed and standardized when they are read; likewise with a label.
class TextRows : public SampleReader {
 public:
  TextRows(std::shared_ptr<const TextTable> table, std::vector<std::size_t> columns, RowKeys keys, fs::path file)
      : table_(std::move(table)), columns_(std::move(columns)), keys_(std::move(keys)), file_(std::move(file)) {}

  DatasetFacts facts() const override {
    DatasetFacts facts{.size = std::ssize(table_->rows), .image_shape = {std::ssize(columns_)}};
    facts.image_dtype = DType::float32;
    return facts;
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const float value = standardized(number_at(index, c), c, keys_);
      std::memcpy(fields[0].data() + c * sizeof(float), &value, sizeof(float));
    }
    std::ranges::fill(fields[1], std::byte{0});
  }
  std::string name_of(std::int64_t index) const override {
    return fmt::format("{}:{}", file_.string(), table_->lines[static_cast<std::size_t>(index)]);
  }

 private:
  double number_at(std::int64_t index, std::size_t c) const {
    const std::string& cell = table_->rows[static_cast<std::size_t>(index)][columns_[c]];
    if (c < keys_.fill.size() && is_missing_cell(cell)) return keys_.fill[c];
    if (const std::optional<double> value = number_in(cell, table_->decimal)) return *value;
    throw DataError(fmt::format("{}: column '{}': expected a number, got {}", name_of(index),
                                shown(table_->columns[columns_[c]]),
                                cell.empty() ? "an empty cell" : fmt::format("'{}'", shown(cell))));
  }

  std::shared_ptr<const TextTable> table_;
  std::vector<std::size_t> columns_;
  RowKeys keys_;
  fs::path file_;
};

/// Standardization has as many numbers as a sample has values.
void check_standard(const RowKeys& keys, std::size_t wanted, const ConfigNode& section) {
  if (!keys.mean.empty() && (keys.mean.size() != wanted || keys.deviation.size() != wanted))
    section.fail_at_key(fmt::format("standardize has a mean and a std for {} features, but the model reads {}",
                                    keys.mean.size(), wanted));
}

ConfigNode data_section(const RunConfig& config) {
  const auto section = config.document.map().find("data");
  if (!section) config.document.root().fail_at_key("missing key 'data': it says how samples become the model's input");
  return *section;
}

std::optional<std::string> text_of(const ConfigNode& section, const char* key) {
  const auto node = section.as_map().find(key);
  if (!node || !node->is_scalar()) return std::nullopt;
  try {
    return node->as_text();
  } catch (const ConfigError&) {  // a number
    return std::nullopt;
  }
}

PredictedTable of_text(TextTable table, const fs::path& file) {
  PredictedTable predicted{.columns = table.columns, .cells = std::move(table.rows), .names = {}, .images = {}};
  for (const std::int64_t line : table.lines) predicted.names.push_back(fmt::format("{}:{}", file.string(), line));
  return predicted;
}

/// Whether the training images' folder is that of the table's images, too: any of its first names is there, and it is
/// not the other part's, whose images may have the same names (train/1.png, test/1.png).
bool has_images_of(const CsvImageNames& where, const std::vector<std::string>& names) {
  constexpr int kOther = 3;  // a folder of training images for a table of others
  constexpr std::size_t kMost = 16;
  const std::string table = where.table.stem().string(), folder = where.root.filename().string();
  if (is_test_table(table) && folder_kinship(folder, table) == kOther) return false;
  std::error_code error;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    for (const std::string& suffix : {std::string(), where.suffix})
      if (fs::is_regular_file(where.root / (names[i] + suffix), error)) return true;
  return false;
}

PredictedTable images_of(TextTable table, const ConfigNode& section, const fs::path& file) {
  const std::optional<std::string> name = text_of(section, "image");
  std::optional<std::size_t> column;
  if (name && table.header) column = column_called(table, *name);
  for (std::size_t c = 0; !column && c < table.columns.size(); ++c)
    if (has_image_suffix(table.rows[0][c])) column = c;
  if (!column)
    throw DataError(fmt::format("{}: no column names image files{}; its columns are {}", file.string(),
                                name ? fmt::format(", and none is called '{}'", shown(*name)) : "",
                                columns_text(table.columns)));
  CsvImageNames where{.table = file, .root = {}, .suffix = text_of(section, "suffix").value_or("")};
  if (const auto root = text_of(section, "root"); root && !root->empty()) where.root = find_path(section, *root).path;
  std::vector<std::string> names;
  for (const std::vector<std::string>& row : table.rows) names.push_back(row[*column]);
  std::error_code error;
  const fs::path beside = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (where.root.empty() || fs::exists(beside / names[0], error) || !has_images_of(where, names)) where.root.clear();
  std::vector<std::string> notes = find_csv_images(where, names);
  std::vector<ListedImage> images;
  for (std::size_t row = 0; row < names.size(); ++row)
    images.push_back({(where.root.empty() ? beside : where.root) / names[row], table.rows[row][*column]});
  PredictedTable predicted = of_text(std::move(table), file);
  predicted.images = std::move(images);
  predicted.notes = std::move(notes);
  return predicted;
}

PredictedTable rows_of_text(const RunConfig& config, const fs::path& file) {
  const ConfigNode section = data_section(config);
  const Shape& input = config.model.graph.input_shape();
  if (input.rank() == 3) return images_of(read_text_table(file, {}), section, file);
  if (input.rank() != 1)
    config.model.input.fail(fmt::format("the model reads {} a sample, which no row of a table is", to_string(input)));
  const auto wanted = static_cast<std::size_t>(input[0]);
  const RowKeys keys = text_of(section, "format") == "csv" ? row_keys(section) : RowKeys();
  check_standard(keys, wanted, section);
  const auto table = std::make_shared<const TextTable>(read_text_table(file, keys.features));
  const std::vector<std::size_t> columns = feature_columns(*table, keys, wanted, file);
  PredictedTable predicted = of_text(*table, file);
  predicted.samples = std::make_shared<TextRows>(table, columns, keys, file);
  return predicted;
}

/// The array of samples in an archive.
std::string member_of(const ZipFile& archive, const ConfigNode& section, const fs::path& file) {
  std::vector<std::string> names;
  for (const auto& [member, facts] : archive.members())
    names.push_back(member.ends_with(".npy") ? member.substr(0, member.size() - 4) : member);
  if (names.size() == 1) return names[0];
  std::vector<std::string> wanted;
  if (const auto keys = section.as_map().find("keys"))
    for (const char* key : {"test_images", "images"})
      if (const auto name = text_of(*keys, key)) wanted.push_back(*name);
  for (const char* name : {"x_test", "test_images", "x", "images", "data", "features", "x_train", "train_images"})
    wanted.emplace_back(name);
  for (const std::string& name : wanted)
    if (std::ranges::find(names, name) != names.end()) return name;
  throw DataError(
      fmt::format("{}: it is not clear which of its arrays are the samples ({}): expected one called x or "
                  "images, or as data.keys of the model's configuration says",
                  file.string(), columns_text(names)));
}

PredictedTable rows_of_array(const RunConfig& config, const fs::path& file) {
  const ConfigNode section = data_section(config);
  OpenArray open = [file] { return open_file_bytes(file); };
  if (lower_case(file.string()).ends_with(".npz")) {
    const auto archive = std::make_shared<const ZipFile>(file);
    open = [archive, name = member_of(*archive, section, file) + ".npy"] { return archive->open(name); };
  }
  const ArrayOptions options{.channels_first = text_of(section, "layout") == "nchw", .classes = {}};
  const auto samples =
      std::make_shared<const ArrayReader>(SplitArrays{.images = open, .labels = {}, .targets = {}}, options, nullptr);
  const DatasetFacts facts = samples->facts();
  const Shape& input = config.model.graph.input_shape();
  if (facts.image_shape.rank() != input.rank() || (input.rank() == 1 && facts.image_shape != input))
    throw DataError(fmt::format("{}: has {} a sample, but the model reads {}", file.string(),
                                to_string(facts.image_shape), to_string(input)));
  RowKeys keys;
  if (input.rank() == 1 && text_of(section, "format") == "csv") keys = row_keys(section);
  if (input.rank() == 1) check_standard(keys, static_cast<std::size_t>(input[0]), section);
  if (!keys.mean.empty() && facts.image_dtype != DType::float32)
    throw DataError(
        fmt::format("{}: holds bytes; expected numbers that are standardized as the training samples were: "
                    "float32",
                    file.string()));
  PredictedTable predicted{.columns = {"row"}, .cells = {}, .names = {}, .images = {}};
  for (std::int64_t row = 0; row < facts.size; ++row) {
    predicted.cells.push_back({fmt::format("{}", row)});
    predicted.names.push_back(fmt::format("{}, row {}", file.string(), row));
  }
  predicted.samples = std::make_shared<ArrayRows>(samples, keys);
  return predicted;
}

constexpr auto kTextSuffixes = std::to_array<std::string_view>({".csv", ".tsv", ".csv.gz", ".tsv.gz"});
constexpr auto kArraySuffixes = std::to_array<std::string_view>({".npy", ".npy.gz", ".npy.xz", ".npz"});

bool ends_in(const fs::path& path, std::span<const std::string_view> suffixes) {
  const std::string name = lower_case(path.filename().string());
  return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace

RowInput row_input(const RunConfig& config) {
  if (config.model.graph.input_shape().rank() != 1) return {};
  const auto section = config.document.map().find("data");
  if (!section || text_of(*section, "format") != "csv") return {};
  try {
    const RowKeys keys = row_keys(*section);
    RowInput row{.features = {}, .mean = keys.mean, .deviation = keys.deviation, .fill = keys.fill};
    for (const FeatureColumn& feature : keys.features)
      row.features.push_back(feature.name.empty() ? fmt::format("{}", feature.number) : feature.name);
    return row;
  } catch (const Error&) {  // the network is as good without
    return {};
  }
}

bool is_table_file(const fs::path& path) { return ends_in(path, kTextSuffixes) || ends_in(path, kArraySuffixes); }

PredictedTable read_predicted_table(const RunConfig& config, const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw DataError(fmt::format("{}: there is no such file", file.string()));
  return ends_in(file, kTextSuffixes) ? rows_of_text(config, file) : rows_of_array(config, file);
}

}  // namespace bantam::run
