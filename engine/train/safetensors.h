// Weights and checkpoints in the safetensors format (8-byte length, JSON header, raw little-endian tensors), and the
// table of file formats that a model can be written in.
// Source of the format: the public description of huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/model/model.h"

BANTAM_API_BEGIN
namespace bantam {

/// A tensor in host memory.
struct HostTensor {
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::byte> bytes;
};

/// A float32 tensor of values in row-major order. Throws Error where they are not as many as the shape has.
HostTensor host_tensor(const Shape& shape, std::span<const float> values);
/// The values of a float32 tensor, which must outlive them.
std::span<const float> float_values(const HostTensor& tensor);

/// A tensor of a file whose type is none of DType's.
struct SkippedTensor {
  std::string type;  ///< as the file has it: "F8_E4M3", "int16"
  Shape shape;
};

/// The content of a file, in host memory.
struct SafetensorsFile {
  std::map<std::string, HostTensor> tensors;
  std::map<std::string, std::string> metadata;
  bool has_checksum = false;                          ///< it was read with one, which is that of its tensors
  std::string path = {};                              ///< that it was read from, for messages; empty: none
  std::map<std::string, SkippedTensor> skipped = {};  ///< tensors of other types, which no file is refused for

  std::uint64_t tensor_bytes() const;
};

/// A tensor in host memory of somebody else.
struct NamedTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::span<const std::byte> bytes;
};

/// Writes the file atomically, with a checksum of the tensors in its metadata ("bantam.checksum"). Throws DataError.
void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& file);
/// The same for tensors of distinct names, in any order.
void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata);
/// Reads and checks the whole file (header length, JSON, offsets in order, sizes, and the checksum where there is one,
/// which is then not among the metadata). The header may have 100,000,000 bytes, as for the reference reader, and
/// 100,000 tensors and 250,000 entries of metadata, no two of one name. Tensors of types that DType has not are
/// listed, not read. Throws DataError naming file and what is wrong.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
/// The same of a file's bytes that were read before; `path` stands in messages.
SafetensorsFile parse_safetensors(std::string_view bytes, const std::filesystem::path& path);

/// Parameters (float32 masters) and buffers of a model, by their names.
void save_weights(Model& model, const std::filesystem::path& path);
/// Throws DataError naming the first tensor that is missing, unknown, or of another shape; then nothing has changed.
void load_weights(Model& model, const std::filesystem::path& path);

/// How tensors of a weights file become those of a model. In patterns * is any text and ? one character.
struct WeightsOptions {
  /// A pattern of names, and what they become.
  struct Rename {
    std::string from, to = {};
  };
  /// The first whose `from` matches a tensor's whole name in the file renames it to `to`, in which each * and ? stands
  /// for the text that the same one of `from` matched: {"backbone.*", "*"}.
  std::vector<Rename> rename = {};
  /// Names in the model: these keep their initial values, whatever the file has.
  std::vector<std::string> skip = {};
  /// Missing tensors, and tensors of the file that the model does not have, are errors; else they are only told.
  bool strict = true;
  /// The model is a part of the one that the file was written for: tensors of the file that it does not have are passed
  /// over. Its own must all be there, whatever `strict` says; a part without weights needs none.
  bool of_part = false;
  /// With `strict` false: a tensor of another shape counts as missing; else it is an error.
  bool skip_other_shapes = false;
  /// Parameters of position_embedding layers are resized where the file's are of images of another size.
  bool resizes_positions = false;
  bool advises = true;  ///< messages say how these options would help
};

/// The result of load_weights. Names are the model's, those of `unused` the file's; sorted.
struct LoadedWeights {
  std::size_t loaded = 0;            ///< tensors
  std::vector<std::string> initial;  ///< that keep their initial values
  std::vector<std::string> unused;
  std::vector<std::string> converted;  ///< from float16, bfloat16 or float64, rounded to nearest
  std::vector<std::string> resized;    ///< "position_embedding/embedding from 14 x 14 to 24 x 24"
};

/// A tensor of floating-point numbers as float32, rounded to nearest.
HostTensor to_float32(const HostTensor& tensor);

/// The text that `name` becomes by the first fitting entry; `name` itself where none fits.
std::string renamed(std::string_view name, const std::vector<WeightsOptions::Rename>& renames);

/// Reads tensors into parameters (float32 masters) and buffers; `path` stands in messages. Waits for the device. Throws
/// DataError that names the tensors, with both shapes where they differ, and the nearest name for one that is missing;
/// also where a pattern matches nothing or nothing is loaded. Then nothing has changed.
LoadedWeights load_weights(Model& model, const SafetensorsFile& file, const std::filesystem::path& path,
                           const WeightsOptions& options);

/// All of a registry, counters (int64 scalars) and numbers (float64 lists) included.
void save_state(const StateRegistry& registry, Stream stream, const std::filesystem::path& path);
void load_state(const StateRegistry& registry, Stream stream, const std::filesystem::path& path);

/// Writes a model to a file, whole or not at all; waits for the device. Throws DataError where the file cannot be
/// written, and Error for a model that the format cannot hold. The model is not changed.
using Exporter = std::function<void(Model& model, const std::filesystem::path& path)>;

/// Built-in: safetensors (save_weights). May be added to at any time.
Registry<Exporter>& exporters();

/// Writes `model` in the format of that name. Throws ConfigError with the nearest name where there is none, and what
/// the exporter throws.
void export_model(Model& model, std::string_view format, const std::filesystem::path& path);

}  // namespace bantam
BANTAM_API_END
