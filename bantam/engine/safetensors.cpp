// The file format, and models and registries in it.
#include "bantam/engine/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bantam/base/atomic_file.h"
#include "bantam/base/checksum.h"
#include "bantam/base/error.h"

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

const char* type_name(DType dtype) { return std::ranges::find(kTypes, dtype, &NamedType::dtype)->name; }

[[noreturn]] void damaged(const std::filesystem::path& path, const std::string& what) {
  throw DataError(fmt::format("{}: not a usable safetensors file: {}", path.string(), what));
}

// In the header's metadata: a Checksum of all tensors. Files of other programs have none.
constexpr const char* kChecksum = "bantam.checksum";

/// Of the tensors in the order of their names: name, type, shape and bytes.
std::string checksum_of(const std::map<std::string, HostTensor>& tensors) {
  Checksum sum;
  for (const auto& [name, tensor] : tensors) {
    sum.add(name);
    sum.add(type_name(tensor.dtype));
    sum.add(std::as_bytes(tensor.shape.extents()));
    sum.add(tensor.bytes);
  }
  return sum.digits();
}

void check_sum(const std::filesystem::path& path, SafetensorsFile& file) {
  const auto written = file.metadata.extract(kChecksum);
  if (!written) return;
  const std::string now = checksum_of(file.tensors);
  if (written.mapped() == now) return;
  throw DataError(
      fmt::format("{}: damaged: its tensors have the checksum {}, and were written with {}\n  (a program "
                  "that changed them would have to drop {} from the metadata)",
                  path.string(), now, written.mapped(), kChecksum));
}

HostTensor read_tensor(const std::filesystem::path& path, const std::string& name, const Json& entry,
                       std::string_view data) {
  const auto type = std::ranges::find(kTypes, entry.at("dtype").get<std::string>(), &NamedType::name);
  if (type == std::end(kTypes))
    damaged(path, fmt::format("tensor '{}' has the unsupported type {}", name, entry.at("dtype").dump()));
  const auto extents = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
  HostTensor tensor{type->dtype, Shape(std::span<const std::int64_t>(extents)), {}};
  const std::uint64_t bytes = static_cast<std::uint64_t>(tensor.shape.elements()) * size_of(tensor.dtype);
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size() || offsets[1] - offsets[0] != bytes)
    damaged(path, fmt::format("tensor '{}' {} needs {} bytes; its offsets are {} of {} bytes of data", name,
                              to_string(tensor.shape), bytes, entry.at("data_offsets").dump(), data.size()));
  const auto* first = reinterpret_cast<const std::byte*>(data.data() + offsets[0]);
  tensor.bytes.assign(first, first + bytes);
  return tensor;
}

/// Tensors lie one behind the other, without gaps, overlaps or a rest: what one program wrote, another reads.
void check_tiling(const std::filesystem::path& path, std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges,
                  std::size_t size) {
  std::ranges::sort(ranges);
  std::uint64_t end = 0;
  for (const auto& [first, last] : ranges) {
    if (first != end) damaged(path, fmt::format("tensors overlap or leave a gap at byte {} of the data", end));
    end = last;
  }
  if (end != size) damaged(path, fmt::format("{} bytes of data belong to no tensor", size - end));
}

HostTensor download(const Tensor& tensor, Stream stream) {
  if (tensor.device().meta) throw DeviceError("a tensor on a meta device has no values to save");
  HostTensor host{tensor.dtype(), tensor.shape(), std::vector<std::byte>(tensor.bytes())};
  if (!host.bytes.empty()) copy_bytes(host.bytes.data(), tensor.data(), host.bytes.size(), stream);
  return host;
}

HostTensor counter_tensor(std::int64_t value) {
  HostTensor host{DType::int64, Shape{}, std::vector<std::byte>(sizeof(value))};
  std::memcpy(host.bytes.data(), &value, sizeof(value));
  return host;
}

/// The file's tensor of this name, type and shape.
const HostTensor& expected(const std::filesystem::path& path, const SafetensorsFile& file, const std::string& name,
                           DType dtype, const Shape& shape) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw DataError(fmt::format("{}: tensor '{}' is missing", path.string(), name));
  const HostTensor& tensor = found->second;
  if (tensor.shape != shape || tensor.dtype != dtype)
    throw DataError(fmt::format("{}: tensor '{}' is {} {}, expected {} {}", path.string(), name,
                                to_string(tensor.dtype), to_string(tensor.shape), to_string(dtype), to_string(shape)));
  return tensor;
}

