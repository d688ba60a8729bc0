// Dense layers and 1x1 convolutions with what is added to them in one GEMM: against the ops apart, which layers become
// that, passes over memory of a transformer's MLP, training with fusion and without, recompute and plans.
#include <algorithm>
#include <string>

#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/plan/step_ledger.h"
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::dense_add_op_test {
namespace {

using testing::EngineTest;

const Precision kHalf{PrecisionKind::mixed_float16};
constexpr std::int64_t kIn = 24, kOut = 40;

/// The values that are added to a product.
struct Addends {
  bool bias = true, residual = true;
};

class DenseAddOpTest : public EngineTest {
 protected:
  /// Output and gradients of x, w, bias and residual; `convolves`: as a 1x1 convolution of images.
  std::vector<std::vector<float>> results(bool fused, bool convolves, Addends adds, Precision precision) {
    Context ctx = context(precision);
    Tape tape;
    ctx.tape = &tape;
    testing::LeafTensors leaf(runtime());
    const Shape rows{3, 7, 5};
    const auto weight = convolves ? Shape{kOut, 1, 1, kIn} : Shape{kOut, kIn};
    const Tensor x = leaf(testing::random_tensor(ctx, {3, 7, 5, kIn}, 1)),
                 w = leaf(testing::random_tensor(ctx, weight, 2, -0.3f, 0.3f)),
                 b = leaf(testing::random_tensor(ctx, {kOut}, 3)),
                 r = leaf(testing::random_tensor(ctx, {3, 7, 5, kOut}, 4));
    const auto product = [&](const Tensor& bias, const Tensor& residual) {
      return convolves ? ops::conv2d(ctx, x, w, {}, 1, bias, residual) : ops::dense(ctx, x, w, bias, residual);
    };
    Tensor y;
    if (fused) {
      y = product(adds.bias ? b : Tensor(), adds.residual ? r : Tensor());
    } else {
      y = product({}, {});
      if (adds.bias) y = ops::bias_add(ctx, std::move(y), b);
      if (adds.residual) y = ops::add(ctx, std::move(y), r);
    }
    std::vector<std::vector<float>> all{to_host_floats(y, ctx.stream)};
    const Tensor seed = testing::random_tensor(ctx, y.shape(), 5);
    GradientStore store = tape.backward(ctx, std::move(y), seed);
    for (const std::uint64_t id : leaf.ids()) {
      const Tensor gradient = store.pop(id);
      all.push_back(gradient.defined() ? to_host_floats(gradient, ctx.stream) : std::vector<float>());
    }
    return all;
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(DenseAddOpTest);

TEST_P(DenseAddOpTest, ByHand) {
  const Context ctx = context();
  const auto tensor = [&](const Shape& shape, std::vector<float> values) { return ctx.upload(shape, values.data()); };
  const Tensor x = tensor({1, 2, 2}, {1, 2, 3, 4}), w = tensor({3, 2}, {1, 0, 0, 1, 1, 1});
  const Tensor b = tensor({3}, {10, 20, 30}), r = tensor({1, 2, 3}, {100, 200, 300, 400, 500, 600});
  EXPECT_EQ(to_host<float>(ops::dense(ctx, x, w, b), ctx.stream), (std::vector<float>{11, 22, 33, 13, 24, 37}));
  EXPECT_EQ(to_host<float>(ops::dense(ctx, x, w, b, r), ctx.stream),
            (std::vector<float>{111, 222, 333, 413, 524, 637}));
  EXPECT_EQ(to_host<float>(ops::dense(ctx, x, w, {}, r), ctx.stream),
            (std::vector<float>{101, 202, 303, 403, 504, 607}));
}

/// Gradients do not depend on how the output was rounded: they have the bits of the ops apart.
TEST_P(DenseAddOpTest, ComputesWhatTheOpsApartCompute) {
  for (const Precision& precision : {Precision{}, kHalf})
    for (const bool convolves : {false, true})
      for (const Addends& adds : {Addends{true, false}, Addends{false, true}, Addends{true, true}}) {
        SCOPED_TRACE(std::string(to_string(precision)) + (convolves ? " conv2d" : " dense") +
                     (adds.bias ? " bias" : "") + (adds.residual ? " residual" : ""));
        const auto fused = results(true, convolves, adds, precision),
                   apart = results(false, convolves, adds, precision);
        ASSERT_EQ(fused.size(), 5u);
        EXPECT_EQ(fused[3].empty(), !adds.bias);
        EXPECT_EQ(fused[4].empty(), !adds.residual);
        // Three roundings of values of about 1 apart, one fused.
        EXPECT_LT(testing::relative_difference(fused[0], apart[0]),
                  precision.compute() == DType::float32 ? 1e-6 : 2e-3);
        for (std::size_t i = 1; i < fused.size(); ++i) EXPECT_EQ(fused[i], apart[i]) << "gradient " << i;
        EXPECT_EQ(results(true, convolves, adds, precision), fused) << "the same bits";
      }
}

/// Convolutions that are no GEMM add afterwards.
TEST_P(DenseAddOpTest, OtherConvolutionsAddInPassesOfTheirOwn) {
  const Context ctx = context();
  const Window2d same{.kernel = {3, 3}, .padding = Padding::same()};
  const Tensor x = testing::random_tensor(ctx, {2, 6, 5, 8}, 1), w = testing::random_tensor(ctx, {12, 3, 3, 8}, 2);
  const Tensor b = testing::random_tensor(ctx, {12}, 3), r = testing::random_tensor(ctx, {2, 6, 5, 12}, 4);
  const Tensor apart = ops::add(ctx, ops::bias_add(ctx, ops::conv2d(ctx, x, w, same), b), r);
  EXPECT_EQ(to_host<float>(ops::conv2d(ctx, x, w, same, 1, b, r), ctx.stream), to_host<float>(apart, ctx.stream));
}

TEST_P(DenseAddOpTest, RefusesAddendsThatDoNotFit) {
  const Context ctx = context();
  const Tensor x = testing::random_tensor(ctx, {2, 3, kIn}, 1), w = testing::random_tensor(ctx, {kOut, kIn}, 2);
  const auto other = [&](const Shape& shape) { return testing::random_tensor(ctx, shape, 3); };
  EXPECT_THROW((void)ops::dense(ctx, x, w, other({kIn})), ShapeError);
  EXPECT_THROW((void)ops::dense(ctx, x, w, other({3, kOut})), ShapeError) << "a bias of one axis";
  EXPECT_THROW((void)ops::dense(ctx, x, w, {}, other({2, 3, kIn})), ShapeError);
  EXPECT_THROW((void)ops::dense(ctx, x, w, {}, ops::cast(ctx, other({2, 3, kOut}), DType::float16)), DTypeError);
}

/// Two blocks of tokens as a vision transformer's MLP, without attention: norm, dense with GELU, dense, the sum; and a
/// 1x1 convolution's sum after them.
Graph mlp_network() {
  Graph graph({8, 8, 3});
  NodeId x = graph.add("stem", conv2d({.filters = 16, .kernel = {2, 2}, .stride = {2, 2}}));
  for (const std::string block : {"block1", "block2"}) {
    graph.add(block + "/norm", layer_norm(), {x});
    graph.add(block + "/expand", dense({.units = 64, .activation = {Activation::gelu}}));
    const NodeId y = graph.add(block + "/contract", dense({.units = 16}));
    x = graph.add(block + "/add", add(), {x, y});
  }
  graph.add("block3/norm", layer_norm(), {x});
  graph.add("block3/expand", conv2d({.filters = 32, .kernel = {1, 1}, .activation = {Activation::gelu}}));
  const NodeId y = graph.add("block3/contract", conv2d({.filters = 16, .kernel = {1, 1}, .bias = false}));
  graph.add("block3/add", add(), {y, x});
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 4}));
  return graph;
}

std::vector<std::string> found(const Graph& graph, const FusionTarget& target) {
  std::vector<std::string> names;
  for (const Fusion& fusion : find_fusions(graph, target))
    if (fusion.pattern->name == "dense_add") names.push_back(graph.node(fusion.first).name);
  return names;
}

TEST(DenseAddPattern, IsAProductAndASumOfTwoWithoutActivations) {
  const std::vector<std::string> all{"block1/contract", "block2/contract", "block3/contract"};
  EXPECT_EQ(found(mlp_network(), {.compute = DType::float16, .device = DeviceKind::cuda}), all);
  EXPECT_EQ(found(mlp_network(), {.device = DeviceKind::cpu}), all);
  EXPECT_TRUE(found(mlp_network(), {.inference = true}).empty());
  const auto residual = [](const std::vector<LayerPtr>& body, const LayerPtr& sum) {
    Graph graph({6, 6, 8});
    const NodeId x = graph.add("norm", layer_norm());
    for (const LayerPtr& layer : body) graph.add(layer);
    graph.add("sum", sum, {x, graph.output()});
    return found(graph, {}).size();
  };
  EXPECT_EQ(residual({dense({.units = 8})}, add()), 1u);
  EXPECT_EQ(residual({conv2d({.filters = 8, .kernel = {1, 1}})}, add()), 1u);
  EXPECT_EQ(residual({conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()})}, add()), 0u);
  EXPECT_EQ(residual({dense({.units = 8, .activation = {Activation::relu}})}, add()), 0u);
  EXPECT_EQ(residual({dense({.units = 8})}, add({Activation::relu})), 0u);
  EXPECT_EQ(residual({dense({.units = 8}), layer_scale()}, add()), 0u) << "layer_scale stands between";
  EXPECT_EQ(residual({dense({.units = 8}), drop_path({.rate = 0.1f})}, add()), 0u);
  Graph normed({6, 6, 8});
  const NodeId norm = normed.add("norm", batch_norm({}));
  const NodeId other = normed.add("dense", dense({.units = 8}), {0});
  normed.add("sum", add(), {norm, other});
  EXPECT_TRUE(found(normed, {}).empty()) << "the sum applies the batch norm";
  Graph shared({6, 6, 8});
  const NodeId product = shared.add("dense", dense({.units = 8}));
  shared.add("sum", add(), {product, 0});
  shared.add("again", add(), {shared.output(), product});
  EXPECT_TRUE(found(shared, {}).empty()) << "the product is read twice";
}

