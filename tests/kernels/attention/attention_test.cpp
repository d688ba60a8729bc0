// Attention: hand values, every device against plain loops in double, and those against finite differences and PyTorch;
// large logits, threads, batches, refused shapes, work.
#include "bantam/kernels/attention/attention.h"

#include <cmath>

#include "bantam/base/error.h"
#include "bantam/kernels/attention/attention_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/attention/attention_oracle.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/work_case.h"

namespace bantam::kernels::attention_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class AttentionTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// With the scale that layers have.
AttentionShape shape_of(std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t size) {
  return {batch, tokens, heads, size, static_cast<float>(1 / std::sqrt(static_cast<double>(size)))};
}

// One token, and fewer than a tile of 16; head sizes that are no multiple of 8 or 16; both sides of 64, 128 and 256
// tokens; the tokens of ViT, of DeiT with two more, and of images of 384 pixels.
const AttentionShape kShapes[] = {
    shape_of(3, 1, 2, 8),    shape_of(2, 2, 1, 12),   shape_of(1, 15, 3, 16),   shape_of(2, 17, 2, 20),
    shape_of(3, 50, 2, 36),  shape_of(1, 63, 2, 48),  shape_of(2, 65, 1, 60),   shape_of(1, 127, 1, 128),
    shape_of(2, 197, 3, 64), shape_of(1, 198, 2, 40), shape_of(2, 255, 1, 8),   shape_of(1, 256, 2, 32),
    shape_of(1, 257, 1, 36), shape_of(2, 300, 2, 64), shape_of(1, 577, 1, 128), shape_of(35, 20, 2, 8)};

std::string name(const AttentionShape& s, DType dtype) {
  return (::testing::Message() << to_string(dtype) << " " << s.batch << "x" << s.tokens << "x" << s.heads << "x"
                               << s.size)
      .GetString();
}

struct Inputs {
  Inputs(const AttentionShape& s, DType dtype)
      : qkv(random_values(3 * s.rows() * s.channels(), 1, dtype, -2.0f, 2.0f)),
        dout(random_values(s.rows() * s.channels(), 2, dtype)) {}
  std::vector<float> qkv, dout;
};

using Saved = reference::AttentionOutput<double>;

Saved expected_forward(const AttentionShape& s, const Inputs& in) {
  return reference::attention_forward(s, as_double(in.qkv));
}
/// From o as a device has it.
std::vector<double> expected_backward(const AttentionShape& s, const Inputs& in, const Saved& saved) {
  return reference::attention_backward(s, as_double(in.qkv), saved, as_double(in.dout));
}

struct Forward {
  Forward(KernelDevice& device, const AttentionShape& s, DType dtype, const std::vector<float>& values)
      : o(device, s.rows() * s.channels(), dtype), lse(device, s.rows() * s.heads, DType::float32) {
    const DeviceBuffer qkv(device, values, dtype);
    const GuardedBytes workspace(device, attention_workspace_bytes(s, dtype, device.exec().device.kind));
    BANTAM_KERNEL(device.exec(), attention_forward, s, dtype, qkv.data(), o.data(), lse.as<float>(),
                  workspace.workspace());
    const GuardedBuffer alone(device, s.rows() * s.channels(), dtype);  // without lse: the same bits
    BANTAM_KERNEL(device.exec(), attention_forward, s, dtype, qkv.data(), alone.data(), nullptr, workspace.workspace());
    device.synchronize();
    EXPECT_EQ(alone.download_bytes(), o.download_bytes());
  }
  std::vector<std::uint8_t> all_bytes() const {
    std::vector<std::uint8_t> all = o.download_bytes();
    for (const std::uint8_t byte : lse.download_bytes()) all.push_back(byte);
    return all;
  }
  GuardedBuffer o, lse;
};

