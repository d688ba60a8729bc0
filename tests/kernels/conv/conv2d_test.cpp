// Convolutions: a hand value, each pass against plain loops in double over odd shapes, bits over thread counts.
#include "bantam/kernels/conv/conv2d.h"

#include <gtest/gtest.h>

#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/kernels/common/cuda/code_architecture.h"
#include "bantam/kernels/conv/conv2d_reference.h"
#include "bantam/kernels/conv/cpu/own_conv2d.h"
#include "bantam/kernels/conv/cpu/patches.h"
#include "bantam/kernels/conv/own_conv2d_plan.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/conv/conv2d_shapes.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing::conv2d_test {
namespace {

class Conv2dTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Conv2dTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr DType kTypes[] = {DType::float32, DType::float16, DType::bfloat16};
constexpr Conv2dPass kPasses[] = {Conv2dPass::forward, Conv2dPass::grad_input, Conv2dPass::grad_weight};

struct Problem {
  std::vector<float> x, w, dy;
  std::vector<double> x64, w64, dy64;
};

Problem make_problem(const Conv2dShape& s, DType dtype) {
  Problem p{random_values(s.x_elements(), 1, dtype),
            random_values(s.w_elements(), 2, dtype),
            random_values(s.y_elements(), 3, dtype),
            {},
            {},
            {}};
  p.x64.assign(p.x.begin(), p.x.end());
  p.w64.assign(p.w.begin(), p.w.end());
  p.dy64.assign(p.dy.begin(), p.dy.end());
  return p;
}

std::vector<double> expected(const Conv2dShape& s, Conv2dPass pass, const Problem& p,
                             const std::vector<float>& dw_before) {
  if (pass == Conv2dPass::forward) {
    std::vector<double> y(static_cast<std::size_t>(s.y_elements()));
    kernels::reference::conv2d_forward(s, p.x64.data(), p.w64.data(), y.data());
    return y;
  }
  if (pass == Conv2dPass::grad_input) {
    std::vector<double> dx(static_cast<std::size_t>(s.x_elements()));
    kernels::reference::conv2d_grad_input(s, p.dy64.data(), p.w64.data(), dx.data());
    return dx;
  }
  std::vector<double> dw(dw_before.begin(), dw_before.end());
  dw.resize(static_cast<std::size_t>(s.w_elements()));
  kernels::reference::conv2d_grad_weight(s, p.x64.data(), p.dy64.data(), dw.data(), !dw_before.empty());
  return dw;
}

std::int64_t result_elements(const Conv2dShape& s, Conv2dPass pass) {
  if (pass == Conv2dPass::forward) return s.y_elements();
  return pass == Conv2dPass::grad_input ? s.x_elements() : s.w_elements();
}

/// Runs one pass; with `dw_before`, grad_weight adds to it. Returns the result, whose raw bytes go to `bytes` if given.
std::vector<float> run(KernelDevice& device, const Conv2dShape& s, DType dtype, Conv2dPass pass, const Problem& p,
                       const std::vector<float>& dw_before = {}, std::vector<std::uint8_t>* bytes = nullptr) {
  const DType out_type = pass == Conv2dPass::grad_weight ? DType::float32 : dtype;
  const DeviceBuffer x(device, p.x, dtype), w(device, p.w, dtype), dy(device, p.dy, dtype);
  DeviceBuffer out(device, result_elements(s, pass), out_type);
  if (!dw_before.empty()) out.upload(dw_before);
  GuardedWorkspace workspace(device, conv2d_workspace_bytes(s, dtype, pass, device.exec().device.kind));
  if (pass == Conv2dPass::forward) {
    BANTAM_KERNEL(device.exec(), conv2d_forward, s, dtype, x.data(), w.data(), out.data(), workspace.get());
  } else if (pass == Conv2dPass::grad_input) {
    BANTAM_KERNEL(device.exec(), conv2d_grad_input, s, dtype, dy.data(), w.data(), out.data(), workspace.get());
  } else {
    BANTAM_KERNEL(device.exec(), conv2d_grad_weight, s, dtype, x.data(), dy.data(),
                  {.dw = out.as<float>(), .accumulate = !dw_before.empty()}, workspace.get());
  }
  device.synchronize();
  workspace.expect_guard_intact();
  if (bytes != nullptr) *bytes = out.download_bytes();
  return out.download();
}

/// As for matmul: a random walk of float32 roundings over the products of a sum, 4 for its spread, and one rounding
/// where a half type is stored. cuDNN stores dw in the half type before it is widened, so on CUDA that rounding is
/// allowed there too.
double tolerance(const Conv2dShape& s, DType dtype, Conv2dPass pass, bool cuda) {
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  std::int64_t products = taps * s.in_channels / s.groups;
  if (pass == Conv2dPass::grad_input) products = taps * s.out_channels / s.groups;
  if (pass == Conv2dPass::grad_weight) products = s.batch * s.out_h() * s.out_w();
  const bool rounds = dtype != DType::float32 && (pass != Conv2dPass::grad_weight || cuda);
  return 4 * std::sqrt(static_cast<double>(products) + 1) * unit_roundoff(DType::float32) +
         (rounds ? unit_roundoff(dtype) : 0);
}

TEST_P(Conv2dTest, OneChannelByHand) {
  const Conv2dShape s = with_padding(base(1, 3, 1, 1, 2), 0, 1, 0, 1);
  Problem p;
  p.x = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  p.w = {1, 10, 100, 1000};
  p.dy = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  EXPECT_EQ(run(device(), s, DType::float32, Conv2dPass::forward, p),
            (std::vector<float>{5421, 6532, 603, 8754, 9865, 906, 87, 98, 9}));
  EXPECT_EQ(run(device(), s, DType::float32, Conv2dPass::grad_input, p),
            (std::vector<float>{1, 10, 0, 100, 1001, 10, 0, 100, 1001}));
  EXPECT_EQ(run(device(), s, DType::float32, Conv2dPass::grad_weight, p), (std::vector<float>{15, 8, 12, 14}));
}

TEST_P(Conv2dTest, MatchesReferenceOverShapesAndTypes) {
  for (const Conv2dShape& s : shapes()) {
    for (const DType dtype : kTypes) {
      const Problem p = make_problem(s, dtype);
      for (const Conv2dPass pass : kPasses) {
        SCOPED_TRACE(describe(s, dtype, pass));
        EXPECT_LE(relative_error(run(device(), s, dtype, pass, p), expected(s, pass, p, {})),
                  tolerance(s, dtype, pass, GetParam().is_cuda()));
      }
    }
  }
}

/// Whether half weight gradients of images are a library's, which rounds them: code for GPUs before 8.0.
bool image_gradients_round(Device device) {
#if defined(BANTAM_WITH_CUDA)
  return device.is_cuda() && kernels::cuda::code_architecture() < 800;
#else
  return device.is_cuda();
#endif
}

TEST_P(Conv2dTest, ImagesMatchReferenceAndGradWeightIsNotRounded) {
  for (const Conv2dShape& s : image_shapes()) {
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      const Problem p = make_problem(s, dtype);
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      EXPECT_LE(
          relative_error(run(device(), s, dtype, Conv2dPass::forward, p), expected(s, Conv2dPass::forward, p, {})),
          tolerance(s, dtype, Conv2dPass::forward, false));
      for (const std::vector<float>& before : {std::vector<float>{}, random_values(s.w_elements(), 4)}) {
        EXPECT_LE(relative_error(run(device(), s, dtype, Conv2dPass::grad_weight, p, before),
                                 expected(s, Conv2dPass::grad_weight, p, before)),
                  tolerance(s, dtype, Conv2dPass::grad_weight, image_gradients_round(GetParam())));
      }
    }
  }
}

