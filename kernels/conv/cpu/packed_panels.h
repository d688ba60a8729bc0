// Weights of a convolution in panels of filters, and the products that read them, by the widest vectors that the
// processor has.
#pragma once

#include <cstdint>

#include "bantam/kernels/conv/cpu/gradient_tile.h"
#include "bantam/kernels/conv/cpu/packed_tile.h"

namespace bantam::kernels::cpu {

/// The kernels of one instruction set, with the sizes of their panels and tiles.
struct PanelKernels {
  std::int64_t width = 0;                              ///< filters of a whole panel: two vectors
  int most_pixels = 0;                                 ///< most pixels of a tile
  void (*const* narrow)(const PackedTile&) = nullptr;  ///< by pixels - 1: panels of one vector
  void (*const* wide)(const PackedTile&) = nullptr;    ///< by pixels - 1: panels of two vectors
  /// By values of a patch - 1, at most `most_pixels` of them: weight gradients of narrow and of wide panels.
  void (*const* narrow_gradient)(const GradientTile&) = nullptr;
  void (*const* wide_gradient)(const GradientTile&) = nullptr;

  /// Columns of the panel of which `used` are filters.
  std::int64_t panel(std::int64_t used) const { return used > width / 2 ? width : width / 2; }
};

/// Returns the kernels for this processor: the same as long as the process lives.
const PanelKernels& panel_kernels();

/// Weights (filters, depth) become panels: (depth, width) each, one after the other, the last as narrow as what is
/// left. `from` and `to` do not overlap.
void pack_panels(const float* from, std::int64_t filters, std::int64_t depth, float* to, int threads);

}  // namespace bantam::kernels::cpu
