// cuDNN convolutions, NHWC, weights as (K, R, S, C): a fixed deterministic algorithm a pass, or the fastest plan.
#include "bantam/kernels/common/cuda/cudnn_conv2d.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/stream_timer.h"

namespace bantam::kernels::cuda {
namespace {

constexpr const char* kPasses[] = {"forward", "grad_input", "grad_weight"};
constexpr std::int64_t kBiasRelu = std::size(kPasses);  // a forward pass with bias and relu, in the place of a pass

/// Whether all addresses are as aligned as plans were told.
bool are_aligned(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(), [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % kPlanAlignment == 0;
  });
}

}  // namespace

CudnnApi::CudnnApi() : library("cuDNN", {"libcudnn.so.9", "libcudnn.so"}) {
  library.bind(create, "cudnnCreate");
  library.bind(destroy, "cudnnDestroy");
  library.bind(set_stream, "cudnnSetStream");
  library.bind(error_string, "cudnnGetErrorString");
  library.bind(tensor_create, "cudnnCreateTensorDescriptor");
  library.bind(tensor_destroy, "cudnnDestroyTensorDescriptor");
  library.bind(tensor_set, "cudnnSetTensor4dDescriptor");
  library.bind(filter_create, "cudnnCreateFilterDescriptor");
  library.bind(filter_destroy, "cudnnDestroyFilterDescriptor");
  library.bind(filter_set, "cudnnSetFilter4dDescriptor");
  library.bind(conv_create, "cudnnCreateConvolutionDescriptor");
  library.bind(conv_destroy, "cudnnDestroyConvolutionDescriptor");
  library.bind(conv_set, "cudnnSetConvolution2dDescriptor");
  library.bind(conv_groups, "cudnnSetConvolutionGroupCount");
  library.bind(conv_math, "cudnnSetConvolutionMathType");
  library.bind(forward_workspace, "cudnnGetConvolutionForwardWorkspaceSize");
  library.bind(grad_input_workspace, "cudnnGetConvolutionBackwardDataWorkspaceSize");
  library.bind(grad_weight_workspace, "cudnnGetConvolutionBackwardFilterWorkspaceSize");
  library.bind(forward, "cudnnConvolutionForward");
  library.bind(grad_input, "cudnnConvolutionBackwardData");
  library.bind(grad_weight, "cudnnConvolutionBackwardFilter");
}

/// A convolution in cuDNN's terms, and its algorithm.
struct Cudnn::Entry {
  explicit Entry(const CudnnApi& functions) : api(functions) {}
  ~Entry() {
    if (x != nullptr) api.tensor_destroy(x);
    if (y != nullptr) api.tensor_destroy(y);
    if (w != nullptr) api.filter_destroy(w);
    if (conv != nullptr) api.conv_destroy(conv);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  const CudnnApi& api;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnConvolutionBwdDataAlgo_t grad_input = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  cudnnConvolutionBwdFilterAlgo_t grad_weight = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  std::size_t workspace_bytes = 0;
  bool usable = false;
  // Where a plan of the graph API was chosen instead:
  std::unique_ptr<CudnnConvolutionGraph> graph;
  std::optional<CudnnPlan> plan;
};

Cudnn::Cudnn(AlgorithmChoices& choices) : choices_(choices) {
  const cudnnStatus_t status = api_.create(&handle_);
  if (status != CUDNN_STATUS_SUCCESS) {
    throw CudaError(fmt::format("cudnnCreate failed: {}", api_.error_string(status)));
  }
}

Cudnn::~Cudnn() {
  entries_.clear();
  api_.destroy(handle_);
}

void Cudnn::check(cudnnStatus_t status, const char* call) const {
  if (status != CUDNN_STATUS_SUCCESS) throw CudaError(fmt::format("{} failed: {}", call, api_.error_string(status)));
}

bool Cudnn::convolve(const Conv2dShape& shape, DType dtype, Conv2dPass pass, std::array<const void*, 2> in, void* out,
                     Workspace workspace, cudaStream_t stream) {
  const std::lock_guard lock(guard_);  // the handle holds the stream, so calls must not mix
  check(api_.set_stream(handle_, stream), "cudnnSetStream");
  const Call call{in, out, workspace, stream};
  Entry& entry = entry_for(shape, dtype, pass, call);
  if (entry.plan && are_aligned({in[0], in[1], out})) {
    check(entry.graph->run(*entry.plan, in, out, workspace.data), "cudnnBackendExecute");
    return true;
  }
  if (!entry.usable) return false;
  const cudnnStatus_t status = start(entry, pass, call);
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
    entry.usable = false;  // some limits show only when a kernel is asked for; nothing was started
    return false;
  }
  check(status, "cuDNN convolution");
  return true;
}