/// From o rounded to `dtype` and lse rounded to float32.
struct Backward {
  Backward(KernelDevice& device, const AttentionShape& s, DType dtype, const Inputs& in, const Saved& saved)
      : dqkv(device, 3 * s.rows() * s.channels(), dtype) {
    const DeviceBuffer qkv(device, in.qkv, dtype), dout(device, in.dout, dtype);
    const DeviceBuffer o(device, {saved.o.begin(), saved.o.end()}, dtype);
    const DeviceBuffer lse(device, {saved.lse.begin(), saved.lse.end()}, DType::float32);
    const GuardedBytes workspace(device, attention_backward_workspace_bytes(s, dtype, device.exec().device.kind));
    BANTAM_KERNEL(device.exec(), attention_backward, s, dtype,
                  {.qkv = qkv.data(), .o = o.data(), .lse = lse.as<float>()}, dout.data(), dqkv.data(),
                  workspace.workspace());
    device.synchronize();
  }
  GuardedBuffer dqkv;
};

/// Forward rounds P, then o; backward o (which is in δ), P, dS and the result. Sums over a head's channels and over
/// tokens are float32. Errors of scores are relative ones of P.
double forward_tolerance(const AttentionShape& s, DType dtype) {
  return (is_half(dtype) ? 2 * unit_roundoff(dtype) : 0) + sum_tolerance(DType::float32, s.size + s.tokens);
}
double backward_tolerance(const AttentionShape& s, DType dtype) {
  return (is_half(dtype) ? 4 * unit_roundoff(dtype) : 0) + 2 * sum_tolerance(DType::float32, s.size + s.tokens);
}

/// The gradients of q, of k or of v.
template <class T>
std::vector<T> part_of(const AttentionShape& s, const std::vector<T>& qkv, std::int64_t part) {
  std::vector<T> values;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const auto begin = qkv.begin() + (3 * row + part) * s.channels();
    values.insert(values.end(), begin, begin + s.channels());
  }
  return values;
}

void expect_as_reference(KernelDevice& device, const AttentionShape& s, DType dtype) {
  SCOPED_TRACE(name(s, dtype));
  const Inputs in(s, dtype);
  const Saved expected = expected_forward(s, in);
  const Forward forward(device, s, dtype, in.qkv);
  EXPECT_LT(relative_error(forward.o.download(), expected.o), forward_tolerance(s, dtype));
  // One rounding, and errors of scores that are at most 2 · 2 · √size.
  const std::vector<float> lse = forward.lse.download();
  for (std::size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(lse[i], expected.lse[i], 1e-5) << "row " << i;
  const std::vector<float> dqkv = Backward(device, s, dtype, in, expected).dqkv.download();
  const std::vector<double> gradient = expected_backward(s, in, expected);
  if (s.tokens == 1) {  // P is 1, whatever q and k are: their gradient is the rounding of o
    EXPECT_LT(relative_error(dqkv, gradient), backward_tolerance(s, dtype));
    return;
  }
  for (const int part : {0, 1, 2})
    EXPECT_LT(relative_error(part_of(s, dqkv, part), part_of(s, gradient, part)), backward_tolerance(s, dtype))
        << "part " << part;
}

// Two tokens, scores (0, ln 3) and (0, 0): P is (1/4, 3/4) and (1/2, 1/2).
TEST_P(AttentionTest, HandComputed) {
  const AttentionShape s{.batch = 1, .tokens = 2, .heads = 1, .size = 8, .scale = 0.5f};
  const auto ln3 = static_cast<float>(std::log(3.0)), ln4 = static_cast<float>(std::log(4.0));
  const auto ln2 = static_cast<float>(std::log(2.0));
  Inputs in(s, DType::float32);
  std::fill(in.qkv.begin(), in.qkv.end(), 0.0f);
  std::fill(in.dout.begin(), in.dout.end(), 0.0f);
  in.qkv[0] = 2 * ln3;             // q of token 0
  in.qkv[32] = 1;                  // k of token 1
  in.qkv[16] = 4, in.qkv[17] = 8;  // v of token 0
  in.qkv[40] = 8;                  // v of token 1
  in.dout[0] = 1, in.dout[8 + 1] = 1;
  const Forward forward(device(), s, DType::float32, in.qkv);
  std::vector<double> o(16), dqkv(48);
  o[0] = 7, o[1] = 2, o[8] = 6, o[9] = 4;
  expect_close(forward.o.download(), o, 1e-6);
  expect_close(forward.lse.download(), std::vector<float>{ln4, ln2}, 1e-6);
  // δ = (7, 4); do·v = (4, 8) and (8, 0): dS = (-3/4, 3/4) and (2, -2).
  dqkv[0] = 0.375, dqkv[24] = -1;                // dq
  dqkv[8] = -0.75 * ln3, dqkv[32] = 0.75 * ln3;  // dk
  dqkv[16] = 0.25, dqkv[17] = 0.5;               // dv
  dqkv[40] = 0.75, dqkv[41] = 0.5;
  const Backward backward(device(), s, DType::float32, in, {.o = o, .lse = {ln4, ln2}});
  expect_close(backward.dqkv.download(), dqkv, 2e-6);
}

TEST_P(AttentionTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes)
    for (const AttentionShape& s : kShapes) expect_as_reference(device(), s, dtype);
}

