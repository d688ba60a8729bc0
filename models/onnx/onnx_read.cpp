// Reads an ONNX file: its messages, field by field, into a Model.
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/protobuf.h"
#include "bantam/base/text.h"
#include "bantam/models/onnx/external_data.h"
#include "bantam/models/onnx/onnx_model.h"

static_assert(std::endian::native == std::endian::little, "tensors are copied as the file has them");

namespace bantam::onnx {
namespace {

/// The format has no larger files.
constexpr std::uint64_t kMostBytes = (std::uint64_t{1} << 31) - 1;

/// Adds `place` to what `read` throws.
template <class Read>
auto within(const std::string& place, const Read& read) {
  try {
    return read();
  } catch (const DataError& error) {
    throw DataError(place + ": " + error.what());
  }
}

std::string text_of(const ProtoField& field) { return std::string(field.as_bytes()); }

/// One file, and how many parts its graph has so far. Their memory is a multiple of their bytes in the file: what is
/// allowed is far more than networks have, and takes some 200 MB.
struct Source {
  ExternalData files;
  std::int64_t parts = 0;

  /// A name, an attribute, a number of one; a node, a tensor or a value counts as several.
  void count(std::size_t more) {
    constexpr std::int64_t kMost = std::int64_t{1} << 20;
    parts += static_cast<std::int64_t>(more);
    if (parts > kMost)
      throw DataError(fmt::format("more than {} nodes, names, attributes and numbers of them", format_count(kMost)));
  }
};
/// A node, a tensor or a value has about the memory of so many names.
constexpr std::size_t kPartsOfNode = 4;

/// A repeated number: one value, or, packed, many.
template <class Use>
void for_numbers(const ProtoField& field, ProtoField::Type type, const Use& use) {
  if (field.type != ProtoField::Type::bytes) return use(field);
  // Packed values have no keys of their own: each is read as if it had one.
  std::string_view rest = field.bytes;
  const std::size_t fixed = type == ProtoField::Type::fixed32 ? 4 : 8;
  while (!rest.empty()) {
    std::size_t bytes = fixed;
    if (type == ProtoField::Type::varint)
      for (bytes = 1; bytes < rest.size() && (rest[bytes - 1] & 0x80) != 0;) ++bytes;
    bytes = std::min(bytes, rest.size());
    const std::string one = static_cast<char>(8 | static_cast<int>(type)) + std::string(rest.substr(0, bytes));
    use(*ProtoReader(one).next());
    rest.remove_prefix(bytes);
  }
}

void append(std::vector<std::int64_t>& values, const ProtoField& field, Source& source) {
  for_numbers(field, ProtoField::Type::varint, [&](const ProtoField& one) {
    source.count(1);
    values.push_back(one.as_integer());
  });
}
void append(std::vector<float>& values, const ProtoField& field, Source& source) {
  for_numbers(field, ProtoField::Type::fixed32, [&](const ProtoField& one) {
    source.count(1);
    values.push_back(one.as_float());
  });
}

Type known_type(std::int64_t type) {
  const TypeFacts* facts = find_type(type);
  if (facts == nullptr)
    throw DataError(fmt::format(
        "element type {} of TensorProto; known are float32, float16, bfloat16, float64, int8, uint8, int32, int64 and "
        "bool",
        type));
  return facts->type;
}

/// The fields of a TensorProto but for its numbers: its values only where they are raw.
struct TensorFields {
  std::optional<std::int64_t> type;
  std::optional<std::string_view> raw;
  bool external = false;  // data_location
  ExternalRange range;
};

std::pair<std::string, std::string> read_entry(std::string_view message) {
  std::pair<std::string, std::string> entry;
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1) entry.first = text_of(*field);
    if (field->number == 2) entry.second = text_of(*field);
  }
  return entry;
}

void read_external(std::string_view message, ExternalRange& range) {
  auto [key, value] = read_entry(message);
  if (key == "location") range.location = std::move(value);
  if (key == "offset") range.offset = std::move(value);
  if (key == "length") range.length = std::move(value);
}

