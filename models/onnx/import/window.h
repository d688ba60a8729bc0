// Reads the window that convolutions and pools slide over images: kernel, strides, dilations and pads.
#pragma once

#include <array>
#include <cstdint>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {

struct ImageWindow {
  std::array<std::int64_t, 2> kernel{}, stride{}, dilation{};
  std::array<std::int64_t, 4> pads{};  ///< top, left, bottom, right
  bool same = false;                   ///< as many as Keras' `same` adds, at the sides where it adds them
};

/// Reads the window of a node that slides over an image (h, w, c) or, transposed, the other way. Throws DataError for
/// other than two axes.
ImageWindow read_window(const Node& node, std::span<const std::int64_t> kernel, const Shape& image);

/// `padding: …` where there is any.
void set_padding(ImportedLayer& layer, const ImageWindow& window);
/// `key: …` of amounts: top, left, bottom, right.
void set_amounts(ImportedLayer& layer, std::string_view key, const std::array<std::int64_t, 4>& pads);

}  // namespace bantam::onnx