/// Calls of a kernel in a phase of a step on CUDA.
std::int64_t calls(const Graph& graph, bool fusion, std::string_view kernel, kernels::KernelPhase phase) {
  const StepPlanOptions options{.model = {.precision = kHalf, .fusion = fusion}, .batch = 8, .device = Device::cuda(0)};
  std::int64_t count = 0;
  for (const NodeCost& node : step_ledger(graph, options, {.bytes_per_s = 1e10, .flops_per_s = 1e11}).nodes)
    if (node.phase == phase) count += std::ranges::count(node.kernels, kernel);
  return count;
}

TEST(DenseAddPlan, HasNoPassForBiasesSumsAndTheirGradients) {
  using kernels::KernelPhase;
  const Graph graph = mlp_network();
  EXPECT_EQ(calls(graph, true, "bias_forward", KernelPhase::forward), 1) << "the stem is no GEMM";
  EXPECT_EQ(calls(graph, true, "add", KernelPhase::forward), 0);
  EXPECT_EQ(calls(graph, false, "add", KernelPhase::forward), 3);
  for (const bool fusion : {true, false})
    EXPECT_EQ(calls(graph, fusion, "add", KernelPhase::backward), 0) << "norms add the residual's gradient";
}

/// Weights after a few updates, and what the allocator measured.
struct Outcome {
  std::vector<float> weights;
  MemoryStats memory;
};
Outcome trained(Device device, ModelOptions options, int updates = 3) {
  Runtime fresh({.threads = 2});
  options.seed = 5;
  Model model(fresh, device, mlp_network(), options);
  Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.05f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {8}});
  for (int i = 0; i < updates; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, 8 * i, 8));
  return {to_host<float>(model.parameters().master(), fresh.stream(device)), fresh.allocator(device).stats()};
}