void read_tensor_field(const ProtoField& field, Tensor& tensor, TensorFields& fields) {
  switch (field.number) {
    case 1:
      for_numbers(field, ProtoField::Type::varint, [&](const ProtoField& one) {
        tensor.dims.push_back(one.as_integer());
        if (tensor.dims.size() > kMostAxes) throw DataError(fmt::format("more than {} axes", kMostAxes));
      });
      return;
    case 2:
      fields.type = field.as_integer();
      return;
    case 8:
      tensor.name = text_of(field);
      return;
    case 9:
      fields.raw = field.as_bytes();
      return;
    case 13:
      return read_external(field.as_bytes(), fields.range);
    case 14:
      fields.external = field.as_integer() == 1;
      return;
    default:
      return;
  }
}

/// Throws unless the extents are from 0 on and their product is no larger than the format allows.
std::int64_t checked_elements(const std::vector<std::int64_t>& dims) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : dims) {
    if (extent < 0) throw DataError(fmt::format("an extent is {}", extent));
    if (extent > 0 && elements > static_cast<std::int64_t>(kMostBytes) / extent)
      throw DataError("its extents are too large for a file of 2 GiB");
    elements *= extent;
  }
  return elements;
}

/// Values that are numbers of fields: float_data, int32_data (which has also the bits of narrower types, a value each),
/// int64_data and double_data. `most`: bytes that the tensor needs.
void append_numbers(std::string& data, std::string_view message, const TypeFacts& type, std::int64_t most) {
  struct Kind {
    std::uint32_t number;
    ProtoField::Type wire;
  };
  const Kind kind = type.type == Type::float32   ? Kind{4, ProtoField::Type::fixed32}
                    : type.type == Type::float64 ? Kind{10, ProtoField::Type::fixed64}
                    : type.type == Type::int64   ? Kind{7, ProtoField::Type::varint}
                                                 : Kind{5, ProtoField::Type::varint};
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number != kind.number) continue;
    for_numbers(*field, kind.wire, [&](const ProtoField& one) {
      if (one.type != kind.wire) throw DataError(fmt::format("field {} has numbers of another kind", one.number));
      if (std::ssize(data) < most)
        data.append(reinterpret_cast<const char*>(&one.bits), static_cast<std::size_t>(type.bytes));
      else
        throw DataError(fmt::format("more values than its extents and {} need", type.name));
    });
  }
}

void set_data(Tensor& tensor, const TensorFields& fields, std::string_view message, Source& source) {
  const TypeFacts& type = facts_of(tensor.type);
  const std::int64_t bytes = checked_elements(tensor.dims) * type.bytes;
  if (fields.external)
    tensor.data = source.files.read(fields.range, static_cast<std::uint64_t>(bytes));
  else if (fields.raw)
    tensor.data = *fields.raw;
  else
    append_numbers(tensor.data, message, type, bytes);
  if (std::ssize(tensor.data) != bytes)
    throw DataError(
        fmt::format("{} bytes of values; its extents and {} need {}", tensor.data.size(), type.name, bytes));
}

Tensor read_tensor(std::string_view message, Source& source) {
  source.count(kPartsOfNode);
  Tensor tensor;
  TensorFields fields;
  ProtoReader reader(message);
  while (const auto field = reader.next()) read_tensor_field(*field, tensor, fields);
  return within(fmt::format("tensor '{}'", shown(tensor.name)), [&] {
    if (!fields.type) throw DataError("no element type");
    tensor.type = known_type(*fields.type);
    set_data(tensor, fields, message, source);
    return std::move(tensor);
  });
}

/// The fields of an AttributeProto, those of all kinds at once; `type` says which kind the attribute is.
struct AttributeFields {
  std::string name;
  std::int64_t type = 0, integer = 0;
  float number = 0;
  std::string text;
  std::optional<Tensor> tensor;
  std::vector<std::int64_t> integers;
  std::vector<float> numbers;
  std::vector<std::string> texts;
  std::uint32_t last = 0;  // number of the last field with a value
};

