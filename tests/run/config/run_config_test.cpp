// The typed configuration: defaults, optimizers, and the errors of the sections that the program itself reads.
#include "bantam/run/config/run_config.h"

#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/optimizers/muon.h"
#include "bantam/kernels/update/update.h"

namespace bantam::run::run_config_test {
namespace {

class RunConfigTest : public ::testing::Test {
 protected:
  RunConfigTest()
      : path_(std::filesystem::temp_directory_path() / ("bantam-config-" + std::to_string(getpid()) + ".yaml")) {}
  ~RunConfigTest() override { std::filesystem::remove(path_); }
  RunConfig read(const std::vector<std::string>& overrides = {}) const {
    std::ofstream(path_) << "model: {zoo: separable_cnn}\n";
    return read_run_config(path_, overrides);
  }
  void expect_error(const std::string& override_text, const std::string& message) const {
    try {
      (void)read({override_text});
      FAIL() << override_text << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
  std::filesystem::path path_;
};

kernels::UpdateGroup constants_of(const OptimizerOptions& optimizer) {
  kernels::UpdateGroup group;
  optimizer.rule->set_constants(group);
  return group;
}

TEST_F(RunConfigTest, NamesOfOtherProgramsAreReplacedAndSavedAsOurs) {
  const auto resolved = [&](const std::vector<std::string>& overrides) {
    const RunConfig config = read(overrides);
    std::map<std::string, std::string> values;
    for (const auto& [path, value] : config.document.values()) values[path] = value;
    return values;
  };
  for (const char* name : {"amp", "fp16", "16-mixed", "\"16\"", "mixed-float16", "AMP"})
    EXPECT_EQ(resolved({std::string("precision=") + name})["precision"], "mixed_float16") << name;
  for (const char* name : {"bf16", "bf16-mixed", "bfloat16"})
    EXPECT_EQ(resolved({std::string("precision=") + name})["precision"], "mixed_bfloat16") << name;
  EXPECT_EQ(resolved({"precision=32"})["precision"], "float32");
  EXPECT_EQ(resolved({"precision=float16"})["precision"], "float16") << "a name of ours stays";
  EXPECT_EQ(read({"train.metrics=[acc]"}).train.loss.metrics.front()->kind(), "accuracy");
  EXPECT_EQ(read({"train.metrics=[acc, top5, f1_score]"}).train.loss.metrics.at(2)->kind(), "f1");
  EXPECT_EQ(read({"train.loss=cross_entropy"}).train.loss.loss->kind(), "softmax_cross_entropy");
  EXPECT_EQ(read({"train.loss={CrossEntropyLoss: {label_smoothing: 0.1}}"}).train.loss.loss->kind(),
            "softmax_cross_entropy");
  EXPECT_EQ(
      resolved(
          {"train.loss={cross_entropy: {label_smoothing: 0.1}}"})["train.loss.softmax_cross_entropy.label_smoothing"],
      "0.1");
  EXPECT_EQ(read({"train.optimizer=AdamW"}).train.optimizer.rule->kind(), "adamw");
  EXPECT_EQ(read({"train.optimizer={SGD: {learning_rate: 0.1}}"}).train.optimizer.rule->kind(), "sgd");
  expect_error("precision=quarter", "expected auto, float32");
}

TEST_F(RunConfigTest, ImagesOfChannelsFirstGetAHint) {
  expect_error("model={input: [3, 32, 32], layers: [conv2d: {filters: 4, kernel: 5}, flatten, dense: {units: 10}]}",
               "input: [32, 32, 3]");
  expect_error("model={zoo: separable_cnn, input: [3, 32, 32]}", "input: [32, 32, 3]");
}

TEST_F(RunConfigTest, GroupsHaveDurationsOfTheRunAndErrorsWithTheirPlace) {
  const RunConfig config =
      read({"data={format: generated, train_samples: 100, test_samples: 10, pipeline: [{batch: "
            "{size: 30}}]}",
            "train.accumulate=2",
            "train.groups=[{match: \"dense*\", weight_decay: 0, learning_rate_scale: 3}, {match: "
            "\"*\", freeze: true, until: 5epochs}]"});
  EXPECT_EQ(updates_per_epoch(config, 30), 2) << "four batches";
  const std::vector<ParameterGroup> groups = model_options(config).groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0.0f);
  EXPECT_EQ(groups[0].learning_rate_scale, 3.0f);
  EXPECT_TRUE(groups[1].freeze);
  EXPECT_EQ(groups[1].frozen_updates, 10);
  EXPECT_FALSE(groups[1].is_frozen_for_good());
  expect_error("train.groups=[{match: \"dens/*\"}]", "'dens/*' matches no parameter");
  expect_error("train.groups=[{match: \"*\", freeze: true}]", "nothing is left to train");
  expect_error("train.groups=[{match: \"*\", until: 5epochs}]", "until belongs to freeze: true");
  expect_error("train.groups=[{match: \"dense*\", freeze: true, weight_decay: 0}]",
               "frozen for good has no weight_decay");
  expect_error("train.groups=[{match: \"dense*\", freeze: true, until: 1h}]", "command line");
}

TEST_F(RunConfigTest, SchedulesAreCheckedWhereTheyStand) {
  const RunConfig config = read({"train.schedule={cosine: {warmup: 2epochs}}"});
  EXPECT_TRUE(config.train.optimizer.schedules.learning_rate);
  expect_error("train={schedule: constant, optimizer: {adam: {learning_rate: {schedule: cosine}}}}",
               "one of the two is enough");
  expect_error("train={evaluate: false, schedule: on_plateau}", "on_plateau needs evaluations");
  expect_error("train.schedule={on_plateau: {metric: los}}", "expected metric to be one of loss, accuracy, got 'los'");
}

// 1,000 images of 3,076 bytes: 2.93 MiB.
TEST_F(RunConfigTest, CacheAutoFollowsTheLimitOfTheCpu) {
  const auto cache = [&](const std::string& where, const std::string& memory) {
    return read({"device=cpu", "memory=" + memory,
                 "data={format: generated, train_samples: 900, test_samples: 100, pipeline: [{cache: " + where +
                     "}, {batch: {size: 4}}]}"})
        .data->pipeline.cache;
  };
  EXPECT_EQ(cache("auto", "{limits: {cpu: 4MiB}}"), CacheKind::ram);
  EXPECT_EQ(cache("auto", "{limits: {cpu: 3.5MiB}}"), CacheKind::off) << "three quarters are less";
  EXPECT_EQ(cache("auto", "{budget: 3.5MiB}"), CacheKind::off);
  EXPECT_EQ(cache("ram", "{limits: {cpu: 3.5MiB}}"), CacheKind::ram);
  EXPECT_EQ(cache("off", "{}"), CacheKind::off);
}

TEST_F(RunConfigTest, Defaults) {
  const RunConfig config = read({"device=cpu"});
  EXPECT_EQ(config.seed, 42u);
  EXPECT_EQ(config.precision.kind, PrecisionKind::float32);
  EXPECT_TRUE(config.memory.growth);
  EXPECT_FALSE(config.data.has_value());
  EXPECT_EQ(config.recompute.kind, RecomputeOptions::Kind::none);
  EXPECT_EQ(config.train.epochs, 1);
  EXPECT_EQ(config.train.optimizer.rule->kind(), "adam");
  EXPECT_FLOAT_EQ(constants_of(config.train.optimizer).epsilon, 1e-7f);
  EXPECT_EQ(config.model.name, "separable_cnn");
}

TEST_F(RunConfigTest, AMisspeltKeyIsNamedBeforeWhatItLeadsTo) {
  expect_error("train.optimizer={sgd: {momenum: 0.9, nesterov: true}}",
               "unknown key 'momenum' in train.optimizer.sgd; did you mean 'momentum'?");
  expect_error("train.optimizer={sgd: {nesterov: true}}", "nesterov: true needs a momentum above 0");
}

TEST_F(RunConfigTest, OptimizersHaveTheDefaultsOfPyTorchOrTheirPapers) {
  const auto optimizer = [&](const std::string& text) {
    return read({"device=cpu", "train.optimizer=" + text}).train.optimizer;
  };
  const OptimizerOptions rmsprop = optimizer("{rmsprop: {centered: true, momentum: 0.5}}");
  EXPECT_EQ(rmsprop.rule->kind(), "rmsprop");
  EXPECT_EQ(rmsprop.rule->values(), (UpdateValues{.learning_rate = 0.01f, .momentum = 0.5f}));
  EXPECT_FLOAT_EQ(constants_of(rmsprop).beta2, 0.99f) << "alpha";
  EXPECT_FLOAT_EQ(constants_of(rmsprop).epsilon, 1e-8f);
  EXPECT_EQ(rmsprop.rule->slots(), 3);
  EXPECT_EQ(optimizer("rmsprop").rule->slots(), 1);
  const OptimizerOptions lion = optimizer("lion");
  EXPECT_FLOAT_EQ(lion.rule->values().learning_rate, 1e-4f);
  EXPECT_FLOAT_EQ(constants_of(lion).beta2, 0.99f);
  EXPECT_EQ(lion.rule->slots(), 1);
  EXPECT_FLOAT_EQ(constants_of(optimizer("lamb")).epsilon, 1e-6f);
  const OptimizerOptions muon = optimizer("{muon: {rest: {sgd: {momentum: 0.5, decay_biases: false}}}}");
  EXPECT_EQ(muon.rule->values(), (UpdateValues{.learning_rate = 0.02f, .momentum = 0.95f}));
  EXPECT_TRUE(muon_options(*muon.rule)->nesterov);
  ASSERT_NE(muon.rule->rest(), nullptr);
  EXPECT_EQ(muon.rule->rest()->kind(), "sgd");
  EXPECT_FLOAT_EQ(muon.rule->rest()->values().momentum, 0.5f);
  EXPECT_FALSE(muon.decay_biases) << "biases are the rest's";
  EXPECT_EQ(optimizer("muon").rule->rest()->kind(), "adamw");
  EXPECT_FLOAT_EQ(constants_of(optimizer("{sgd: {momentum: 0.9, dampening: 0.1}}")).beta3, 0.1f);
}

TEST_F(RunConfigTest, OptimizersThatCannotBeAreRefused) {
  expect_error("train.optimizer={sgd: {dampening: 0.1}}", "dampening needs a momentum above 0");
  expect_error("train.optimizer={sgd: {momentum: 0.9, nesterov: true, dampening: 0.1}}",
               "Nesterov's momentum has no dampening");
  expect_error("train.optimizer={muon: {rest: muon}}", "muon's rest must be another built-in optimizer");
  expect_error("train.optimizer={muon: {rest: {adam: {learning_rat: 1}}}}", "did you mean 'learning_rate'?");
  expect_error("train.optimizer={muon: {exclude: [dense/weight, \"denze/*\"]}}",
               "muon.exclude: 'denze/*' matches no parameter of 2 or 4 dimensions; did you mean 'dense/");
  expect_error("train.optimizer={muon: {exclude: [\"*/bias\"]}}", "matches no parameter of 2 or 4 dimensions");
  expect_error("train.optimizer={muon: {exclude: 3}}", "expected a list");
  expect_error("train.optimizer={lion: {beta1: 1}}", "expected a number in [0, 1)");
  expect_error("train.clip_value=-1", "clip_value");
}

TEST_F(RunConfigTest, LayerDecayIsOfTheOptimizer) {
  EXPECT_EQ(read({}).train.optimizer.layer_decay, 1.0f);
  EXPECT_FLOAT_EQ(read({"train.layer_decay=0.75"}).train.optimizer.layer_decay, 0.75f);
  expect_error("train.layer_decay=0", "layer_decay");
  expect_error("train.layer_decay=1.01", "expected a number in (0, 1]");
}

TEST_F(RunConfigTest, ClippingIsOfTheOptimizer) {
  const OptimizerOptions optimizer = read({"device=cpu", "train.clip_norm=2", "train.clip_value=0.5"}).train.optimizer;
  EXPECT_FLOAT_EQ(optimizer.clip_norm, 2.0f);
  EXPECT_FLOAT_EQ(optimizer.clip_value, 0.5f);
}

TEST_F(RunConfigTest, KeysOfOtherProgramsAreUnderstood) {
  expect_error("epochs=1", "unknown key 'epochs'; did you mean train.epochs?");
  expect_error("lr=0.1", "unknown key 'lr'; did you mean train.optimizer.adam.learning_rate?");
  expect_error("train.lr=0.1", "unknown key 'lr' in train; did you mean train.optimizer.adam.learning_rate?");
  expect_error("train.optimizer.adam.lr=0.1", "did you mean 'learning_rate'?");
  expect_error("gpu=1", "unknown key 'gpu'; did you mean 'device', e.g. device=cuda:0?");
  expect_error("fp16=true", "unknown key 'fp16'; did you mean 'precision', e.g. precision=mixed_float16?");
  expect_error("learning_rate=0.1", "did you mean train.optimizer.adam.learning_rate?");
}

TEST_F(RunConfigTest, PrecisionFollowsTheDevice) {
  EXPECT_EQ(read({"device=cuda:0"}).precision.kind, PrecisionKind::mixed_float16);
  EXPECT_EQ(read({"device=cuda:0", "precision=mixed_bfloat16"}).precision.kind, PrecisionKind::mixed_bfloat16);
}

TEST_F(RunConfigTest, Optimizers) {
  const auto sgd =
      read({"train.optimizer={sgd: {learning_rate: 0.1, momentum: 0.9, nesterov: true}}", "train.clip_norm=2"})
          .train.optimizer;
  EXPECT_EQ(sgd.rule->kind(), "sgd");
  EXPECT_FLOAT_EQ(sgd.rule->values().momentum, 0.9f);
  EXPECT_FLOAT_EQ(sgd.clip_norm, 2.0f);
  const auto adamw = read({"train.optimizer=adamw"}).train.optimizer;
  EXPECT_EQ(adamw.rule->kind(), "adamw");
  EXPECT_FLOAT_EQ(adamw.rule->values().weight_decay, 0.004f) << "Keras' default";
  const auto adam =
      read({"train.optimizer={adam: {beta1: 0.5, weight_decay: 0.1, decay_biases: false}}"}).train.optimizer;
  EXPECT_FLOAT_EQ(adam.rule->values().momentum, 0.5f);
  EXPECT_FALSE(adam.decay_biases);
}

TEST_F(RunConfigTest, LimitsAndRecompute) {
  const RunConfig config =
      read({"device=cpu", "memory.limits={cpu: 1GiB, \"cuda:1\": 512MiB}", "memory.growth=false", "recompute=[dense]"});
  EXPECT_EQ(config.memory.limits.at("cpu"), 1u << 30);
  EXPECT_EQ(config.memory.limits.at("cuda:1"), 512u << 20);
  EXPECT_FALSE(config.memory.growth);
  EXPECT_EQ(to_string(config.recompute), "dense");
  EXPECT_EQ(parse_recompute("a+b").names, (std::vector<std::string>{"a", "b"}));
  for (const std::string text : {"none", "cheap", "all", "inner", "a+b", "a..b", "cheap+a..b+c", "inner+whole+a..b"})
    EXPECT_EQ(to_string(parse_recompute(text)), text);
  EXPECT_EQ(parse_recompute("cheap").derive, Derive::cheap);
  EXPECT_EQ(parse_recompute("inner").derive, Derive::inner);
  EXPECT_TRUE(parse_recompute("cheap+whole+a").whole);
  EXPECT_EQ(parse_recompute("cheap").kind, RecomputeOptions::Kind::none);
  EXPECT_EQ(parse_recompute("all").derives(), Derive::cheap);
  EXPECT_EQ(parse_recompute("cheap+a..b").names, (std::vector<std::string>{"a..b"}));
  EXPECT_EQ(read({"recompute=cheap"}).recompute.derive, Derive::cheap);
  EXPECT_EQ(read({"recompute=inner"}).recompute.derive, Derive::inner);
  EXPECT_EQ(to_string(read({"recompute=[dense, cheap]"}).recompute), "cheap+dense");
}

TEST_F(RunConfigTest, MemoryKeys) {
  const MemoryConfig none = read({"device=cpu"}).memory;
  EXPECT_EQ(none.budget, 0u);
  EXPECT_EQ(none.on_oom, OnOutOfMemory::fail);
  EXPECT_TRUE(none.logical.empty());
  const MemoryConfig all =
      read({"memory.logical={\"cuda:0\": [2GiB, 1GiB]}", "memory.budget=1.5GiB", "memory.on_oom=accumulate"}).memory;
  EXPECT_EQ(all.logical.at("cuda:0"), (std::vector<std::uint64_t>{2ull << 30, 1ull << 30}));
  EXPECT_EQ(all.budget, 3ull << 29);
  EXPECT_EQ(all.on_oom, OnOutOfMemory::accumulate);
  expect_error("memory.on_oom=retry", "expected fail, accumulate or accumulate_with_batch_norm");
  expect_error("memory.logical={\"cuda:0\": []}", "memory.logical.cuda:0: expected the bytes of each share");
  expect_error("memory.logical={\"cuda:0\": [0]}", "memory.logical.cuda:0.0");
  expect_error("memory.logical={gpu: [1GiB]}", "memory.logical: unknown device 'gpu'");
  expect_error("memory.limits={\"cuda:0/1\": 1GiB}", "is a share");
  expect_error("device=cuda:0/1", "device: cuda:0/1 does not exist: cuda:0 is not split (memory.logical)");
  EXPECT_EQ(read({"memory.logical={cpu: [1MiB, 2MiB]}", "device=cpu/1"}).device, Device::cpu().logical(1));
}

TEST_F(RunConfigTest, ADeviceHasOneLimitAndOneSplit) {
  expect_error("memory.limits={cuda: 4GiB, \"cuda:0\": 5GiB}",
               "duplicate key 'cuda:0' in memory.limits: it is the device of 'cuda'");
  expect_error("memory.logical={\"cuda:0\": [4GiB], cuda: [5GiB]}",
               "duplicate key 'cuda' in memory.logical: it is the device of 'cuda:0'");
}

TEST_F(RunConfigTest, WordsOfRecomputeThatWouldDoNothing) {
  expect_error("recompute=[inner, cheap, dense]", "inner and cheap exclude each other");
  expect_error("recompute=[whole]", "whole does nothing alone");
  expect_error("recompute=[whole, dense]", "whole does nothing alone");
  EXPECT_THROW((void)parse_recompute("inner+cheap"), ConfigError);
  EXPECT_THROW((void)parse_recompute("whole+a"), ConfigError);
  // At the entry, not at the list.
  expect_error("recompute=[dense, dense]", "                     ^~~~~");
  expect_error("recompute=[dense, dens]", "                     ^~~~");
}

TEST_F(RunConfigTest, ABatchSizeKeepsToItsBounds) {
  const std::string before = "data={format: generated, pipeline: [batch: {size: 32, ", after = "}]}";
  expect_error(before + "max: 10" + after, "data.pipeline.0.batch.max: 10 is less than data.pipeline.0.batch.size, 32");
  expect_error(before + "multiple_of: 7" + after,
               "data.pipeline.0.batch.multiple_of: data.pipeline.0.batch.size, 32, is no multiple of 7");
  const RunConfig settled = read({"device=cpu", before + "max: 32, multiple_of: 8" + after});
  EXPECT_EQ(settled.data->pipeline.batch_size, 32) << "as a run's resolved configuration has it";
}

TEST_F(RunConfigTest, Errors) {
  expect_error("version=2", "this program reads version 1");
  expect_error("seed=-1", "seed: expected an integer ≥ 0");
  expect_error("devise=cpu", "did you mean 'device'?");
  expect_error("train.loss=hinge", "unknown loss 'hinge'; valid: softmax_cross_entropy");
  expect_error("train.label_smoothing=1", "expected a number in [0, 1)");
  expect_error("train.metrics=[perplexity]", "unknown metric 'perplexity'; valid: accuracy");
  expect_error("train.metrics=[acuracy]", "unknown metric 'acuracy'; did you mean 'accuracy'?");
  expect_error("train.metrics=[accuracy, accuracy]", "the metric 'accuracy' is named twice");
  expect_error("train.schedule=constamt", "unknown schedule 'constamt'; did you mean 'constant'?");
  expect_error("train.callbacks=[print]", "unknown callback 'print'");
  expect_error("train.loss={softmax_cross_entropy: {smoothing: 0.1}}", "unknown key 'smoothing'");
  expect_error("train.optimizer=adamm", "unknown optimizer 'adamm'; did you mean 'adam'?");
  expect_error("train.optimizer={sgd: {nesterov: true}}", "needs a momentum");
  expect_error("train.optimizer={adam: {momentum: 0.9}}", "unknown key 'momentum'");
  expect_error("train.epochs=0", "expected an integer from 1");
  expect_error("train={epochs: 2, updates: 9}",
               "train.updates 9 and train.epochs 2: expected one of the two, each is the length of the run");
  expect_error("train.epochs=auto", "train.epochs: auto needs train.updates");
  expect_error("train.updates=-1", "expected an integer from 0");
  EXPECT_EQ(read({"train.updates=9"}).train.updates, 9);
  EXPECT_EQ(read({"train.epochs=3", "train.updates=0"}).train.epochs, 3);
  expect_error("train.log_every=0", "train.log_every: expected at least 1update, got 0");
  expect_error("train.log_every=2epochs", "expected a duration such as 500 or 500updates, got '2epochs'");
  EXPECT_EQ(read({"train.log_every=6updates"}).train.log_every, 6);
  expect_error("recompute=some", "expected none, inner, cheap, all, auto or a list");
  expect_error("memory.grow=true", "did you mean 'growth'?");
}

}  // namespace
}  // namespace bantam::run::run_config_test
