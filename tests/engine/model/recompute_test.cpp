// Recompute: the same bits under every policy, and what each keeps in memory, to the byte.
#include "tests/engine/engine_fixture.h"

namespace bantam::recompute_test {
namespace {

using testing::EngineTest;

class RecomputeTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(RecomputeTest);

RecomputeOptions again(std::vector<std::string> names, Derive derive = Derive::none, bool whole = false) {
  return {.kind = RecomputeOptions::Kind::named, .names = std::move(names), .derive = derive, .whole = whole};
}

const RecomputeOptions kNone{}, kInner{.derive = Derive::inner}, kCheap{.derive = Derive::cheap},
    kAll{.kind = RecomputeOptions::Kind::all};

/// Weights and running statistics after three updates of two micro-batches.
std::vector<std::vector<float>> trained(Device device, const Graph& graph, const ModelOptions& options, int threads) {
  Runtime fresh({.threads = threads});
  Model model(fresh, device, graph, options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  for (int i = 0; i < 6; ++i) {
    step.micro_batch(testing::make_batch(model.context(Pass::train), graph.input_shape(), 5, i * 6, 6), i % 2 * 6, 12);
    if (i % 2 == 1) step.update();
  }
  const Stream stream = fresh.stream(device);
  return {to_host<float>(model.parameters().master(), stream), to_host<float>(model.buffers().current(), stream)};
}

TEST_P(RecomputeTest, EveryRecomputePolicyComputesTheSameBits) {
  for (const PrecisionKind kind :
       {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16}) {
    const auto run = [&](const RecomputeOptions& recompute, int threads) {
      const ModelOptions options{.precision = {kind}, .seed = 3, .recompute = recompute};
      return trained(device(), testing::small_network(), options, threads);
    };
    const auto expected = run(kNone, 2);
    EXPECT_EQ(run(kCheap, 1), expected);
    for (const RecomputeOptions& recompute :
         {kInner, kCheap, kAll, again({"block", "separable"}), again({"block", "separable"}, Derive::cheap),
          again({"stem..block"}), again({"stem_norm..pool", "drop..head"}, Derive::cheap),
          again({"stem_norm..pool", "drop..head"}, Derive::cheap, true), again({"stem..head"}, Derive::inner)})
      EXPECT_EQ(run(recompute, 2), expected) << to_string(Precision{kind});
  }
}

/// Residual blocks in a row, each after the other's sum, with normalised shortcuts now and then, as in a ResNet; and
/// depthwise blocks as in a MobileNet.
Graph residual_network() {
  const ActivationOptions relu{Activation::relu};
  Graph graph({8, 8, 3});
  graph.add("stem", conv2d({.filters = 8, .padding = Padding::same(), .bias = false}));
  NodeId last = graph.add("stem_norm", batch_norm({.activation = relu}));
  for (int i = 0; i < 5; ++i) {
    const std::string name = "block" + std::to_string(i);
    NodeId y = graph.add(name + "/conv", conv2d({.filters = 8, .padding = Padding::same(), .bias = false}), {last});
    y = graph.add(name + "/norm", batch_norm({.activation = {Activation::relu6}}), {y});
    y = graph.add(name + "/depthwise", depthwise_conv2d({.padding = Padding::same(), .bias = false}), {y});
    y = graph.add(name + "/depthwise_norm", batch_norm(), {y});
    if (i == 0) {
      last = graph.add(name + "/shortcut", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}), {last});
      last = graph.add(name + "/shortcut_norm", batch_norm(), {last});
    }
    last = graph.add(name + "/add", add(i == 3 ? ActivationOptions{Activation::gelu} : relu), {y, last});
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

TEST_P(RecomputeTest, EveryRecomputePolicyComputesTheSameBitsInChainsOfBlocks) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    const auto run = [&](const RecomputeOptions& recompute) {
      return trained(device(), residual_network(), {.precision = {kind}, .seed = 3, .recompute = recompute}, 2);
    };
    const auto expected = run(kNone);
    for (const RecomputeOptions& recompute :
         {kInner, kCheap, kAll, again({"block1..block3"}), again({"stem..block0", "block2", "block4"}, Derive::cheap),
          again({"stem..block0", "block2"}, Derive::inner, true), again({"block0/depthwise_norm..block0/add"}),
          again({"block2/add"}, Derive::cheap), again({"block1/conv", "block2/conv..block2/norm", "block3"}),
          again({"block0/depthwise..block0/add", "block2/depthwise..block2/add", "block4/conv..block4/depthwise"},
                Derive::inner, true)})
      EXPECT_EQ(run(recompute), expected);
  }
}

TEST_P(RecomputeTest, WhatForwardSavesForBackwardToTheByte) {
  // Images stay with their owner. `tensor`: one activation of 16·8·8·8 float32.
  constexpr std::uint64_t kTensor = 16 * 8 * 8 * 8 * 4, kVector = 256, kMask = kTensor / 32;
  Graph graph({8, 8, 8});
  const ActivationOptions relu{Activation::relu};
  const NodeId x = graph.add("a/conv", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
  const NodeId normed = graph.add("a/norm", batch_norm({.activation = relu}), {x});
  const NodeId y = graph.add("b/conv", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}), {normed});
  graph.add("b/add", add(relu), {graph.add("b/norm", batch_norm(), {y}), normed});
  graph.add("c/conv", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 5}));
  const auto left = [&](const RecomputeOptions& recompute) {
    Runtime fresh({.threads = 2});
    Model model(fresh, device(), graph, {.recompute = recompute});
    Tape tape;
    Context context = model.context(Pass::train);
    context.tape = &tape;
    const Tensor images = testing::random_tensor(context, {16, 8, 8, 8}, 1);
    const std::uint64_t before = fresh.allocator(device()).stats().in_use_bytes;
    const Tensor logits = model.forward(context, images);
    return fresh.allocator(device()).stats().in_use_bytes - before;
  };
  // Always: the pooled rows that the head reads (512 bytes), the logits (512), and two norms' mean and deviation.
  const std::uint64_t always = 512 + 512 + 4 * kVector;
  // Two raw convolutions that norms read; the mask of the sum; and, unless they can be made, what convolutions read.
  EXPECT_EQ(left(kNone), always + 2 * kTensor + kMask + 2 * kTensor);
  EXPECT_EQ(left(kInner), always + 2 * kTensor + kMask + kTensor) << "the sum is kept";
  EXPECT_EQ(left(kCheap), always + 2 * kTensor + kMask);
  // Block a again: its output is kept (block b reads it), its raw convolution is not.
  EXPECT_EQ(left(again({"a"}, Derive::cheap)), always + kTensor + kMask + kTensor);
  // The sum at a segment's end keeps its mask.
  EXPECT_EQ(left(again({"a..b"}, Derive::cheap)), always + kTensor + kMask);
}

