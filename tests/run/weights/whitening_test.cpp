// Whitened convolutions: patches and eigenvectors by hand, what the outputs' covariance is, and runs that begin with
// them, are resumed, or are given weights.
#include "bantam/run/weights/whitening.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/train/train.h"
#include "bantam/run/weights/patch_covariance.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::whitening_test {
namespace {

std::vector<float> random_images(std::int64_t values) {
  PhiloxSequence random(philox_key(3, RandomPurpose::test));
  std::vector<float> images(static_cast<std::size_t>(values));
  for (float& value : images) value = random.uniform(-1.0f, 2.0f);
  return images;
}

// Two images of 1x3: patches (1, 2), (2, 4), (0, 1), (1, 3).
TEST(PatchCovariance, ByHand) {
  PatchCovariance covariance({1, 3, 1}, {.filters = 4, .kernel = {1, 2}});
  ASSERT_EQ(covariance.patch(), 2);
  covariance.add(std::vector<float>{1, 2, 4, 0, 1, 3}, 1);
  EXPECT_EQ(covariance.images(), 2);
  // Means of 1 + 4 + 0 + 1, of 2 + 8 + 0 + 3, of 4 + 16 + 1 + 9.
  EXPECT_EQ(covariance.mean(), (std::vector<double>{1.5, 3.25, 3.25, 7.5}));
}

// A filter's weights are (row, column, channel), windows a stride apart, their elements a dilation.
TEST(PatchCovariance, PatchesAreThoseOfTheLayer) {
  PatchCovariance covariance({3, 4, 2}, {.filters = 8, .kernel = {2, 1}, .stride = {1, 2}, .dilation = {2, 1}});
  std::vector<float> image(24);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i);
  covariance.add(image, 1);
  // Row 0 and row 2, columns 0 and 2: (0, 1, 16, 17) and (4, 5, 20, 21).
  const double a[] = {0, 1, 16, 17}, b[] = {4, 5, 20, 21};
  const std::vector<double> mean = covariance.mean();
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(mean[4 * i + j], (a[i] * a[j] + b[i] * b[j]) / 2) << i << ' ' << j;
}

TEST(PatchCovariance, NeitherThreadsNorBatchesChangeABit) {
  const std::vector<float> images = random_images(std::int64_t{23} * 9 * 8 * 3);
  const Conv2dOptions conv{.filters = 24, .kernel = {2, 2}};
  PatchCovariance one({9, 8, 3}, conv), several({9, 8, 3}, conv), in_turn({9, 8, 3}, conv);
  one.add(images, 1);
  several.add(images, 3);
  EXPECT_EQ(one.mean(), several.mean());
  in_turn.add(std::span(images).first(8 * 216), 2);
  in_turn.add(std::span(images).subspan(8 * 216), 2);
  EXPECT_EQ(one.mean(), in_turn.mean()) << "of whole parts";
}

TEST(PatchCovariance, RefusesWindowsThatDoNotFit) {
  EXPECT_THROW(PatchCovariance({2, 8, 3}, {.filters = 18, .kernel = {3, 1}, .stride = {4, 1}}), ConfigError);
}

// [5, 3; 3, 5]: eigenvalues 8 along (1, 1)/√2 and 2 along (1, -1)/√2.
TEST(WhiteningWeights, OfTwoElementsByHand) {
  const std::vector<double> covariance = {5, 3, 3, 5};
  const std::vector<float> w = whitening_weights(covariance, 2, 4, 1.0);
  ASSERT_EQ(w.size(), 8u);
  const double along = std::sqrt(0.5) / 3, across = std::sqrt(0.5 / 3);
  const double expected[] = {along, along, across, -across, -along, -along, -across, across};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(w[i], expected[i], 1e-7) << i;
}

// Of [5, 3; 3, 5] the eigenvector of 8; of a diagonal the axes of its largest elements.
TEST(WhiteningWeights, FewerFiltersAreOfTheLargestEigenvalues) {
  const std::vector<float> one = whitening_weights(std::vector<double>{5, 3, 3, 5}, 2, 2, 1.0);
  ASSERT_EQ(one.size(), 4u);
  const double along = std::sqrt(0.5) / 3, expected[] = {along, along, -along, -along};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(one[i], expected[i], 1e-7) << i;
  const std::vector<double> diagonal = {4, 0, 0, 0, 1, 0, 0, 0, 9};
  EXPECT_EQ(whitening_weights(diagonal, 3, 4, 0.0),
            (std::vector<float>{0, 0, 1 / 3.0f, 0.5f, 0, 0, 0, 0, -1 / 3.0f, -0.5f, 0, 0}));
}

