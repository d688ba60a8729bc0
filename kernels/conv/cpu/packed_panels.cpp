// Instances of the packed tile for each instruction set, and packing.
#include "bantam/kernels/conv/cpu/packed_panels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/instruction_set.h"

namespace bantam::kernels::cpu {
namespace {

/// BANTAM_PANEL_TARGET(name, vector bytes, pixels, attribute)
// NOLINTBEGIN(bugprone-macro-parentheses): a name and an attribute stand alone
#define BANTAM_PANEL_TARGET(Name, Bytes, Pixels, Attribute)    \
  struct Name {                                                \
    using Vector = float __attribute__((vector_size(Bytes)));  \
    static constexpr int kPixels = Pixels;                     \
    template <int R, int V>                                    \
    Attribute static void tile(const PackedTile& tile) {       \
      multiply_packed<Vector, R, V>(tile);                     \
    }                                                          \
    template <int R, int V>                                    \
    Attribute static void gradient(const GradientTile& tile) { \
      multiply_gradient<Vector, R, V>(tile);                   \
    }                                                          \
  }

#if defined(__x86_64__)
BANTAM_PANEL_TARGET(Avx512, 64, 12, [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]]);
BANTAM_PANEL_TARGET(Avx2, 32, 6, [[gnu::target("avx2,fma")]]);
#endif
BANTAM_PANEL_TARGET(Plain, 16, 6, );
#undef BANTAM_PANEL_TARGET
// NOLINTEND(bugprone-macro-parentheses)

using TileFunction = void (*)(const PackedTile&);
using GradientFunction = void (*)(const GradientTile&);

/// The tiles of 1 … kPixels pixels.
template <class Target, int V, int... R>
constexpr std::array<TileFunction, Target::kPixels> tiles(std::integer_sequence<int, R...>) {
  return {&Target::template tile<R + 1, V>...};
}

template <class Target, int V, int... R>
constexpr std::array<GradientFunction, Target::kPixels> gradients(std::integer_sequence<int, R...>) {
  return {&Target::template gradient<R + 1, V>...};
}

template <class Target>
PanelKernels kernels_of() {
  using All = std::make_integer_sequence<int, Target::kPixels>;
  static_assert(Target::kPixels <= kMostPixels);
  static constexpr auto kNarrow = tiles<Target, 1>(All()), kWide = tiles<Target, 2>(All());
  static constexpr auto kNarrowGradient = gradients<Target, 1>(All()), kWideGradient = gradients<Target, 2>(All());
  constexpr auto kWidth = static_cast<std::int64_t>(2 * sizeof(typename Target::Vector) / sizeof(float));
  return {kWidth, Target::kPixels, kNarrow.data(), kWide.data(), kNarrowGradient.data(), kWideGradient.data()};
}

PanelKernels fastest() {
#if defined(__x86_64__)
  if (has_avx512()) return kernels_of<Avx512>();
  if (has_avx2()) return kernels_of<Avx2>();
#endif
  return kernels_of<Plain>();
}

}  // namespace

const PanelKernels& panel_kernels() {
  static const PanelKernels kFastest = fastest();
  return kFastest;
}

void pack_panels(const float* from, std::int64_t filters, std::int64_t depth, float* to, int threads) {
  const std::int64_t width = panel_kernels().width;
  parallel_parts((filters + width - 1) / width, threads, [&](std::int64_t panel) {
    const std::int64_t first = panel * width, columns = std::min(width, filters - first);
    pack_panel(from + first * depth, depth, true, depth, columns, columns, to + first * depth);
  });
}

}  // namespace bantam::kernels::cpu