void read_attribute_field(const ProtoField& field, AttributeFields& attribute, Source& source) {
  if (field.number >= 2 && field.number <= 9) attribute.last = field.number;
  switch (field.number) {
    case 1:
      attribute.name = text_of(field);
      return;
    case 2:
      attribute.number = field.as_float();
      return;
    case 3:
      attribute.integer = field.as_integer();
      return;
    case 4:
      attribute.text = text_of(field);
      return;
    case 5:
      attribute.tensor = read_tensor(field.as_bytes(), source);
      return;
    case 7:
      return append(attribute.numbers, field, source);
    case 8:
      return append(attribute.integers, field, source);
    case 9:
      source.count(1);
      attribute.texts.push_back(text_of(field));
      return;
    case 20:
      attribute.type = field.as_integer();
      return;
    default:
      return;
  }
}

/// Nothing for a kind that no network here needs: graphs, sparse tensors.
std::optional<Attribute> value_of(AttributeFields& attribute) {
  constexpr std::array<std::int64_t, 10> kTypeOfField{0, 0, 1, 2, 3, 4, 0, 6, 7, 8};
  if (attribute.type == 0) attribute.type = kTypeOfField[attribute.last];  // files before IR version 2
  switch (attribute.type) {
    case 1:
      return attribute.number;
    case 2:
      return attribute.integer;
    case 3:
      return attribute.text;
    case 4:
      if (!attribute.tensor) throw DataError(fmt::format("attribute '{}' has no tensor", shown(attribute.name)));
      return std::move(*attribute.tensor);
    case 6:
      return attribute.numbers;
    case 7:
      return attribute.integers;
    case 8:
      return attribute.texts;
    default:
      return std::nullopt;
  }
}

void read_attribute(std::string_view message, Node& node, Source& source) {
  AttributeFields attribute;
  ProtoReader reader(message);
  while (const auto field = reader.next()) read_attribute_field(*field, attribute, source);
  if (auto value = value_of(attribute)) node.attributes.insert_or_assign(attribute.name, std::move(*value));
}

/// The module of a node whose metadata have `text` as their namespace: parts "name: class" from the network down to the
/// function, between slashes. Modules of torch.nn are named alone; of others the function is part of the name.
std::string module_of_namespace(std::string_view text) {
  std::string module, function;
  bool layer = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('/'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t colon = part.find(": ");
    if (colon == std::string_view::npos) return "";
    const std::string_view name = part.substr(0, colon), kind = part.substr(colon + 2);
    if (text.empty()) {
      function = name;
    } else {
      if (!name.empty()) module = name;
      layer = !name.empty() && kind.starts_with("torch.nn.modules.") && !kind.starts_with("torch.nn.modules.container");
    }
  }
  if (layer || function.empty()) return module;
  return module.empty() ? function : module + "." + function;
}

Node read_node(std::string_view message, Source& source) {
  source.count(kPartsOfNode);
  Node node;
  std::vector<std::string_view> attributes;  // read when the node's name is known
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1 || field->number == 2) source.count(1);
    if (field->number == 5) source.count(kPartsOfNode);
    if (field->number == 1) node.inputs.push_back(text_of(*field));
    if (field->number == 2) node.outputs.push_back(text_of(*field));
    if (field->number == 3) node.name = text_of(*field);
    if (field->number == 4) node.op = text_of(*field);
    if (field->number == 5) attributes.push_back(field->as_bytes());
    if (field->number == 7) node.domain = text_of(*field);
    if (field->number == 9)
      if (const auto [key, value] = read_entry(field->as_bytes()); key == "namespace")
        node.module = module_of_namespace(value);
  }
  if (node.op.empty()) throw DataError("no op");
  const std::string& name = node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
  for (const std::string_view attribute : attributes)
    within(fmt::format("'{}' ({})", shown(name), shown(node.op)), [&] { read_attribute(attribute, node, source); });
  if (node.domain == "ai.onnx") node.domain.clear();  // another name of ONNX's own
  return node;
}

