// Weights into models of other names, heads and types: what is loaded, and what does not fit named.
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/train/resized_embedding.h"
#include "bantam/engine/train/safetensors.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/train/position_embeddings.h"

namespace bantam::weights_by_name_test {
namespace {

using testing::EngineTest;

class WeightsByNameTest : public EngineTest {
 protected:
  /// conv (1 filter) with a norm, then a head of `classes`.
  static Graph network(std::int64_t classes) {
    Graph graph({2, 2, 1});
    graph.add("stem", conv2d({.filters = 1, .kernel = {1, 1}, .bias = false}));
    graph.add("stem_norm", batch_norm({}));
    graph.add("pool", global_average_pool());
    graph.add("head", dense({.units = classes}));
    return graph;
  }
  Model model(std::int64_t classes = 2) { return Model(runtime(), device(), network(classes), {.seed = 3}); }

  static HostTensor tensor(Shape shape, std::vector<float> values) {
    HostTensor made{DType::float32, shape, {}};
    made.bytes.resize(values.size() * sizeof(float));
    std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
    return made;
  }
  static SafetensorsFile file(const std::string& prefix = "") {
    SafetensorsFile made;
    made.tensors[prefix + "stem/weight"] = tensor({1, 1, 1, 1}, {2});
    made.tensors[prefix + "stem_norm/scale"] = tensor({1}, {3});
    made.tensors[prefix + "stem_norm/shift"] = tensor({1}, {4});
    made.tensors[prefix + "stem_norm/running_mean"] = tensor({1}, {5});
    made.tensors[prefix + "stem_norm/running_variance"] = tensor({1}, {6});
    made.tensors[prefix + "head/weight"] = tensor({2, 1}, {7, 8});
    made.tensors[prefix + "head/bias"] = tensor({2}, {9, 10});
    return made;
  }
  std::vector<float> values(Model& model, const std::string& name) {
    const Stream stream = runtime().stream(device());
    for (const Parameter& parameter : model.parameters().all())
      if (parameter.name() == name) return to_host<float>(parameter.master(), stream);
    return to_host<float>(model.buffers().current(*model.buffers().find(name)), stream);
  }
  std::string error_of(const SafetensorsFile& file, const WeightsOptions& options, std::int64_t classes = 2) {
    Model made = model(classes);
    const auto before = to_host<float>(made.parameters().master(), runtime().stream(device()));
    try {
      (void)load_weights(made, file, "w.safetensors", options);
    } catch (const DataError& error) {
      EXPECT_EQ(to_host<float>(made.parameters().master(), runtime().stream(device())), before);
      return error.what();
    }
    return "no error";
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(WeightsByNameTest);

TEST_P(WeightsByNameTest, LoadsParametersAndStatistics) {
  Model made = model();
  const LoadedWeights loaded = load_weights(made, file(), "w.safetensors", {});
  EXPECT_EQ(loaded.loaded, 7u);
  EXPECT_TRUE(loaded.initial.empty() && loaded.unused.empty() && loaded.converted.empty());
  EXPECT_EQ(values(made, "head/weight"), (std::vector<float>{7, 8}));
  EXPECT_EQ(values(made, "stem_norm/running_variance"), std::vector<float>{6});
  const Buffer& mean = *made.buffers().find("stem_norm/running_mean");
  EXPECT_EQ(to_host<float>(made.buffers().next(mean), runtime().stream(device())), std::vector<float>{5});
}

TEST_P(WeightsByNameTest, RenamesByTheFirstPatternThatFits) {
  EXPECT_EQ(renamed("net.backbone.stem", {{"net.*.*", "*"}}), "backbone");
  EXPECT_EQ(renamed("net.backbone.stem", {{"net.*.*", "*/*"}}), "backbone/stem");
  EXPECT_EQ(renamed("a7.b", {{"a?.*", "*-?"}}), "7-b");
  EXPECT_EQ(renamed("other", {{"a?.*", "x"}}), "other");
  EXPECT_EQ(renamed("other", {{"o*", "first"}, {"*", "second"}}), "first");
}

TEST_P(WeightsByNameTest, RenamedTensorsLoad) {
  Model made = model();
  EXPECT_EQ(load_weights(made, file("backbone."), "w.safetensors", {.rename = {{"backbone.*", "*"}}}).loaded, 7u);
  EXPECT_EQ(values(made, "stem/weight"), std::vector<float>{2});
}

TEST_P(WeightsByNameTest, ASkippedHeadKeepsItsInitialValues) {
  Model made = model(3), other = model(3);
  const LoadedWeights loaded = load_weights(made, file(), "w.safetensors", {.skip = {"head/*"}});
  EXPECT_EQ(loaded.loaded, 5u);
  EXPECT_EQ(loaded.initial, (std::vector<std::string>{"head/bias", "head/weight"}));
  EXPECT_TRUE(loaded.unused.empty()) << "the file's head is passed over";
  EXPECT_EQ(values(made, "head/weight"), values(other, "head/weight"));
  EXPECT_EQ(values(made, "stem/weight"), std::vector<float>{2});
}

TEST_P(WeightsByNameTest, APartPassesOverTheRestAndNeedsAllOfItsOwn) {
  Graph stem({2, 2, 1});
  stem.add("stem", conv2d({.filters = 1, .kernel = {1, 1}, .bias = false}));
  Model part(runtime(), device(), stem, {.seed = 3});
  const LoadedWeights loaded = load_weights(part, file(), "w.safetensors", {.of_part = true});
  EXPECT_EQ(loaded.loaded, 1u);
  EXPECT_EQ(loaded.unused.size(), 6u);
  EXPECT_EQ(values(part, "stem/weight"), std::vector<float>{2});

  SafetensorsFile less = file();
  less.tensors.erase("stem_norm/scale");
  EXPECT_EQ(error_of(less, {.of_part = true, .advises = false}),
            "w.safetensors: its tensors are not those of the model\n  missing: 'stem_norm/scale'");

  Graph pool({2, 2, 1});
  pool.add("pool", global_average_pool());
  Model nothing(runtime(), device(), pool, {.seed = 3});
  EXPECT_EQ(load_weights(nothing, file(), "w.safetensors", {.of_part = true}).loaded, 0u);
}

TEST_P(WeightsByNameTest, NamesWhatDoesNotFit) {
  EXPECT_EQ(error_of(file(), {}, 3),
            "w.safetensors: tensor 'head/bias' is float32 (2), the model's 'head/bias' is float32 (3)\n  a layer that "
            "shall begin anew is left out with skip: [\"head/*\"]");
  SafetensorsFile wrong = file();
  auto node = wrong.tensors.extract("head/weight");
  node.key() = "heads/weight";
  wrong.tensors.insert(std::move(node));
  EXPECT_EQ(error_of(wrong, {}),
            "w.safetensors: its tensors are not those of the model\n  missing: 'head/weight'\n  unexpected: "
            "'heads/weight'\n  the nearest of the file to 'head/weight' is 'heads/weight': rename: [{from: …, to: …}] "
            "makes one of the other");
  wrong.tensors.erase("heads/weight");
  EXPECT_EQ(error_of(wrong, {}),
            "w.safetensors: its tensors are not those of the model\n  missing: 'head/weight'\n  tensors "
            "named by skip: […], or all with strict: false, keep their initial values");
  SafetensorsFile more = file();
  more.tensors["head/weigth"] = tensor({1}, {1});
  EXPECT_EQ(error_of(more, {}),
            "w.safetensors: its tensors are not those of the model\n  unexpected: 'head/weigth'\n  the nearest of the "
            "model to 'head/weigth' is 'head/weight'");
  EXPECT_EQ(error_of(file(), {.skip = {"*"}}), "w.safetensors: no tensor fits the model");
  EXPECT_EQ(error_of(file(), {.skip = {"haed/*"}}),
            "w.safetensors: skip: 'haed/*' matches no tensor of the model; did you mean 'head/*'?");
  EXPECT_EQ(error_of(file(), {.rename = {{"features.*", "*"}}}),
            "w.safetensors: rename: 'features.*' matches no tensor of the file");
  EXPECT_EQ(error_of(file(), {.rename = {{"head/*", "x"}}}),
            "w.safetensors: tensors 'head/bias' and 'head/weight' are both renamed to 'x'");
}

TEST_P(WeightsByNameTest, NotStrictTellsInsteadOfFailing) {
  SafetensorsFile other = file();
  other.tensors.erase("head/bias");
  other.tensors["mask"] = tensor({1}, {1});
  Model made = model();
  const LoadedWeights loaded = load_weights(made, other, "w.safetensors", {.strict = false});
  EXPECT_EQ(loaded.initial, std::vector<std::string>{"head/bias"});
  EXPECT_EQ(loaded.unused, std::vector<std::string>{"mask"});
  EXPECT_TRUE(
      error_of(file("x"), {.strict = false}).starts_with("w.safetensors: no tensor fits the model\n  missing: "));
}

TEST_P(WeightsByNameTest, ConvertsFloatsAndRefusesWholeNumbers) {
  SafetensorsFile half = file();
  const std::uint16_t bits[] = {float_to_half_bits(0.5f), float_to_half_bits(-3.0f)};
  HostTensor bias{DType::float16, {2}, {}};
  bias.bytes.resize(sizeof(bits));
  std::memcpy(bias.bytes.data(), bits, sizeof(bits));
  half.tensors["head/bias"] = bias;
  Model made = model();
  EXPECT_EQ(load_weights(made, half, "w.safetensors", {}).converted, std::vector<std::string>{"head/bias"});
  EXPECT_EQ(values(made, "head/bias"), (std::vector<float>{0.5f, -3.0f}));
  half.tensors["head/bias"] = HostTensor{DType::int32, {2}, std::vector<std::byte>(8)};
  EXPECT_NE(error_of(half, {}).find("'head/bias' is int32 (2), the model's 'head/bias' is float32 (2)"),
            std::string::npos);
}

TEST_P(WeightsByNameTest, RefusesWhatIsNotFinite) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    SafetensorsFile broken = file();
    broken.tensors["head/bias"] = tensor({2}, {1, value});
    EXPECT_NE(error_of(broken, {}).find("w.safetensors: tensor 'head/bias' has values that are not finite"),
              std::string::npos);
  }
}

/// Patches of 2 x 2 pixels as tokens of 3 channels, after `prefix` tokens, with position embeddings; a head of one.
Graph token_network(std::int64_t height, std::int64_t width, std::int64_t prefix) {
  Graph graph({2 * height, 2 * width, 1});
  graph.add("stem", conv2d({.filters = 3, .kernel = {2, 2}, .stride = {2, 2}}));
  if (prefix > 0) graph.add("tokens", class_token({.count = prefix}));
  graph.add("position_embedding", position_embedding());
  graph.add("flatten", flatten());
  graph.add("head", dense({.units = 1}));
  return graph;
}

/// The embedding of the oracle: sin(0.7 i).
HostTensor embedding(Shape shape) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i))));
  return host_tensor(shape, values);
}

