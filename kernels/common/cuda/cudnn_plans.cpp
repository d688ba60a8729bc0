// cuDNN's graph of a convolution, alone or with bias and relu, its engines and its plans.
#include "bantam/kernels/common/cuda/cudnn_plans.h"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

namespace bantam::kernels::cuda {
namespace {

// Identifiers of the operands, in the order of `run`, and of what lies between a graph's operations.
constexpr std::int64_t kLeft = 1, kRight = 2, kOut = 3, kBias = 4, kSums = 5, kBiased = 6;
constexpr std::int64_t kMostKnobs = 64;

cudnnDataType_t cudnn_type(DType dtype) {
  if (dtype == DType::float16) return CUDNN_DATA_HALF;
  return dtype == DType::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Whether a tensor lies in memory, or is passed from one operation of a graph to the next in registers.
enum class Place : std::uint8_t { memory, registers };

/// (n, h, w, c) in memory, in cuDNN's order of dimensions n, c, h, w.
BackendDescriptor tensor(const CudnnBackendApi& api, std::int64_t id, DType dtype, std::array<std::int64_t, 4> nhwc,
                         Place place = Place::memory) {
  const auto [n, h, w, c] = nhwc;
  const cudnnDataType_t type = cudnn_type(dtype);
  BackendDescriptor made(api, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, 1, w * c, c})
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kPlanAlignment);
  const bool is_virtual = place == Place::registers;
  if (is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  made.finalize();
  return made;
}

BackendDescriptor image(const CudnnBackendApi& api, std::int64_t id, DType dtype, const Conv2dShape& s, bool input) {
  return input ? tensor(api, id, dtype, {s.batch, s.in_h, s.in_w, s.in_channels})
               : tensor(api, id, dtype, {s.batch, s.out_h(), s.out_w(), s.out_channels});
}

BackendDescriptor weights(const CudnnBackendApi& api, std::int64_t id, DType dtype, const Conv2dShape& s) {
  return tensor(api, id, dtype, {s.out_channels, s.kernel_h, s.kernel_w, s.in_channels / s.groups});
}

BackendDescriptor convolution(const CudnnBackendApi& api, const Conv2dShape& s) {
  const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  BackendDescriptor made(api, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {s.dilation_h, s.dilation_w})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {s.stride_h, s.stride_w})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {s.pad_top, s.pad_left})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {s.pad_bottom, s.pad_right})
      .finalize();
  return made;
}

/// A function of elements in float32.
BackendDescriptor pointwise(const CudnnBackendApi& api, cudnnPointwiseMode_t mode) {
  const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  BackendDescriptor made(api, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
  const cudnnNanPropagation_t propagate = CUDNN_PROPAGATE_NAN;
  if (mode == CUDNN_POINTWISE_RELU_FWD)
    made.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &propagate);
  made.finalize();
  return made;
}

/// out = function(in), or function(in, other) where there is another operand.
BackendDescriptor elementwise(const CudnnBackendApi& api, const BackendDescriptor& function,
                              const BackendDescriptor& in, const BackendDescriptor* other,
                              const BackendDescriptor& out) {
  BackendDescriptor made(api, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in);
  if (other != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out).finalize();
  return made;
}

/// Attribute names of an operation differ by pass only.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, left, right, out;
};

OperationNames names_of(Conv2dPass pass) {
  switch (pass) {
    case Conv2dPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case Conv2dPass::grad_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX};
    case Conv2dPass::grad_weight:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};
}

/// Numbers of "12:2=1:5=0", in order; none where it is no such text.
std::optional<std::vector<std::int64_t>> numbers_of(const std::string& name) {
  std::vector<std::int64_t> numbers;
  for (const char *at = name.data(), *end = at + name.size(); at < end;) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || (next < end && *next != ':' && *next != '=')) return std::nullopt;
    numbers.push_back(value);
    at = next + 1;
  }
  if (numbers.size() % 2 == 0) return std::nullopt;
  return numbers;
}

}  // namespace

/// The operations after a convolution, and what they read besides its float32 sums.
struct CudnnConvolutionGraph::BiasRelu {
  BiasRelu(const CudnnBackendApi& functions, const Conv2dShape& s, DType dtype)
      : api(functions),
        sums(between(s, kSums)),
        biased(between(s, kBiased)),
        bias(tensor(api, kBias, dtype, {1, 1, 1, s.out_channels})),
        add(pointwise(api, CUDNN_POINTWISE_ADD)),
        relu(pointwise(api, CUDNN_POINTWISE_RELU_FWD)),
        adds(elementwise(api, add, sums, &bias, biased)) {}

  BackendDescriptor between(const Conv2dShape& s, std::int64_t id) const {
    return tensor(api, id, DType::float32, {s.batch, s.out_h(), s.out_w(), s.out_channels}, Place::registers);
  }

  const CudnnBackendApi& api;
  BackendDescriptor sums, biased, bias, add, relu, adds;
  std::optional<BackendDescriptor> clips;  // once there is an output
};

CudnnConvolutionGraph::CudnnConvolutionGraph(const CudnnBackendApi& api, cudnnHandle_t handle, const Conv2dShape& s,
                                             DType dtype, DType out_dtype, Conv2dPass pass)
    : CudnnConvolutionGraph(api, handle, s, dtype, out_dtype, pass, nullptr) {}

std::unique_ptr<CudnnConvolutionGraph> CudnnConvolutionGraph::with_bias_relu(const CudnnBackendApi& api,
                                                                             cudnnHandle_t handle, const Conv2dShape& s,
                                                                             DType dtype) {
  return std::unique_ptr<CudnnConvolutionGraph>(new CudnnConvolutionGraph(
      api, handle, s, dtype, dtype, Conv2dPass::forward, std::make_unique<BiasRelu>(api, s, dtype)));
}

