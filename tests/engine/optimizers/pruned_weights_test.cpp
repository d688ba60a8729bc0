// Pruned weights under an optimizer: values of TensorFlow Model Optimization's rule, moments, averages, state, and
// which parameters a pattern names.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "bantam/engine/train/safetensors.h"
#include "tests/engine/optimizers/dense_weights.h"

namespace bantam::testing::pruned_weights_test {
namespace {

class PrunedWeightsTest : public EngineTest {
 protected:
  std::vector<float> floats(const Tensor& tensor) { return to_host_floats(tensor, runtime().stream(device())); }
};
BANTAM_INSTANTIATE_ON_DEVICES(PrunedWeightsTest);

constexpr int kUnits = 12;

OptimizerOptions momentum_with(const PruneOptions& prune) {
  return {.rule = sgd({.learning_rate = 0.05f, .momentum = 0.9f}), .prune = prune};
}

std::vector<float> weights_at_first() {
  std::vector<float> values;
  for (int o = 0; o < kUnits; ++o)
    for (int i = 0; i < 8; ++i) values.push_back(static_cast<float>(std::sin(1.3 * o + 0.7 * i)));
  return values;
}
std::vector<float> gradient(int update) {
  std::vector<float> values;
  for (int o = 0; o < kUnits; ++o)
    for (int i = 0; i < 8; ++i) values.push_back(static_cast<float>(std::cos(0.3 * update + 0.9 * o - 1.1 * i)));
  return values;
}

struct Expected {
  PruneOptions options;
  std::map<int, float> weights;  // after 20 updates, but for zeros
};

/// tests/oracles/pruning.py made the values.
std::vector<Expected> by_pytorch() {
  return {{{.initial = 0.2, .final_sparsity = 0.8, .begin = 2, .end = 14, .frequency = 4},
           {{4, 1.36209464f},
            {7, -2.16298819f},
            {8, 2.41029882f},
            {16, 1.62664604f},
            {19, -2.24940634f},
            {22, 1.850649f},
            {30, 1.36587179f},
            {42, 1.51133537f},
            {43, 2.19643879f},
            {45, -1.26764548f},
            {46, -2.42706084f},
            {54, -1.50039268f},
            {57, -1.19409132f},
            {58, -2.33975554f},
            {66, -1.74643338f},
            {69, 2.17395663f},
            {81, 2.17432594f},
            {92, -1.41504526f},
            {93, -2.31687427f}}},
          {{.schedule = PruneSchedule::constant, .final_sparsity = 0.5, .begin = 2, .end = 14, .frequency = 4},
           {{1, -0.281026781f},  {3, 0.389630079f},   {6, -0.623748541f},  {7, -2.16298819f},   {8, 2.41029882f},
            {13, 0.219896689f},  {14, 0.584949374f},  {18, -0.630376995f}, {19, -2.24940634f},  {23, 2.06216908f},
            {25, 0.287053466f},  {26, 0.394958019f},  {30, 1.36587179f},   {31, 0.406680733f},  {32, -2.07583642f},
            {34, 0.265528709f},  {35, 1.89178681f},   {37, -0.455698311f}, {38, -0.626287878f}, {40, -0.316302598f},
            {42, 1.51133537f},   {43, 2.19643879f},   {44, 0.653143942f},  {46, -2.42706084f},  {47, -1.52966237f},
            {49, -0.669325292f}, {50, -0.678870142f}, {53, -0.399901956f}, {54, -0.422410667f}, {57, -0.256938517f},
            {58, -2.33975554f},  {59, -1.47612059f},  {63, -0.174983039f}, {65, -0.555643797f}, {66, -1.74643338f},
            {68, 0.380266398f},  {69, 2.17395663f},   {70, 2.1969974f},    {75, -0.292533427f}, {76, -0.337665319f},
            {81, 2.17432594f},   {82, 2.20637083f},   {85, -0.469881862f}, {87, 0.624689579f},  {89, 0.853879392f},
            {92, -1.41504526f},  {93, -2.31687427f},  {94, -0.615120649f}}},
          {{.schedule = PruneSchedule::constant,
            .pattern = PrunePattern::two_of_four,
            .begin = 2,
            .end = 14,
            .frequency = 4},
           {{1, 0.521372259f},   {3, 0.389630079f},   {6, -0.623748541f},  {7, -2.16298819f},   {8, 2.41029882f},
            {11, -0.96054244f},  {13, 0.219896689f},  {14, 0.584949374f},  {18, -0.630376995f}, {19, -2.24940634f},
            {20, -2.03271174f},  {23, 2.06216908f},   {25, 0.287053466f},  {26, 0.394958019f},  {29, -0.184988827f},
            {30, 1.36587179f},   {32, -2.07583642f},  {35, 1.89178681f},   {37, -0.790773332f}, {39, 0.0763756111f},
            {41, -0.203533769f}, {42, 1.51133537f},   {46, -2.42706084f},  {47, -1.52966237f},  {49, -0.669325292f},
            {51, 0.197057351f},  {53, -0.399901956f}, {55, -0.875103235f}, {58, -2.33975554f},  {59, -1.47612059f},
            {60, 0.480052888f},  {63, -0.174983039f}, {65, -0.555643797f}, {67, -0.946825266f}, {69, 2.17395663f},
            {70, 2.1969974f},    {73, 0.167043507f},  {75, -0.292533427f}, {76, -0.337665319f}, {77, -0.901670992f},
            {81, 2.17432594f},   {82, 2.20637083f},   {85, -0.469881862f}, {87, 0.624689579f},  {89, 0.853879392f},
            {91, 0.501833737f},  {92, -1.41504526f},  {93, -2.31687427f}}}};
}

TEST_P(PrunedWeightsTest, AreThoseOfTheToolkit) {
  for (const Expected& expected : by_pytorch()) {
    DenseWeights run(runtime(), device(), kUnits, momentum_with(expected.options));
    run.set(run.weight().master(), weights_at_first());
    for (int t = 1; t <= 20; ++t) run.update(gradient(t));
    const std::vector<float> values = run.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto other = expected.weights.find(static_cast<int>(i));
      if (other == expected.weights.end())
        EXPECT_EQ(values[i], 0.0f) << i;
      else
        EXPECT_NEAR(values[i], other->second, 1e-5f * std::abs(other->second)) << i;
    }
  }
}

/// Masks, moments, averages and copies of a run that is loaded go on to the same bits.
TEST_P(PrunedWeightsTest, GoOnFromSavedState) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / ("bantam_prune_state_" + to_string(device()));
  for (const auto kind : {PrecisionKind::float32, PrecisionKind::mixed_bfloat16}) {
    OptimizerOptions options =
        momentum_with({.initial = 0.2, .final_sparsity = 0.8, .begin = 2, .end = 14, .frequency = 4});
    options.ema = EmaOptions{.decay = 0.9};
    const auto make = [&] { return DenseWeights(runtime(), device(), kUnits, options, {kind}); };
    DenseWeights whole = make(), first = make(), second = make();
    for (DenseWeights* run : {&whole, &first}) run->set(run->weight().master(), weights_at_first());
    for (int t = 1; t <= 20; ++t) whole.update(gradient(t));
    for (int t = 1; t <= 7; ++t) first.update(gradient(t));
    save_state(first.state, first.stream(), path);
    load_state(second.state, second.stream(), path);
    for (int t = 8; t <= 20; ++t) second.update(gradient(t));
    for (const char* name : {"weights/head/weight", "optimizer/moment1/head/weight", "ema/weights/head/weight"})
      EXPECT_EQ(floats(second.entry(name)), floats(whole.entry(name))) << name;
    const char* mask = "prune/mask/head/weight";
    EXPECT_EQ(to_host<std::uint8_t>(second.entry(mask), second.stream()),
              to_host<std::uint8_t>(whole.entry(mask), whole.stream()));
  }
  std::filesystem::remove(path);
}

