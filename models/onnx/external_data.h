// ExternalData: values of tensors that lie in files beside an ONNX file, as exporters write large networks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

namespace bantam::onnx {

/// Where a tensor's values lie: TensorProto.external_data, whose values are texts. Other keys, such as `checksum`, are
/// not read.
struct ExternalRange {
  std::string location;  ///< relative to the folder of the ONNX file
  std::string offset;    ///< in bytes; empty: 0
  std::string length;    ///< in bytes; empty: as many as the tensor has
};

/// Reads ranges of files beside one ONNX file. Only regular files within its folder are opened, after links are
/// resolved, and no file is read more than a few times over, so that memory stays linear in the files' bytes.
class ExternalData {
 public:
  explicit ExternalData(std::filesystem::path model) : model_(std::move(model)) {}

  /// The `bytes` bytes of a tensor. Throws DataError naming the file and what is wrong with it or with the range.
  std::string read(const ExternalRange& range, std::uint64_t bytes);

 private:
  struct File {
    std::ifstream stream;
    std::uint64_t size = 0;
    std::uint64_t read = 0;  // bytes so far
  };
  File& open(const std::string& location);

  std::filesystem::path model_;
  std::map<std::string, File> files_;  // by location
};

}  // namespace bantam::onnx
