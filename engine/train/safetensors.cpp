// The file format, and models and registries in it.
#include "bantam/engine/train/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/checksum.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/engine/train/state_snapshot.h"
#include "bantam/engine/train/tensor_files.h"

namespace bantam {
namespace {

using Json = nlohmann::ordered_json;

struct NamedType {
  DType dtype;
  const char* name;
};
constexpr NamedType kTypes[] = {{DType::float32, "F32"}, {DType::float16, "F16"}, {DType::bfloat16, "BF16"},
                                {DType::float64, "F64"}, {DType::uint8, "U8"},    {DType::int32, "I32"},
                                {DType::int64, "I64"}};

/// Types of the format that are not read, by the bytes of an element, where these are whole.
struct OtherType {
  const char* name;
  std::int64_t bytes;
};
constexpr OtherType kOtherTypes[] = {{"BOOL", 1},    {"I8", 1},          {"F8_E4M3", 1},     {"F8_E5M2", 1},
                                     {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},
                                     {"U16", 2},     {"U32", 4},         {"U64", 8},         {"C64", 8}};

const char* type_name(DType dtype) { return std::ranges::find(kTypes, dtype, &NamedType::dtype)->name; }

[[noreturn]] void damaged(const std::filesystem::path& path, const std::string& what) {
  throw DataError(fmt::format("{}: not a usable safetensors file: {}", path.string(), what));
}

// In the header's metadata: a Checksum of all tensors. Files of other programs have none.
constexpr const char* kChecksum = "bantam.checksum";

/// The checksum of the tensors in the order of their names: name, type, shape and bytes of each.
std::string checksum_of(std::span<const NamedTensor> tensors) {
  Checksum sum;
  for (const NamedTensor& tensor : tensors) {
    sum.add(tensor.name);
    sum.add(type_name(tensor.dtype));
    sum.add(std::as_bytes(tensor.shape.extents()));
    sum.add(tensor.bytes);
  }
  return sum.digits();
}

/// In the order of their names.
std::vector<NamedTensor> views_of(const SafetensorsFile& file) {
  std::vector<NamedTensor> views;
  for (const auto& [name, tensor] : file.tensors) views.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  return views;
}

void check_sum(const std::filesystem::path& path, SafetensorsFile& file) {
  const auto written = file.metadata.extract(kChecksum);
  if (!written) return;
  const std::string now = checksum_of(views_of(file));
  file.has_checksum = written.mapped() == now;
  if (file.has_checksum) return;
  throw DataError(
      fmt::format("{}: damaged: its tensors have the checksum {}, and were written with {}\n  (a program "
                  "that changed them would have to drop {} from the metadata)",
                  path.string(), now, written.mapped(), kChecksum));
}

/// The reference reader's bound; a header of a few bytes a tensor is far below.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
/// Entries of the metadata need some hundreds of bytes each.
constexpr std::size_t kMostEntries = 250'000;

/// Reads the header as the parser meets it, so that no tree is built of it, and stops at the first thing that does not
/// belong there. Throws DataError.
class HeaderReader final : public Json::json_sax_t {
 public:
  /// `data`: what follows the header in the file.
  HeaderReader(const std::filesystem::path& path, std::string_view data, SafetensorsFile& file)
      : path_(path), data_(data), file_(file) {}

  /// First and last byte of every tensor in the data.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> take_ranges() { return std::move(ranges_); }

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return number(value); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) && level_ == Level::numbers)
      out_of_range(fmt::format("{}", value));
    return number(static_cast<std::int64_t>(value));
  }
  bool number_float(double /*value*/, const std::string& text) override {
    if (level_ == Level::numbers && text.find_first_of(".eE") == std::string::npos) out_of_range(text);
    return other(text);
  }
  bool string(std::string& value) override;
  bool binary(Json::binary_t& /*value*/) override { return other("binary"); }
  bool start_object(std::size_t /*size*/) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(std::size_t /*size*/) override;
  bool end_array() override;
  bool parse_error(std::size_t at, const std::string& token, const Json::exception& /*error*/) override {
    damaged(path_, fmt::format("its header is not as expected (no JSON at byte {} of it: '{}')", at, shown(token)));
  }

 private:
  enum class Level : std::uint8_t { file, header, metadata, tensor, numbers };

  /// A tensor's entry, as far as it has been read.
  struct Entry {
    std::optional<std::string> dtype;
    std::optional<std::vector<std::int64_t>> shape, data_offsets;
  };

  std::string place() const {
    if (level_ == Level::file) return "the header";
    if (level_ == Level::header) return fmt::format("'{}'", shown(name_));
    if (level_ == Level::metadata) return fmt::format("metadata '{}'", shown(key_));
    return fmt::format("tensor '{}': {}", shown(name_), shown(key_));
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    damaged(path_, fmt::format("its header is not as expected ({} is {})", place(), shown(what)));
  }
  [[noreturn]] void out_of_range(std::string_view number) const {
    damaged(path_, fmt::format("{}: {} is out of range: more than 64 bits can count", place(), shown(number)));
  }

  /// A value that is none of those that the format has at any place.
  bool other(std::string_view what) {
    if (skipped_ == 0 && !skips_value()) unexpected(what);
    return true;
  }
  /// Keys of a tensor that the format does not have are passed over, as the reference reader does.
  bool skips_value() const {
    return level_ == Level::tensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets";
  }
  bool number(std::int64_t value);
  void end_tensor();
  Shape shape_of(std::span<const std::int64_t> extents) const {
    try {
      return Shape(extents);
    } catch (const ShapeError& error) {
      damaged(path_, fmt::format("tensor '{}': {}", shown(name_), error.what()));
    }
  }

  const std::filesystem::path& path_;
  std::string_view data_;
  SafetensorsFile& file_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
  Level level_ = Level::file;
  std::string name_, key_;  // of the header's entry, and in it
  Entry entry_;
  std::size_t skipped_ = 0;  // how deep in a value that is passed over
};