/// Where a weight is masked, its copy and its average are zero as well, its moment is not, and a change may bring it
/// back.
TEST_P(PrunedWeightsTest, MasksReachCopiesAndAveragesNotMoments) {
  OptimizerOptions options =
      momentum_with({.schedule = PruneSchedule::constant, .final_sparsity = 0.5, .end = 100, .frequency = 5});
  options.ema = EmaOptions{.decay = 0.9, .every = 3};
  DenseWeights run(runtime(), device(), kUnits, options, {PrecisionKind::mixed_float16});
  run.set(run.weight().master(), weights_at_first());
  std::vector<bool> masked(8 * kUnits), back(8 * kUnits);
  for (int t = 1; t <= 20; ++t) {
    std::vector<float> scaled = gradient(t);
    for (float& g : scaled) g *= run.optimizer.control().loss_scale;
    run.update(scaled);
    const std::vector<float> w = run.values(), copy = floats(run.weight().value()),
                             average = floats(run.entry("ema/weights/head/weight")),
                             moment = floats(run.entry("optimizer/moment1/head/weight"));
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      ASSERT_EQ(copy[i], static_cast<float>(Half(w[i])));
      back[i] = back[i] || (masked[i] && w[i] != 0);
      masked[i] = w[i] == 0;
      if (w[i] != 0) continue;
      ++zeros;
      ASSERT_EQ(average[i], 0.0f);
      ASSERT_NE(moment[i], 0.0f);
    }
    ASSERT_EQ(zeros, w.size() / 2) << "update " << t;
  }
  EXPECT_GT(std::ranges::count(back, true), 0);
}