TEST_P(AttentionTest, MatchesReferenceForManyTokens) {
  for (const DType dtype : kFloatingTypes)
    for (const AttentionShape& s : {shape_of(1, 1025, 1, 60), shape_of(1, 4096, 1, 8)})
      expect_as_reference(device(), s, dtype);
}

TEST(AttentionReference, MatchesFiniteDifferences) {
  const AttentionShape s = shape_of(2, 5, 2, 8);
  const Inputs in(s, DType::float32);
  const std::vector<double> qkv = as_double(in.qkv), dout = as_double(in.dout);
  const std::vector<double> gradient =
      reference::attention_backward(s, qkv, reference::attention_forward(s, qkv), dout);
  expect_gradient(qkv, gradient, [&](const std::vector<double>& values) {
    const std::vector<double> o = reference::attention_forward(s, values).o;
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * dout[i];
    return sum;
  });
}

// Values of torch.nn.functional.scaled_dot_product_attention in float64 (tests/oracles/attention.py).
TEST(AttentionReference, MatchesPyTorch) {
  for (const AttentionOracle& torch : attention_oracles()) {
    const AttentionShape s = shape_of(torch.batch, torch.tokens, torch.heads, torch.size);
    const Saved forward = reference::attention_forward(s, torch.qkv);
    const std::vector<double> dqkv = reference::attention_backward(s, torch.qkv, forward, torch.dout);
    // The oracle has nine digits; the scale is a float here.
    expect_close({forward.o.begin(), forward.o.end()}, torch.o, 1e-6);
    expect_close({forward.lse.begin(), forward.lse.end()}, torch.lse, 1e-6);
    expect_close({dqkv.begin(), dqkv.end()}, torch.dqkv, 1e-6);
  }
}

/// Scores are whole numbers up to ±9,800, exact in every type: keys are positive, and every second query is negative,
/// so that rows of small and of large scores alone are there.
Inputs large_logits(const AttentionShape& s, DType dtype) {
  Inputs in(s, dtype);
  const auto whole = [](float value) { return std::floor(value * 17) + 18; };  // -2 … 2 to -16 … 51, then 1 … 35
  for (std::int64_t row = 0; row < s.rows(); ++row)
    for (std::int64_t c = 0; c < 2 * s.channels(); ++c) {
      float& value = in.qkv[static_cast<std::size_t>(3 * row * s.channels() + c)];
      value = std::clamp(whole(value), 1.0f, 35.0f);
      if (c < s.channels() && row % 2 == 1) value = -value;
    }
  return in;
}

TEST_P(AttentionTest, LargeLogitsOverflowNowhere) {
  for (const DType dtype : kFloatingTypes)
    for (AttentionShape s : {shape_of(2, 40, 2, 8), shape_of(1, 600, 1, 8)}) {
      s.scale = 1;
      SCOPED_TRACE(name(s, dtype));
      const Inputs in = large_logits(s, dtype);
      const Saved expected = expected_forward(s, in);
      const Forward forward(device(), s, dtype, in.qkv);
      EXPECT_LT(relative_error(forward.o.download(), expected.o), forward_tolerance(s, dtype));
      EXPECT_LT(relative_error(forward.lse.download(), expected.lse), unit_roundoff(DType::float32));
      // lse near 10^4 is rounded by up to 2^-11, which is a relative error of P. Rows of one large P have small
      // gradients, beside which the rounding of o in δ is twice as large.
      EXPECT_LT(relative_error(Backward(device(), s, dtype, in, expected).dqkv.download(),
                               expected_backward(s, in, expected)),
                2 * backward_tolerance(s, dtype) + std::ldexp(2.0, -11));
    }
}