TEST_P(Conv2dTest, GradWeightAddsWhereAsked) {
  for (const Conv2dShape& s : shapes()) {
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::grad_weight));
      const Problem p = make_problem(s, dtype);
      const std::vector<float> before = random_values(s.w_elements(), 4);
      EXPECT_LE(relative_error(run(device(), s, dtype, Conv2dPass::grad_weight, p, before),
                               expected(s, Conv2dPass::grad_weight, p, before)),
                tolerance(s, dtype, Conv2dPass::grad_weight, GetParam().is_cuda()));
    }
  }
}

/// Values of dw where a kernel may write it narrow: from where it says that they are.
std::vector<float> narrow_grad_weight(KernelDevice& device, const Conv2dShape& s, DType dtype, const Problem& p,
                                      bool accumulate, bool& narrow) {
  const DeviceBuffer x(device, p.x, dtype), dy(device, p.dy, dtype);
  const DeviceBuffer dw(device, std::vector<float>(static_cast<std::size_t>(s.w_elements())), DType::float32);
  GuardedWorkspace workspace(device,
                             conv2d_workspace_bytes(s, dtype, Conv2dPass::grad_weight, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), conv2d_grad_weight, s, dtype, x.data(), dy.data(),
                {.dw = dw.as<float>(), .accumulate = accumulate, .narrow = &narrow}, workspace.get());
  workspace.expect_guard_intact();
  if (!narrow) return dw.download();
  const DeviceBuffer halves(device, s.w_elements(), dtype);
  copy_bytes(halves.data(), dw.data(), halves.bytes(), device.stream());
  return halves.download();
}

