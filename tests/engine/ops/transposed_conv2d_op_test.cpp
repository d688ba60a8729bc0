// Transposed convolution: a hand value, PyTorch's values for odd windows, the reference in double in every type, sizes
// by PyTorch's formula and Keras' "same", and what is refused.
#include "bantam/base/error.h"
#include "bantam/engine/ops/transposed_conv2d.h"
#include "bantam/kernels/conv/conv2d_reference.h"
#include "tests/engine/finite_differences.h"
#include "tests/kernels/image/image_values.h"

namespace bantam::transposed_conv2d_op_test {
namespace {

using testing::EngineTest;
using testing::oracle::ImageCase;

class TransposedConv2dOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(TransposedConv2dOpTest);

struct Case {
  Shape x, w;
  Window2d window;
  Extent2d output_padding{0, 0};
  std::int64_t groups = 1;
};

struct Values {
  Shape shape;
  std::vector<float> y, dx, dw;
};

/// The result and the gradients; `seed` is dy as a function of y's elements.
Values run(const Context& base, const Case& c, const std::vector<float>& x_values, const std::vector<float>& w_values,
           const std::function<std::vector<float>(std::int64_t)>& seed) {
  Tape tape;
  Context context = base;
  context.tape = &tape;
  const DType dtype = base.precision.compute();
  const auto leaf = [&](const Shape& shape, const std::vector<float>& values) {
    Tensor tensor = ops::cast(base, base.upload(shape, values.data()), dtype);
    tensor.set_value_id(base.runtime->new_value_id());
    return tensor;
  };
  const Tensor x = leaf(c.x, x_values), w = leaf(c.w, w_values);
  Tensor y = ops::transposed_conv2d(context, x, w, c.window, c.output_padding, c.groups);
  Values values{.shape = y.shape(), .y = to_host_floats(y, base.stream)};
  const Tensor dy = ops::cast(base, base.upload(y.shape(), seed(y.shape().elements()).data()), dtype);
  GradientStore store = tape.backward(context, std::move(y), dy);
  values.dx = to_host_floats(store.pop(x.value_id()), base.stream);
  values.dw = to_host_floats(store.pop(w.value_id()), base.stream);
  return values;
}

TEST_P(TransposedConv2dOpTest, HandComputed) {
  // Each pixel of 1x2 spreads over 2x2 of its own: 3·{1 2 3 4} beside 5·{1 2 3 4}.
  const Case c{{1, 1, 2, 1}, {1, 2, 2, 1}, {.stride = {2, 2}}};
  const Values values =
      run(context(), c, {3, 5}, {1, 2, 3, 4}, [](std::int64_t) { return std::vector<float>{1, 0, 0, 1, 2, 0, 0, 10}; });
  EXPECT_EQ(values.shape, (Shape{1, 2, 4, 1}));
  EXPECT_EQ(values.y, (std::vector<float>{3, 6, 5, 10, 9, 12, 15, 20}));
  EXPECT_EQ(values.dx, (std::vector<float>{1 + 6, 2 + 40}));
  EXPECT_EQ(values.dw, (std::vector<float>{3, 5, 6, 50}));
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "element " << i;
}

TEST_P(TransposedConv2dOpTest, HasPyTorchsValues) {
  using namespace testing::oracle;  // NOLINT: its cases
  const std::pair<Case, const ImageCase*> cases[] = {
      {{{1, 2, 3, 2}, {2, 2, 2, 1}, {.stride = {2, 2}}}, &kTransposedUnet},
      {{{2, 3, 2, 2}, {2, 3, 2, 3}, {.stride = {2, 1}, .padding = {PaddingKind::explicit_, 1, 1, 0, 0}}},
       &kTransposedOverlap},
      {{{1, 2, 3, 2}, {2, 3, 3, 2}, {.stride = {2, 3}, .padding = Padding::symmetric(1)}, {1, 2}},
       &kTransposedOutputPadding},
      {{{1, 2, 2, 4}, {4, 2, 3, 1}, {.dilation = {2, 2}, .padding = {PaddingKind::explicit_, 0, 0, 1, 1}}, {0, 0}, 2},
       &kTransposedGroups},
      {{{1, 2, 2, 1}, {1, 2, 2, 2}, {.dilation = {3, 4}, .padding = {PaddingKind::explicit_, 1, 1, 0, 0}}, {2, 3}},
       &kTransposedDilatedEnd}};
  for (const auto& [c, oracle] : cases) {
    SCOPED_TRACE(to_string(c.w));
    const Values values =
        run(context(), c, testing::oracle_x(c.x.elements()), testing::wave(std::sin, 1.1, 0.2, c.w.elements()),
            [](std::int64_t count) { return testing::oracle_dy(count); });
    EXPECT_EQ(values.shape, Shape(oracle->shape));
    // Sums of at most 45 products of numbers up to 1 whose operands are rounded to float32 (indices up to 90 radians).
    expect_near(values.y, oracle->y, 1e-4);
    expect_near(values.dx, oracle->dx, 1e-4);
    expect_near(values.dw, oracle->dw, 1e-4);
  }
}

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// Values that every type holds: multiples of 1/8 up to 1.
std::vector<float> eighths(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values = testing::random_floats(count, seed);
  for (float& v : values) v = std::round(v * 8) / 8;
  return values;
}

TEST_P(TransposedConv2dOpTest, IsTheReferencesInputGradientInEveryType) {
  const Window2d pointwise{}, unet{.stride = {2, 2}}, same{.stride = {2, 3}, .padding = Padding::same()};
  const std::vector<Case> cases{{{3, 4, 5, 16}, {16, 1, 1, 8}, pointwise},
                                {{2, 5, 3, 32}, {32, 2, 2, 16}, unet},
                                {{2, 5, 3, 7}, {7, 2, 2, 3}, unet},
                                {{2, 4, 4, 8}, {8, 4, 3, 2}, same, {0, 0}, 4},
                                {{1, 3, 4, 3}, {3, 1, 1, 2}, same}};  // positions that nothing reaches are 0
  for (const PrecisionKind kind :
       {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::Message() << to_string(Precision{kind}) << " " << to_string(c.w));
      const std::vector<float> x = eighths(c.x.elements(), 1), w = eighths(c.w.elements(), 2);
      std::vector<float> dy;
      const Values values = run(context({kind}), c, x, w, [&](std::int64_t n) { return dy = eighths(n, 3); });
      Window2d window = c.window;
      window.kernel = {c.w[1], c.w[2]};
      const kernels::Conv2dShape shape =
          ops::transposed_conv2d_shape(c.x, c.w[3] * c.groups, {window, c.output_padding}, c.groups);
      std::vector<double> y(values.y.size()), dx(x.size()), dw(w.size());
      kernels::reference::conv2d_grad_input(shape, doubles(x).data(), doubles(w).data(), y.data());
      kernels::reference::conv2d_forward(shape, doubles(dy).data(), doubles(w).data(), dx.data());
      kernels::reference::conv2d_grad_weight(shape, doubles(dy).data(), doubles(x).data(), dw.data(), false);
      // Products and their sums are exact in float32 (multiples of 1/64 up to 128); results are rounded by at most 2^-8
      // (bfloat16) of their value.
      const double tolerance = kind == PrecisionKind::float32 ? 1e-6 : 1.0 / 256;
      expect_near(values.y, y, tolerance);
      expect_near(values.dx, dx, tolerance);
      expect_near(values.dw, dw, tolerance);
    }
  }
}

TEST(TransposedConv2dSizes, ArePyTorchsOrKeras) {
  const auto size = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, Padding padding,
                       std::int64_t output_padding = 0, std::int64_t dilation = 1) {
    const Window2d window{{kernel, 1}, {stride, 1}, {dilation, 1}, padding};
    return ops::transposed_output({window, {output_padding, 0}}, in, 1).h;
  };
  EXPECT_EQ(size(5, 2, 2, Padding::valid()), 10);
  EXPECT_EQ(size(5, 3, 2, {PaddingKind::explicit_, 1, 1, 0, 0}), 9);
  EXPECT_EQ(size(5, 3, 2, {PaddingKind::explicit_, 1, 1, 0, 0}, 1), 10);
  EXPECT_EQ(size(5, 3, 1, Padding::valid(), 0, 4), 13);
  for (const std::int64_t kernel : {1, 2, 3, 5}) EXPECT_EQ(size(5, kernel, 2, Padding::same()), 10);
}