// The sum of three gradients depends on their order: that of the readers, latest first, whichever is recomputed.
TEST_P(RecomputeTest, AValueThatASegmentReadsTwiceAndAnOutsiderTooKeepsItsSum) {
  const auto conv = [](Activation kind) {
    return conv2d({.filters = 8, .padding = Padding::same(), .bias = false, .activation = {kind}});
  };
  for (const bool passes_through : {false, true})
    for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
      Graph graph({8, 8, 3});
      graph.add("n0", conv(Activation::none));
      const NodeId n0 = graph.output();
      NodeId also_n0 = n0;
      if (passes_through) also_n0 = graph.add("same", dropout({.rate = 0.0f}), {n0});
      const NodeId n1 = graph.add("block/n1", conv(Activation::none), {also_n0});
      const NodeId n2 = graph.add("block/n2", add({Activation::relu}), {n0, n1});
      const NodeId n3 = graph.add("n3", conv(Activation::none), {n2});
      graph.add("n4", add({}), {n3, n0});
      graph.add("norm", batch_norm({}));
      graph.add(global_average_pool());
      graph.add("head", dense({.units = 5}));
      const auto run = [&](const RecomputeOptions& recompute) {
        return trained(device(), graph, {.precision = {kind}, .seed = 3, .recompute = recompute}, 2);
      };
      const auto expected = run(kNone);
      for (const RecomputeOptions& recompute :
           {again({"block/n1..block/n2"}), again({"block"}, Derive::cheap), again({"block/n1..n3"}), kAll})
        EXPECT_EQ(run(recompute), expected) << to_string(Precision{kind}) << (passes_through ? ", passed through" : "");
    }
}