bool HeaderReader::string(std::string& value) {
  if (skipped_ > 0 || skips_value()) return true;
  if (level_ == Level::metadata) {
    if (!file_.metadata.emplace(key_, std::move(value)).second)
      damaged(path_, fmt::format("two entries of its metadata are named '{}'", shown(key_)));
    if (file_.metadata.size() > kMostEntries)
      damaged(path_, fmt::format("its metadata has more than {} entries", format_count(kMostEntries)));
    return true;
  }
  if (level_ != Level::tensor || key_ != "dtype") unexpected(fmt::format("\"{}\"", shown(value)));
  entry_.dtype = std::move(value);
  return true;
}

bool HeaderReader::number(std::int64_t value) {
  if (skipped_ > 0 || skips_value()) return true;
  if (level_ != Level::numbers) unexpected(fmt::format("{}", value));
  std::vector<std::int64_t>& values = key_ == "shape" ? *entry_.shape : *entry_.data_offsets;
  if (values.size() == (key_ == "shape" ? static_cast<std::size_t>(Shape::kMaxRank) : 2))
    unexpected(fmt::format("a list of more than {}", values.size()));
  values.push_back(value);
  return true;
}

bool HeaderReader::start_object(std::size_t /*size*/) {
  if (skipped_ > 0 || skips_value()) {
    ++skipped_;
    return true;
  }
  if (level_ == Level::file) {
    level_ = Level::header;
  } else if (level_ == Level::header) {
    level_ = name_ == "__metadata__" ? Level::metadata : Level::tensor;
    entry_ = {};
    key_.clear();
  } else {
    unexpected("a map");
  }
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (skipped_ > 0) return true;
  (level_ == Level::header ? name_ : key_) = std::move(name);
  return true;
}

bool HeaderReader::end_object() {
  if (skipped_ > 0) {
    --skipped_;
    return true;
  }
  if (level_ == Level::tensor) end_tensor();
  level_ = level_ == Level::header ? Level::file : Level::header;
  return true;
}

bool HeaderReader::start_array(std::size_t /*size*/) {
  if (skipped_ > 0 || skips_value()) {
    ++skipped_;
    return true;
  }
  if (level_ != Level::tensor || key_ == "dtype") unexpected("a list");
  (key_ == "shape" ? entry_.shape : entry_.data_offsets).emplace();
  level_ = Level::numbers;
  return true;
}

bool HeaderReader::end_array() {
  if (skipped_ > 0)
    --skipped_;
  else
    level_ = Level::tensor;
  return true;
}

