// cuBLASLt products of row-major matrices; the fastest of the library's deterministic algorithms.
#pragma once

#include <limits>
#include <utility>

#include <cublasLt.h>

#include "probe.cuh"

namespace probe {

inline bool lt_ok(cublasStatus_t s, const char* call, int line) {
  if (s == CUBLAS_STATUS_SUCCESS) return true;
  std::fflush(stdout);
  std::fprintf(stderr, "gemm.cuh:%d: %s: %s\n", line, call, cublasLtGetStatusString(s));
  return false;
}
#define LT(call)                                       \
  do {                                                 \
    if (!lt_ok((call), #call, __LINE__)) std::exit(4); \
  } while (0)

struct Lt {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  static constexpr std::size_t kWorkspace = 64 << 20;
  Lt() {
    LT(cublasLtCreate(&handle));
    CHECK(cudaMalloc(&workspace, kWorkspace));
  }
};
inline Lt& lt() {
  static Lt one;
  return one;
}

/// d (m, n) = epilogue(op(a)·op(b) + beta·c + bias), row-major. op(a) is (m, k), op(b) (k, n).
struct Gemm {
  i64 m, n, k;
  bool transpose_a = false, transpose_b = false;  ///< a stored (k, m); b stored (n, k)
  cudaDataType_t type = CUDA_R_16F, out = CUDA_R_16F;
  float alpha = 1.0f, beta = 0.0f;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, to = nullptr;
  cublasLtMatmulAlgo_t algo{};
  std::size_t workspace = 0;
  float best = 0;
  int found = 0;

  void describe(const void* bias = nullptr, void* aux = nullptr) {
    LT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const std::int32_t t = CUBLAS_OP_T, p = CUBLAS_OP_N;
    LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, transpose_b ? &t : &p, sizeof t));
    LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, transpose_a ? &t : &p, sizeof t));
    LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    set_pointers(bias, aux);
    LT(cublasLtMatrixLayoutCreate(&left, type, transpose_b ? k : n, transpose_b ? n : k, transpose_b ? k : n));
    LT(cublasLtMatrixLayoutCreate(&right, type, transpose_a ? m : k, transpose_a ? k : m, transpose_a ? m : k));
    LT(cublasLtMatrixLayoutCreate(&to, out, n, m, n));
  }
  void set_pointers(const void* bias, void* aux) {
    if (bias != nullptr)
      LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (aux != nullptr) {
      LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
      const i64 ld = n;
      LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
    }
  }
  bool run(const void* a, const void* b, const void* c, void* d) const {
    return lt_ok(cublasLtMatmul(lt().handle, desc, &alpha, b, left, a, right, &beta, c, to, d, to, &algo,
                                lt().workspace, workspace, nullptr),
                 "cublasLtMatmul", __LINE__);
  }
  /// Uses the fastest of up to 12 candidates on these operands. False: none.
  bool choose(const void* a, const void* b, const void* c, void* d) {
    cublasLtMatmulPreference_t preference{};
    LT(cublasLtMatmulPreferenceCreate(&preference));
    const u64 limit = Lt::kWorkspace;
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                            sizeof limit));
    u32 reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // as the engine's own: added in the workspace, in order
    if (out == CUDA_R_32F) reductions |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                            sizeof reductions));
    cublasLtMatmulHeuristicResult_t results[12];
    const cublasStatus_t s =
        cublasLtMatmulAlgoGetHeuristic(lt().handle, desc, left, right, to, to, preference, 12, results, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (s != CUBLAS_STATUS_SUCCESS || found == 0) {
      std::printf("  cuBLASLt: no algorithm (%s) for %lld x %lld x %lld epilogue %d beta %g\n",
                  cublasLtGetStatusString(s), static_cast<long long>(m), static_cast<long long>(n),
                  static_cast<long long>(k), static_cast<int>(epilogue), beta);
      return false;
    }
    best = std::numeric_limits<float>::infinity();
    cublasLtMatmulAlgo_t fastest{};
    std::size_t bytes = 0;
    for (int i = 0; i < found; ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > limit) continue;
      algo = results[i].algo;
      workspace = results[i].workspaceSize;
      if (!run(a, b, c, d)) continue;
      const float taken = microseconds(3, 2, [&](int) { run(a, b, c, d); });
      if (taken >= best) continue;
      best = taken, fastest = algo, bytes = workspace;
    }
    algo = fastest;
    workspace = bytes;
    return best < std::numeric_limits<float>::infinity();
  }
  /// The chosen algorithm, in words.
  std::string says() const {
    int id = 0, tile = 0, stages = 0;
    std::int32_t split = 0;
    u32 reduction = 0;
    std::size_t size = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &size);
    cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &size);
    cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof stages, &size);
    cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &size);
    cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction,
                                         &size);
    char text[96];
    std::snprintf(text, sizeof text, "algo %d tile %d split %d reduction %u workspace %zu", id, tile, split, reduction,
                  workspace);
    return text;
  }
};

}  // namespace probe
