// cuDNN's convolutions for one device: loaded at run time, deterministic algorithms only, chosen once a shape, by
// timing where that is allowed.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <cudnn.h>

#include "bantam/base/shared_library.h"
#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/kernels/common/cuda/cudnn_plans.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cuda {

/// The functions used, by their names. All are in cuDNN 9.0.
struct CudnnApi {
  CudnnApi();
  SharedLibrary library;
  decltype(&::cudnnCreate) create;
  decltype(&::cudnnDestroy) destroy;
  decltype(&::cudnnSetStream) set_stream;
  decltype(&::cudnnGetErrorString) error_string;
  decltype(&::cudnnCreateTensorDescriptor) tensor_create;
  decltype(&::cudnnDestroyTensorDescriptor) tensor_destroy;
  decltype(&::cudnnSetTensor4dDescriptor) tensor_set;
  decltype(&::cudnnCreateFilterDescriptor) filter_create;
  decltype(&::cudnnDestroyFilterDescriptor) filter_destroy;
  decltype(&::cudnnSetFilter4dDescriptor) filter_set;
  decltype(&::cudnnCreateConvolutionDescriptor) conv_create;
  decltype(&::cudnnDestroyConvolutionDescriptor) conv_destroy;
  decltype(&::cudnnSetConvolution2dDescriptor) conv_set;
  decltype(&::cudnnSetConvolutionGroupCount) conv_groups;
  decltype(&::cudnnSetConvolutionMathType) conv_math;
  decltype(&::cudnnGetConvolutionForwardWorkspaceSize) forward_workspace;
  decltype(&::cudnnGetConvolutionBackwardDataWorkspaceSize) grad_input_workspace;
  decltype(&::cudnnGetConvolutionBackwardFilterWorkspaceSize) grad_weight_workspace;
  decltype(&::cudnnConvolutionForward) forward;
  decltype(&::cudnnConvolutionBackwardData) grad_input;
  decltype(&::cudnnConvolutionBackwardFilter) grad_weight;
};

/// A handle, and what was chosen for every convolution met. Made and used with the device current. Thread-safe.
class Cudnn {
 public:
  /// Throws DeviceError where the library is missing, CudaError where it does not start. `choices` must outlive it.
  explicit Cudnn(AlgorithmChoices& choices);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  /// Starts a pass: forward (x, w, y), grad_input (dy, w, dx), grad_weight (x, dy, dw), all `dtype`, the last
  /// overwritten. False, having changed no result, where cuDNN has no deterministic algorithm that needs at most
  /// `workspace.bytes`.
  bool convolve(const Conv2dShape& shape, DType dtype, Conv2dPass pass, std::array<const void*, 2> in, void* out,
                Workspace workspace, cudaStream_t stream);

  /// Starts y = relu(convolution + b) as one kernel; `in` (x, w, b). `apart` computes the same in another way, which
  /// may call `convolve`: where a problem is timed, that is, too, and the faster of both is kept. False, having changed
  /// nothing but y, where that is `apart`, or cuDNN has no such kernel.
  bool convolve_bias_relu(const Conv2dShape& shape, DType dtype, std::array<const void*, 3> in, void* out,
                          Workspace workspace, cudaStream_t stream, const std::function<void()>& apart);

 private:
  struct Entry;
  /// Operands and scratch memory of one call.
  struct Call {
    std::array<const void*, 2> in;
    void* out;
    Workspace workspace;
    cudaStream_t stream;
    const void* bias = nullptr;
  };
  /// Makes the graph whose plans are chosen from.
  using MakeGraph = std::function<std::unique_ptr<CudnnConvolutionGraph>()>;
  static constexpr const char* kFixed = "fixed";
  using Key = std::array<std::int64_t, 18>;
  static Key key_of(const Conv2dShape& shape, DType dtype, std::int64_t pass);
  Entry& entry_for(const Conv2dShape& shape, DType dtype, Conv2dPass pass, const Call& call);
  std::unique_ptr<Entry> make_entry(const Conv2dShape& shape, DType dtype, Conv2dPass pass, const Call& call) const;
  void choose_plan(const std::string& problem, const MakeGraph& make_graph, const Call& call,
                   const std::function<bool()>& otherwise, Entry& entry) const;
  std::string problem_of(const Conv2dShape& shape, DType dtype, const char* what, std::size_t workspace_bytes) const;
  std::string fastest(const Call& call, const std::function<bool()>& otherwise, const Entry& entry) const;
  bool describe(const Conv2dShape& shape, DType dtype, Entry& entry) const;
  void choose_algorithm(Conv2dPass pass, std::size_t workspace_bytes, Entry& entry) const;
  cudnnStatus_t start(const Entry& entry, Conv2dPass pass, const Call& call) const;
  void check(cudnnStatus_t status, const char* call) const;

  CudnnApi api_;
  CudnnBackendApi backend_{api_.library};
  AlgorithmChoices& choices_;
  cudnnHandle_t handle_ = nullptr;
  std::recursive_mutex guard_;  // what is timed beside a plan may call `convolve`
  std::map<Key, std::unique_ptr<Entry>> entries_;
};

}  // namespace bantam::kernels::cuda
