// Row-major products through column-major cuBLASLt: the operands change places, and nothing is copied.
#include "bantam/kernels/cuda/cublaslt.h"

#include <algorithm>
#include <bit>

#include <fmt/core.h>

#include "bantam/base/error.h"

namespace bantam::kernels::cuda {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::float16) return CUDA_R_16F;
  return dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// What an address allows, at most 16: all that kernels ask for. Pieces of one arena differ only below that.
std::uint32_t alignment_of(const void* address) {
  const int zeros = std::countr_zero(reinterpret_cast<std::uintptr_t>(address) | 16u);
  return 1u << zeros;
}

}  // namespace

CublasLtApi::CublasLtApi()
    : library("cuBLASLt", {fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "libcublasLt.so",
                           fmt::format("/usr/local/cuda/lib64/libcublasLt.so.{}", CUBLAS_VER_MAJOR)}) {
  library.bind(create, "cublasLtCreate");
  library.bind(destroy, "cublasLtDestroy");
  library.bind(status_string, "cublasLtGetStatusString");
  library.bind(matmul, "cublasLtMatmul");
  library.bind(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(desc_create, "cublasLtMatmulDescCreate");
  library.bind(desc_destroy, "cublasLtMatmulDescDestroy");
  library.bind(desc_set, "cublasLtMatmulDescSetAttribute");
  library.bind(layout_create, "cublasLtMatrixLayoutCreate");
  library.bind(layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.bind(layout_set, "cublasLtMatrixLayoutSetAttribute");
  library.bind(preference_create, "cublasLtMatmulPreferenceCreate");
  library.bind(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.bind(preference_set, "cublasLtMatmulPreferenceSetAttribute");
}

/// Descriptors of one problem in cuBLASLt's terms, and its algorithm.
struct CublasLt::Entry {
  explicit Entry(const CublasLtApi& functions) : api(functions) {}
  ~Entry() {
    if (preference != nullptr) api.preference_destroy(preference);
    for (const cublasLtMatrixLayout_t layout : {left, right, out}) {
      if (layout != nullptr) api.layout_destroy(layout);
    }
    if (desc != nullptr) api.desc_destroy(desc);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  const CublasLtApi& api;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;  // of our B, A and C
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  bool usable = false;
};

CublasLt::CublasLt() { check(api_.create(&handle_), "cublasLtCreate"); }

CublasLt::~CublasLt() {
  entries_.clear();
  api_.destroy(handle_);
}

void CublasLt::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) throw CudaError(fmt::format("{} failed: {}", call, api_.status_string(status)));
}

bool CublasLt::matmul(const GemmProblem& problem, const GemmOperands& operands, Workspace workspace,
                      cudaStream_t stream) {
  const Entry& entry =
      entry_for({problem, alignment_of(operands.a), alignment_of(operands.b), alignment_of(operands.c)});
  if (!entry.usable) return false;
  const float alpha = 1.0f, beta = operands.accumulate ? 1.0f : 0.0f;
  check(api_.matmul(handle_, entry.desc, &alpha, operands.b, entry.left, operands.a, entry.right, &beta, operands.c,
                    entry.out, operands.c, entry.out, &entry.algorithm, workspace.data, entry.workspace_bytes, stream),
        "cublasLtMatmul");
  return true;
}

const CublasLt::Entry& CublasLt::entry_for(const Key& key) {
  const std::lock_guard lock(guard_);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return *found->second;
  return *entries_.emplace(key, make_entry(key)).first->second;
}

std::unique_ptr<CublasLt::Entry> CublasLt::make_entry(const Key& key) const {
  const GemmProblem& p = key.problem;
  auto entry = std::make_unique<Entry>(api_);
  check(api_.desc_create(&entry->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const auto set_desc = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(api_.desc_set(entry->desc, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  };
  const std::int32_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  set_desc(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? transposed : plain);
  set_desc(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? transposed : plain);
  const auto layout = [&](cublasLtMatrixLayout_t& made, DType dtype, std::int64_t columns, std::int64_t rows,
                          std::int64_t stride, std::int64_t batch_stride) {
    check(api_.layout_create(&made, cuda_type(dtype), static_cast<std::uint64_t>(columns),
                             static_cast<std::uint64_t>(rows), stride),
          "cublasLtMatrixLayoutCreate");
    if (p.batch == 1) return;
    const auto batch = static_cast<std::int32_t>(p.batch);
    check(api_.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)),
          "cublasLtMatrixLayoutSetAttribute");
    check(api_.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof(batch_stride)),
          "cublasLtMatrixLayoutSetAttribute");
  };
  // A row-major (r, c) matrix is a column-major (c, r) one.
  layout(entry->left, p.dtype, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.b_stride, p.b_batch_stride);
  layout(entry->right, p.dtype, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.a_stride, p.a_batch_stride);
  layout(entry->out, p.out_dtype, p.n, p.m, p.c_stride, p.c_batch_stride);
  choose_algorithm(key, *entry);
  return entry;
}

/// The first of the library's own ranking that fits: a function of the problem, the library and the GPU, without
/// timing.
void CublasLt::choose_algorithm(const Key& key, Entry& entry) const {
  constexpr int kCandidates = 8;
  check(api_.preference_create(&entry.preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(api_.preference_set(entry.preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  const std::uint64_t limit = key.problem.workspace_limit;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit);
  // Pieces of a sum may meet only in float32 in the workspace, in a fixed order; sums in place would come in any order.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int found = 0;
  const cublasStatus_t status = api_.heuristic(handle_, entry.desc, entry.left, entry.right, entry.out, entry.out,
                                               entry.preference, kCandidates, results, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < found && !entry.usable; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > limit) continue;
    entry.algorithm = results[i].algo;
    entry.workspace_bytes = results[i].workspaceSize;
    entry.usable = true;
  }
}

}  // namespace bantam::kernels::cuda