const std::vector<std::string> kOthers = {"stem/*", "tokens/*", "head/*"};

TEST_P(WeightsByNameTest, PositionEmbeddingsAreResizedAsTimmResizesThem) {
  for (const testing::ResizedPositions& timms : testing::kResizedPositions) {
    Model made(runtime(), device(), token_network(timms.height, timms.width, timms.prefix), {});
    std::vector<std::string> skip = kOthers;
    if (timms.prefix == 0) std::erase(skip, "tokens/*");
    SafetensorsFile file;
    file.tensors["position_embedding/embedding"] = embedding({timms.prefix + timms.side * timms.side, 3});
    const WeightsOptions options{.skip = skip, .resizes_positions = true};
    const LoadedWeights loaded = load_weights(made, file, "w.safetensors", options);
    EXPECT_EQ(loaded.resized,
              std::vector<std::string>{fmt::format("position_embedding/embedding from {0} x {0} to {1} x {2}",
                                                   timms.side, timms.height, timms.width)});
    const std::vector<float> ours = values(made, "position_embedding/embedding");
    ASSERT_EQ(ours.size(), timms.values.size());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], timms.values[i], 1e-6) << timms.side << " " << i;
    if (timms.prefix > 0) continue;
    file.tensors["position_embedding/embedding"] = embedding({timms.side, timms.side, 3});  // as a run of ours has it
    EXPECT_EQ(load_weights(made, file, "w.safetensors", options).resized, loaded.resized);
    EXPECT_EQ(values(made, "position_embedding/embedding"), ours);
  }
}

