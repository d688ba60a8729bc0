// Convolutions with packed weights and their epilogues: against plain loops in double over shapes, types and
// epilogues; bits over batches and thread counts.
#include "bantam/kernels/conv/conv2d_inference.h"

#include <gtest/gtest.h>

#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/kernels/conv/conv2d_reference.h"
#include "bantam/kernels/depthwise/depthwise_conv2d_reference.h"
#include "bantam/kernels/depthwise/depthwise_inference.h"
#include "bantam/kernels/elementwise/activation_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/conv/conv2d_shapes.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing::conv2d_inference_test {
namespace {

using kernels::Epilogue;

class Conv2dInferenceTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Conv2dInferenceTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr DType kTypes[] = {DType::float32, DType::float16, DType::bfloat16};

/// Which parts an epilogue has.
struct Parts {
  bool bias, residual;
  Activation activation;
};
constexpr Parts kParts[] = {{false, false, Activation::none},      {true, false, Activation::relu},
                            {true, true, Activation::relu},        {true, false, Activation::relu6},
                            {false, true, Activation::leaky_relu}, {true, true, Activation::hard_swish},
                            {true, false, Activation::silu},       {false, true, Activation::none}};

struct Problem {
  std::vector<float> x, w, bias, residual;
};

Problem make_problem(std::int64_t x, std::int64_t w, std::int64_t channels, std::int64_t y, DType dtype) {
  return {random_values(x, 1, dtype), random_values(w, 2, dtype), random_values(channels, 3, dtype),
          random_values(y, 4, dtype)};
}

Problem make_problem(const Conv2dShape& s, DType dtype) {
  return make_problem(s.x_elements(), s.w_elements(), s.out_channels, s.y_elements(), dtype);
}

/// The epilogue in double, of what an op computed.
void finish(const Problem& p, const Parts& parts, std::vector<double>& y) {
  const std::size_t channels = p.bias.size();
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (parts.bias) y[i] += static_cast<double>(p.bias[i % channels]);
    if (parts.residual) y[i] += static_cast<double>(p.residual[i]);
    y[i] = kernels::reference::activate(parts.activation, static_cast<double>(default_slope(parts.activation)), y[i]);
  }
}

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

std::vector<double> expected(const Conv2dShape& s, const Problem& p, const Parts& parts) {
  std::vector<double> y(static_cast<std::size_t>(s.y_elements()));
  kernels::reference::conv2d_forward(s, doubles(p.x).data(), doubles(p.w).data(), y.data());
  finish(p, parts, y);
  return y;
}

/// The operands of an epilogue on a device.
struct DeviceEpilogue {
  DeviceEpilogue(KernelDevice& device, const Problem& p, const Parts& parts, DType dtype)
      : bias(device, p.bias, dtype), residual(device, p.residual, dtype) {
    epilogue.bias = parts.bias ? bias.data() : nullptr;
    epilogue.residual = parts.residual ? residual.data() : nullptr;
    epilogue.f = {parts.activation};
  }
  DeviceBuffer bias, residual;
  Epilogue epilogue;
};

std::vector<float> run(KernelDevice& device, const Conv2dShape& s, DType dtype, const Problem& p, const Parts& parts) {
  const DeviceBuffer x(device, p.x, dtype), w(device, p.w, dtype);
  DeviceBuffer y(device, s.y_elements(), dtype);
  const DeviceEpilogue after(device, p, parts, dtype);
  const DeviceKind target = device.exec().device.kind;
  {
    GuardedWorkspace workspace(device, kernels::conv2d_pack_workspace_bytes(s, dtype, target));
    BANTAM_KERNEL(device.exec(), conv2d_pack_weights, s, dtype, w.data(), workspace.get());
    workspace.expect_guard_intact();
  }
  GuardedWorkspace workspace(device, kernels::conv2d_inference_workspace_bytes(s, dtype, target));
  BANTAM_KERNEL(device.exec(), conv2d_inference, s, dtype, x.data(), w.data(), after.epilogue, y.data(),
                workspace.get());
  device.synchronize();
  workspace.expect_guard_intact();
  return y.download();
}

/// As for conv2d_forward: a random walk of float32 roundings, 4 for its spread, and roundings where half types are
/// stored: of the result, and, where the epilogue is a pass of its own, of what it reads. No activation here has a
/// slope above 1.1.
double tolerance(std::int64_t products, DType dtype) {
  return 4 * std::sqrt(static_cast<double>(products) + 3) * unit_roundoff(DType::float32) +
         (dtype == DType::float32 ? 0 : 3 * unit_roundoff(dtype));
}