void HeaderReader::end_tensor() {
  const auto& [dtype, shape, offsets] = entry_;
  const std::string name = shown(name_);
  if (!dtype || !shape || !offsets)
    damaged(path_, fmt::format("its header is not as expected (tensor '{}' has no {})", name,
                               !dtype   ? "dtype"
                               : !shape ? "shape"
                                        : "data_offsets"));
  const auto type = std::ranges::find(kTypes, *dtype, &NamedType::name);
  const bool reads = type != std::end(kTypes);
  const auto other = std::ranges::find(kOtherTypes, *dtype, &OtherType::name);
  const bool is_known = reads || other != std::end(kOtherTypes);  // else its elements may have any number of bytes
  const std::int64_t element = reads ? static_cast<std::int64_t>(size_of(type->dtype)) : is_known ? other->bytes : 1;
  const Shape extents = shape_of(*shape);
  const auto size = static_cast<std::int64_t>(data_.size());
  std::int64_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(extents.elements(), element, &bytes);
  if (overflows || offsets->size() != 2 || (*offsets)[0] < 0 || (*offsets)[0] > (*offsets)[1] || (*offsets)[1] > size ||
      (is_known && (*offsets)[1] - (*offsets)[0] != bytes))
    damaged(path_, fmt::format("tensor '{}' {} needs {} bytes; its offsets are [{}] of {} bytes of data", name,
                               to_string(extents), bytes, fmt::join(*offsets, ","), size));
  ranges_.emplace_back((*offsets)[0], (*offsets)[1]);
  if (file_.tensors.contains(name_) || file_.skipped.contains(name_))
    damaged(path_, fmt::format("two tensors are named '{}'", name));
  if (file_.tensors.size() + file_.skipped.size() == kMostTensors)
    damaged(path_, fmt::format("it has more than {} tensors", format_count(kMostTensors)));
  if (!reads) {
    file_.skipped.emplace(std::move(name_), SkippedTensor{*dtype, extents});
    return;
  }
  const auto* first = reinterpret_cast<const std::byte*>(data_.data() + (*offsets)[0]);
  HostTensor tensor{type->dtype, extents, {first, first + bytes}};
  file_.tensors.emplace(std::move(name_), std::move(tensor));
}

/// Tensors lie one after the other, without gaps, overlaps or a rest: what one program wrote, another reads.
void check_tiling(const std::filesystem::path& path, std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges,
                  std::size_t size) {
  std::ranges::sort(ranges);
  std::uint64_t end = 0;
  for (const auto& [first, last] : ranges) {
    if (first != end) damaged(path, fmt::format("tensors overlap or have a gap at byte {} of the data", end));
    end = last;
  }
  if (end != size) damaged(path, fmt::format("{} bytes of data belong to no tensor", size - end));
}

/// As it is: another name would not be found again. Throws DataError where it is not UTF-8.
std::string quoted_name(const std::string& name) {
  try {
    return Json(name).dump();
  } catch (const Json::type_error&) {
    throw DataError(fmt::format("tensor '{}': expected a name in UTF-8, as safetensors files have it", shown(name)));
  }
}

/// One JSON object. Put together entry by entry, in the order that files have had from the beginning: a tree that keeps
/// an order looks through all of its keys for each new one.
std::string header_text(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  // JSON is UTF-8. Texts of the metadata may hold names of files, which are any bytes.
  const auto quoted = [](std::string_view text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = "{\"__metadata__\":{";
  for (const auto& [key, value] : metadata)
    if (key != kChecksum) text += fmt::format("{}:{},", quoted(key), quoted(value));
  text += fmt::format("{}:{}}}", quoted(kChecksum), quoted(checksum_of(tensors)));
  std::uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted_name(tensor.name),
                        type_name(tensor.dtype), fmt::join(tensor.shape.extents(), ","), offset,
                        offset + tensor.bytes.size());
    offset += tensor.bytes.size();
  }
  return text + "}";
}

/// The file's tensor of this name, type and shape.
const HostTensor& expected(const std::filesystem::path& path, const SafetensorsFile& file, const std::string& name,
                           DType dtype, const Shape& shape) {
  const auto found = file.tensors.find(name);
  if (const auto skipped = file.skipped.find(name); skipped != file.skipped.end())
    throw DataError(fmt::format("{}: tensor '{}' is {} {}, expected {} {}", path.string(), name,
                                shown(skipped->second.type), to_string(skipped->second.shape), to_string(dtype),
                                to_string(shape)));
  if (found == file.tensors.end()) throw DataError(fmt::format("{}: tensor '{}' is missing", path.string(), name));
  const HostTensor& tensor = found->second;
  if (tensor.shape != shape || tensor.dtype != dtype)
    throw DataError(fmt::format("{}: tensor '{}' is {} {}, expected {} {}", path.string(), name,
                                to_string(tensor.dtype), to_string(tensor.shape), to_string(dtype), to_string(shape)));
  return tensor;
}

/// A list of numbers of any length.
std::vector<double> expected_numbers(const std::filesystem::path& path, const SafetensorsFile& file,
                                     const std::string& name) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw DataError(fmt::format("{}: tensor '{}' is missing", path.string(), name));
  const Shape shape{static_cast<std::int64_t>(found->second.bytes.size() / sizeof(double))};
  const HostTensor& tensor = expected(path, file, name, DType::float64, shape);
  std::vector<double> numbers(tensor.bytes.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
  return numbers;
}

