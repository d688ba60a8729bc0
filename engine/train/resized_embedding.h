// Position embeddings of images of one size for those of another.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bantam/base/api.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam {

/// The places of a position embedding: vectors of tokens before the image, then a vector for each of its patches, row
/// after row.
struct PositionGrid {
  std::int64_t prefix = 0;             ///< tokens before the image: class_token
  std::int64_t height = 0, width = 0;  ///< of the image in patches; 0: not known
};

/// The grids of a graph's position_embedding layers, by their parameters' names. A sequence of tokens that no
/// class_token made of an image is taken for a square image.
std::map<std::string, PositionGrid> position_grids(const Graph& graph);

/// The grid of a tensor (positions, C) or (height, width, C) in a file, whose image is square where its height is not
/// known; nothing where it cannot be.
std::optional<PositionGrid> grid_of(const Shape& shape, std::int64_t prefix);

/// The image's vectors resized to `to` in float32, those of tokens before it copied; of shape `shape`. Cubic
/// convolution with a = -0.5 (Keys, 1981), along the width and then along the height; for a smaller image its support
/// grows by the scale, as PyTorch's interpolate has it with antialias and without align_corners.
HostTensor resized_embedding(const HostTensor& embedding, const PositionGrid& from, const PositionGrid& to,
                             const Shape& shape);

}  // namespace bantam