// A NaN reaches the outputs of its head, and no other head's.
TEST_P(AttentionTest, NotANumberStaysInItsHead) {
  const AttentionShape s = shape_of(2, 20, 2, 8);
  for (const DType dtype : kFloatingTypes) {
    SCOPED_TRACE(to_string(dtype));
    Inputs in(s, dtype);
    const Forward clean(device(), s, dtype, in.qkv);
    in.qkv[static_cast<std::size_t>(3 * 7 * s.channels() + s.channels() + 8 + 3)] =
        NAN;  // sample 0, token 7, k of head 1
    const std::vector<float> before = clean.o.download(), o = Forward(device(), s, dtype, in.qkv).o.download();
    for (std::size_t i = 0; i < o.size(); ++i) {
      if (i < static_cast<std::size_t>(s.tokens * s.channels()) && i % 16 >= 8)
        ASSERT_TRUE(std::isnan(o[i])) << i;
      else
        ASSERT_EQ(o[i], before[i]) << i;
    }
  }
}

/// Forward and backward of random values, all bytes.
std::vector<std::uint8_t> all_bytes(KernelDevice& device, const AttentionShape& s, DType dtype, const Inputs& in) {
  const Forward forward(device, s, dtype, in.qkv);
  const Saved saved{as_double(forward.o.download()), as_double(forward.lse.download())};
  std::vector<std::uint8_t> all = forward.all_bytes();
  for (const std::uint8_t byte : Backward(device, s, dtype, in, saved).dqkv.download_bytes()) all.push_back(byte);
  return all;
}

TEST(AttentionCpu, SameBitsForAnyNumberOfThreads) {
  for (const DType dtype : kFloatingTypes)
    for (const AttentionShape& s : {shape_of(1, 197, 1, 64), shape_of(1, 300, 3, 20), shape_of(9, 50, 4, 8)}) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      KernelDevice one(Device::cpu(), 1);
      const std::vector<std::uint8_t> expected = all_bytes(one, s, dtype, in);
      for (int threads = 2; threads <= 8; ++threads) {
        KernelDevice device(Device::cpu(), threads);
        EXPECT_EQ(all_bytes(device, s, dtype, in), expected) << threads << " threads";
      }
    }
}

TEST_P(AttentionTest, ASampleHasTheSameBitsInABatchOfAnySize) {
  for (const DType dtype : kFloatingTypes)
    for (const AttentionShape& s : {shape_of(8, 50, 2, 36), shape_of(8, 197, 1, 64), shape_of(8, 290, 1, 64)}) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs all(s, dtype);
      const Forward forward(device(), s, dtype, all.qkv);
      const Saved saved{as_double(forward.o.download()), as_double(forward.lse.download())};
      const std::vector<float> o = forward.o.download(), lse = forward.lse.download(),
                               dqkv = Backward(device(), s, dtype, all, saved).dqkv.download();
      AttentionShape single = s;
      single.batch = 1;
      for (std::int64_t sample = 0; sample < s.batch; ++sample) {
        const auto share = [&](const auto& values) {
          const auto count = std::ssize(values) / s.batch;
          return std::decay_t<decltype(values)>(values.begin() + sample * count, values.begin() + (sample + 1) * count);
        };
        Inputs one = all;
        one.qkv = share(all.qkv);
        one.dout = share(all.dout);
        const Forward alone(device(), single, dtype, one.qkv);
        ASSERT_EQ(bits_of(alone.o.download()), bits_of(share(o)));
        ASSERT_EQ(bits_of(alone.lse.download()), bits_of(share(lse)));
        const Saved kept{share(saved.o), share(saved.lse)};
        ASSERT_EQ(bits_of(Backward(device(), single, dtype, one, kept).dqkv.download()), bits_of(share(dqkv)));
      }
    }
}

