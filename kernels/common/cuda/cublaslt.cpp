// Row-major GEMMs through column-major cuBLASLt: the operands change places, and nothing is copied.
#include "bantam/kernels/common/cuda/cublaslt.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/stream_timer.h"

namespace bantam::kernels::cuda {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::float16) return CUDA_R_16F;
  return dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Returns the alignment of `address`, at most 16: kernels need no more. Addresses in one arena differ only below that.
std::uint32_t alignment_of(const void* address) {
  const int zeros = std::countr_zero(reinterpret_cast<std::uintptr_t>(address) | 16u);
  return 1u << zeros;
}

/// Returns the key under which cuBLASLt's choice for a problem is kept: the version and all that the choice depends on.
std::string problem_of(std::size_t version, const GemmProblem& p, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const char* after = p.adds_bias ? (p.clips ? " bias relu" : " bias") : (p.clips ? " relu" : "");
  return fmt::format("cublaslt {} {}>{} {}x{}x{} {}{} strides={},{},{} batch={},{},{},{} align={},{},{} workspace={}{}",
                     version, to_string(p.dtype), to_string(p.out_dtype), p.m, p.n, p.k, p.transpose_a ? 't' : 'n',
                     p.transpose_b ? 't' : 'n', p.a_stride, p.b_stride, p.c_stride, p.batch, p.a_batch_stride,
                     p.b_batch_stride, p.c_batch_stride, a, b, c, p.workspace_limit, after);
}

/// An algorithm as text: its words, which mean the same to the same version of the library.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("{:x}", fmt::join(algorithm.data, "."));
}

/// False where it is no such text.
bool read_algorithm(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  const char *at = text.data(), *const end = at + text.size();
  for (std::size_t i = 0; i < std::size(algorithm.data); ++i) {
    if (i > 0 && (at == end || *at++ != '.')) return false;
    const auto [next, error] = std::from_chars(at, end, algorithm.data[i], 16);
    if (error != std::errc{}) return false;
    at = next;
  }
  return at == end;
}

}  // namespace

CublasLtApi::CublasLtApi()
    : library("cuBLASLt", {fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "libcublasLt.so",
                           fmt::format("/usr/local/cuda/lib64/libcublasLt.so.{}", CUBLAS_VER_MAJOR)}) {
  library.bind(create, "cublasLtCreate");
  library.bind(destroy, "cublasLtDestroy");
  library.bind(status_string, "cublasLtGetStatusString");
  library.bind(version, "cublasLtGetVersion");
  library.bind(matmul, "cublasLtMatmul");
  library.bind(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(algorithm_check, "cublasLtMatmulAlgoCheck");
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
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;  // layouts of our B, A and C
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  bool usable = false;
};

CublasLt::CublasLt(AlgorithmChoices& choices) : choices_(choices) { check(api_.create(&handle_), "cublasLtCreate"); }

CublasLt::~CublasLt() {
  entries_.clear();
  api_.destroy(handle_);
}

void CublasLt::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) throw CudaError(fmt::format("{} failed: {}", call, api_.status_string(status)));
}

bool CublasLt::matmul(const GemmProblem& problem, const GemmOperands& operands, Workspace workspace,
                      cudaStream_t stream) {
  const Call call{operands, workspace, stream};
  std::uint32_t c_alignment = alignment_of(operands.c);
  for (const void* added : {operands.residual, operands.bias})
    if (added != nullptr) c_alignment = std::min(c_alignment, alignment_of(added));
  const Entry& entry = entry_for({problem, alignment_of(operands.a), alignment_of(operands.b), c_alignment}, call);
  if (!entry.usable) return false;
  std::unique_lock<std::mutex> lock;  // the description holds the bias' address, so calls with one must not mix
  if (problem.adds_bias) {
    lock = std::unique_lock(guard_);
    set_bias(entry, operands.bias);
  }
  check(start(entry, call), "cublasLtMatmul");
  return true;
}