TEST_P(Conv2dTest, GradWeightMayStayNarrowWhereNothingIsAddedAndHasTheSameBits) {
  bool one_did = false;
  for (const Conv2dShape& s : large_shapes()) {
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::grad_weight));
      const Problem p = make_problem(s, dtype);
      bool narrow = false, narrow_and_added = false;
      EXPECT_EQ(bits_of(narrow_grad_weight(device(), s, dtype, p, false, narrow)),
                bits_of(run(device(), s, dtype, Conv2dPass::grad_weight, p)));
      EXPECT_TRUE(!narrow || (GetParam().is_cuda() && is_half(dtype)));
      one_did |= narrow;
      (void)narrow_grad_weight(device(), s, dtype, p, true, narrow_and_added);
      EXPECT_FALSE(narrow_and_added);
    }
  }
  EXPECT_EQ(one_did, GetParam().is_cuda());
}

TEST_P(Conv2dTest, MatchesReferenceWhereTheBatchIsCut) {
  for (const Conv2dShape& s : large_shapes()) {
    for (const DType dtype : kTypes) {
      const Problem p = make_problem(s, dtype);
      for (const Conv2dPass pass : kPasses) {
        SCOPED_TRACE(describe(s, dtype, pass));
        EXPECT_LE(relative_error(run(device(), s, dtype, pass, p), expected(s, pass, p, {})),
                  tolerance(s, dtype, pass, GetParam().is_cuda()));
      }
    }
  }
}

TEST_P(Conv2dTest, SameCallComputesSameBits) {
  for (const Conv2dShape& s : large_shapes()) {
    for (const DType dtype : kTypes) {
      const Problem p = make_problem(s, dtype);
      for (const Conv2dPass pass : kPasses) {
        std::vector<std::uint8_t> first, second;
        run(device(), s, dtype, pass, p, {}, &first);
        run(device(), s, dtype, pass, p, {}, &second);
        EXPECT_EQ(first, second) << describe(s, dtype, pass);
      }
    }
  }
}

/// Also through cuBLASLt: one of the shapes is a matrix product.
TEST_P(Conv2dTest, TimedChoicesGiveTheResultAndCanBeMadeAgain) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "there is nothing to choose on a CPU";
  for (const Conv2dShape& s : large_shapes()) {
    for (const Conv2dPass pass : kPasses) {
      SCOPED_TRACE(describe(s, DType::float16, pass));
      const Problem p = make_problem(s, DType::float16);
      KernelDevice timed(GetParam()), again(GetParam()), misled(GetParam());
      kernels::AlgorithmChoices& choices = *kernels::algorithm_choices(timed.exec().libraries);
      choices.set_timing(true);
      std::vector<std::uint8_t> first, second;
      EXPECT_LE(relative_error(run(timed, s, DType::float16, pass, p, {}, &first), expected(s, pass, p, {})),
                tolerance(s, DType::float16, pass, true));
      kernels::algorithm_choices(again.exec().libraries)->add(choices.all());
      run(again, s, DType::float16, pass, p, {}, &second);
      EXPECT_EQ(first, second);
      EXPECT_EQ(kernels::algorithm_choices(again.exec().libraries)->all(), choices.all());
      for (const auto& [problem, choice] : choices.all()) {
        kernels::algorithm_choices(misled.exec().libraries)->keep(problem, "17:no such algorithm");
      }
      EXPECT_LE(relative_error(run(misled, s, DType::float16, pass, p), expected(s, pass, p, {})),
                tolerance(s, DType::float16, pass, true));
    }
  }
}

TEST_P(Conv2dTest, EmptyBatchStoresZeroWeightGradient) {
  const Conv2dShape s = with_padding(base(0, 8, 3, 4, 3), 1, 1, 1, 1);
  const DeviceBuffer nothing(device(), 1, DType::float32), dw(device(), s.w_elements(), DType::float32);
  BANTAM_KERNEL(exec(), conv2d_grad_weight, s, DType::float32, nothing.data(), nothing.data(), {.dw = dw.as<float>()},
                kernels::Workspace{});
  EXPECT_EQ(dw.download(), std::vector<float>(static_cast<std::size_t>(s.w_elements()), 0.0f));
}

