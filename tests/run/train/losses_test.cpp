// Each loss trained by a configuration on generated images, as planned; and configurations whose parts do not fit.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::losses_test {
namespace {

class LossesTest : public RunTest {
 protected:
  /// A network that ends with `units` values, or, per pixel, with as many at each.
  static RunConfig config(const std::string& labels, const std::string& loss, int units, bool per_pixel = false) {
    const std::string head = fmt::format("global_average_pool, {{dense: {{units: {}}}}}", units);
    const std::string pixels = fmt::format("{{conv2d: {{filters: {}, kernel: 3, padding: same}}}}", units);
    const std::string layers = fmt::format(
        "model.layers=[{{conv2d: {{filters: 4, kernel: 3, padding: same}}}}, {{batch_norm: {{activation: relu}}}}, {}]",
        per_pixel ? pixels : head);
    return tiny({layers, "data.labels=" + labels, "train.loss=" + loss, "train.epochs=3",
                 "train.optimizer={adam: {learning_rate: 0.01}}"});
  }
};

struct Case {
  const char *labels, *loss;
  int units;
  bool per_pixel = false;
  int counted = 20;  ///< validation samples whose label the loss reads
};

const Case kCases[] = {
    {"class", "{softmax_cross_entropy: {class_weights: [1, 2, 1, 1, 1, 1, 1, 1, 1, 1], ignore_index: 3}}", 10, false,
     18},
    {"soft", "{softmax_cross_entropy: {targets: values}}", 10},
    {"pixels", "softmax_cross_entropy", 11, true},
    {"soft", "{binary_cross_entropy: {positive_weights: [4]}}", 10},
    {"class", "focal", 10},
    {"soft", "{focal: {targets: values, alpha: 0.25}}", 10},
    {"pixels", "{dice: {ignore_index: 0}}", 11, true},
    {"values", "mse", 3},
    {"values", "mae", 3},
    {"values", "{huber: {delta: 0.1}}", 3},
    {"values", "{mse: {reduction: sum}}", 3},
};

TEST_F(LossesTest, EachTrainsAsPlanned) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.labels) + ", " + c.loss);
    const Outcome outcome =
        train(config(c.labels, c.loss, c.units, c.per_pixel), {.threads = 1, .folder = path("r"), .overwrite = true});
    ASSERT_EQ(outcome.result.updates, 18);
    EXPECT_EQ(outcome.memory.peak_bytes, outcome.planned_peak_bytes);
    EXPECT_EQ(outcome.result.validation.samples, c.counted);
    EXPECT_GT(outcome.result.validation.loss, 0);
    EXPECT_LT(outcome.result.validation.loss, 10);
  }
}

const std::string kMixed =
    "data.pipeline=[shuffle, mixup: {alpha: 0.4}, cutmix, one_hot: {smoothing: 0.1}, batch: {size: 10}]";

/// Mixed class numbers, and probabilities that are stored.
TEST_F(LossesTest, MixedImagesTrainAsPlanned) {
  for (const char* labels : {"class", "soft"}) {
    RunConfig mixed = tiny({"data.labels=" + std::string(labels), "train.epochs=2",
                            "train.loss={softmax_cross_entropy: {targets: values}}",
                            std::string(labels) == "class" ? kMixed : "data.pipeline=[mixup, batch: {size: 10}]"});
    const Outcome outcome = train(mixed, {.threads = 1, .folder = path("r"), .overwrite = true});
    EXPECT_EQ(outcome.memory.peak_bytes, outcome.planned_peak_bytes) << labels;
    EXPECT_EQ(outcome.result.validation.samples, 20);
    EXPECT_GT(outcome.result.validation.loss, 0);
  }
}

TEST_F(LossesTest, DataAndLossMustFit) {
  const auto error_of = [](const RunConfig& config) {
    try {
      require_model_fits(config);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const auto expect = [&](const RunConfig& config, const std::string& message) {
    const std::string said = error_of(config);
    EXPECT_NE(said.find(message), std::string::npos) << said;
  };
  expect(tiny({kMixed}), "whose probabilities are in 'targets', but the loss reads 'labels'");
  expect(config("class", "mse", 10), "reads 'targets', but the data have images and labels");
  expect(config("values", "mse", 4), "'targets' must be (4) a sample, but the data's are (3)");
  expect(config("pixels", "softmax_cross_entropy", 11), "'labels' must be () a sample, but the data's are (32, 32)");
  expect(config("class", "softmax_cross_entropy", 10, true),
         "one value a class, as that of dense: {units: classes}; this ends with (32, 32, 10); put "
         "global_average_pool or flatten before the last layer");
  const auto changed = [](const std::string& stage, const std::string& loss) {
    return tiny({"data.labels=pixels", "data.pipeline=[" + stage + ", batch: {size: 10}]",
                 "model.layers=[{conv2d: {filters: 11, kernel: 3, padding: same}}]", "train.loss=" + loss});
  };
  const auto rotated = [&](const std::string& options, const std::string& loss) {
    return changed("rotation: {degrees: 30" + options + "}", loss);
  };
  expect(
      rotated("", "softmax_cross_entropy"),
      "data.pipeline: rotation fills masks with 255, which is none of the 11 classes, and the loss does not leave it");
  expect(rotated(", mask_fill: 0", "softmax_cross_entropy"), "none");
  expect(rotated("", "{softmax_cross_entropy: {ignore_index: 255}}"), "none");
  const std::string loss = "softmax_cross_entropy";
  expect(changed("random_crop: {padding: 4}", loss),
         "data.pipeline: random_crop fills masks with 255, which is none of the 11 classes, and the loss does not");
  expect(changed("random_crop: {padding: 4, mask_fill: 11}", loss), "random_crop fills masks with 11, which is none");
  expect(changed("random_crop: {padding: 4, mask_fill: 10}", loss), "none");
  expect(changed("random_crop: {padding: 4, mode: reflect}", loss), "none");
  expect(changed("random_crop: {padding: 4}", "{softmax_cross_entropy: {ignore_index: 255}}"), "none");
  expect(changed("random_crop: {size: 32, padding: 4}", loss), "random_crop fills masks with 255");
  EXPECT_THROW((void)changed("random_crop: {size: 24, padding: 4}", loss), ConfigError)
      << "masks are not cut to a size";
}

}  // namespace
}  // namespace bantam::run::losses_test
