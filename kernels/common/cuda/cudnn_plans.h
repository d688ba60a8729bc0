// One convolution pass in cuDNN's graph API, or a forward pass with bias and relu: the engines that may run it, each as
// a plan that has a name to be found by.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bantam/kernels/common/cuda/cudnn_backend.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cuda {

/// Operands of plans begin at multiples of so many bytes.
inline constexpr std::int64_t kPlanAlignment = 16;

/// An engine with its settings, ready to run.
struct CudnnPlan {
  BackendDescriptor plan;
  std::string name;  ///< "12:2=1:5=0": engine, then knob=value; means the same for this problem and cuDNN version
  std::size_t workspace_bytes = 0;
};

/// The graph of one pass over operands of one type; dw may be float32.
class CudnnConvolutionGraph {
 public:
  CudnnConvolutionGraph(const CudnnBackendApi& api, cudnnHandle_t handle, const Conv2dShape& shape, DType dtype,
                        DType out_dtype, Conv2dPass pass);
  /// The graph of y = relu(convolution of x and w + b), whose float32 sums are rounded once; NaN stays NaN.
  static std::unique_ptr<CudnnConvolutionGraph> with_bias_relu(const CudnnBackendApi& api, cudnnHandle_t handle,
                                                               const Conv2dShape& shape, DType dtype);
  ~CudnnConvolutionGraph();

  /// False where cuDNN cannot say such a convolution.
  bool supported() const { return graph_.good(); }
  /// Engines by cuDNN's ranking, at most `most`: deterministic, with float32 sums and within `workspace_limit`; none
  /// that compile at run time.
  std::vector<CudnnPlan> candidates(std::size_t workspace_limit, std::size_t most) const;
  /// The plan of a name that `candidates` gave; none where there is no such engine now.
  std::optional<CudnnPlan> restore(const std::string& name, std::size_t workspace_limit) const;

  /// Starts a plan on the handle's stream: forward (x, w, y), grad_input (dy, w, dx), grad_weight (x, dy, dw). `bias`:
  /// of a graph that adds one.
  cudnnStatus_t run(const CudnnPlan& plan, std::array<const void*, 2> in, void* out, void* workspace,
                    const void* bias = nullptr) const;

 private:
  struct BiasRelu;
  CudnnConvolutionGraph(const CudnnBackendApi& api, cudnnHandle_t handle, const Conv2dShape& shape, DType dtype,
                        DType out_dtype, Conv2dPass pass, std::unique_ptr<BiasRelu> epilogue);
  std::optional<CudnnPlan> plan_of(const BackendDescriptor& config, std::size_t workspace_limit) const;
  static bool eligible(const BackendDescriptor& engine);

  const CudnnBackendApi& api_;
  cudnnHandle_t handle_;
  std::unique_ptr<BiasRelu> epilogue_;  // null: none
  BackendDescriptor left_, right_, out_, convolution_, operation_, graph_;
};

}  // namespace bantam::kernels::cuda
