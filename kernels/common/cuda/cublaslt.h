// cuBLASLt for one device: loaded at run time, deterministic algorithms only, chosen once a problem, by timing where
// that is allowed.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>

#include "bantam/base/shared_library.h"
#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/kernels/common/cuda/gemm.h"

namespace bantam::kernels::cuda {

/// The functions used, by their names.
struct CublasLtApi {
  CublasLtApi();
  SharedLibrary library;
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtGetStatusString) status_string;
  decltype(&::cublasLtGetVersion) version;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
};

/// A handle, and the algorithm of every problem met. Made and used with the device current. Thread-safe.
class CublasLt {
 public:
  /// Throws DeviceError where the library is missing, CudaError where it does not start. `choices` must outlive it.
  explicit CublasLt(AlgorithmChoices& choices);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Starts the product; false, having done nothing, where cuBLASLt has no deterministic algorithm within the limit.
  bool matmul(const GemmProblem& problem, const GemmOperands& operands, Workspace workspace, cudaStream_t stream);

 private:
  struct Entry;
  /// A problem, and what is known of the operands' alignment in bytes.
  struct Key {
    GemmProblem problem;
    std::uint32_t a_alignment, b_alignment, c_alignment;
    auto operator<=>(const Key&) const = default;
  };
  /// Operands and scratch memory of one call.
  struct Call {
    const GemmOperands& operands;
    Workspace workspace;
    cudaStream_t stream;
  };
  const Entry& entry_for(const Key& key, const Call& call);
  std::unique_ptr<Entry> make_entry(const Key& key) const;
  std::vector<cublasLtMatmulHeuristicResult_t> ranking(const Key& key, Entry& entry) const;
  void choose_algorithm(const Key& key, const Call& call, Entry& entry) const;
  bool restore(const std::string& choice, std::size_t workspace_limit, Entry& entry) const;
  void take_fastest(const std::vector<cublasLtMatmulHeuristicResult_t>& candidates, const Call& call,
                    Entry& entry) const;
  void set_bias(const Entry& entry, const void* bias) const;
  cublasStatus_t start(const Entry& entry, const Call& call) const;
  void check(cublasStatus_t status, const char* call) const;

  CublasLtApi api_;
  AlgorithmChoices& choices_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex guard_;
  std::map<Key, std::unique_ptr<Entry>> entries_;
};

}  // namespace bantam::kernels::cuda