void read_extent(std::string_view message, Value& value) {
  std::int64_t extent = -1;
  std::string name;
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1) extent = field->as_integer();
    if (field->number == 2) name = text_of(*field);
  }
  if (extent < 1) extent = -1;  // some writers say -1 or 0 of an extent without a number
  if (value.dims.size() == kMostAxes) throw DataError(fmt::format("more than {} axes", kMostAxes));
  value.dims.push_back(extent);
  value.names.push_back(std::move(name));
}

void read_tensor_type(std::string_view message, Value& value) {
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1) value.type = known_type(field->as_integer());
    if (field->number != 2) continue;
    ProtoReader shape(field->as_bytes());
    while (const auto extent = shape.next())
      if (extent->number == 1) read_extent(extent->as_bytes(), value);
  }
}

Value read_value(std::string_view message, Source& source) {
  source.count(kPartsOfNode);
  Value value;
  std::optional<std::string_view> type;
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1) value.name = text_of(*field);
    if (field->number == 2) type = field->as_bytes();
  }
  return within(fmt::format("'{}'", shown(value.name)), [&] {
    bool tensor = false;
    ProtoReader kinds(type.value_or(""));
    while (const auto field = kinds.next()) {
      if (field->number != 1) continue;
      tensor = true;
      read_tensor_type(field->as_bytes(), value);
    }
    if (!tensor) throw DataError("is no tensor: sequences, maps and optional values are not supported");
    return std::move(value);
  });
}

void read_graph_field(const ProtoField& field, Model& model, Source& source) {
  switch (field.number) {
    case 1:
      model.nodes.push_back(
          within(fmt::format("node {}", model.nodes.size()), [&] { return read_node(field.as_bytes(), source); }));
      return;
    case 2:
      model.graph_name = text_of(field);
      return;
    case 5:
      model.initializers.push_back(within("initializer", [&] { return read_tensor(field.as_bytes(), source); }));
      return;
    case 11:
      model.inputs.push_back(within("input", [&] { return read_value(field.as_bytes(), source); }));
      return;
    case 12:
      model.outputs.push_back(within("output", [&] { return read_value(field.as_bytes(), source); }));
      return;
    case 15:
      throw DataError("a sparse initializer, which is not supported");
    default:
      return;
  }
}

void read_graph(std::string_view message, Model& model, Source& source) {
  ProtoReader reader(message);
  while (const auto field = reader.next()) read_graph_field(*field, model, source);
}

/// The version of ONNX' own operators; nothing for another domain's.
std::optional<std::int64_t> read_opset(std::string_view message) {
  std::string domain;
  std::int64_t version = 0;
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1) domain = text_of(*field);
    if (field->number == 2) version = field->as_integer();
  }
  return domain.empty() || domain == "ai.onnx" ? std::optional(version) : std::nullopt;
}

Model read_model(std::string_view message, Source& source) {
  Model model;
  std::optional<std::int64_t> opset;
  bool graph = false;
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == 1) model.ir_version = field->as_integer();
    if (field->number == 2) model.producer = text_of(*field);
    if (field->number == 3) model.producer_version = text_of(*field);
    if (field->number == 7) within("graph", [&] { read_graph(field->as_bytes(), model, source); });
    if (field->number == 8)
      if (const auto version = read_opset(field->as_bytes())) opset = version;
    if (field->number == 14) source.count(kPartsOfNode);
    if (field->number == 14) model.metadata.insert(read_entry(field->as_bytes()));
    graph = graph || field->number == 7;
  }
  if (!graph) throw DataError("it has no graph");
  if (!opset) throw DataError("it does not say which version of ONNX' operators it uses (opset_import)");
  model.opset = *opset;
  return model;
}

}  // namespace

Model parse(std::string_view bytes, const std::filesystem::path& path) {
  Source source{.files = ExternalData(path)};
  return within(fmt::format("{}: not an ONNX model that can be read", path.string()),
                [&] { return read_model(bytes, source); });
}

Model read(const std::filesystem::path& path) { return parse(read_file(path, kMostBytes), path); }

}  // namespace bantam::onnx