bool Cudnn::convolve_bias_relu(const Conv2dShape& shape, DType dtype, std::array<const void*, 3> in, void* out,
                               Workspace workspace, cudaStream_t stream, const std::function<void()>& apart) {
  if (!is_half(dtype)) return false;
  const std::lock_guard lock(guard_);
  check(api_.set_stream(handle_, stream), "cudnnSetStream");
  const Call call{{in[0], in[1]}, out, workspace, stream, in[2]};
  const Key key = key_of(shape, dtype, kBiasRelu);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    auto entry = std::make_unique<Entry>(api_);
    choose_plan(
        problem_of(shape, dtype, "forward_bias_relu", workspace.bytes),
        [&] { return CudnnConvolutionGraph::with_bias_relu(backend_, handle_, shape, dtype); }, call,
        [&] {
          apart();
          return true;
        },
        *entry);
    found = entries_.emplace(key, std::move(entry)).first;
  }
  const Entry& entry = *found->second;
  if (!entry.plan || !are_aligned({in[0], in[1], in[2], out})) return false;
  check(entry.graph->run(*entry.plan, call.in, out, workspace.data, call.bias), "cudnnBackendExecute");
  return true;
}

Cudnn::Key Cudnn::key_of(const Conv2dShape& s, DType dtype, std::int64_t pass) {
  return {s.batch,    s.in_h,       s.in_w,       s.in_channels, s.out_channels,
          s.kernel_h, s.kernel_w,   s.stride_h,   s.stride_w,    s.pad_top,
          s.pad_left, s.groups,     s.dilation_h, s.dilation_w,  static_cast<std::int64_t>(dtype),
          pass,       s.pad_bottom, s.pad_right};
}

Cudnn::Entry& Cudnn::entry_for(const Conv2dShape& s, DType dtype, Conv2dPass pass, const Call& call) {
  const Key key = key_of(s, dtype, static_cast<std::int64_t>(pass));
  const auto found = entries_.find(key);
  if (found != entries_.end()) return *found->second;
  return *entries_.emplace(key, make_entry(s, dtype, pass, call)).first->second;
}

std::unique_ptr<Cudnn::Entry> Cudnn::make_entry(const Conv2dShape& shape, DType dtype, Conv2dPass pass,
                                                const Call& call) const {
  auto entry = std::make_unique<Entry>(api_);
  if (describe(shape, dtype, *entry)) choose_algorithm(pass, call.workspace.bytes, *entry);
  if (!is_half(dtype)) return entry;  // fixed algorithms: those of the graph API may round to TF32
  choose_plan(
      problem_of(shape, dtype, kPasses[static_cast<int>(pass)], call.workspace.bytes),
      [&] { return std::make_unique<CudnnConvolutionGraph>(backend_, handle_, shape, dtype, dtype, pass); }, call,
      [&] { return entry->usable && start(*entry, pass, call) == CUDNN_STATUS_SUCCESS; }, *entry);
  return entry;
}

/// Returns the key under which cuDNN's choice for a problem is kept: the version and all that the choice depends on.
std::string Cudnn::problem_of(const Conv2dShape& s, DType dtype, const char* what, std::size_t workspace_bytes) const {
  return fmt::format(
      "cudnn {} {} {} x={}x{}x{}x{} w={}x{}x{} stride={}x{} pad={},{},{},{} dilation={}x{} groups={} workspace={}",
      backend_.version(), what, to_string(dtype), s.batch, s.in_h, s.in_w, s.in_channels, s.out_channels, s.kernel_h,
      s.kernel_w, s.stride_h, s.stride_w, s.pad_top, s.pad_bottom, s.pad_left, s.pad_right, s.dilation_h, s.dilation_w,
      s.groups, workspace_bytes);
}

/// The plan that was chosen before, or the fastest where timing is allowed now; else none, and what runs without one:
/// `otherwise`.
void Cudnn::choose_plan(const std::string& problem, const MakeGraph& make_graph, const Call& call,
                        const std::function<bool()>& otherwise, Entry& entry) const {
  std::optional<std::string> choice = choices_.find(problem);
  const bool times = !choice && choices_.timing() && !is_captured(call.stream) &&
                     are_aligned({call.in[0], call.in[1], call.out, call.bias});
  if (!choice && !times && choices_.timing()) choices_.keep(problem, kFixed);  // what this run stays with
  if (!times && (!choice || *choice == kFixed)) return;
  entry.graph = make_graph();
  if (!entry.graph->supported()) return;
  if (times) {
    choice = fastest(call, otherwise, entry);
    choices_.keep(problem, *choice);
  }
  if (*choice != kFixed) entry.plan = entry.graph->restore(*choice, call.workspace.bytes);
}