CudnnConvolutionGraph::CudnnConvolutionGraph(const CudnnBackendApi& api, cudnnHandle_t handle, const Conv2dShape& s,
                                             DType dtype, DType out_dtype, Conv2dPass pass,
                                             std::unique_ptr<BiasRelu> epilogue)
    : api_(api),
      handle_(handle),
      epilogue_(std::move(epilogue)),
      left_(image(api, kLeft, dtype, s, pass != Conv2dPass::grad_input)),
      right_(pass == Conv2dPass::grad_weight ? image(api, kRight, dtype, s, false) : weights(api, kRight, dtype, s)),
      out_(pass == Conv2dPass::grad_weight ? weights(api, kOut, out_dtype, s)
                                           : image(api, kOut, out_dtype, s, pass == Conv2dPass::grad_input)),
      convolution_(convolution(api, s)),
      operation_(api, names_of(pass).type),
      graph_(api, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  const OperationNames names = names_of(pass);
  const float one = 1.0f, zero = 0.0f;
  operation_.set(names.left, left_)
      .set(names.right, right_)
      .set(names.out, epilogue_ != nullptr ? epilogue_->sums : out_)
      .set(names.convolution, convolution_)
      .set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one)
      .set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero)
      .finalize();
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  if (epilogue_ == nullptr) {
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_);
  } else {
    epilogue_->clips.emplace(elementwise(api, epilogue_->relu, epilogue_->biased, nullptr, out_));
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, {&operation_, &epilogue_->adds, &*epilogue_->clips});
  }
  graph_.finalize();
}

CudnnConvolutionGraph::~CudnnConvolutionGraph() = default;

bool CudnnConvolutionGraph::eligible(const BackendDescriptor& engine) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  const std::int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, std::size(notes), notes);
  const bool exact = std::none_of(notes, notes + count, [](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION || note == CUDNN_NUMERICAL_NOTE_FFT ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD;
  });
  cudnnBackendBehaviorNote_t behaviors[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT] = {};
  const std::int64_t listed =
      engine.get(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, std::size(behaviors), behaviors);
  return exact && std::none_of(behaviors, behaviors + listed, [](cudnnBackendBehaviorNote_t note) {
           return note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
         });
}

std::optional<CudnnPlan> CudnnConvolutionGraph::plan_of(const BackendDescriptor& config,
                                                        std::size_t workspace_limit) const {
  CudnnPlan made{BackendDescriptor(api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), {}, 0};
  made.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!made.plan.finalize()) return std::nullopt;
  made.workspace_bytes = static_cast<std::size_t>(made.plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  if (made.workspace_bytes > workspace_limit) return std::nullopt;
  return made;
}

std::vector<CudnnPlan> CudnnConvolutionGraph::candidates(std::size_t workspace_limit, std::size_t most) const {
  std::vector<CudnnPlan> plans;
  BackendDescriptor ranking(api_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  ranking.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!ranking.finalize()) return plans;
  constexpr std::int64_t kMostRanked = 64;
  for (const BackendDescriptor& config :
       ranking.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMostRanked)) {
    if (plans.size() == most) break;
    const auto engines = config.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (engines.empty() || !eligible(engines[0])) continue;
    std::optional<CudnnPlan> plan = plan_of(config, workspace_limit);
    if (!plan) continue;
    plan->name = fmt::format("{}", engines[0].integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    for (const BackendDescriptor& knob :
         config.descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kMostKnobs)) {
      cudnnBackendKnobType_t type{};
      (void)knob.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
      plan->name += fmt::format(":{}={}", static_cast<int>(type), knob.integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    }
    plans.push_back(std::move(*plan));
  }
  return plans;
}

std::optional<CudnnPlan> CudnnConvolutionGraph::restore(const std::string& name, std::size_t workspace_limit) const {
  const auto numbers = numbers_of(name);
  if (!numbers) return std::nullopt;
  BackendDescriptor engine(api_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_).set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, numbers->front());
  if (!engine.finalize() || !eligible(engine)) return std::nullopt;
  std::vector<BackendDescriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::size_t i = 1; i < numbers->size(); i += 2) {
    const auto type = static_cast<cudnnBackendKnobType_t>((*numbers)[i]);
    BackendDescriptor& knob = knobs.emplace_back(api_, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type)
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, (*numbers)[i + 1]);
    if (!knob.finalize()) return std::nullopt;
    raw.push_back(knob.raw());
  }
  BackendDescriptor config(api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!raw.empty()) {
    config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()),
               raw.data());
  }
  if (!config.finalize()) return std::nullopt;
  std::optional<CudnnPlan> plan = plan_of(config, workspace_limit);
  if (plan) plan->name = name;
  return plan;
}

cudnnStatus_t CudnnConvolutionGraph::run(const CudnnPlan& plan, std::array<const void*, 2> in, void* out,
                                         void* workspace, const void* bias) const {
  const void* pointers[] = {in[0], in[1], out, bias};
  const std::int64_t ids[] = {kLeft, kRight, kOut, kBias}, operands = epilogue_ != nullptr ? 4 : 3;
  BackendDescriptor pack(api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, operands, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, operands, pointers)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (!pack.finalize()) return CUDNN_STATUS_BAD_PARAM;
  return api_.execute(handle_, plan.plan.raw(), pack.raw());
}

}  // namespace bantam::kernels::cuda
