// Ops of inference: operands that do not fit are refused by name, and nothing is recorded.
#include "bantam/base/error.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::inference_op_test {
namespace {

using testing::random_tensor;

class InferenceOpTest : public testing::EngineTest {
 protected:
  /// The op on x (2, 5, 5, 4), with a weight of 6 filters, or of 4 depthwise ones.
  Tensor convolve(const Context& ctx, const Tensor& w, const ops::InferenceEpilogue& epilogue) {
    return ops::conv2d_inference(ctx, random_tensor(ctx, {2, 5, 5, 4}, 1), w, {.kernel = {3, 3}}, 1, epilogue);
  }
  Tensor filter(const Context& ctx, const ops::InferenceEpilogue& epilogue) {
    return ops::depthwise_conv2d_inference(ctx, random_tensor(ctx, {2, 5, 5, 4}, 1), random_tensor(ctx, {3, 3, 4}, 2),
                                           {.kernel = {3, 3}}, epilogue);
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(InferenceOpTest);

TEST_P(InferenceOpTest, OperandsThatDoNotFitAreRefused) {
  const Context ctx = context(), half = context({PrecisionKind::mixed_float16});
  const Tensor w = random_tensor(ctx, {6, 3, 3, 4}, 2);
  EXPECT_EQ(convolve(ctx, w, {}).shape(), (Shape{2, 3, 3, 6}));
  EXPECT_THROW((void)convolve(ctx, random_tensor(ctx, {6, 3, 3, 5}, 2), {}), ShapeError);
  EXPECT_THROW((void)convolve(ctx, random_tensor(half, {6, 3, 3, 4}, 2), {}), DTypeError);
  EXPECT_THROW((void)convolve(ctx, w, {.bias = random_tensor(ctx, {5}, 3)}), ShapeError);
  EXPECT_THROW((void)convolve(ctx, w, {.bias = random_tensor(half, {6}, 3)}), DTypeError);
  EXPECT_THROW((void)convolve(ctx, w, {.residual = random_tensor(ctx, {2, 3, 3, 4}, 3)}), ShapeError);
  EXPECT_THROW((void)convolve(ctx, w, {.residual = random_tensor(half, {2, 3, 3, 6}, 3)}), DTypeError);
  EXPECT_EQ(filter(ctx, {}).shape(), (Shape{2, 3, 3, 4}));
  EXPECT_THROW((void)filter(ctx, {.bias = random_tensor(ctx, {3}, 3)}), ShapeError);
  EXPECT_THROW((void)filter(ctx, {.bias = random_tensor(half, {4}, 3)}), DTypeError);
}

TEST_P(InferenceOpTest, AnOperandThatWantsAGradientIsRefusedAndNothingIsRecorded) {
  Tape tape;
  Context ctx = context();
  Tensor w = random_tensor(ctx, {6, 3, 3, 4}, 2), bias = random_tensor(ctx, {4}, 3);
  ctx.tape = &tape;
  (void)convolve(ctx, w, {});
  (void)filter(ctx, {.bias = bias});
  EXPECT_TRUE(tape.empty());
  w.set_value_id(runtime().new_value_id());
  bias.set_value_id(runtime().new_value_id());
  EXPECT_THROW((void)convolve(ctx, w, {}), Error);
  EXPECT_THROW((void)filter(ctx, {.bias = bias}), Error);
}

}  // namespace
}  // namespace bantam::inference_op_test