void check_no_other(const std::filesystem::path& path, const SafetensorsFile& file, const StateRegistry& registry) {
  for (const auto& [name, tensor] : file.tensors)
    if (!registry.contains(name))
      throw DataError(fmt::format("{}: tensor '{}' does not belong to this model", path.string(), shown(name)));
  for (const auto& [name, tensor] : file.skipped)
    if (!registry.contains(name))
      throw DataError(fmt::format("{}: tensor '{}' does not belong to this model", path.string(), shown(name)));
}

/// The weights of a model alone, under the parameters' and buffers' own names.
StateRegistry weights_of(Model& model) {
  StateRegistry all, weights;
  model.register_state(all);
  for (const StateEntry& entry : all.tensors()) weights.add(entry.name.substr(entry.name.find('/') + 1), entry.tensor);
  weights.on_load([all] { all.loaded(); });
  return weights;
}

}  // namespace

HostTensor host_tensor(const Shape& shape, std::span<const float> values) {
  if (shape.elements() != std::ssize(values))
    throw Error(fmt::format("{} values under {}", values.size(), to_string(shape)));
  HostTensor tensor{.shape = shape, .bytes = std::vector<std::byte>(values.size_bytes())};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), values.size_bytes());
  return tensor;
}

std::span<const float> float_values(const HostTensor& tensor) {
  return {reinterpret_cast<const float*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(float)};
}

std::uint64_t SafetensorsFile::tensor_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes.size();
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  write_safetensors(path, views_of(file), file.metadata);
}

void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  AtomicFile file(path);
  write_safetensors(file, std::move(tensors), metadata);
  file.commit();
}

void write_safetensors(AtomicFile& file, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  std::string text = header_text(tensors, metadata);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors begin at a multiple of 8
  const std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const NamedTensor& tensor : tensors) file.write(tensor.bytes);
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) { return parse_safetensors(read_file(path), path); }

SafetensorsFile parse_safetensors(std::string_view raw, const std::filesystem::path& path) {
  std::uint64_t length = 0;
  if (raw.size() < sizeof(length)) damaged(path, fmt::format("{} bytes is too short for a header", raw.size()));
  std::memcpy(&length, raw.data(), sizeof(length));
  if (length > raw.size() - sizeof(length))
    damaged(path, fmt::format("the header's length {} is beyond the file's {} bytes", length, raw.size()));
  if (length > kMostHeaderBytes)
    damaged(path, fmt::format("its header has {} bytes; at most {} are read",
                              format_count(static_cast<std::int64_t>(length)), format_count(kMostHeaderBytes)));
  const std::string_view data = raw.substr(sizeof(length) + length);
  SafetensorsFile file{.path = path.string()};
  HeaderReader header(path, data, file);
  (void)Json::sax_parse(raw.substr(sizeof(length), length), &header);
  check_tiling(path, header.take_ranges(), data.size());
  check_sum(path, file);
  return file;
}

void save_state(const StateRegistry& registry, Stream stream, const std::filesystem::path& path) {
  StateSnapshot snapshot(registry, stream);
  snapshot.copy();
  snapshot.read_host();
  snapshot.wait();
  AtomicFile file(path);
  snapshot.write(file);
  file.commit();
}

void load_state(const StateRegistry& registry, Stream stream, const std::filesystem::path& path) {
  load_state(registry, stream, read_safetensors(path));
}

void load_state(const StateRegistry& registry, Stream stream, const SafetensorsFile& file) {
  const std::filesystem::path path = file.path;
  // Check everything first: a file that does not fit changes nothing.
  for (const StateEntry& entry : registry.tensors())
    (void)expected(path, file, entry.name, entry.tensor.dtype(), entry.tensor.shape());
  for (const auto& counter : registry.counters()) (void)expected(path, file, counter.name, DType::int64, Shape{});
  for (const auto& numbers : registry.numbers()) (void)expected_numbers(path, file, numbers.name);
  check_no_other(path, file, registry);
  for (const StateEntry& entry : registry.tensors()) {
    const HostTensor& host = file.tensors.at(entry.name);
    if (!host.bytes.empty()) copy_bytes(entry.tensor.data(), host.bytes.data(), host.bytes.size(), stream);
  }
  for (const auto& counter : registry.counters()) {
    std::int64_t value = 0;
    std::memcpy(&value, file.tensors.at(counter.name).bytes.data(), sizeof(value));
    counter.set(value);
  }
  for (const auto& numbers : registry.numbers()) numbers.set(expected_numbers(path, file, numbers.name));
  registry.loaded();
  synchronize(stream);
}

void save_weights(Model& model, const std::filesystem::path& path) {
  save_state(weights_of(model), model.runtime().stream(model.device()), path);
}

void load_weights(Model& model, const std::filesystem::path& path) {
  load_state(weights_of(model), model.runtime().stream(model.device()), path);
  model.buffers().set_settled(!model.buffers().all().empty());
}

}  // namespace bantam
