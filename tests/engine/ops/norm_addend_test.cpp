// Backward of norms of a sample adds the gradient that their input has from others: against the sum of both.
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::norm_addend_test {
namespace {

using testing::EngineTest;

class NormAddendTest : public EngineTest {
 protected:
  /// The gradient of x where y = norm(x), plus x where `residual`.
  std::vector<float> gradient(bool layer, bool residual, Precision precision) {
    Context ctx = context(precision);
    Tape tape;
    ctx.tape = &tape;
    testing::LeafTensors leaf(runtime());
    Tensor x = leaf(testing::random_tensor(ctx, {5, 4, 3, 24}, 1, -2.0f, 3.0f));
    const Tensor scale = leaf(ctx.upload({24}, testing::random_floats(24, 2, 0.5f, 2.0f).data()));
    Tensor y = layer ? ops::layer_norm(ctx, x, scale, {}, 1e-3f) : ops::group_norm(ctx, x, scale, {}, {.groups = 3});
    if (residual) y = ops::add(ctx, std::move(y), x);
    x = Tensor();
    const Tensor seed = testing::random_tensor(ctx, y.shape(), 4);
    GradientStore store = tape.backward(ctx, std::move(y), seed);
    return to_host_floats(store.pop(leaf.ids()[0]), ctx.stream);
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(NormAddendTest);

TEST_P(NormAddendTest, IsTheSumOfBothGradients) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16})
    for (const bool layer : {true, false}) {
      const Precision precision{kind};
      const std::vector<float> both = gradient(layer, true, precision);
      std::vector<float> sum = gradient(layer, false, precision);
      const Context ctx = context(precision);
      const std::vector<float> dy = to_host_floats(testing::random_tensor(ctx, {5, 4, 3, 24}, 4), ctx.stream);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += dy[i];
      // The norm's gradient was rounded before the sum here, and the sum only there.
      const double rounding = precision.compute() == DType::float16    ? 0x1p-11
                              : precision.compute() == DType::bfloat16 ? 0x1p-8
                                                                       : 0x1p-24;
      EXPECT_LT(testing::relative_difference(both, sum), 2 * rounding) << to_string(precision);
      EXPECT_EQ(gradient(layer, true, precision), both) << "the same bits";
    }
}

}  // namespace
}  // namespace bantam::norm_addend_test
