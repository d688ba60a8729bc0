// Arrays as samples: what their shapes and types mean, and a row of each.
#include "bantam/data/formats/array_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/data/formats/held_out.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostClasses = 1 << 20;

/// Extents of a row.
Shape row_shape(const NpyArray& array) { return Shape(std::span(array.extents()).subspan(1)); }

std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}
std::span<std::uint8_t> as_bytes(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

/// (channels, height, width) to (height, width, channels).
template <class T>
void interleave(const T* planes, const Shape& image, T* pixels) {
  const std::int64_t plane = image[0] * image[1], channels = image[2];
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t p = 0; p < plane; ++p) pixels[p * channels + c] = planes[c * plane + p];
}

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t other = 0;  // one loop without branches: a row may be a large image
  for (const float value : values) other |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  return other == 0;
}

void read_row(const NpyArray& array, std::int64_t index, std::span<std::uint8_t> out) { array.read_rows(index, out); }

/// Throws DataError where one of the values is no finite float32.
void read_row(const NpyArray& array, std::int64_t index, std::span<float> out) {
  array.read_rows(index, out);
  if (array.type().is_integer() || all_finite(out)) return;
  const auto wrong = std::ranges::find_if(out, [](float value) { return !std::isfinite(value); });
  throw DataError(fmt::format("{}: row {}: value {} of {} is {} as float32; expected a finite number", array.name(),
                              index, wrong - out.begin(), out.size(), *wrong));
}

template <class T>
void read_pixels(const NpyArray& array, std::int64_t index, const DatasetFacts& facts, bool planes, std::span<T> out) {
  if (!planes) return read_row(array, index, out);
  thread_local std::vector<T> row;
  row.resize(out.size());
  read_row(array, index, std::span(row));
  interleave(row.data(), facts.image_shape, out.data());
}

/// Whether labels of such a type and shape are class numbers where nothing says what they are: whole numbers, one a
/// sample or one a pixel.
bool look_like_classes(const NpyArray& labels) {
  const std::size_t axes = labels.extents().size();
  if (labels.type().is_text()) return true;
  return labels.type().is_integer() && (labels.row_values() == 1 || axes >= 3);
}

}  // namespace

ArrayReader::ArrayReader(SplitArrays arrays, ArrayOptions options, std::shared_ptr<const ArrayReader> training)
    : arrays_(std::move(arrays)), options_(std::move(options)), training_(std::move(training)) {}

DatasetFacts ArrayReader::facts() const {
  open();
  return facts_;
}

std::vector<SampleField> ArrayReader::fields() const {
  open();
  return facts_.fields();
}

void ArrayReader::check(bool, int) const {
  open();
  for (const auto* array : {&images_, &labels_, &targets_})
    if (*array) (*array)->load();
}

void ArrayReader::open() const {
  opened_.run([this] {
    facts_ = {};
    facts_.targets.clear();
    open_images();
    if (arrays_.labels) open_labels();
    if (arrays_.targets) open_targets();
    for (const auto* array : {&labels_, &targets_})
      if (*array && (*array)->rows() != facts_.size)
        throw DataError(fmt::format("{}: is {}, but {} is {}: expected a row for each of {} samples", (*array)->name(),
                                    (*array)->description(), images_->name(), images_->description(),
                                    format_count(facts_.size)));
    if (facts_.targets.size() > 1 && facts_.targets[0].name == facts_.targets[1].name)
      throw DataError(
          fmt::format("{}: is {}, which is read as targets, and {} are targets already: expected class "
                      "numbers, or no other targets",
                      labels_->name(), labels_->description(), targets_->name()));
    facts_.class_names = class_names();
    if (labels_ && labels_->type().is_text())
      for (std::size_t c = 0; c < facts_.class_names.size(); ++c)
        numbers_.emplace(facts_.class_names[c], static_cast<std::int64_t>(c));
  });
}