TEST_P(TransposedConv2dOpTest, RefusesWhatDoesNotFit) {
  const Context ctx = context();
  const auto message = [&](const Case& c) -> std::string {
    try {
      (void)run(ctx, c, std::vector<float>(static_cast<std::size_t>(c.x.elements())),
                std::vector<float>(static_cast<std::size_t>(c.w.elements())),
                [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); });
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({{1, 2, 2, 3}, {4, 2, 2, 1}, {}}),
            "transposed_conv2d: x (1, 2, 2, 3) and weight (4, 2, 2, 1) do not fit: expected 3 input channels, the "
            "weight has 4");
  EXPECT_EQ(message({{1, 2, 2, 3}, {3, 2, 2, 1}, {}, {0, 0}, 2}),
            "transposed_conv2d: 3 input channels do not divide into 2 groups");
  EXPECT_EQ(message({{1, 2, 2, 3}, {3, 2, 2, 1}, {.stride = {2, 2}}, {0, 2}}),
            "transposed_conv2d: the output padding 0x2 must be smaller than the stride 2x2 or the dilation 1x1");
  EXPECT_EQ(message({{1, 2, 2, 3}, {3, 2, 2, 1}, {.stride = {2, 2}, .padding = Padding::same()}, {1, 0}}),
            "transposed_conv2d: the output padding 1x0 has no place where padding is same: the output is the input "
            "times the stride");
  EXPECT_EQ(message({{1, 1, 1, 3}, {3, 2, 2, 1}, {.padding = Padding::symmetric(1)}}),
            "transposed_conv2d: an input of 1x1 with padding 1+1, 1+1 makes an output of 0x0");
}

}  // namespace
}  // namespace bantam::transposed_conv2d_op_test
