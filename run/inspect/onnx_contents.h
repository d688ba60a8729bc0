// The contents of an ONNX file, as Inspection shows them.
#pragma once

#include <filesystem>
#include <string_view>

#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/onnx_model.h"
#include "bantam/run/inspect/inspection.h"

namespace bantam::run {

struct OnnxContents {
  OnnxFacts facts;
  SafetensorsFile tensors;  ///< the initializers; int8 as int32 and bool as uint8, without those of no name
};

/// "input float32 (batch, 3, 32, 32)".
std::string value_text(const onnx::Value& value);

/// Throws DataError naming `path` and what is wrong.
OnnxContents onnx_contents(std::string_view bytes, const std::filesystem::path& path);

}  // namespace bantam::run