/// The name of the fastest plan, on the operands of a call; kFixed where none is faster than `otherwise`.
std::string Cudnn::fastest(const Call& call, const std::function<bool()>& otherwise, const Entry& entry) const {
  constexpr std::size_t kCandidates = 16;
  StreamTimer timer(call.stream);
  float best = timer.milliseconds(otherwise) * kWorthwhile;
  std::string name = kFixed;
  for (const CudnnPlan& plan : entry.graph->candidates(call.workspace.bytes, kCandidates)) {
    const float taken = timer.milliseconds([&] {
      return entry.graph->run(plan, call.in, call.out, call.workspace.data, call.bias) == CUDNN_STATUS_SUCCESS;
    });
    if (taken >= best) continue;
    best = taken;
    name = plan.name;
  }
  return name;
}

/// Fills the descriptors; false where cuDNN cannot say the shape (padding that differs by side, sizes beyond int).
bool Cudnn::describe(const Conv2dShape& s, DType dtype, Entry& entry) const {
  if (s.pad_top != s.pad_bottom || s.pad_left != s.pad_right) return false;
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (s.x_elements() > kMost || s.y_elements() > kMost || s.w_elements() > kMost) return false;
  const cudnnDataType_t type = dtype == DType::float16    ? CUDNN_DATA_HALF
                               : dtype == DType::bfloat16 ? CUDNN_DATA_BFLOAT16
                                                          : CUDNN_DATA_FLOAT;
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  check(api_.tensor_create(&entry.x), "cudnnCreateTensorDescriptor");
  check(api_.tensor_create(&entry.y), "cudnnCreateTensorDescriptor");
  check(api_.filter_create(&entry.w), "cudnnCreateFilterDescriptor");
  check(api_.conv_create(&entry.conv), "cudnnCreateConvolutionDescriptor");
  cudnnStatus_t results[] = {
      api_.tensor_set(entry.x, CUDNN_TENSOR_NHWC, type, small(s.batch), small(s.in_channels), small(s.in_h),
                      small(s.in_w)),
      api_.tensor_set(entry.y, CUDNN_TENSOR_NHWC, type, small(s.batch), small(s.out_channels), small(s.out_h()),
                      small(s.out_w())),
      api_.filter_set(entry.w, type, CUDNN_TENSOR_NHWC, small(s.out_channels), small(s.in_channels / s.groups),
                      small(s.kernel_h), small(s.kernel_w)),
      api_.conv_set(entry.conv, small(s.pad_top), small(s.pad_left), small(s.stride_h), small(s.stride_w),
                    small(s.dilation_h), small(s.dilation_w), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
      api_.conv_groups(entry.conv, small(s.groups)),
      api_.conv_math(entry.conv, dtype == DType::float32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH)};  // FMA: no TF32
  for (const cudnnStatus_t status : results) {
    if (status != CUDNN_STATUS_SUCCESS) return false;
  }
  return true;
}

/// Chooses the first deterministic algorithm whose workspace fits.
void Cudnn::choose_algorithm(Conv2dPass pass, std::size_t limit, Entry& entry) const {
  const auto fits = [&](cudnnStatus_t status) {
    entry.usable = status == CUDNN_STATUS_SUCCESS && entry.workspace_bytes <= limit;
    return entry.usable;
  };
  if (pass == Conv2dPass::grad_input) {
    fits(api_.grad_input_workspace(handle_, entry.w, entry.y, entry.conv, entry.x, entry.grad_input,
                                   &entry.workspace_bytes));
  } else if (pass == Conv2dPass::grad_weight) {
    fits(api_.grad_weight_workspace(handle_, entry.x, entry.y, entry.conv, entry.w, entry.grad_weight,
                                    &entry.workspace_bytes));
  } else {
    for (const auto algorithm :
         {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM}) {
      entry.forward = algorithm;
      if (fits(api_.forward_workspace(handle_, entry.x, entry.w, entry.conv, entry.y, algorithm,
                                      &entry.workspace_bytes)))
        return;
    }
  }
}

cudnnStatus_t Cudnn::start(const Entry& e, Conv2dPass pass, const Call& call) const {
  const auto& [in, out, space, stream, bias] = call;
  void* const workspace = space.data;
  const float one = 1.0f, zero = 0.0f;
  switch (pass) {
    case Conv2dPass::forward:
      return api_.forward(handle_, &one, e.x, in[0], e.w, in[1], e.conv, e.forward, workspace, e.workspace_bytes, &zero,
                          e.y, out);
    case Conv2dPass::grad_input:
      return api_.grad_input(handle_, &one, e.w, in[1], e.y, in[0], e.conv, e.grad_input, workspace, e.workspace_bytes,
                             &zero, e.x, out);
    case Conv2dPass::grad_weight:
      break;
  }
  return api_.grad_weight(handle_, &one, e.x, in[0], e.y, in[1], e.conv, e.grad_weight, workspace, e.workspace_bytes,
                          &zero, e.w, out);
}

}  // namespace bantam::kernels::cuda