TEST(WhiteningWeights, OutputsHaveUnitVarianceAndNoCorrelation) {
  const std::int64_t patch = 12;
  PatchCovariance covariance({8, 8, 3}, {.filters = 24, .kernel = {2, 2}});
  covariance.add(random_images(std::int64_t{40} * 192), 2);
  const std::vector<double> c = covariance.mean();
  const std::vector<float> w = whitening_weights(c, patch, 2 * patch, 1e-12);
  const auto at = [&](std::int64_t i, std::int64_t j) {
    return static_cast<double>(w[static_cast<std::size_t>(i * patch + j)]);
  };
  for (std::int64_t i = 0; i < patch; ++i) {
    for (std::int64_t j = 0; j < patch; ++j) {
      double product = 0;  // W·C·Wᵀ
      for (std::int64_t k = 0; k < patch; ++k)
        for (std::int64_t l = 0; l < patch; ++l)
          product += at(i, k) * c[static_cast<std::size_t>(k * patch + l)] * at(j, l);
      EXPECT_NEAR(product, i == j ? 1.0 : 0.0, 1e-5);  // float32 weights: 144 terms of up to 2 times a rounding
    }
    EXPECT_EQ(at(patch + i, 0), -at(i, 0));
  }
}

// Images that are all alike: one eigenvalue, and eleven of 0, which a rounding may leave below.
TEST(WhiteningWeights, DirectionsWithoutVarianceStayFinite) {
  PatchCovariance covariance({4, 4, 3}, {.filters = 24, .kernel = {2, 2}});
  covariance.add(std::vector<float>(48, 0.7f), 1);
  for (const float weight : whitening_weights(covariance.mean(), 12, 24, 5e-4)) {
    ASSERT_TRUE(std::isfinite(weight));
    EXPECT_LE(std::abs(weight), 1.0f / std::sqrt(5e-4f) * 1.0001f);
  }
  EXPECT_THROW((void)whitening_weights(std::vector<double>{NAN}, 1, 2, 1.0), DataError);
}