TEST_P(WeightsByNameTest, OtherEmbeddingsAreErrors) {
  Model made(runtime(), device(), token_network(3, 3, 1), {.seed = 3});
  const std::vector<float> before = values(made, "position_embedding/embedding");
  const auto error_of = [&](Shape shape, bool resizes) -> std::string {
    SafetensorsFile file;
    file.tensors["position_embedding/embedding"] = embedding(shape);
    try {
      (void)load_weights(made, file, "w.safetensors", {.skip = kOthers, .resizes_positions = resizes});
    } catch (const DataError& error) {
      EXPECT_EQ(values(made, "position_embedding/embedding"), before);
      return error.what();
    }
    return "no error";
  };
  const std::string begin = "w.safetensors: tensor 'position_embedding/embedding' is float32 ";
  EXPECT_TRUE(error_of({17, 3}, false).starts_with(begin + "(17, 3), the model's")) << "only where it was asked for";
  EXPECT_NE(error_of({16, 3}, true).find("were trained for square images"), std::string::npos) << "15 are no square";
  EXPECT_TRUE(error_of({17, 4}, true).starts_with(begin + "(17, 4), the model's"));
  EXPECT_TRUE(error_of({4, 4, 3}, true).starts_with(begin + "(4, 4, 3), the model's")) << "without the class token's";
  EXPECT_EQ(error_of({10, 3}, true), "no error") << "nothing to resize";
}

TEST(PositionGrids, AreThoseOfTheImageBeforeTheTokens) {
  const auto grid = [](const Graph& graph) {
    const std::map<std::string, PositionGrid> grids = position_grids(graph);
    EXPECT_EQ(grids.size(), 1u);
    const PositionGrid& only = grids.begin()->second;
    return std::vector<std::int64_t>{only.prefix, only.height, only.width};
  };
  EXPECT_EQ(grid(token_network(2, 5, 3)), (std::vector<std::int64_t>{3, 2, 5}));
  EXPECT_EQ(grid(token_network(2, 5, 0)), (std::vector<std::int64_t>{0, 2, 5}));
  Graph sequence({16, 3});
  sequence.add(position_embedding());
  EXPECT_EQ(grid(sequence), (std::vector<std::int64_t>{0, 4, 4}));
  Graph odd({15, 3});
  odd.add(position_embedding());
  EXPECT_EQ(grid(odd), (std::vector<std::int64_t>{0, 0, 0})) << "not known";
}

}  // namespace
}  // namespace bantam::weights_by_name_test
