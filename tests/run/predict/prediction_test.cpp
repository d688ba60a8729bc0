// Predictions of image files: the evaluation's own answers, of every task, within limits.
#include "bantam/run/predict/prediction.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "bantam/base/error.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/images/encode.h"
#include "bantam/run/evaluate/evaluation.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::prediction_test {
namespace {

class PredictionTest : public RunTest {
 protected:
  void run(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    (void)train(tiny(overrides), {.threads = 1, .folder = path(name)});
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(path(name).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  static Image grey(ImageSize size, std::uint8_t value) {
    Image image;
    image.reshape(size, 3);
    std::ranges::fill(image.pixels, value);
    return image;
  }
  static std::vector<Prediction> predictions(const TrainedModel& model, const std::vector<std::filesystem::path>& paths,
                                             const PredictOptions& options = {.threads = 2}) {
    std::vector<Prediction> found;
    (void)predict(model, list_images(paths).images, options, [&](const Prediction& one) { found.push_back(one); });
    return found;
  }
  TrainedModel open(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    return open_trained_model(path(name), {.overrides = overrides, .with_data = false});
  }
};

TEST_F(PredictionTest, TheValidationSamplesAsFilesHaveTheEvaluationsAccuracy) {
  run("r", {"train.epochs=6"});
  const TrainedModel model = open_trained_model(path("r"));
  const std::shared_ptr<const SampleReader> samples = open_splits(*model.config.data, model.config.seed).validation;
  const std::int64_t size = samples->facts().size;
  std::vector<std::filesystem::path> files;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < size; ++i) {
    Image image;
    image.reshape({32, 32}, 3);
    std::int32_t label = 0;
    const std::array fields = {std::as_writable_bytes(std::span(image.pixels)),
                               std::as_writable_bytes(std::span(&label, 1))};
    samples->read(i, fields);
    labels.push_back(label);
    write(std::to_string(i) + ".png", encode_png(image));
    files.push_back(path(std::to_string(i) + ".png"));
  }
  const std::vector<Prediction> found = predictions(open("r"), files);
  ASSERT_EQ(std::ssize(found), size);
  double right = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<float>& values = found[i].values;
    ASSERT_EQ(values.size(), 10u);
    EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), 1, 1e-6) << "ten roundings to float32";
    right += std::ranges::max_element(values) - values.begin() == labels[i] ? 1 : 0;
  }
  EXPECT_EQ(right / static_cast<double>(size), evaluate(model).metrics.accuracy);
}

TEST_F(PredictionTest, ImagesOfOtherSizesAreResizedToTheDataSets) {
  run("r");
  write("large.png", encode_png(grey({70, 50}, 90)));
  write("exact.png", encode_png(grey({32, 32}, 90)));
  const std::vector<Prediction> found = predictions(open("r"), {path("large.png"), path("exact.png")});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].values, found[1].values) << "of one colour";
  EXPECT_EQ(found[0].name, "large.png");
  const auto resized_of = [&](const std::vector<std::filesystem::path>& paths) {
    return predict(open("r"), list_images(paths).images, {.threads = 2}, [](const Prediction&) {}).resized;
  };
  EXPECT_EQ(resized_of({path("large.png"), path("exact.png")}), 1);
  EXPECT_EQ(resized_of({path("exact.png")}), 0);
}

TEST_F(PredictionTest, BrokenFilesAreNamedInTheirPlaces) {
  run("r");
  write("all/a.png", encode_png(grey({32, 32}, 9)));
  write("all/b.png", "no image");
  write("all/deep/c.png", encode_png(grey({32, 32}, 9)));
  const std::vector<Prediction> found = predictions(open("r"), {path("all"), path("gone.png")});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[2].name, "deep/c.png");
  EXPECT_TRUE(found[0].error.empty() && found[2].error.empty());
  EXPECT_EQ(found[0].values, found[2].values);
  EXPECT_NE(found[1].error.find("b.png"), std::string::npos) << found[1].error;
  EXPECT_NE(found[3].error.find("gone.png: cannot be read"), std::string::npos) << found[3].error;
  EXPECT_TRUE(found[1].values.empty());
  for (int i = 0; i < 300; ++i) write("torn/" + std::to_string(i) + ".jpg", "\xff\xd8 no image");
  EXPECT_EQ(std::ranges::count_if(predictions(open("r"), {path("torn")}),
                                  [](const Prediction& one) { return !one.error.empty(); }),
            300);
}

