// OnnxModel: an ONNX file as values, the part of the format that networks need. Source: onnx.proto of the ONNX project.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"

namespace bantam::onnx {

/// TensorProto.DataType, as far as it is known here.
enum class Type : std::int32_t {
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  int32 = 6,
  int64 = 7,
  boolean = 9,
  float16 = 10,
  float64 = 11,
  bfloat16 = 16
};

/// More than any op has: values of more axes are refused.
inline constexpr std::size_t kMostAxes = 64;

struct TypeFacts {
  Type type;
  std::int64_t bytes;  ///< of an element
  bool floating;
  std::string_view name;
};
/// Finds the facts of the element type that a file names by number; null where it is none of `Type`.
const TypeFacts* find_type(std::int64_t type);
/// Throws DataError for another type.
const TypeFacts& facts_of(Type type);

/// Little-endian values in row-major order.
struct Tensor {
  std::string name;
  Type type = Type::float32;
  std::vector<std::int64_t> dims;
  std::string data;

  std::int64_t elements() const;
  static Tensor of(std::string name, std::vector<std::int64_t> dims, std::span<const float> values);
  static Tensor of(std::string name, std::vector<std::int64_t> dims, std::span<const std::int64_t> values);
  /// Values of any floating-point type, or of any integer type. Throw DataError for the other kind.
  std::vector<float> as_floats() const;
  std::vector<std::int64_t> as_integers() const;
};

/// `values` of extents `dims` with axis i of the result being axis `axes[i]`.
std::vector<float> permuted(std::span<const float> values, std::span<const std::int64_t> dims,
                            std::span<const std::size_t> axes);

using Attribute = std::variant<std::int64_t, float, std::string, Tensor, std::vector<std::int64_t>, std::vector<float>,
                               std::vector<std::string>>;

struct Node {
  std::string name, op;                      ///< "Conv"
  std::string domain = {};                   ///< empty: ONNX's own
  std::vector<std::string> inputs, outputs;  ///< of values; an empty input is one that is left out
  std::map<std::string, Attribute> attributes;
  /// The module that it comes from, where PyTorch's exporter says it: "layer1.0.conv1". Not written.
  std::string module = {};
};

/// A graph's input or output. An extent is a number, or has a name ("batch") and is then -1 in dims.
struct Value {
  std::string name;
  Type type = Type::float32;
  std::vector<std::int64_t> dims;
  std::vector<std::string> names = {};  ///< of the extents; empty, or one each (itself empty where dims has a number)
};

struct Model {
  std::int64_t ir_version = 8, opset = 17;
  std::string producer, producer_version, graph_name;
  std::map<std::string, std::string> metadata;  ///< metadata_props
  std::vector<Value> inputs, outputs;
  std::vector<Tensor> initializers;  ///< whose names nodes use as inputs
  std::vector<Node> nodes;           ///< in an order in which they can run
};

/// The file's bytes. Throws Error where it would have more than 2 GiB, which the format cannot have.
std::string serialize(const Model& model);
/// Values that lie in other files (external data) are read from the folder of `path`. Throws DataError naming `path`
/// and the place: what is damaged, tensors whose data do not fit their extents, files of external data that are missing
/// or outside that folder, and what a model cannot do without. Unknown fields are passed over.
Model parse(std::string_view bytes, const std::filesystem::path& path);
Model read(const std::filesystem::path& path);

}  // namespace bantam::onnx
