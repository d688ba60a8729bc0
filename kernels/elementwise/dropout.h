// Dropout with counter-based random numbers: the same bits on the CPU and on CUDA, whatever the split into
// micro-batches: of elements (Srivastava et al. 2014, inverted form), of channels (Tompson et al. 2015), of samples
// (stochastic depth, Huang et al. 2016). Philox: base/philox.h.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/base/philox.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// x (samples, elements a sample). Each sample has `draws` random numbers: number d says keep where uniform01(word) >=
/// rate, word = component d mod 4 of philox(key, {d / 4, first_sample + s, low 32 bits of update, high 32 bits of
/// update}). `first_sample`: place in the effective batch. Element e of the sample is kept where number e mod draws
/// says so: one number an element, one a channel (the last axis) or one for the whole sample.
struct DropoutShape {
  std::int64_t samples = 0, sample_elements = 0;
  float rate = 0.5f;
  PhiloxKey key;
  std::int64_t first_sample = 0;
  std::int64_t draws = 0;  ///< divides sample_elements; 0: sample_elements

  BANTAM_HOST_DEVICE std::int64_t row_draws() const { return draws > 0 ? draws : sample_elements; }
};

/// Bytes of the mask: one bit a random number, samples · ceil(draws / 32) · 4.
std::size_t dropout_mask_bytes(const DropoutShape& shape);

/// y = x/(1 - rate) where kept, 0 elsewhere; `mask` gets the kept bits (bit d mod 32 of word d / 32 of the sample's
/// row). `update` points to device memory: the count of updates done (the step's number), read by the kernel. y may
/// alias x.
using DropoutForward = void(const Exec&, const DropoutShape&, DType dtype, const std::int64_t* update, const void* x,
                            void* y, std::uint32_t* mask);
/// dx = dy/(1 - rate) where the mask is set. dx may alias dy.
using DropoutGrad = void(const Exec&, const DropoutShape&, DType dtype, const std::uint32_t* mask, const void* dy,
                         void* dx);
BANTAM_DECLARE_KERNEL(DropoutForward, dropout_forward);
BANTAM_DECLARE_KERNEL(DropoutGrad, dropout_grad);

}  // namespace bantam::kernels