TEST_P(AttentionTest, EmptyBatchesAndNoTokensDoNothing) {
  for (const AttentionShape& s : {shape_of(0, 5, 2, 8), shape_of(3, 0, 2, 8)}) {
    const Inputs in(s, DType::float32);
    const Forward forward(device(), s, DType::float32, in.qkv);
    const Backward backward(device(), s, DType::float32, in, {});
    EXPECT_TRUE(forward.o.download().empty() && backward.dqkv.download().empty());
  }
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Attention, ShapesThatKernelsDoNotHaveAreRefused) {
  for (const std::int64_t size : {0, 4, 7, 10, 132, 256})
    EXPECT_EQ(message_of([&] { check_attention_shape(shape_of(2, 3, 4, size)); }),
              "attention: a head has " + std::to_string(size) + " channels; expected a multiple of 4 from 8 to 128");
  EXPECT_EQ(message_of([] {
              check_attention_shape({-1, 3, 4, 8});
            }),
            "attention: a batch of -1, 3 tokens and 4 heads; none is negative");
  EXPECT_THROW(check_attention_shape({1, -3, 4, 8}), ShapeError);
  EXPECT_THROW(check_attention_shape({1, 3, -4, 8}), ShapeError);
  EXPECT_THROW((void)attention_workspace_bytes({1, 3, 4, 9}, DType::float32, DeviceKind::cpu), ShapeError);
  for (std::int64_t size = 8; size <= 128; size += 4) check_attention_shape(shape_of(1, 1, 1, size));
}

TEST_P(AttentionTest, ShortWorkspacesAreRefused) {
  const AttentionShape s = shape_of(2, 300, 2, 8);
  const std::size_t needed = attention_backward_workspace_bytes(s, DType::float16, device().exec().device.kind);
  ASSERT_GT(needed, 0u);
  EXPECT_EQ(message_of([&] {
              BANTAM_KERNEL(device().exec(), attention_backward, s, DType::float16, {}, nullptr, nullptr,
                            {nullptr, needed - 1});
            }),
            "attention_backward: the workspace has " + std::to_string(needed - 1) + " bytes; " +
                std::to_string(needed) + " are needed");
}

// float32 sums of a head's dq, of up to 32 heads at a time.
TEST(AttentionCpu, WorkspaceIsAFunctionOfShapeAndType) {
  const AttentionShape head = shape_of(2, 256, 3, 64), more = shape_of(2, 257, 3, 64), heads = shape_of(9, 300, 4, 8);
  const auto bytes = [](const AttentionShape& s, DType dtype) {
    EXPECT_EQ(attention_workspace_bytes(s, dtype, DeviceKind::cpu), 0u);
    return attention_backward_workspace_bytes(s, dtype, DeviceKind::cpu);
  };
  for (const DType dtype : kFloatingTypes) EXPECT_EQ(bytes(head, dtype), 0u);
  EXPECT_EQ(bytes(more, DType::float32), 0u);
  EXPECT_EQ(bytes(more, DType::float16), 2u * 3 * 257 * 64 * 4);
  EXPECT_EQ(bytes(heads, DType::bfloat16), 32u * 300 * 8 * 4);
}

TEST(AttentionWork, IsOfAShapeComputedByHand) {
  // 2 samples, 10 tokens, 3 heads of 8: a tensor of 480 elements; a product 2·2·3·10·10·8 = 9,600 operations.
  const AttentionShape s = shape_of(2, 10, 3, 8), longer = shape_of(1, 300, 1, 8);
  expect_work(
      {{"attention_forward",
        [&](const Exec& exec) { work::attention_forward(exec, s, kHalf, kSome, kSome, kFloats, {}); },
        4 * 480 * 2 + 60 * 4, 2 * 9600, KernelKind::attention},
       {"attention_forward",
        [&](const Exec& exec) { work::attention_forward(exec, s, kFloat, kSome, kSome, nullptr, {}); }, 4 * 480 * 4,
        2 * 9600, KernelKind::attention},
       {"attention_backward", [&](const Exec& exec) { work::attention_backward(exec, s, kHalf, {}, kSome, kSome, {}); },
        8 * 480 * 2 + 60 * 4, 5 * 9600, KernelKind::attention},
       {"attention_backward",
        [&](const Exec& exec) { work::attention_backward(exec, longer, kFloat, {}, kSome, kSome, {}); },
        8 * 2400 * 4 + 300 * 4, 5 * 2 * 300 * 300 * 8, KernelKind::attention, 2}});
  EXPECT_EQ(attention_flops(s), 2 * 9600);
}

}  // namespace
}  // namespace bantam::kernels::attention_test