void check_no_other(const std::filesystem::path& path, const SafetensorsFile& file, std::size_t wanted,
                    const StateRegistry& registry) {
  if (file.tensors.size() == wanted) return;
  for (const auto& entry : file.tensors) {
    const std::string& name = entry.first;
    const bool known = std::ranges::any_of(registry.tensors(), [&](const auto& e) { return e.name == name; }) ||
                       std::ranges::any_of(registry.counters(), [&](const auto& c) { return c.name == name; });
    if (!known) throw DataError(fmt::format("{}: tensor '{}' does not belong to this model", path.string(), name));
  }
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

void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  Json header = Json::object();
  header["__metadata__"] = file.metadata;
  header["__metadata__"][kChecksum] = checksum_of(file.tensors);
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    const auto extents = tensor.shape.extents();
    header[name] = {{"dtype", type_name(tensor.dtype)},
                    {"shape", std::vector<std::int64_t>(extents.begin(), extents.end())},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors begin at a multiple of 8
  const std::uint64_t length = text.size();
  AtomicFile out(path);
  out.write(std::as_bytes(std::span(&length, 1)));
  out.write(text);
  for (const auto& [name, tensor] : file.tensors) out.write(tensor.bytes);
  out.commit();
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const std::string raw = read_file(path);
  std::uint64_t length = 0;
  if (raw.size() < sizeof(length)) damaged(path, fmt::format("{} bytes is too short for a header", raw.size()));
  std::memcpy(&length, raw.data(), sizeof(length));
  if (length > raw.size() - sizeof(length))
    damaged(path, fmt::format("the header's length {} is beyond the file's {} bytes", length, raw.size()));
  const std::string_view data = std::string_view(raw).substr(sizeof(length) + length);
  SafetensorsFile file;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  try {
    const Json header = Json::parse(std::string_view(raw).substr(sizeof(length), length));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        file.metadata = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      file.tensors.emplace(name, read_tensor(path, name, entry, data));
      ranges.emplace_back(entry.at("data_offsets")[0], entry.at("data_offsets")[1]);
    }
  } catch (const Json::exception& error) {
    damaged(path, fmt::format("its header is not as expected ({})", error.what()));
  } catch (const ShapeError& error) {
    damaged(path, error.what());
  }
  check_tiling(path, std::move(ranges), data.size());
  check_sum(path, file);
  return file;
}

void save_state(const StateRegistry& registry, Stream stream, const std::filesystem::path& path) {
  SafetensorsFile file;
  for (const StateEntry& entry : registry.tensors()) file.tensors.emplace(entry.name, download(entry.tensor, stream));
  for (const auto& counter : registry.counters()) file.tensors.emplace(counter.name, counter_tensor(counter.get()));
  synchronize(stream);
  file.metadata["format"] = "bantam";
  write_safetensors(path, file);
}

void load_state(const StateRegistry& registry, Stream stream, const std::filesystem::path& path) {
  const SafetensorsFile file = read_safetensors(path);
  // Check everything first: a file that does not fit changes nothing.
  for (const StateEntry& entry : registry.tensors())
    (void)expected(path, file, entry.name, entry.tensor.dtype(), entry.tensor.shape());
  for (const auto& counter : registry.counters()) (void)expected(path, file, counter.name, DType::int64, Shape{});
  check_no_other(path, file, registry.tensors().size() + registry.counters().size(), registry);
  for (const StateEntry& entry : registry.tensors()) {
    const HostTensor& host = file.tensors.at(entry.name);
    if (!host.bytes.empty()) copy_bytes(entry.tensor.data(), host.bytes.data(), host.bytes.size(), stream);
  }
  for (const auto& counter : registry.counters()) {
    std::int64_t value = 0;
    std::memcpy(&value, file.tensors.at(counter.name).bytes.data(), sizeof(value));
    counter.set(value);
  }
  registry.loaded();
  synchronize(stream);
}

void save_weights(Model& model, const std::filesystem::path& path) {
  save_state(weights_of(model), model.runtime().stream(model.device()), path);
}

void load_weights(Model& model, const std::filesystem::path& path) {
  load_state(weights_of(model), model.runtime().stream(model.device()), path);
}

}  // namespace bantam
