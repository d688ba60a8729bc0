// The row functions of depthwise convolution between batch norms, compiled for each instruction set, and the choice
// among them where the program runs.
#pragma once

#include <array>

#include "bantam/kernels/common/cpu/instruction_set.h"
#include "bantam/kernels/depthwise/cpu/norm_depthwise_rows.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::kernels::cpu {

/// The functions of norm_depthwise_rows.h for a vector width, compiled for an instruction set.
/// BANTAM_ROW_TARGET(name, vector bytes, attribute)
#define BANTAM_ROW_TARGET(Name, Bytes, Attribute)                 \
  struct Name {                                                   \
    using Vector = float __attribute__((vector_size(Bytes)));     \
    template <class T>                                            \
    Attribute static void normalise(const NormaliseRow<T>& row) { \
      normalise_row<Vector>(row);                                 \
    }                                                             \
    template <class T>                                            \
    Attribute static void gradient(const GradientRow<T>& row) {   \
      gradient_row<Vector>(row);                                  \
    }                                                             \
    template <int kStride, class T>                               \
    Attribute static void convolve(const ConvolveRow<T>& row) {   \
      convolve_row<Vector, kStride>(row);                         \
    }                                                             \
    template <int kStride, int R, class T>                        \
    Attribute static void backward(const BackwardRow<T>& row) {   \
      backward_row<Vector, kStride, R>(row);                      \
    }                                                             \
  }

BANTAM_ROW_TARGET(EightLanes, 32, );
#if defined(__x86_64__)
BANTAM_ROW_TARGET(SixteenLanes, 64, [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]]);
#endif
#undef BANTAM_ROW_TARGET

/// The row functions that a call runs, all of one instruction set with vectors of `lanes` floats.
template <class T>
struct RowFunctions {
  std::int64_t lanes;
  void (*normalise)(const NormaliseRow<T>&);
  void (*gradient)(const GradientRow<T>&);
  void (*convolve)(const ConvolveRow<T>&);
  std::array<void (*)(const BackwardRow<T>&), 4> backward;  ///< by the rows of weights that meet a row
};

template <class Target, class T>
RowFunctions<T> row_functions(std::int64_t stride) {
  RowFunctions<T> f{.lanes = kLanesOf<typename Target::Vector>,
                    .normalise = &Target::template normalise<T>,
                    .gradient = &Target::template gradient<T>,
                    .convolve = &Target::template convolve<1, T>,
                    .backward = {nullptr, nullptr, nullptr, &Target::template backward<1, 3, T>}};
  if (stride == 1) return f;
  f.convolve = &Target::template convolve<2, T>;
  f.backward = {nullptr, &Target::template backward<2, 1, T>, &Target::template backward<2, 2, T>, nullptr};
  return f;
}

template <class T>
RowFunctions<T> fastest_row_functions(const DepthwiseConv2dShape& s) {
#if defined(__x86_64__)
  static const bool wide = has_avx512();
  if (wide && s.channels % 16 == 0) return row_functions<SixteenLanes, T>(s.stride_h);
#endif
  return row_functions<EightLanes, T>(s.stride_h);
}

}  // namespace bantam::kernels::cpu