double tolerance(const Conv2dShape& s, DType dtype) {
  return tolerance(s.kernel_h * s.kernel_w * s.in_channels / s.groups, dtype);
}

TEST_P(Conv2dInferenceTest, MatchesReferenceOverShapesAndTypes) {
  std::size_t turn = 0;
  for (const std::vector<Conv2dShape>& set : {shapes(), image_shapes()})
    for (const Conv2dShape& s : set)
      for (const DType dtype : kTypes) {
        const Parts& parts = kParts[turn++ % std::size(kParts)];
        const Problem p = make_problem(s, dtype);
        SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward) + " " + std::string(to_string(parts.activation)));
        EXPECT_LE(relative_error(run(device(), s, dtype, p, parts), expected(s, p, parts)), tolerance(s, dtype));
      }
}

TEST_P(Conv2dInferenceTest, EveryEpilogueMatchesTheReference) {
  // A matrix product, one with many filters and a narrow last panel, and a sum of several ranges.
  for (const Conv2dShape& s : {base(3, 5, 40, 64, 1), with_padding(base(2, 9, 70, 333, 3), 1, 1, 1, 1)})
    for (const Parts& parts : kParts)
      for (const DType dtype : kTypes) {
        const Problem p = make_problem(s, dtype);
        SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward) + " " + std::string(to_string(parts.activation)));
        EXPECT_LE(relative_error(run(device(), s, dtype, p, parts), expected(s, p, parts)), tolerance(s, dtype));
      }
}

TEST_P(Conv2dInferenceTest, LargeCallsMatchTheReference) {
  for (const Conv2dShape& s : large_shapes())
    for (const DType dtype : kTypes) {
      const Problem p = make_problem(s, dtype);
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      EXPECT_LE(relative_error(run(device(), s, dtype, p, kParts[2]), expected(s, p, kParts[2])), tolerance(s, dtype));
    }
}

kernels::DepthwiseConv2dShape depthwise_shape(std::int64_t channels, std::int64_t stride, std::int64_t kernel) {
  return {.batch = 2,
          .in_h = 11,
          .in_w = 9,
          .channels = channels,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = 1,
          .pad_bottom = 1,
          .pad_left = 0,
          .pad_right = 2};
}

void check_depthwise(KernelDevice& device, const kernels::DepthwiseConv2dShape& s, DType dtype, const Parts& parts) {
  const Problem p = make_problem(s.x_elements(), s.w_elements(), s.out_channels(), s.y_elements(), dtype);
  std::vector<double> wanted = kernels::reference::depthwise_conv2d_forward(s, doubles(p.x), doubles(p.w));
  finish(p, parts, wanted);
  const DeviceBuffer x(device, p.x, dtype), w(device, p.w, dtype);
  DeviceBuffer y(device, s.y_elements(), dtype);
  const DeviceEpilogue after(device, p, parts, dtype);
  BANTAM_KERNEL(device.exec(), depthwise_conv2d_inference, s, dtype, x.data(), w.data(), after.epilogue, y.data());
  device.synchronize();
  EXPECT_LE(relative_error(y.download(), wanted), tolerance(s.kernel_h * s.kernel_w, dtype))
      << s.channels << " channels, stride " << s.stride_h << ", kernel " << s.kernel_h << ", multiplier "
      << s.multiplier << ", " << to_string(parts.activation);
}

TEST_P(Conv2dInferenceTest, DepthwiseMatchesTheReference) {
  for (const DType dtype : kTypes)
    for (const Parts& parts : kParts)
      for (const std::int64_t channels : {5, 12, 24, 32})
        for (const std::int64_t stride : {1, 2})
          check_depthwise(device(), depthwise_shape(channels, stride, 3), dtype, parts);
  for (const DType dtype : kTypes) {
    check_depthwise(device(), depthwise_shape(32, 1, 5), dtype, kParts[1]);
    kernels::DepthwiseConv2dShape s = depthwise_shape(16, 1, 3);
    s.multiplier = 2;
    check_depthwise(device(), s, dtype, kParts[1]);
    s = depthwise_shape(16, 2, 3);  // windows that are wider than the image
    s.in_h = s.in_w = 1;
    s.pad_top = s.pad_bottom = s.pad_left = s.pad_right = 1;
    check_depthwise(device(), s, dtype, kParts[3]);
  }
}