class WhitenedRunTest : public RunTest {
 protected:
  struct Told : RunObserver {
    void on_message(std::string_view text) override { messages.emplace_back(text); }
    std::vector<std::string> messages;
  };
  static std::vector<std::string> whitened(std::vector<std::string> more = {}) {
    more.emplace_back(
        "model.layers=[{conv2d: {filters: 24, kernel: 2, stride: 4, initializer: {whiten: {images: 50, epsilon: "
        "1.0e-3}}}}, {batch_norm: {activation: relu}}, global_average_pool, {dense: {units: 10}}]");
    return more;
  }
  Outcome run(const std::string& name, const std::vector<std::string>& overrides, int threads = 1) {
    return train(tiny(overrides), {.threads = threads, .folder = path(name)}, {}, {.observer = &told_});
  }
  std::vector<float> weight_of(const std::string& run, const std::string& file = "weights.safetensors") {
    const HostTensor tensor = read_safetensors(path(run + "/" + file)).tensors.at("conv2d/weight");
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  template <class Error>
  std::string error_of(const std::vector<std::string>& overrides) {
    try {
      (void)tiny(overrides);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  Told told_;
};

// By another way: the reader's bytes, normalised here.
TEST_F(WhitenedRunTest, BeginsWithEigenvectorsOfItsFirstImages) {
  const RunConfig config = tiny(whitened());
  (void)run("r", whitened({"train.optimizer.sgd.learning_rate=0", "train.epochs=1"}));
  const auto samples = open_splits(*config.data, config.seed).train;
  std::vector<float> images;
  for (std::int64_t i = 0; i < 50; ++i) {
    std::vector<std::byte> image(32 * 32 * 3), label(sizeof(std::int32_t));
    const std::vector<std::span<std::byte>> fields = {image, label};
    samples->read(i, fields);
    for (const std::byte value : image) images.push_back(static_cast<float>(value) * 0.0039f);
  }
  PatchCovariance covariance({32, 32, 3}, {.filters = 24, .kernel = {2, 2}, .stride = {4, 4}});
  covariance.add(images, 1);
  EXPECT_EQ(weight_of("r"), whitening_weights(covariance.mean(), 12, 24, 1e-3));
  ASSERT_EQ(told_.messages.size(), 1u);
  EXPECT_EQ(told_.messages[0], "whitened: conv2d/weight from 50 images");
}

TEST_F(WhitenedRunTest, FewerImagesAreAllOfThem) {
  (void)run("r", whitened({"data.train_samples=40", "train.epochs=1"}));
  EXPECT_EQ(told_.messages.at(0), "whitened: conv2d/weight from 40 images");
}

TEST_F(WhitenedRunTest, HasTheSameBitsForAnyThreadsAndThePlannedPeak) {
  const Outcome one = run("one", whitened());
  (void)run("three", whitened(), 3);
  EXPECT_EQ(weight_of("one"), weight_of("three"));
  EXPECT_EQ(one.memory.peak_bytes, one.planned_peak_bytes);
}

TEST_F(WhitenedRunTest, AResumedRunGoesOnFromItsWeights) {
  (void)run("whole", whitened());
  int asked = 0;
  (void)train(tiny(whitened()), {.threads = 1, .folder = path("r"), .stop = [&] { return ++asked > 3; }});
  RunDirectory folder = RunDirectory::open(path("r"));
  Told told;
  (void)train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.observer = &told, .resume = &folder});
  EXPECT_TRUE(told.messages.empty());
  EXPECT_EQ(weight_of("r"), weight_of("whole"));
}

TEST_F(WhitenedRunTest, LoadedWeightsStay) {
  (void)run("first", whitened());
  (void)run("second", whitened({"model.weights=" + path("first/weights.safetensors").string(), "train.epochs=1",
                                "train.optimizer.sgd.learning_rate=0"}));
  EXPECT_EQ(weight_of("second"), weight_of("first"));
  EXPECT_NE(told_.messages.at(1).find("weights: 8 of 8 tensors"), std::string::npos);
}

TEST_F(WhitenedRunTest, AnAverageBeginsWithThem) {
  (void)run("r",
            whitened({"train.ema={decay: 0.7, every: 1000}", "train.epochs=1", "train.optimizer.sgd.learning_rate=0"}));
  EXPECT_EQ(weight_of("r", "weights-ema.safetensors"), weight_of("r")) << "nothing was averaged yet";
}

TEST_F(WhitenedRunTest, ConfigurationsThatCannotBeAreRefused) {
  const auto layers = [](const std::string& text) { return std::vector<std::string>{"model.layers=[" + text + "]"}; };
  const std::string rest = ", global_average_pool, {dense: {units: 10}}";
  const auto expect = [&](const std::string& text, const std::string& message) {
    const std::string error = error_of<ConfigError>(layers(text + rest));
    EXPECT_NE(error.find(message), std::string::npos) << error;
  };
  for (const int filters : {26, 21}) {
    const std::string count = std::to_string(filters);
    expect("{conv2d: {filters: " + count + ", kernel: 2, initializer: {whiten: {}}}}",
           "whiten needs 2 × 2 × 2 × 3 = 24 filters (a patch's elements, and their negatives), or an even number "
           "below, got " +
               count);
  }
  expect("{conv2d: {filters: 6, kernel: 1, groups: 3, initializer: {whiten: {}}}}",
         "whiten needs one group of channels");
  expect("relu, {conv2d: {filters: 24, kernel: 2, initializer: {whiten: {}}}}",
         "whiten is for a layer that reads the model's images directly; this one reads another layer");
  expect("{conv2d: {filters: 24, kernel: 2, initializer: {whitening: {}}}}", "did you mean 'whiten'?");
  expect("{conv2d: {filters: 24, kernel: 2, initializer: {}}}",
         "expected the name of an initializer, {truncated_normal: deviation}, {normal: deviation} or {whiten: "
         "{images: N, epsilon: X}}");
  expect("{conv2d: {filters: 24, kernel: 2, initializer: {whiten: {epsilon: 0}}}}", "expected");
}

}  // namespace
}  // namespace bantam::run::whitening_test
