// A case a kernel: operands, the device's result, the reference's.
#include "bantam/run/doctor/self_test.h"

#include <cmath>
#include <functional>
#include <span>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/conv/conv2d_reference.h"
#include "bantam/kernels/depthwise/depthwise_conv2d_reference.h"
#include "bantam/kernels/head/softmax_cross_entropy_reference.h"
#include "bantam/kernels/matmul/matmul_reference.h"
#include "bantam/kernels/norm/batch_norm_reference.h"

namespace bantam::run {
namespace {

using Doubles = std::vector<double>;

/// Half the spacing of numbers at 1: the relative error of one rounding.
double roundoff(DType dtype) {
  if (dtype == DType::float16) return std::ldexp(1.0, -11);
  return dtype == DType::bfloat16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -24);
}

/// A rounding to the type, and one in float32 of each term of a sum.
double sum_tolerance(DType dtype, std::int64_t terms) {
  return roundoff(dtype) + static_cast<double>(terms + 2) * roundoff(DType::float32);
}

double relative_error(std::span<const float> actual, const Doubles& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1.0);
}

/// A tensor on the device, and the same values on the host: those that its type can hold.
struct Operand {
  Tensor tensor;
  Doubles values;
  const void* data() const { return tensor.data(); }
};

/// The cases of one device and type.
class Cases {
 public:
  Cases(const Context& context, DType dtype) : context_(context), dtype_(dtype) {}

  std::vector<KernelCheck> run() {
    check("matmul", [this] { matmul(); });
    check("conv2d", [this] { conv2d(); });
    check("depthwise_conv2d", [this] { depthwise(); });
    check("batch_norm", [this] { batch_norm(); });
    check("softmax_cross_entropy", [this] { softmax_cross_entropy(); });
    return std::move(checks_);
  }

 private:
  /// A device without the type's kernels, a library that is missing, a kernel that fails: reported as the case's
  /// failure.
  void check(const std::string& kernel, const std::function<void()>& run_case) {
    try {
      run_case();
      synchronize(context_.stream);
    } catch (const Error& error) {
      checks_.push_back({.kernel = kernel, .dtype = dtype_, .failure = error.what()});
    }
  }