TEST_P(PrunedWeightsTest, ASkippedUpdateIsNone) {
  const PruneOptions at_the_second{.schedule = PruneSchedule::constant, .final_sparsity = 0.5, .begin = 2, .end = 2};
  DenseWeights run(runtime(), device(), kUnits, momentum_with(at_the_second));
  run.set(run.weight().master(), weights_at_first());
  const auto zeros = [&] { return std::ranges::count(run.values(), 0.0f); };
  run.update(gradient(1));
  run.update(std::vector<float>(8 * kUnits, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(zeros(), 0);
  run.update(gradient(2));
  EXPECT_EQ(zeros(), 48);
}

std::vector<std::string> pruned(Runtime& runtime, Device device, const PruneOptions& options) {
  Model model(runtime, device, small_network(), {});
  Optimizer optimizer(model, momentum_with(options));
  StateRegistry state;
  optimizer.register_state(state);
  std::vector<std::string> names;
  for (const StateEntry& entry : state.tensors())
    if (entry.name.starts_with("prune/mask/")) names.push_back(entry.name.substr(11));
  std::ranges::sort(names);
  return names;
}

TEST_P(PrunedWeightsTest, PatternsNameThem) {
  PruneOptions options{.end = 10, .match = {"*conv1/weight", "separable/*_weight"}};
  EXPECT_EQ(
      pruned(runtime(), device(), options),
      (std::vector<std::string>{"block/conv1/weight", "separable/depthwise_weight", "separable/pointwise_weight"}));
  options.pattern = PrunePattern::two_of_four;
  EXPECT_EQ(pruned(runtime(), device(), options),
            (std::vector<std::string>{"block/conv1/weight", "separable/pointwise_weight"}))
      << "a depthwise weight has no input channels";
  options.match = {"stem/wieght"};
  try {
    (void)pruned(runtime(), device(), options);
    FAIL() << "it names nothing";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("prune.match: 'stem/wieght' matches no parameter that can be pruned"),
              std::string::npos)
        << error.what();
  }
}

TEST_P(PrunedWeightsTest, RefusesWhatIsOutOfRange) {
  const PruneOptions bad[] = {{.initial = -0.1, .end = 10},
                              {.final_sparsity = 1.0, .end = 10},
                              {.begin = -1, .end = 10},
                              {.begin = 10, .end = 10},
                              {.end = 10, .frequency = 0},
                              {.end = 10, .match = {}},
                              {.schedule = PruneSchedule::constant, .end = 0}};
  for (const PruneOptions& options : bad)
    EXPECT_THROW(DenseWeights(runtime(), device(), 1, momentum_with(options)), ConfigError);
}

}  // namespace
}  // namespace bantam::testing::pruned_weights_test