void ArrayReader::open_images() const {
  images_.emplace(arrays_.images());
  const std::vector<std::int64_t>& extents = images_->extents();
  const bool empty = std::ranges::find(extents, 0) != extents.end();
  if (extents.size() < 2 || extents.size() > 4 || empty || (options_.channels_first && extents.size() != 4))
    throw DataError(fmt::format("{}: is {}; expected {}", images_->name(), images_->description(),
                                options_.channels_first ? "(samples, channels, height, width)"
                                                        : "(samples, height, width, channels), (samples, height, "
                                                          "width) or (samples, features), none of them 0"));
  facts_.size = extents[0];
  if (extents.size() == 2) facts_.image_shape = {extents[1]};
  if (extents.size() == 3) facts_.image_shape = {extents[1], extents[2], 1};
  if (extents.size() == 4) facts_.image_shape = {extents[1], extents[2], extents[3]};
  if (options_.channels_first) facts_.image_shape = {extents[2], extents[3], extents[1]};
  const NpyType& type = images_->type();
  if (type.is_text())
    throw DataError(fmt::format("{}: is {}; expected numbers", images_->name(), images_->description()));
  facts_.image_dtype = type.bytes == 1 && type.kind != 'i' ? DType::uint8 : DType::float32;
}

void ArrayReader::open_labels() const {
  labels_.emplace(arrays_.labels());
  if (labels_->extents().empty())
    throw DataError(fmt::format("{}: is a single number; expected one a sample", labels_->name()));
  Shape shape = row_shape(*labels_);
  if (labels_->type().is_text() &&
      (labels_->row_values() != 1 || options_.form == LabelForm::one_hot || options_.form == LabelForm::values))
    throw DataError(fmt::format("{}: is {}; expected one class a sample, and data.label_form: classes", labels_->name(),
                                labels_->description()));
  if (options_.form == LabelForm::one_hot) {
    if (shape.rank() != 1 || shape[0] < 2)
      throw DataError(fmt::format("{}: is {}; expected (samples, classes) where data.label_form is one_hot",
                                  labels_->name(), labels_->description()));
    facts_.targets.push_back({"labels", {}, DType::int32});
    return;
  }
  if (!has_classes()) {
    facts_.targets.push_back({"targets", shape.rank() == 0 ? Shape{1} : shape, DType::float32});
    return;
  }
  if (labels_->row_values() == 1) shape = {};
  if (shape.rank() == 3 && shape[2] == 1) shape = {shape[0], shape[1]};  // (n, height, width, 1)
  facts_.targets.push_back({"labels", shape, DType::int32});
}

void ArrayReader::open_targets() const {
  targets_.emplace(arrays_.targets());
  if (targets_->extents().empty())
    throw DataError(fmt::format("{}: is a single number; expected a row a sample", targets_->name()));
  if (targets_->type().is_text())
    throw DataError(fmt::format("{}: is {}; expected numbers; texts of classes are read as data.labels",
                                targets_->name(), targets_->description()));
  const Shape shape = row_shape(*targets_);
  facts_.targets.push_back({"targets", shape.rank() == 0 ? Shape{1} : shape, DType::float32});
}

std::vector<std::string> ArrayReader::class_names() const {
  if (!options_.classes.empty()) return options_.classes;
  if (!labels_ || !has_classes()) return {};
  if (training_ != nullptr) return training_->facts().class_names;
  if (options_.form == LabelForm::one_hot) return numbered_classes(labels_->row_values());
  if (labels_->type().is_text()) return names_of_texts();
  std::vector<std::string> names;
  for (std::int64_t label = options_.first_label; label <= greatest_label(); ++label)
    names.push_back(fmt::format("{}", label));
  return names;
}

bool ArrayReader::has_classes() const {
  if (options_.form == LabelForm::automatic) return look_like_classes(*labels_);
  return options_.form != LabelForm::values;
}

/// Different labels that are text, sorted.
std::vector<std::string> ArrayReader::names_of_texts() const {
  std::set<std::string> found;
  for (std::int64_t row = 0; row < labels_->rows(); ++row) {
    found.insert(labels_->read_text(row));
    if (std::ssize(found) > kMostClasses)
      throw DataError(fmt::format("{}: has more than {} different labels", labels_->name(), kMostClasses));
  }
  std::vector<std::string> names(found.begin(), found.end());
  if (const std::string fault = fault_of_class_names(names); !fault.empty())
    throw DataError(fmt::format("{}: as names of classes, labels are wrong: {}", labels_->name(), fault));
  sort_class_names(names);
  return names;
}