void CublasLt::set_bias(const Entry& entry, const void* bias) const {
  check(api_.desc_set(entry.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
        "cublasLtMatmulDescSetAttribute");
}

cublasStatus_t CublasLt::start(const Entry& entry, const Call& call) const {
  const auto& [a, b, c, accumulate, bias, residual] = call.operands;
  const float alpha = 1.0f, beta = accumulate || residual != nullptr ? 1.0f : 0.0f;
  const void* added = residual != nullptr ? residual : c;
  return api_.matmul(handle_, entry.desc, &alpha, b, entry.left, a, entry.right, &beta, added, entry.out, c, entry.out,
                     &entry.algorithm, call.workspace.data, entry.workspace_bytes, call.stream);
}

const CublasLt::Entry& CublasLt::entry_for(const Key& key, const Call& call) {
  const std::lock_guard lock(guard_);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return *found->second;
  std::unique_ptr<Entry> entry = make_entry(key);
  choose_algorithm(key, call, *entry);
  return *entries_.emplace(key, std::move(entry)).first->second;
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
  const cublasLtEpilogue_t after = p.adds_bias ? (p.clips ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                   : p.clips   ? CUBLASLT_EPILOGUE_RELU
                                               : CUBLASLT_EPILOGUE_DEFAULT;
  if (after != CUBLASLT_EPILOGUE_DEFAULT) set_desc(CUBLASLT_MATMUL_DESC_EPILOGUE, after);
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
  return entry;
}

/// Algorithms by the library's own ranking: a function of the problem, the library and the GPU.
std::vector<cublasLtMatmulHeuristicResult_t> CublasLt::ranking(const Key& key, Entry& entry) const {
  constexpr int kCandidates = 8;
  check(api_.preference_create(&entry.preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(api_.preference_set(entry.preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  const std::uint64_t limit = key.problem.workspace_limit;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit);
  // Split-K partial sums may be added only in float32 in the workspace, in a fixed order; sums in place would come in
  // any order.
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (key.problem.out_dtype == DType::float32) reductions |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
  int found = 0;
  const cublasStatus_t status = api_.heuristic(handle_, entry.desc, entry.left, entry.right, entry.out, entry.out,
                                               entry.preference, kCandidates, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<std::size_t>(found));
  std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& result) {
    return result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > limit;
  });
  return results;
}

/// Sets the entry's algorithm: an earlier choice; else the ranking's first, or the fastest where timing is allowed.
void CublasLt::choose_algorithm(const Key& key, const Call& call, Entry& entry) const {
  const GemmProblem& problem = key.problem;
  if (problem.adds_bias) set_bias(entry, call.operands.bias);  // its alignment counts
  const std::string name = problem_of(api_.version(), problem, key.a_alignment, key.b_alignment, key.c_alignment);
  const std::optional<std::string> choice = choices_.find(name);
  if (choice && restore(*choice, problem.workspace_limit, entry)) return;
  const std::vector<cublasLtMatmulHeuristicResult_t> candidates = ranking(key, entry);
  if (candidates.empty()) return;
  entry.algorithm = candidates.front().algo;
  entry.workspace_bytes = candidates.front().workspaceSize;
  entry.usable = true;
  if (!choices_.timing()) return;
  // A result that is added to cannot be computed several times.
  const bool times = candidates.size() > 1 && !call.operands.accumulate && !is_captured(call.stream);
  if (times) take_fastest(candidates, call, entry);
  choices_.keep(name, text_of(entry.algorithm));
}

bool CublasLt::restore(const std::string& choice, std::size_t workspace_limit, Entry& entry) const {
  cublasLtMatmulAlgo_t algorithm{};
  cublasLtMatmulHeuristicResult_t result{};
  if (!read_algorithm(choice, algorithm)) return false;
  const cublasStatus_t status =
      api_.algorithm_check(handle_, entry.desc, entry.left, entry.right, entry.out, entry.out, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_limit) return false;
  entry.algorithm = algorithm;
  entry.workspace_bytes = result.workspaceSize;
  entry.usable = true;
  return true;
}

/// On the operands of a call; the first stays unless another is clearly faster.
void CublasLt::take_fastest(const std::vector<cublasLtMatmulHeuristicResult_t>& candidates, const Call& call,
                            Entry& entry) const {
  StreamTimer timer(call.stream);
  float best = std::numeric_limits<float>::infinity();
  const cublasLtMatmulHeuristicResult_t* fastest = &candidates.front();
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    entry.algorithm = candidate.algo;
    entry.workspace_bytes = candidate.workspaceSize;
    const bool first = &candidate == &candidates.front();
    const float taken = timer.milliseconds([&] { return start(entry, call) == CUBLAS_STATUS_SUCCESS; });
    if (!first && taken >= best) continue;
    best = first ? taken * kWorthwhile : taken;
    fastest = &candidate;
  }
  entry.algorithm = fastest->algo;
  entry.workspace_bytes = fastest->workspaceSize;
}

}  // namespace bantam::kernels::cuda