TEST_P(Conv2dInferenceTest, EpiloguesPassNaNsOn) {
  const Conv2dShape s = base(1, 1, 8, 40, 1);
  for (const Activation activation : {Activation::relu, Activation::relu6, Activation::leaky_relu, Activation::silu}) {
    Problem p = make_problem(s, DType::float32);
    p.bias[3] = p.bias[39] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = run(device(), s, DType::float32, p, {true, false, activation});
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 3 || i == 39) << to_string(activation);
  }
}

/// Convolutions with bias and relu that cuDNN may compute as one kernel.
std::vector<Conv2dShape> fused_shapes() {
  return {with_padding(base(2, 14, 64, 128, 3), 1, 1, 1, 1), with_padding(base(3, 17, 72, 40, 3, 2), 1, 1, 1, 1),
          with_padding(base(2, 9, 128, 64, 5), 2, 2, 2, 2)};
}

TEST_P(Conv2dInferenceTest, TimedChoicesOfReluGiveTheResultAndCanBeMadeAgain) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "there is nothing to choose on a CPU";
  const Parts relu{true, false, Activation::relu};
  for (const Conv2dShape& s : fused_shapes())
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      ASSERT_TRUE(kernels::conv2d_fuses_relu(s, dtype, DeviceKind::cuda));
      const Problem p = make_problem(s, dtype);
      KernelDevice timed(GetParam()), again(GetParam()), misled(GetParam());
      kernels::AlgorithmChoices& choices = *kernels::algorithm_choices(timed.exec().libraries);
      choices.set_timing(true);
      const std::vector<float> first = run(timed, s, dtype, p, relu);
      EXPECT_LE(relative_error(first, expected(s, p, relu)), tolerance(s, dtype));
      EXPECT_EQ(bits_of(run(timed, s, dtype, p, relu)), bits_of(first));
      kernels::algorithm_choices(again.exec().libraries)->add(choices.all());
      EXPECT_EQ(bits_of(run(again, s, dtype, p, relu)), bits_of(first));
      EXPECT_EQ(kernels::algorithm_choices(again.exec().libraries)->all(), choices.all());
      for (const auto& [problem, choice] : choices.all())
        kernels::algorithm_choices(misled.exec().libraries)->keep(problem, "17:no such algorithm");
      EXPECT_LE(relative_error(run(misled, s, dtype, p, relu), expected(s, p, relu)), tolerance(s, dtype));
    }
}

/// Whether or not bias and relu are fused: relu(NaN) is NaN.
TEST_P(Conv2dInferenceTest, TimedChoicesOfReluPassNaNsOn) {
  const Conv2dShape s = fused_shapes()[0];
  KernelDevice timed(GetParam());
  if (GetParam().is_cuda()) kernels::algorithm_choices(timed.exec().libraries)->set_timing(true);
  Problem p = make_problem(s, DType::float16);
  p.bias[3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = run(timed, s, DType::float16, p, {true, false, Activation::relu});
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i % 128 == 3) << i;
}

/// Rows of images, one after the other, are cut without regard to images: an image's bits are the same anyway.
TEST(Conv2dInferenceOnCpu, AnImageHasTheSameBitsInEveryBatchAndOnEveryNumberOfThreads) {
  for (Conv2dShape s :
       {with_padding(base(7, 14, 48, 96, 3), 1, 1, 1, 1), with_padding(base(7, 37, 3, 24, 7, 2), 3, 3, 3, 3),
        base(7, 7, 200, 100, 1), base(7, 1, 600, 333, 1)}) {
    KernelDevice one(Device::cpu(), 1), three(Device::cpu(), 3);
    const Problem all = make_problem(s, DType::float32);
    const std::vector<float> together = run(one, s, DType::float32, all, kParts[2]);
    EXPECT_EQ(bits_of(run(three, s, DType::float32, all, kParts[2])), bits_of(together));
    const std::int64_t batch = s.batch, x = s.x_elements() / batch, y = s.y_elements() / batch;
    s.batch = 1;
    for (std::int64_t i = 0; i < batch; ++i) {
      Problem single = all;
      single.x.assign(all.x.begin() + i * x, all.x.begin() + (i + 1) * x);
      single.residual.assign(all.residual.begin() + i * y, all.residual.begin() + (i + 1) * y);
      const std::vector<float> alone = run(one, s, DType::float32, single, kParts[2]);
      EXPECT_EQ(bits_of(alone), bits_of({together.begin() + i * y, together.begin() + (i + 1) * y})) << i;
    }
  }
}

}  // namespace
}  // namespace bantam::testing::conv2d_inference_test
