// One convolution of oneDNN on one block of images, on one thread, with its order of weights.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cpu {

/// Sets the number of threads that OpenMP regions opened by this thread (those inside oneDNN) use, for a scope.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : previous_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~OpenMpThreads() { omp_set_num_threads(previous_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int previous_;
};

/// Most bytes that a oneDNN kernel may use to be eligible.
struct OneDnnLimits {
  std::size_t packed_bytes = 0;
  std::size_t scratch_bytes = 0;
};

/// A pass over `shape.batch` images of float32. Const calls are thread-safe.
class OneDnnConv2d {
 public:
  /// Null where oneDNN has no optimised kernel within `limits`. `packed`: the order of weights, where another block
  /// chose it.
  static std::unique_ptr<OneDnnConv2d> make(const dnnl::engine& engine, const Conv2dShape& shape, Conv2dPass pass,
                                            const OneDnnLimits& limits, const dnnl::memory::desc* packed);

  const dnnl::memory::desc& packed() const { return packed_; }

  /// forward (x, w, y), grad_input (dy, w, dx), grad_weight (x, dy, dw): weights are packed.
  void execute(const float* first, const float* second, float* out, void* scratch) const;

 private:
  OneDnnConv2d(dnnl::engine engine, Conv2dPass pass) : engine_(std::move(engine)), pass_(pass) {}
  template <class PrimitiveDesc, class Primitive>
  bool accept(const PrimitiveDesc& desc, const OneDnnLimits& limits);

  dnnl::engine engine_;
  Conv2dPass pass_;
  dnnl::primitive primitive_;
  dnnl::memory::desc first_, second_, out_, packed_, scratch_;
};

/// Copies weights between the contract's order and a packed one, some filters at a time. Exact.
class WeightReorder {
 public:
  WeightReorder(const dnnl::engine& engine, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  void execute(const float* from, float* to, int threads) const;

 private:
  struct Chunk {
    dnnl::memory::desc from, to;
    dnnl::reorder reorder;
  };
  dnnl::engine engine_;
  std::vector<Chunk> chunks_;
};

/// The contract's order of weights as a description: logical (O, I, kH, kW), with groups first where there are some.
dnnl::memory::desc plain_weights(const Conv2dShape& shape);

}  // namespace bantam::kernels::cpu
