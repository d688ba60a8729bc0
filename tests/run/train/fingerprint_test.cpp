// What counts as another configuration.
#include "bantam/run/train/fingerprint.h"

#include "tests/run/run_fixture.h"

namespace bantam::run::fingerprint_test {
namespace {

class FingerprintTest : public RunTest {
 protected:
  static RunConfig with_layer(const std::string& layer) {
    return tiny({"model.layers=[{conv2d: {filters: 4, kernel: 3, stride: 4}}, " + layer +
                 ", global_average_pool, {dense: {units: 10}}]"});
  }
  static std::vector<std::string> changes(const RunConfig& was, const RunConfig& is) {
    return differences(fingerprint_of(was), fingerprint_of(is));
  }
};

TEST_F(FingerprintTest, WhatAResumedRunMayChangeDoesNotCount) {
  for (const char* free :
       {"train.epochs=9", "train.log_every=3updates", "train.evaluate=false", "train.max_updates=7",
        "train.max_time=1h", "train.mode=eager", "checkpoint={every: 5min, keep_last: 4}", "memory.limits={cpu: 1GiB}",
        "recompute=all", "algorithms=off", "log.histograms=7", "log.tensorboard=true", "data.verify=true",
        "data.on_error=skip", "data.pipeline.prefetch.depth=4", "model.name=other"})
    EXPECT_EQ(changes(tiny(), tiny({free})), std::vector<std::string>{}) << free;
}

TEST_F(FingerprintTest, EvaluationsCountWhereAScheduleFollowsThem) {
  const auto with = [](const std::string& evaluate) {
    return tiny({"train.schedule=on_plateau", "train.evaluate={every: " + evaluate + "}"});
  };
  EXPECT_EQ(changes(with("1epoch"), with("4updates")),
            std::vector<std::string>{"train.evaluate.every: was 1epoch, is 4updates"});
}

TEST_F(FingerprintTest, WhatDecidesAnUpdateIsNamedWithItsPath) {
  EXPECT_EQ(changes(tiny(), tiny({"train.optimizer.sgd.learning_rate=0.01"})),
            std::vector<std::string>{"train.optimizer.sgd.learning_rate: was 0.05, is 0.01"});
  EXPECT_EQ(changes(tiny(), tiny({"seed=8"})), std::vector<std::string>{"seed: was 7, is 8"});
  EXPECT_EQ(changes(tiny(), tiny({"train.accumulate=2"})), std::vector<std::string>{"train.accumulate: was 1, is 2"});
}

TEST_F(FingerprintTest, AnActivationThatIsAnotherIsNamed) {
  const std::vector<std::string> found = changes(with_layer("relu"), with_layer("tanh"));
  ASSERT_FALSE(found.empty());
  std::string all;
  for (const std::string& line : found) all += line + "\n";
  EXPECT_NE(all.find("model.layers.1"), std::string::npos) << all;
  EXPECT_NE(all.find("relu"), std::string::npos) << all;
  EXPECT_NE(all.find("tanh"), std::string::npos) << all;
}

TEST_F(FingerprintTest, SpellingsOfTheSameDoNotCount) {
  EXPECT_EQ(changes(with_layer("relu"), with_layer("{relu: {}}")), std::vector<std::string>{});
  EXPECT_EQ(changes(tiny(), tiny({"train.optimizer.sgd.learning_rate=5.0e-2"})), std::vector<std::string>{});
}

TEST_F(FingerprintTest, StagesOfThePipelineGoByTheirNames) {
  const RunConfig without = tiny({"data.pipeline=[{shuffle: {}}, {normalize: {scale: 0.0039}}, {batch: {size: 16}}]"});
  EXPECT_EQ(changes(tiny(), without), std::vector<std::string>{}) << "prefetch is free, and moves no other stage";
  const RunConfig cached = tiny(
      {"data.pipeline=[{cache: {disk: there}}, {shuffle: {}}, {normalize: {scale: 0.0039}}, {batch: {size: 16}}]"});
  EXPECT_EQ(changes(tiny(), cached), std::vector<std::string>{}) << "nor do bits depend on a cache";
  const RunConfig smaller = tiny({"data.pipeline.batch.size=8"});
  EXPECT_EQ(changes(tiny(), smaller), std::vector<std::string>{"data.pipeline.batch.size: was 16, is 8"});
}

TEST_F(FingerprintTest, AnotherOrderOfAugmentationsCounts) {
  const auto with = [](const std::string& augmentations) {
    return tiny({"data.pipeline=[" + augmentations + ", {normalize: {scale: 0.0039}}, {batch: {size: 16}}]"});
  };
  const std::string jitter = "{color_jitter: {brightness: 0.2}}", rotation = "{rotation: {degrees: 15}}";
  const RunConfig was = with("shuffle, " + rotation + ", " + jitter);
  EXPECT_EQ(changes(was, with("shuffle, " + jitter + ", " + rotation)),
            std::vector<std::string>{"data (order of augmentations): was rotation, color_jitter, is "
                                     "color_jitter, rotation"});
  EXPECT_EQ(changes(was, with("{cache: ram}, {shuffle: {}}, " + rotation + ", " + jitter)), std::vector<std::string>{})
      << "a default stage, written out";
  Fingerprint older = fingerprint_of(was);
  EXPECT_EQ(older.erase("data (order of augmentations)"), 1u);
  EXPECT_EQ(differences(older, fingerprint_of(was)), std::vector<std::string>{}) << "an older run's is not known";
  EXPECT_EQ(fingerprint_of(with("shuffle, " + rotation)).count("data (order of augmentations)"), 0u);
}

TEST_F(FingerprintTest, FactsOfTheDataCountWhereBothAreKnown) {
  const auto of_data = [](const RunConfig& config) {
    Runtime runtime({.threads = 1});
    Fingerprint fingerprint = fingerprint_of(config);
    add_data(fingerprint, open_data(runtime, *config.data, config.device, config.seed));
    return fingerprint;
  };
  Fingerprint was = of_data(tiny());
  EXPECT_EQ(was.at("data (training samples of an epoch)"), "96");
  EXPECT_EQ(was.at("data (validation samples)"), "20");
  EXPECT_EQ(was.at("data (classes)"), "10");
  EXPECT_EQ(differences(was, fingerprint_of(tiny())), std::vector<std::string>{});
  EXPECT_EQ(differences(fingerprint_of(tiny()), was), std::vector<std::string>{});
  was["data (classes)"] = "100";
  EXPECT_EQ(differences(was, of_data(tiny())), std::vector<std::string>{"data (classes): was 100, is 10"});
}

// What the configuration says of it may differ between machines: `auto` is settled, and `gpu` names no library.
TEST_F(FingerprintTest, WhoDecodesFilesCountsAndNotTheKey) {
  EXPECT_EQ(changes(tiny(), tiny({"data.decode=cpu"})), std::vector<std::string>{});
  Runtime runtime({.threads = 1});
  const RunConfig config = tiny();
  OpenedData data = open_data(runtime, *config.data, config.device, config.seed);
  const auto by = [&](const std::string& decoder) {
    Fingerprint fingerprint;
    data.decoder = decoder;
    add_data(fingerprint, data);
    return fingerprint;
  };
  EXPECT_FALSE(by("").contains("data (decoder)")) << "no image files";
  EXPECT_EQ(differences(by("CPU"), by("nvJPEG 12.3, hardware")),
            std::vector<std::string>{"data (decoder): was CPU, is nvJPEG 12.3, hardware"});
  EXPECT_EQ(differences(by(""), by("CPU")), std::vector<std::string>{}) << "an older run's is not known";
}

TEST_F(FingerprintTest, KeysThatComeAndGoAreNamed) {
  EXPECT_EQ(differences({{"a", "1"}, {"c", "3"}}, {{"b", "2"}, {"c", "3"}}),
            (std::vector<std::string>{"a: was 1, is gone", "b: is new (2)"}));
}

}  // namespace
}  // namespace bantam::run::fingerprint_test