/// Finds the greatest of labels, one a sample. In masks it may be a number without a class (255), so classes are named.
std::int64_t ArrayReader::greatest_label() const {
  if (labels_->row_values() != 1)
    throw DataError(fmt::format("{}: is {}, a class a pixel: name the classes by data.classes", labels_->name(),
                                labels_->description()));
  std::int64_t greatest = options_.first_label;
  for (std::int64_t row = 0; row < labels_->rows(); ++row) greatest = std::max(greatest, label_of(row));
  if (greatest >= kMostClasses)
    throw DataError(fmt::format("{}: has the label {}; expected class numbers from 0 to {}", labels_->name(), greatest,
                                kMostClasses - 1));
  return greatest;
}

void ArrayReader::read_image(std::int64_t index, std::span<std::byte> image) const {
  if (facts_.image_dtype == DType::uint8)
    read_pixels(*images_, index, facts_, options_.channels_first, as_bytes(image));
  else
    read_pixels(*images_, index, facts_, options_.channels_first, as_floats(image));
}

/// The label of a row of one value, or the place of the one in a row of one_hot, as the array counts.
std::int64_t ArrayReader::label_of(std::int64_t row) const {
  if (labels_->type().is_text()) {
    const std::string text = labels_->read_text(row);
    const auto found = numbers_.find(text);
    if (found == numbers_.end())
      throw DataError(fmt::format("{}: row {} has the label '{}', which is none of the classes {}", labels_->name(),
                                  row, shown(text), shown(join(facts_.class_names, ", ", " and "), 200)));
    return options_.first_label + found->second;
  }
  if (labels_->type().is_integer() && options_.form != LabelForm::one_hot) {
    std::int64_t label = 0;
    labels_->read_rows(row, std::span(&label, 1));
    return label;
  }
  thread_local std::vector<float> values;
  values.resize(static_cast<std::size_t>(labels_->row_values()));
  labels_->read_rows(row, std::span(values));
  if (options_.form != LabelForm::one_hot) {
    constexpr float kMostWhole = 16777216;  // 2^24
    const float value = values[0];
    if (!(std::abs(value) <= kMostWhole) || value != std::floor(value))
      throw DataError(
          fmt::format("{}: row {} has the label {}; expected a whole number (data.label_form: values reads "
                      "numbers to be predicted)",
                      labels_->name(), row, value));
    return static_cast<std::int64_t>(value);
  }
  const auto ones = std::ranges::count(values, 1.0f), zeros = std::ranges::count(values, 0.0f);
  if (ones != 1 || zeros != std::ssize(values) - 1)
    throw DataError(
        fmt::format("{}: row {} has {} ones and {} zeros of {} values; expected one 1 and zeros, as "
                    "data.label_form is one_hot (values reads rows of numbers)",
                    labels_->name(), row, ones, zeros, values.size()));
  return options_.first_label + (std::ranges::find(values, 1.0f) - values.begin());
}

/// `label` as the array has it; `most` classes.
void ArrayReader::check_label(std::int64_t index, std::int64_t label, std::int64_t most) const {
  const std::int64_t first = options_.first_label;
  if (label >= first && label < first + most) return;
  std::string text = fmt::format("{}: row {} has the label {}; expected one of {} classes, {} to {}", labels_->name(),
                                 index, label, most, first, first + most - 1);
  if (label < first && first == 0) text += "; data.first_label says where labels begin";
  throw DataError(text);
}

void ArrayReader::read_labels(std::int64_t index, std::span<std::byte> labels) const {
  if (facts_.targets[0].dtype == DType::float32) return read_row(*labels_, index, as_floats(labels));
  const auto write = [&](std::size_t place, std::int64_t label) {
    const auto number = static_cast<std::int32_t>(label - options_.first_label);
    std::memcpy(labels.data() + place * sizeof number, &number, sizeof number);
  };
  const std::int64_t classes = std::ssize(facts_.class_names);
  if (facts_.targets[0].shape.rank() == 0) {
    const std::int64_t label = label_of(index);
    check_label(index, label, classes);
    return write(0, label);
  }
  thread_local std::vector<std::int64_t> row;
  row.resize(static_cast<std::size_t>(labels_->row_values()));
  labels_->read_rows(index, std::span(row));
  for (std::size_t i = 0; i < row.size(); ++i) {
    check_label(index, row[i], kMostClasses);
    write(i, row[i]);
  }
}