TEST_F(PredictionTest, ThePlanIsWhatItUsesAndALimitMakesBatchesSmaller) {
  run("r");
  for (int i = 0; i < 40; ++i) write("all/" + std::to_string(i) + ".png", encode_png(grey({32, 32}, 5)));
  const std::vector<ListedImage> images = list_images(std::vector{path("all")}).images;
  const auto summary_of = [&](const std::vector<std::string>& overrides) {
    return predict(open("r", overrides), images, {.threads = 1}, [](const Prediction&) {});
  };
  const PredictionSummary whole = summary_of({});
  EXPECT_EQ(whole.batch_size, 16) << "of the run's evaluations";
  EXPECT_EQ(whole.peak_bytes, whole.planned_peak_bytes);
  EXPECT_EQ(whole.images, 40);
  const std::string limit = "memory.limits={cpu: " + std::to_string(whole.planned_pool_bytes - 1) + "}";
  const PredictionSummary less = summary_of({limit});
  EXPECT_EQ(less.batch_size, 8);
  EXPECT_LT(less.peak_bytes, whole.planned_pool_bytes);
  EXPECT_THROW((void)summary_of({"memory.limits={cpu: 1KiB}"}), OutOfMemory);
}

TEST_F(PredictionTest, SeveralLabelsAndNumbersOfImages) {
  std::string rows = "file,red,bright,amount\n";
  for (int i = 0; i < 48; ++i) {
    Image image = grey({16, 16}, static_cast<std::uint8_t>(i % 2 == 0 ? 200 : 20));
    for (std::size_t p = 0; p < image.pixels.size(); p += 3) image.pixels[p] = i % 3 == 0 ? 255 : 0;
    write("set/" + std::to_string(i) + ".png", encode_png(image));
    rows += std::to_string(i) + ".png," + std::to_string(i % 3 == 0) + "," + std::to_string(i % 2 == 0) + "," +
            std::to_string(i % 2 == 0 ? 4 : 1) + "\n";
  }
  write("set/set.csv", rows);
  const std::string data =
      "data={format: csv, split: 0.25, image: file, path: " + path("set/set.csv").string() +
      ", pipeline: [shuffle, resize: {size: [16, 16]}, normalize: {scale: 0.0039}, batch: {size: 8}], ";
  const auto model = [](int units) {
    return "model={input: [16, 16, 3], layers: [global_average_pool, dense: {units: " + std::to_string(units) + "}]}";
  };
  const std::string adam = "train.optimizer={adam: {learning_rate: 0.1}}";
  run("labels", {data + "label: [red, bright]}", model(2), "train.loss=binary_cross_entropy", "train.metrics=[]",
                 "train.epochs=30", adam});
  const TrainedModel labels = open("labels");
  EXPECT_EQ(task_of(labels.config), Task::multi_label);
  EXPECT_EQ(output_names(labels), (std::vector<std::string>{"red", "bright"}));
  const std::vector<Prediction> found = predictions(labels, {path("set/0.png"), path("set/1.png")});
  EXPECT_GT(found[0].values[0], 0.5f);
  EXPECT_GT(found[0].values[1], 0.5f);
  EXPECT_LT(found[1].values[0], 0.5f);
  EXPECT_LT(found[1].values[1], 0.5f);
  run("amounts",
      {data + "target: amount}", model(1), "train.loss=mse", "train.metrics=[mae]", "train.epochs=60", adam});
  const std::vector<Prediction> amounts = predictions(open("amounts"), {path("set/0.png"), path("set/1.png")});
  EXPECT_NEAR(amounts[0].values.at(0), 4, 0.5) << "a line through grey values";
  EXPECT_NEAR(amounts[1].values.at(0), 1, 0.5);
}

