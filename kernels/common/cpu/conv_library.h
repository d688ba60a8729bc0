// A ConvLibrary, in builds with one, supplies convolution passes on blocks of images, each run by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/conv2d_plan.h"

namespace bantam::kernels::cpu {

/// A library's kernels for one convolution pass. Const calls are thread-safe.
class LibraryConv2d {
 public:
  virtual ~LibraryConv2d() = default;

  /// Whether weights have an order of the library's own: `reorder` copies to it (for grad_weight from it, to the
  /// contract's order). Exact.
  virtual bool reorders() const = 0;
  virtual std::int64_t packed_floats() const = 0;  ///< of one set of weights in the library's order
  virtual void reorder(const float* from, float* to, int threads) const = 0;

  /// forward (x, w, y), grad_input (dy, w, dx), grad_weight (x, dy, dw) of `images` images: a whole block, or what is
  /// left for the last. Weights are in the library's order. On the calling thread.
  virtual void execute(std::int64_t images, const float* first, const float* second, float* out,
                       void* scratch) const = 0;
};

/// Makes kernels by shape. Not thread-safe.
class ConvLibrary {
 public:
  virtual ~ConvLibrary() = default;
  /// Null where the library has no optimised kernel within the plan's bytes.
  virtual std::unique_ptr<LibraryConv2d> make(const Conv2dShape& shape, Conv2dPass pass, const Conv2dPlan& plan) = 0;
};

/// Null in a build without one (BANTAM_ONEDNN=OFF).
std::unique_ptr<ConvLibrary> make_conv_library();

/// oneDNN's version, e.g. "2.6.3"; empty in a build without it.
std::string onednn_version();

}  // namespace bantam::kernels::cpu