std::shared_ptr<const SampleReader> ArrayReader::read_alike(std::shared_ptr<const SampleReader> other) const {
  const auto arrays = std::dynamic_pointer_cast<const ArrayReader>(other);
  if (arrays == nullptr || !arrays->options_.classes.empty()) return other;
  ArrayOptions options = arrays->options_;
  if (options.form == LabelForm::automatic) options.form = options_.form;
  if (options.first_label == 0) options.first_label = options_.first_label;
  options.channels_first = options.channels_first || options_.channels_first;
  // A reader of its own for the names: this one need not be shared.
  auto training = std::make_shared<const ArrayReader>(arrays_, options_, training_);
  return std::make_shared<const ArrayReader>(arrays->arrays_, options, std::move(training));
}

void ArrayReader::read(std::int64_t index, std::span<const std::span<std::byte>> fields) const {
  open();
  read_image(index, fields[0]);
  read_targets(index, fields.subspan(1));
}

void ArrayReader::read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const {
  open();
  std::size_t at = 0;
  if (labels_) read_labels(index, targets[at++]);
  if (targets_) read_row(*targets_, index, as_floats(targets[at]));
}

std::string ArrayReader::name_of(std::int64_t index) const {
  open();
  return fmt::format("{}, row {}", images_->name(), index);
}

std::vector<std::string> ArrayReader::files_of(std::int64_t) const {
  open();
  if (!arrays_.archive.empty()) return {arrays_.archive};
  std::vector<std::string> files;
  for (const auto* array : {&images_, &labels_, &targets_})
    if (*array) files.push_back((*array)->name());
  return files;
}

std::uint64_t ArrayReader::resident_bytes() const {
  open();
  std::uint64_t bytes = 0;
  for (const auto* array : {&images_, &labels_, &targets_})
    if (*array) bytes += (*array)->resident_bytes();
  return bytes;
}

OpenArray open_named(FoundPath file) {
  return [file = std::move(file)] {
    std::error_code error;
    if (!file.is_there && !file.folders.empty() && !std::filesystem::exists(file.path, error))
      throw DataError(fmt::format("{}: there is no such file{}", file.path.string(), file.places()));
    return open_file_bytes(file.path);
  };
}

ArrayOptions read_array_options(ConfigMap& data) {
  ArrayOptions options;
  options.channels_first =
      data.choice(
          {"layout", "Axes of images: nhwc (samples, height, width, channels), or nchw as PyTorch has them.", "nchw"},
          {"nhwc", "nchw"}, "nhwc") == "nchw";
  const std::string form = data.choice(
      {"label_form",
       "What the array of labels holds. classes: class numbers, also as floating point. one_hot: rows of zeros with a "
       "one at the class. values: numbers to be predicted, or zeros and ones for the absence and presence of classes. "
       "auto: classes where they are whole numbers, one a sample or one a pixel; else values.",
       "one_hot"},
      {"auto", "classes", "one_hot", "values"}, "auto");
  options.form = form == "classes"   ? LabelForm::classes
                 : form == "one_hot" ? LabelForm::one_hot
                 : form == "values"  ? LabelForm::values
                                     : LabelForm::automatic;
  options.first_label = data.integer({"first_label", "Number of the first class in the array of labels.", "1"},
                                     {.min = -kMostClasses, .max = kMostClasses}, 0);
  if (const auto classes = data.find({"classes", "Names of the labels 0, 1, …, or from first_label on.", "[cat, dog]",
                                      "their numbers, to the greatest of the training samples"}))
    options.classes = read_class_names(*classes);
  return options;
}

double read_split_share(ConfigMap& data, bool held_out) {
  const auto split = data.find({"split",
                                "Share that is held out where no part of the set is: the same samples in every run, as "
                                "nearly that share of each class as it goes.",
                                "0.2", "0.1"});
  if (!split) return PartNames::kSplit;
  if (held_out && !split->is_described())
    split->fail_at_key("nothing is split off where samples are held out already: data.test says them");
  return split->as_number({.min = 0, .max = 1, .min_open = true, .max_open = true});
}

}  // namespace bantam