TEST_F(PredictionTest, WhatDoesNotReadImagesIsRefused) {
  run("r");
  write("points.csv", "a,b,c\n1,2,x\n3,4,y\n1,3,x\n3,5,y\n");
  run("rows", {"data={format: csv, split: 0.25, label: c, features: [a, b], path: " + path("points.csv").string() +
                   ", pipeline: [batch: {size: 2}]}",
               "model={input: [2], layers: [dense: {units: 2}]}"});
  const auto error_of = [&](const TrainedModel& model) -> std::string {
    try {
      (void)predictions(model, {path("x.png")});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_NE(error_of(open("rows")).find("not images (height, width, channels)"), std::string::npos);
  EXPECT_TRUE(predictions(open("r"), {}).empty());
}

/// The answers of a softmax after the dense layer whose weights are those of `model`.
std::vector<double> softmax_of_dense(const TrainedModel& model, const std::vector<float>& features) {
  const auto weight = float_values(model.weights.tensors.at("dense/weight")),
             bias = float_values(model.weights.tensors.at("dense/bias"));
  std::vector<double> values(bias.begin(), bias.end());
  double sum = 0;
  for (std::size_t u = 0; u < values.size(); ++u) {
    for (std::size_t f = 0; f < features.size(); ++f)
      values[u] += static_cast<double>(weight[u * features.size() + f]) * static_cast<double>(features[f]);
    sum += values[u] = std::exp(values[u]);
  }
  for (double& value : values) value /= sum;
  return values;
}

// Some ten roundings of float32 each.
TEST_F(PredictionTest, FeaturesAreWhatTheLastDenseLayerReads) {
  run("r", {"train.epochs=4"});
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < 20; ++i) {
    write("all/" + std::to_string(10 + i) + ".png", encode_png(grey({32, 32}, static_cast<std::uint8_t>(12 * i))));
    files.push_back(path("all/" + std::to_string(10 + i) + ".png"));
  }
  const TrainedModel model = open("r");
  const GraphNode& layer = feature_layer(model.config.model.graph);
  EXPECT_EQ(layer.name, "global_average_pool");
  EXPECT_EQ(layer.output, Shape{4});
  const std::vector<Prediction> answers = predictions(model, files),
                                features = predictions(model, files, {.threads = 2, .at = layer.name}),
                                maps = predictions(model, files, {.threads = 1, .batch_size = 3, .at = "batch_norm"});
  ASSERT_EQ(features.size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::vector<double> expected = softmax_of_dense(model, features[i].values);
    ASSERT_EQ(expected.size(), answers[i].values.size());
    for (std::size_t c = 0; c < expected.size(); ++c) EXPECT_NEAR(answers[i].values[c], expected[c], 1e-6);
    ASSERT_EQ(maps[i].values.size(), std::size_t{8 * 8 * 4}) << "one that other layers follow";
    for (std::size_t c = 0; c < 4; ++c) {
      double mean = 0;
      for (std::size_t p = c; p < maps[i].values.size(); p += 4) mean += static_cast<double>(maps[i].values[p]) / 64;
      EXPECT_NEAR(features[i].values[c], mean, 1e-6 * std::max(1.0, mean));
    }
  }
  EXPECT_NE(features[0].values, features[19].values);
  const PredictionSummary summary =
      predict(model, list_images(files).images, {.threads = 1, .at = "conv2d"}, [](const Prediction&) {});
  EXPECT_EQ(summary.peak_bytes, summary.planned_peak_bytes);
}

TEST_F(PredictionTest, LayersBesideAnotherAreNotRun) {
  const std::string branches =
      "model={input: [32, 32, 3], layers: [conv2d: {filters: 4, kernel: 3, stride: 4, name: stem}, residual: {body: "
      "[conv2d: {filters: 4, kernel: 3, padding: same, name: inner}]}, global_average_pool, dense: {units: 10}, "
      "dropout: {rate: 0.5}]}";
  run("r", {branches});
  write("a.png", encode_png(grey({32, 32}, 77)));
  const TrainedModel model = open("r");
  const Graph& graph = model.config.model.graph;
  EXPECT_EQ(feature_layer(graph).name, "global_average_pool") << "dropout after the dense layer changes nothing";
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const std::vector<Prediction> found =
        predictions(model, {path("a.png")}, {.threads = 1, .at = graph.node(node).name});
    EXPECT_EQ(std::ssize(found.at(0).values), graph.node(node).output.elements()) << graph.describe(node);
  }
}

TEST_F(PredictionTest, FeaturesNeedTheWeightsOfTheirLayersAndNoOthers) {
  run("r", {});
  write("a.png", encode_png(grey({32, 32}, 77)));
  TrainedModel model = open("r");
  const std::vector<float> features = predictions(model, {path("a.png")}, {.at = "global_average_pool"})[0].values;
  model.weights.tensors.erase("dense/weight");
  EXPECT_EQ(predictions(model, {path("a.png")}, {.at = "global_average_pool"})[0].values, features);
  model.weights.tensors.erase("conv2d/weight");
  try {
    (void)predictions(model, {path("a.png")}, {.at = "global_average_pool"});
    ADD_FAILURE() << "features of a convolution without its weight";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("missing: 'conv2d/weight'"), std::string::npos) << error.what();
  }
}

TEST_F(PredictionTest, LayersThatAreNoFeaturesAreNamed) {
  const auto error_of = [](const std::string& layers, const std::string& name = {}) -> std::string {
    const RunConfig config = tiny({"model.layers=[" + layers + "]"});
    try {
      return feature_layer(config.model.graph, name).name;
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  const std::string classifier = "conv2d: {filters: 4, kernel: 3}, flatten, dense: {units: 10}";
  EXPECT_EQ(error_of(classifier), "flatten");
  EXPECT_EQ(error_of(classifier, "conv2d"), "conv2d");
  EXPECT_EQ(error_of(classifier, "flaten"),
            "the network has no layer 'flaten'; did you mean 'flatten'? `bantam summary` lists its layers");
  EXPECT_EQ(error_of(classifier, "input"), "the network has no layer 'input'; `bantam summary` lists its layers");
  EXPECT_EQ(error_of("conv2d: {filters: 11, kernel: 1}"),
            "the network does not end with a dense layer, whose input would be the features; name a layer, of those "
            "that `bantam summary` lists");
}

TEST_F(PredictionTest, AStopKeepsWhatWasAnswered) {
  run("r");
  for (int i = 0; i < 40; ++i) write("all/" + std::to_string(i) + ".png", encode_png(grey({32, 32}, 5)));
  int asked = 0, answers = 0;
  const PredictionSummary summary =
      predict(open("r"), list_images(std::vector{path("all")}).images,
              {.threads = 1, .stop = [&] { return ++asked > 1; }}, [&](const Prediction&) { ++answers; });
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(answers, 16);
  EXPECT_EQ(summary.images, 16);
}

}  // namespace
}  // namespace bantam::run::prediction_test