  Operand random(std::int64_t elements, DType dtype) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    PhiloxSequence sequence(philox_key(++operands_, RandomPurpose::dataset));
    for (float& value : values) value = sequence.uniform(-1.0f, 1.0f);
    Tensor floats = context_.upload({elements}, values.data());
    Operand operand{dtype == DType::float32 ? floats : ops::cast(context_, floats, dtype), {}};
    const std::vector<float> stored = to_host_floats(operand.tensor, context_.stream);
    operand.values.assign(stored.begin(), stored.end());
    return operand;
  }
  Operand random(std::int64_t elements) { return random(elements, dtype_); }
  Tensor empty(std::int64_t elements, DType dtype) { return context_.allocate({elements}, dtype); }
  Tensor empty(std::int64_t elements) { return empty(elements, dtype_); }

  void compare(const std::string& kernel, const Tensor& result, const Doubles& expected, double tolerance) {
    const std::vector<float> actual = to_host_floats(result, context_.stream);
    const double error = relative_error(actual, expected);
    checks_.push_back(
        {.kernel = kernel, .dtype = dtype_, .error = std::isfinite(error) ? error : HUGE_VAL, .tolerance = tolerance});
  }

  void matmul() {
    const kernels::MatmulShape shape{.m = 65, .n = 72, .k = 96};
    const Operand a = random(shape.m * shape.k), b = random(shape.k * shape.n);
    const Tensor c = empty(shape.m * shape.n);
    const Scratch scratch =
        context_.scratch(kernels::matmul_workspace_bytes(shape, dtype_, dtype_, context_.device.kind));
    BANTAM_KERNEL(context_.exec, matmul, shape, dtype_, a.data(), b.data(), {.data = c.data(), .dtype = dtype_},
                  scratch.get());
    Doubles expected(static_cast<std::size_t>(shape.m * shape.n));
    kernels::reference::matmul(shape, a.values.data(), b.values.data(), expected.data(), false);
    compare("matmul", c, expected, sum_tolerance(dtype_, shape.k));
  }

  void conv2d() {
    const kernels::Conv2dShape s{.batch = 2,
                                 .in_h = 12,
                                 .in_w = 12,
                                 .in_channels = 16,
                                 .out_channels = 24,
                                 .kernel_h = 3,
                                 .kernel_w = 3,
                                 .pad_top = 1,
                                 .pad_bottom = 1,
                                 .pad_left = 1,
                                 .pad_right = 1};
    const Operand x = random(s.x_elements()), w = random(s.w_elements()), dy = random(s.y_elements());
    const Tensor y = empty(s.y_elements()), dx = empty(s.x_elements()), dw = empty(s.w_elements(), DType::float32);
    const auto scratch = [&](kernels::Conv2dPass pass) {
      return context_.scratch(kernels::conv2d_workspace_bytes(s, dtype_, pass, context_.device.kind));
    };
    const Scratch forward = scratch(kernels::Conv2dPass::forward), input = scratch(kernels::Conv2dPass::grad_input),
                  weight = scratch(kernels::Conv2dPass::grad_weight);
    BANTAM_KERNEL(context_.exec, conv2d_forward, s, dtype_, x.data(), w.data(), y.data(), forward.get());
    BANTAM_KERNEL(context_.exec, conv2d_grad_input, s, dtype_, dy.data(), w.data(), dx.data(), input.get());
    BANTAM_KERNEL(context_.exec, conv2d_grad_weight, s, dtype_, x.data(), dy.data(),
                  {.dw = static_cast<float*>(dw.data())}, weight.get());
    Doubles expected_y(dy.values.size()), expected_dx(x.values.size()), expected_dw(w.values.size());
    kernels::reference::conv2d_forward(s, x.values.data(), w.values.data(), expected_y.data());
    kernels::reference::conv2d_grad_input(s, dy.values.data(), w.values.data(), expected_dx.data());
    kernels::reference::conv2d_grad_weight(s, x.values.data(), dy.values.data(), expected_dw.data(), false);
    compare("conv2d forward", y, expected_y, sum_tolerance(dtype_, 9 * s.in_channels));
    compare("conv2d gradient of x", dx, expected_dx, sum_tolerance(dtype_, 9 * s.out_channels));
    compare("conv2d gradient of w", dw, expected_dw, sum_tolerance(dtype_, s.batch * s.out_h() * s.out_w()));
  }

  void depthwise() {
    const kernels::DepthwiseConv2dShape s{.batch = 2,
                                          .in_h = 12,
                                          .in_w = 12,
                                          .channels = 40,
                                          .kernel_h = 3,
                                          .kernel_w = 3,
                                          .pad_top = 1,
                                          .pad_bottom = 1,
                                          .pad_left = 1,
                                          .pad_right = 1};
    const Operand x = random(s.x_elements()), w = random(s.w_elements()), dy = random(s.y_elements());
    const Tensor y = empty(s.y_elements()), dw = empty(s.w_elements(), DType::float32);
    const Scratch scratch =
        context_.scratch(kernels::depthwise_conv2d_grad_weight_workspace_bytes(s, dtype_, context_.device.kind));
    BANTAM_KERNEL(context_.exec, depthwise_conv2d_forward, s, dtype_, x.data(), w.data(), y.data());
    BANTAM_KERNEL(context_.exec, depthwise_conv2d_grad_weight, s, dtype_, x.data(), dy.data(),
                  static_cast<float*>(dw.data()), false, scratch.get());
    compare("depthwise_conv2d forward", y, kernels::reference::depthwise_conv2d_forward(s, x.values, w.values),
            sum_tolerance(dtype_, 9));
    compare("depthwise_conv2d gradient of w", dw,
            kernels::reference::depthwise_conv2d_grad_weight(s, x.values, dy.values),
            sum_tolerance(dtype_, s.batch * s.out_h() * s.out_w()));
  }

  void batch_norm() {
    const kernels::BatchNormShape s{.rows = 300, .channels = 24};
    constexpr float kEpsilon = 1e-3f;
    const Operand x = random(s.rows * s.channels), dy = random(s.rows * s.channels);
    const Tensor y = empty(s.rows * s.channels), dx = empty(s.rows * s.channels);
    const Tensor mean = empty(s.channels, DType::float32), inv_std = empty(s.channels, DType::float32);
    const Scratch scratch = context_.scratch(kernels::batch_norm_workspace_bytes(s, dtype_, context_.device.kind));
    auto* const means = static_cast<float*>(mean.data());
    auto* const inverse = static_cast<float*>(inv_std.data());
    BANTAM_KERNEL(context_.exec, batch_norm_forward_training, s, dtype_, x.data(), {}, y.data(),
                  {.epsilon = kEpsilon, .mean = means, .inv_std = inverse}, scratch.get());
    BANTAM_KERNEL(context_.exec, batch_norm_backward_training, s, dtype_,
                  {.x = x.data(), .mean = means, .inv_std = inverse}, dy.data(), {.dx = dx.data()}, scratch.get());
    const kernels::reference::Affine<double> affine;
    const auto forward =
        kernels::reference::batch_norm_forward_training(s, x.values, affine, static_cast<double>(kEpsilon));
    const auto backward =
        kernels::reference::batch_norm_backward_training(s, x.values, dy.values, affine, forward.mean, forward.inv_std);
    // Three sums over the rows follow one another, each of values with the error of the one before.
    compare("batch_norm forward", y, forward.y, sum_tolerance(dtype_, 3 * s.rows));
    compare("batch_norm gradient of x", dx, backward.dx, sum_tolerance(dtype_, 3 * s.rows));
  }

  void softmax_cross_entropy() {
    const kernels::SoftmaxCrossEntropyShape s{.batch = 48, .classes = 10};
    const Operand logits = random(s.batch * s.classes);
    std::vector<std::int32_t> classes;
    for (std::int64_t n = 0; n < s.batch; ++n) classes.push_back(static_cast<std::int32_t>(n % s.classes));
    const Tensor labels = context_.upload({s.batch}, classes.data());
    const Tensor losses = empty(s.batch, DType::float32), loss = empty(1, DType::float32),
                 sums = empty(2 * s.batch, DType::float32), correct = empty(s.batch, DType::uint8);
    const auto divisor = static_cast<double>(s.batch);
    BANTAM_KERNEL(context_.exec, softmax_cross_entropy_forward, s, dtype_, logits.data(),
                  static_cast<const std::int32_t*>(labels.data()), static_cast<float>(divisor),
                  {.losses = static_cast<float*>(losses.data()),
                   .log_sum_exp = static_cast<kernels::LogSumExp<float>*>(sums.data()),
                   .loss = static_cast<float*>(loss.data()),
                   .correct = static_cast<std::uint8_t*>(correct.data())});
    Doubles expected(static_cast<std::size_t>(s.batch));
    std::vector<kernels::LogSumExp<double>> log_sums(expected.size());
    const double mean = kernels::reference::softmax_cross_entropy_forward(s, logits.values.data(), classes.data(),
                                                                          divisor, expected.data(), log_sums.data());
    // Losses are float32 whatever the logits are; an exponential and a logarithm are a few roundings each.
    constexpr std::int64_t kRoundings = 8;
    compare("softmax_cross_entropy", losses, expected, sum_tolerance(DType::float32, s.classes + kRoundings));
    compare("softmax_cross_entropy mean", loss, {mean}, sum_tolerance(DType::float32, s.batch + kRoundings));
  }

  const Context& context_;
  DType dtype_;
  std::uint64_t operands_ = 0;
  std::vector<KernelCheck> checks_;
};

}  // namespace

std::vector<KernelCheck> check_kernels(Runtime& runtime, Device device) {
  const Context context = Context::make(runtime, device);
  std::vector<KernelCheck> checks;
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    std::vector<KernelCheck> more = Cases(context, dtype).run();
    checks.insert(checks.end(), more.begin(), more.end());
  }
  return checks;
}

}  // namespace bantam::run
