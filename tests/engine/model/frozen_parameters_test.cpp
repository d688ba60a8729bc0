// Ops that stand in for several layers, with frozen parameters: the other gradients keep their bits, and the frozen
// one's place in the arena is not touched.
#include <functional>

#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/ops/conv2d.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::frozen_parameters_test {
namespace {

using testing::EngineTest;

/// An op of x and parameters; `seed` is the gradient of its result, where that is a scalar.
struct FusedOp {
  std::string name;
  Shape x;
  std::vector<ParameterSpec> parameters;
  std::function<Tensor(const Context&, const Tensor& x, const std::vector<Tensor>& parameters, const Tensor& seed)> run;
  bool half_only = false;
};

ParameterSpec spec(std::string name, Shape shape, bool keep_float32 = false) {
  return {.name = std::move(name),
          .shape = std::move(shape),
          .initializer = glorot_uniform({12, 12}),
          .keep_float32 = keep_float32};
}

FusedOp separable_block(std::int64_t pool) {
  return {.name = "separable_block, pooling " + std::to_string(pool),
          .x = {3, 8, 8, 16},
          .parameters = {spec("depthwise", {3, 3, 16}), spec("pointwise", {24, 1, 1, 16}), spec("bias", {24})},
          .run = [pool](const Context& context, const Tensor& x, const std::vector<Tensor>& p, const Tensor&) {
            const kernels::SeparableBlockShape shape{.pool = pool, .bias = true, .relu = true};
            return ops::separable_block(context, x, {p[0], p[1], p[2]}, shape);
          }};
}

/// A norm with relu; without scale or shift where they are not defined.
Norm relu_norm(const Context& context, std::int64_t channels, Tensor scale, Tensor shift) {
  const std::vector<float> ones(static_cast<std::size_t>(channels), 1.0f);
  return {.scale = std::move(scale),
          .shift = std::move(shift),
          .next_running_mean = context.upload({channels}, ones.data()),
          .next_running_variance = context.upload({channels}, ones.data()),
          .activation = {Activation::relu}};
}

FusedOp norm_depthwise() {
  const Shape channels{8};
  return {.name = "norm_depthwise",
          .x = {2, 9, 7, 8},
          .parameters = {spec("scale", channels, true), spec("shift", channels, true), spec("weight", {3, 3, 8}),
                         spec("scale2", channels, true), spec("shift2", channels, true)},
          .run = [](const Context& context, const Tensor& x, const std::vector<Tensor>& p, const Tensor&) {
            return ops::norm_depthwise(context, x, relu_norm(context, 8, p[0], p[1]), p[2],
                                       {.padding = Padding::symmetric(1)}, relu_norm(context, 8, p[3], p[4]));
          }};
}

/// A pointwise convolution after such a pair, whose second norm it applies; where `norm_after`, a pair that defers its
/// first norm's gradient to it.
FusedOp pointwise_norm(std::int64_t filters, bool norm_after) {
  const Shape channels{8};
  std::vector<ParameterSpec> parameters{spec("depthwise", {3, 3, 8}), spec("scale", channels, true),
                                        spec("shift", channels, true), spec("pointwise", {filters, 1, 1, 8})};
  if (norm_after) parameters.push_back(spec("scale norm_after", {filters}, true));
  return {.name = "pointwise_norm, " + std::to_string(filters) + (norm_after ? " filters before a norm" : " filters"),
          .x = {2, 9, 7, 8},
          .parameters = std::move(parameters),
          .run =
              [=](const Context& context, const Tensor& x, const std::vector<Tensor>& p, const Tensor&) {
                const Window2d window{.padding = Padding::symmetric(1)};
                const NodePlan defers{.defers_norm = true};
                const Tensor deferred =
                    ops::norm_depthwise(testing::under(context, defers), x, relu_norm(context, 8, {}, {}), p[0], window,
                                        relu_norm(context, 8, p[1], p[2]));
                EXPECT_NE(deferred_norm_of(deferred), nullptr);
                if (!norm_after) return ops::conv2d(context, deferred, p[3]);
                const Norm read = relu_norm(context, filters, p[4], {});
                const testing::FixedNorm after(read);
                const NodePlan computes{.norm_after = &after};
                const Tensor weight = testing::random_tensor(context, {3, 3, filters}, 8);
                return ops::norm_depthwise(context, ops::conv2d(testing::under(context, computes), deferred, p[3]),
                                           read, weight, window, relu_norm(context, filters, {}, {}));
              },
          .half_only = true};
}

FusedOp classifier_head() {
  return {.name = "classifier_head",
          .x = {12, 24},
          .parameters = {spec("w1", {16, 24}), spec("b1", {16}), spec("w2", {5, 16}), spec("b2", {5})},
          .run = [](const Context& context, const Tensor& x, const std::vector<Tensor>& p, const Tensor& seed) {
            std::vector<std::int32_t> labels;
            for (std::int32_t i = 0; i < 12; ++i) labels.push_back(i * 3 % 5);
            return ops::classifier_head(context, x, {p[0], p[1], p[2], p[3]}, context.upload({12}, labels.data()),
                                        {{.label_smoothing = 0.1f}, seed});
          }};
}

constexpr float kUntouched = 7.0f;

/// Gradients of the parameters, then of x, as the arena and the tape have them after backward; places that were not
/// written hold kUntouched. Nothing where nothing was recorded.
std::vector<std::vector<float>> gradients(const Context& plain, const FusedOp& op, const std::vector<bool>& frozen,
                                          bool wants_x) {
  ParameterArena arena;
  std::vector<Parameter*> parameters;
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    ParameterSpec declared = op.parameters[i];
    declared.frozen = frozen[i];
    parameters.push_back(&arena.declare(std::move(declared)));
  }
  arena.materialize(plain, 3);
  const std::vector<float> untouched(static_cast<std::size_t>(arena.slot_elements()), kUntouched);
  copy_bytes(arena.gradient().data(), untouched.data(), arena.gradient().bytes(), plain.stream);
  arena.begin_accumulation();
  Tape tape;
  Context context = plain;
  context.tape = &tape;
  Tensor x = testing::random_tensor(plain, op.x, 1);
  if (wants_x) x.set_value_id(plain.runtime->new_value_id());
  const std::uint64_t id = x.value_id();
  std::vector<Tensor> values;
  for (Parameter* parameter : parameters) values.push_back(parameter->value());
  const float one = 1.0f;
  Tensor seed = plain.upload({}, &one);
  Tensor y = op.run(context, x, values, seed);
  if (tape.empty()) return {};
  if (y.shape().rank() > 0) seed = testing::random_tensor(plain, y.shape(), 2);
  GradientStore store = tape.backward(context, std::move(y), seed);
  std::vector<std::vector<float>> all;
  for (const Parameter* parameter : parameters) {
    EXPECT_EQ(parameter->gradient().defined(), !parameter->frozen());
    all.emplace_back(static_cast<std::size_t>(parameter->shape().elements()), kUntouched);  // a frozen one has no place
    if (!parameter->frozen()) all.back() = to_host<float>(parameter->gradient(), plain.stream);
  }
  if (wants_x) all.push_back(to_host_floats(store.pop(id), plain.stream));
  return all;
}

class FrozenParametersTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(FrozenParametersTest);

TEST_P(FrozenParametersTest, AFrozenParameterIsLeftAloneAndTheOthersKeepTheirBits) {
  for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16})
    for (const FusedOp& op : {separable_block(1), separable_block(2), norm_depthwise(), classifier_head(),
                              pointwise_norm(24, false), pointwise_norm(24, true), pointwise_norm(136, false)}) {
      if (op.half_only && precision == PrecisionKind::float32) continue;
      const Context ctx = context({precision});
      const std::size_t count = op.parameters.size();
      const auto all = gradients(ctx, op, std::vector<bool>(count, false), true);
      ASSERT_EQ(all.size(), count + 1);
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_NE(all[i], std::vector<float>(all[i].size(), kUntouched)) << op.name << ": " << op.parameters[i].name;
      for (unsigned mask = 1; mask < 1u << count; ++mask)
        for (const bool wants_x : {true, false}) {
          std::vector<bool> frozen;
          for (std::size_t i = 0; i < count; ++i) frozen.push_back((mask >> i & 1) != 0);
          const auto some = gradients(ctx, op, frozen, wants_x);
          if (mask + 1 == 1u << count && !wants_x) {
            EXPECT_TRUE(some.empty()) << op.name << ": nothing to record";
            continue;
          }
          ASSERT_EQ(some.size(), wants_x ? count + 1 : count);
          for (std::size_t i = 0; i < some.size(); ++i) {
            const bool left_alone = i < count && frozen[i];
            EXPECT_EQ(some[i], left_alone ? std::vector<float>(some[i].size(), kUntouched) : all[i])
                << op.name << ", frozen " << mask << ", " << (i < count ? op.parameters[i].name : "x");
          }
        }
    }
}

}  // namespace
}  // namespace bantam::frozen_parameters_test