TEST_P(RecomputeTest, ARecomputedSegmentDoesNotWriteItsOutput) {
  const Context plain = context();
  const Shape shape{4, 6, 6, 8};
  const auto leaf = [&](std::uint64_t seed) {
    Tensor tensor = testing::random_tensor(plain, shape, seed);
    tensor.set_value_id(runtime().new_value_id());
    return tensor;
  };
  const Tensor a = leaf(1), b = leaf(2), dy = testing::random_tensor(plain, shape, 3);
  const auto gradient = [&](const Context& taped, Tensor y) {
    GradientStore store = taped.tape->backward(plain, std::move(y), dy.view(shape));
    return to_host<float>(store.pop(a.value_id()), plain.stream);
  };
  for (const Activation kind : {Activation::relu, Activation::none}) {
    Tape kept;
    Context once = plain;
    once.tape = &kept;
    const std::vector<float> expected = gradient(once, ops::add(once, a, b, {kind}));

    SavedStatistics saved;
    const NodePlan ends{.ends_segment = true};
    Context first = plain;
    first.node = &ends;
    first.step.saved = &saved;
    const Tensor y = ops::add(first, a, b, {kind});
    saved.replay();
    Tape tape;
    Context second = first;
    second.tape = &tape;
    const std::uint64_t before = runtime().allocator(device()).stats().in_use_bytes;
    Tensor stand_in = ops::add(second, a, b, {kind});
    EXPECT_EQ(runtime().allocator(device()).stats().in_use_bytes, before) << "neither output nor mask";
    EXPECT_NE(stand_in.data(), y.data());
    EXPECT_EQ(gradient(second, std::move(stand_in)), expected);
  }
}

TEST_P(RecomputeTest, RecomputedLayersThatPassTheirInputThrough) {
  std::vector<std::vector<float>> weights;
  for (const RecomputeOptions::Kind kind : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all}) {
    Graph graph({8, 8, 3});
    graph.add(conv2d({.filters = 4}));
    graph.add("nothing/dropout", dropout({.rate = 0.0f}));
    graph.add("nothing/activation", activation({}));
    graph.add(flatten());
    graph.add("head", dense({.units = 5}));
    Runtime fresh({.threads = 2});
    Model model(fresh, device(), graph, {.seed = 3, .recompute = {.kind = kind}});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    for (int i = 0; i < 3; ++i) step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, i * 8, 8));
    weights.push_back(to_host<float>(model.parameters().master(), fresh.stream(device())));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_P(RecomputeTest, RecomputeOfAChainOfBlocksNeedsLessMemory) {
  const auto peak_activations = [&](RecomputeOptions::Kind kind) {
    Graph graph({16, 16, 8});
    for (int block = 0; block < 8; ++block) {
      const std::string name = "block" + std::to_string(block);
      graph.add(name + "/conv", conv2d({.filters = 8, .padding = Padding::same()}));
      graph.add(name + "/norm", batch_norm({.activation = {Activation::gelu}}));
      graph.add(name + "/depthwise", depthwise_conv2d({.padding = Padding::same(), .activation = {Activation::silu}}));
    }
    graph.add(global_average_pool());
    graph.add("head", dense({.units = 5}));
    Runtime fresh({.threads = 2});
    Model model(fresh, device(), graph, {.recompute = {.kind = kind}});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    step.step(testing::make_batch(model.context(Pass::train), {16, 16, 8}, 5, 0, 8));
    return fresh.allocator(device()).stats().by_category_at_peak[Category::activation];
  };
  // A block keeps four tensors (both convolutions' inputs, the norm's, and silu's); recomputed, only its input, and one
  // block at a time is whole: 8·1 + 4 and gradients against 8·4.
  EXPECT_LT(peak_activations(RecomputeOptions::Kind::all), peak_activations(RecomputeOptions::Kind::none) * 6 / 10);
}

}  // namespace
}  // namespace bantam::recompute_test