TEST_P(DenseAddOpTest, RecomputeChangesNoBitAndPlansAreTheTruth) {
  using Kind = RecomputeOptions::Kind;
  for (const Precision& precision : {Precision{}, kHalf}) {
    const std::vector<float> plain = trained(device(), {.precision = precision}).weights;
    for (const RecomputeOptions& recompute :
         {RecomputeOptions{}, RecomputeOptions{.derive = Derive::cheap}, RecomputeOptions{.derive = Derive::inner},
          RecomputeOptions{.kind = Kind::all}, RecomputeOptions{.kind = Kind::named, .names = {"block1"}},
          RecomputeOptions{.kind = Kind::named, .names = {"block2/norm"}, .derive = Derive::inner},
          RecomputeOptions{.kind = Kind::named, .names = {"block1/norm..block1/expand", "block3"}},
          RecomputeOptions{.kind = Kind::named, .names = {"block1/norm..block1/contract", "block2..block3"}}}) {
      const ModelOptions options{.precision = precision, .recompute = recompute};
      const Outcome outcome = trained(device(), options);
      EXPECT_EQ(outcome.weights, plain) << to_string(precision);
      EXPECT_EQ(outcome.memory.departures, 0u);
      if (precision.compute() != DType::float32) continue;  // the test's own batches are cast on the device
      ModelOptions planned = options;
      planned.seed = 5;
      const StepPlanOptions step{
          .model = planned, .optimizer = {.rule = sgd({.learning_rate = 0.05f})}, .batch = 8, .device = device()};
      EXPECT_EQ(outcome.memory.peak_bytes, plan_step(mlp_network(), step).peak_bytes);
    }
  }
}

/// How far weights moved, beside float32: errors of a few updates in float16, which are chance within a factor.
TEST_P(DenseAddOpTest, TrainsAsTheLayersApart) {
  const auto begin = trained(device(), {.precision = kHalf}, 0).weights;
  auto fused = trained(device(), {.precision = kHalf}).weights,
       apart = trained(device(), {.precision = kHalf, .fusion = false}).weights,
       exact = trained(device(), {.fusion = false}).weights;
  for (auto* end : {&fused, &apart, &exact})
    for (std::size_t k = 0; k < end->size(); ++k) (*end)[k] -= begin[k];
  EXPECT_LT(testing::relative_difference(fused, exact), std::max(3 * testing::relative_difference(apart, exact), 1e-3));
  EXPECT_LT(testing::relative_difference(trained(device(), {}).weights, trained(device(), {.fusion = false}).weights),
            1e-6);
}

}  // namespace
}  // namespace bantam::dense_add_op_test