TEST(Conv2dThreadsTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const Conv2dShape& s : large_shapes()) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const Problem p = make_problem(s, dtype);
      for (const Conv2dPass pass : kPasses) {
        std::vector<std::uint8_t> bytes[3];
        for (const int threads : {1, 2, 3}) {
          KernelDevice device(Device::cpu(), threads);
          run(device, s, dtype, pass, p, {}, &bytes[threads - 1]);
        }
        EXPECT_EQ(bytes[0], bytes[1]) << describe(s, dtype, pass);
        EXPECT_EQ(bytes[0], bytes[2]) << describe(s, dtype, pass);
      }
    }
  }
}

/// The CPU's own path, which oneDNN's kernels hide on most processors, with room for a few patches at a time.
TEST(Conv2dPatchesTest, MatchReference) {
  for (Conv2dShape s : shapes()) {
    s.batch = 1;
    SCOPED_TRACE(describe(s, DType::float32, Conv2dPass::forward));
    const Problem p = make_problem(s, DType::float32);
    std::vector<float> room(static_cast<std::size_t>(5 * s.kernel_h * s.kernel_w * s.in_channels / s.groups + 1));
    const kernels::cpu::PatchBuffer buffer{room.data(), static_cast<std::int64_t>(room.size())};
    std::vector<float> y(p.dy.size(), NAN), dx(p.x.size(), NAN), dw(p.w.size(), NAN);
    kernels::cpu::patches_forward(s, p.x.data(), p.w.data(), y.data(), buffer);
    kernels::cpu::patches_grad_input(s, p.dy.data(), p.w.data(), dx.data(), buffer);
    kernels::cpu::patches_grad_weight(s, p.x.data(), p.dy.data(), dw.data(), false, buffer);
    const std::vector<float>* results[] = {&y, &dx, &dw};
    for (const Conv2dPass pass : kPasses) {
      EXPECT_LE(relative_error(*results[static_cast<int>(pass)], expected(s, pass, p, {})),
                tolerance(s, DType::float32, pass, false));
    }
  }
}

/// Our own kernels for a pass, whichever the rule prefers. `before`: what dw has, and is added to.
std::vector<float> run_own(const Conv2dShape& s, DType dtype, Conv2dPass pass, const Problem& p, int threads,
                           const std::vector<float>& before = {}) {
  KernelDevice device(Device::cpu(), threads);
  const DeviceBuffer x(device, p.x, dtype), w(device, p.w, dtype), dy(device, p.dy, dtype);
  DeviceBuffer out(device, std::vector<float>(static_cast<std::size_t>(result_elements(s, pass)), NAN),
                   pass == Conv2dPass::grad_weight ? DType::float32 : dtype);
  if (!before.empty()) out.upload(before);
  GuardedWorkspace workspace(device, kernels::cpu::plan_own_conv2d(s, dtype, pass).workspace_bytes());
  if (pass == Conv2dPass::forward) {
    kernels::cpu::own_conv2d_forward(device.exec(), s, dtype, x.data(), w.data(), out.data(), workspace.get());
  } else if (pass == Conv2dPass::grad_input) {
    kernels::cpu::own_conv2d_grad_input(device.exec(), s, dtype, dy.data(), w.data(), out.data(), workspace.get());
  } else {
    kernels::cpu::own_conv2d_grad_weight(device.exec(), s, dtype, x.data(), dy.data(),
                                         {.dw = out.as<float>(), .accumulate = !before.empty()}, workspace.get());
  }
  workspace.expect_guard_intact();
  return out.download();
}

/// Shapes of the contract without groups, and some whose gradient windows begin within dy, leave positions of x out, or
/// have taps apart in strides.
std::vector<Conv2dShape> own_shapes() {
  std::vector<Conv2dShape> all;
  for (const auto& some : {shapes(), image_shapes(), large_shapes()}) {
    for (const Conv2dShape& s : some) {
      if (kernels::cpu::has_own_conv2d(s)) all.push_back(s);
    }
  }
  all.push_back(with_padding(base(2, 7, 5, 40, 3), 4, 3, 5, 4));       // padding wider than the window
  all.push_back(with_padding(base(2, 11, 20, 33, 2, 3), 1, 0, 0, 2));  // a stride longer than the window
  all.push_back(with_padding(base(33, 4, 48, 96, 3), 1, 1, 1, 1));     // filters are cut, and rows are shared
  all.push_back(with_padding(base(1, 1, 16, 16, 3), 1, 1, 1, 1));      // one pixel
  Conv2dShape spread = with_padding(base(2, 17, 6, 9, 3, 2), 2, 3, 3, 1);
  spread.dilation_h = 3, spread.dilation_w = 2;  // of which one divides the stride
  all.push_back(spread);
  spread.stride_h = 4, spread.dilation_h = 6;  // a common divisor that is neither
  all.push_back(spread);
  return all;
}

TEST(Conv2dOwnTest, MatchesReferenceOverwritesAndAdds) {
  for (const Conv2dShape& s : own_shapes()) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const Problem p = make_problem(s, dtype);
      for (const Conv2dPass pass : kPasses) {
        SCOPED_TRACE(describe(s, dtype, pass));
        EXPECT_LE(relative_error(run_own(s, dtype, pass, p, 2), expected(s, pass, p, {})),
                  tolerance(s, dtype, pass, false));
      }
      const std::vector<float> before = random_values(s.w_elements(), 4);
      EXPECT_LE(relative_error(run_own(s, dtype, Conv2dPass::grad_weight, p, 2, before),
                               expected(s, Conv2dPass::grad_weight, p, before)),
                tolerance(s, dtype, Conv2dPass::grad_weight, false))
          << describe(s, dtype, Conv2dPass::grad_weight);
    }
  }
}

TEST(Conv2dOwnTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const Conv2dShape& s : own_shapes()) {
    const Problem p = make_problem(s, DType::float32);
    for (const Conv2dPass pass : kPasses) {
      EXPECT_EQ(bits_of(run_own(s, DType::float32, pass, p, 1)), bits_of(run_own(s, DType::float32, pass, p, 3)))
          << describe(s, DType::float32, pass);
    }
  }
}

/// loss = Σ dy · y; its gradients must be the reference's, which all backends must match.
TEST(Conv2dReferenceTest, GradientsAgreeWithFiniteDifferences) {
  for (const Conv2dShape& s : shapes()) {
    SCOPED_TRACE(describe(s, DType::float64, Conv2dPass::forward));
    const Problem p = make_problem(s, DType::float32);
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& w) {
      std::vector<double> y(static_cast<std::size_t>(s.y_elements()));
      kernels::reference::conv2d_forward(s, x.data(), w.data(), y.data());
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * p.dy64[i];
      return sum;
    };
    expect_gradient(
        p.x64, expected(s, Conv2dPass::grad_input, p, {}), [&](const std::vector<double>& x) { return loss(x, p.w64); },
        10);
    expect_gradient(
        p.w64, expected(s, Conv2dPass::grad_weight, p, {}),
        [&](const std::vector<double>& w) { return loss(p.x64, w); }, 10);
  }
}

TEST_P(Conv2dTest, RefusesOtherTypesAndSmallWorkspaces) {
  const Conv2dShape s = base(2, 5, 3, 4, 3);
  const DeviceBuffer x(device(), s.x_elements(), DType::float32), w(device(), s.w_elements(), DType::float32);
  const DeviceBuffer y(device(), s.y_elements(), DType::float32);
  EXPECT_THROW(conv2d_workspace_bytes(s, DType::float64, Conv2dPass::forward, DeviceKind::cpu), DTypeError);
  EXPECT_THROW(
      BANTAM_KERNEL(exec(), conv2d_forward, s, DType::float64, x.data(), w.data(), y.data(), kernels::Workspace{}),
      DTypeError);
  EXPECT_THROW(
      BANTAM_KERNEL(exec(), conv2d_forward, s, DType::float32, x.data(), w.data(), y.data(), kernels::Workspace{}),
      Error);
}

TEST(Conv2dSizesTest, CountOperations) {
  const Conv2dShape s = base(2, 5, 4, 6, 3);  // y (2, 3, 3, 6)
  EXPECT_EQ(kernels::conv2d_flops(s), 2 * (2 * 3 * 3 * 6) * (3 * 3 * 4));
}

TEST(Conv2dSizesTest, WorkspaceStaysBounded) {
  const Conv2dShape large = with_padding(base(256, 56, 256, 256, 3), 1, 1, 1, 1);
  for (const DeviceKind target : {DeviceKind::cpu, DeviceKind::cuda}) {
    for (const DType dtype : kTypes) {
      for (const Conv2dPass pass : kPasses) {
        EXPECT_LE(conv2d_workspace_bytes(large, dtype, pass, target), std::size_t{80} << 20)
            << describe(large, dtype, pass);
      }
    }
  }
}

}  // namespace
}  // namespace bantam::testing::conv2d_test
