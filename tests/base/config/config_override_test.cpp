// Overrides: paths through maps and lists, what they may create, and errors that point into the command line.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"

namespace bantam::config_override_test {
namespace {

constexpr const char* kText = R"(train:
  epochs: 5
  optimizer: adam
data:
  path: old
  pipeline:
    - cache: ram
    - shuffle: {}
    - batch: {size: 16}
    - flip
layers:
  - dense: {units: 64}
  - relu
  - dense: {units: 10}
)";

ConfigDocument load(std::vector<std::string> overrides) { return ConfigDocument::parse(kText, "t.yaml", overrides); }

std::string error_of(std::vector<std::string> overrides) {
  try {
    load(std::move(overrides));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Override, ReplacesValues) {
  const auto document = load({"train.epochs=7", "data.path=/tmp/a=b", "train.epochs=8"});
  EXPECT_EQ(document.map().map("train").integer("epochs", {}), 8);  // the last one wins
  EXPECT_EQ(document.map().map("data").text("path"), "/tmp/a=b");
}

/// What is wrong about an entry as a whole is told of where its value stands: not of a key of the file whose value the
/// command line has replaced.
TEST(Override, ErrorsAboutAReplacedValuePointIntoTheCommandLine) {
  const auto error = [](const std::vector<std::string>& overrides) -> std::string {
    const ConfigDocument document = load(overrides);
    const std::vector<std::string> known = {"sgd"};
    try {
      document.map().map("train").node("optimizer").fail_unknown("optimizer", "it", known);
    } catch (const ConfigError& thrown) {
      return thrown.what();
    }
  };
  EXPECT_TRUE(error({}).starts_with("t.yaml:3:3: error: ")) << error({});
  EXPECT_TRUE(error({"train.epochs=7"}).starts_with("t.yaml:3:3: error: "));
  for (const char* value : {"train.optimizer=nope", "train.optimizer={nope: {}}", "train={optimizer: nope}"})
    EXPECT_TRUE(error({value}).starts_with("command line: error: ")) << error({value});
  EXPECT_TRUE(error({"train.optimizer=nope"}).ends_with("\n   train.optimizer=nope\n                   ^~~~"))
      << error({"train.optimizer=nope"});
}

TEST(Override, ReachesListEntriesByNameAndIndex) {
  const auto document = load({"data.pipeline.batch.size=64", "data.pipeline.cache=device", "layers.2.dense.units=100"});
  const auto pipeline = document.map().map("data").list("pipeline");
  EXPECT_EQ(pipeline[2].as_named().options.as_map().integer("size", {}), 64);
  EXPECT_EQ(pipeline[0].as_named().options.as_text(), "device");
  const auto layers = document.map().list("layers");
  EXPECT_EQ(layers[2].as_named().options.as_map().integer("units", {}), 100);
  EXPECT_EQ(layers[0].as_named().options.as_map().integer("units", {}), 64);
}

TEST(Override, GivesOptionsToPlainNames) {
  const auto document =
      load({"data.pipeline.flip.vertical=true", "layers.relu.max=6", "train.optimizer.adam.beta1=0.8"});
  EXPECT_TRUE(document.map().map("data").list("pipeline")[3].as_named().options.as_map().boolean("vertical"));
  EXPECT_EQ(document.map().list("layers")[1].as_named().options.as_map().integer("max", {}), 6);
  const auto optimizer = document.map().map("train").node("optimizer").as_named();
  EXPECT_EQ(optimizer.name, "adam");
  EXPECT_EQ(optimizer.options.as_map().number("beta1", {}), 0.8);
}

TEST(Override, MakesMissingMaps) {
  const auto document = load({"memory.limits.cuda:0=4GiB", "data.pipeline.shuffle.seed=3"});
  EXPECT_EQ(document.map().map("memory").node("limits").entries().at(0).second.as_byte_size(), 4294967296u);
  EXPECT_EQ(document.map().map("data").list("pipeline")[1].as_named().options.as_map().integer("seed", {}), 3);
}

TEST(Override, TakesFlowValues) {
  const auto document =
      load({"layers=[{dense: {units: 3}}, relu]", "train.optimizer={sgd: {momentum: 0.9}}", "data.path="});
  EXPECT_EQ(document.map().list("layers").size(), 2u);
  EXPECT_EQ(document.map().list("layers")[0].path(), "layers.0");
  EXPECT_EQ(document.map().map("train").node("optimizer").as_named().name, "sgd");
  EXPECT_TRUE(document.map().map("data").node("path").is_null());
}

TEST(Override, ErrorsInValuesPointIntoTheCommandLine) {
  const auto document = load({"train.epochs=many", "data.pipeline.batch={size: 0}"});
  const auto error_in = [](auto&& read) -> std::string {
    try {
      read();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_in([&] { document.map().map("train").integer("epochs", {.min = 1}); }),
            "command line: error: train.epochs: expected an integer ≥ 1, got 'many'\n"
            "   train.epochs=many\n"
            "                ^~~~");
  const auto batch = document.map().map("data").list("pipeline")[2].as_named().options;
  EXPECT_EQ(error_in([&] { batch.as_map().integer("size", {.min = 1}); }),
            "command line: error: data.pipeline.2.batch.size: expected an integer ≥ 1, got 0\n"
            "   data.pipeline.batch={size: 0}\n"
            "                              ^");
  EXPECT_EQ(batch.position(), "command line");
}

TEST(Override, UnknownKeysPointIntoTheCommandLine) {
  const auto document = load({"trian.epochs=5"});
  ConfigMap map = document.map();
  for (const char* key : {"train", "data", "layers"}) map.node(key);
  try {
    map.finish();
    FAIL() << "an unknown key was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "command line: error: unknown key 'trian'; did you mean 'train'?\n"
                 "   trian.epochs=5\n"
                 "   ^~~~~");
  }
}

TEST(Override, ASecondNameBesideTheFilesOneIsTheOverridesMistake) {
  const auto document = ConfigDocument::parse("train: {optimizer: {adam: {beta1: 0.9}}}\n", "t.yaml",
                                              std::vector<std::string>{"train.optimizer.learning_rate=0.01"});
  try {
    (void)document.map().map("train").node("optimizer").as_named();
    FAIL() << "a map of two names was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "command line: error: train.optimizer is 'adam' with its options, and 'learning_rate' would stand "
                 "beside it: write train.optimizer.adam.KEY=VALUE for an option, or train.optimizer={NAME: {…}} for "
                 "another\n"
                 "   train.optimizer.learning_rate=0.01\n"
                 "                   ^~~~~~~~~~~~~");
  }
}

TEST(Override, AKeyAtAWrongPlaceIsNamedAsOverridesAreWritten) {
  const ConfigSynonym synonyms[] = {{"batch_size", "batch.size", ""}, {"bs", "batch.size", "64"}};
  const auto error_in = [&](const std::string& override_text) -> std::string {
    auto document = ConfigDocument::parse(kText, "t.yaml", std::vector<std::string>{override_text});
    document.set_synonyms(synonyms);
    ConfigMap top = document.map(), train = top.map("train"), data = top.map("data");
    for (const ConfigNode& item : data.list("pipeline"))
      if (const auto [name, options] = item.as_named(); name == "batch") options.as_map().node("size");
    for (const ConfigNode& item : top.list("layers"))
      if (const auto [name, options] = item.as_named(); name == "dense") options.as_map().node("units");
    train.node("epochs");
    try {
      top.finish();
    } catch (const ConfigError& error) {
      return std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
    }
    return "no error";
  };
  const std::string begin = "command line: error: unknown key ";
  EXPECT_EQ(error_in("epochs=1"), begin + "'epochs'; did you mean train.epochs?");
  EXPECT_EQ(error_in("epoch=1"), begin + "'epoch'; did you mean train.epochs?");
  EXPECT_EQ(error_in("size=1"), begin + "'size'; did you mean data.pipeline.batch.size?");
  EXPECT_EQ(error_in("batch_size=1"), begin + "'batch_size'; did you mean data.pipeline.batch.size?");
  EXPECT_EQ(error_in("Batch-Size=1"), begin + "'Batch-Size'; did you mean data.pipeline.batch.size?");
  EXPECT_EQ(error_in("bs=1"), begin + "'bs'; did you mean data.pipeline.batch.size, e.g. data.pipeline.batch.size=64?");
  EXPECT_EQ(error_in("units=1"), begin + "'units'; did you mean layers.0.dense.units or layers.2.dense.units?");
}

TEST(Override, AColonWithoutASpaceIsExplained) {
  EXPECT_EQ(error_of({"memory.limits={cpu:16MiB}"}),
            "command line: error: expected ':' after the key 'cpu:16MiB'; write a space after the colon: 'cpu: "
            "16MiB'\n"
            "   memory.limits={cpu:16MiB}\n"
            "                  ^~~~~~~~~");
}

TEST(Override, RefusesPathsThatDoNotFit) {
  EXPECT_EQ(error_of({"epochs"}), "command line: error: expected key=value, got 'epochs'\n   epochs\n   ^~~~~~");
  EXPECT_EQ(error_of({"=5"}), "command line: error: expected key=value, got '=5'\n   =5\n   ^~");
  EXPECT_EQ(error_of({""}), "command line: error: expected key=value, got ''");
  EXPECT_EQ(error_of({"train..epochs=5"}),
            "command line: error: a step of the path is empty; write key=value or outer.inner=value\n"
            "   train..epochs=5\n"
            "         ^");
  EXPECT_EQ(error_of({"train.epochs.x=5"}),
            "command line: error: train.epochs is 5, so it has no key 'x'\n"
            "   train.epochs.x=5\n"
            "                ^");
  EXPECT_EQ(error_of({"data.pipeline.bach.size=5"}),
            "command line: error: no entry 'bach' in the list data.pipeline; did you mean 'batch'?\n"
            "   data.pipeline.bach.size=5\n"
            "                 ^~~~");
  EXPECT_EQ(error_of({"data.pipeline.resize.to=5"}),
            "command line: error: no entry 'resize' in the list data.pipeline; it has cache, shuffle, batch and flip\n"
            "   data.pipeline.resize.to=5\n"
            "                 ^~~~~~");
  EXPECT_EQ(error_of({"layers.dense.units=5"}),
            "command line: error: the list layers has more than one entry 'dense': address it by its index, e.g. "
            "layers.0.dense\n"
            "   layers.dense.units=5\n"
            "          ^~~~~");
  EXPECT_EQ(error_of({"layers.3.dense.units=5"}),
            "command line: error: the list layers has 3 entries, so there is no entry 3\n"
            "   layers.3.dense.units=5\n"
            "          ^");
}

TEST(Override, RefusesBrokenYaml) {
  EXPECT_EQ(error_of({"train.epochs=[1, 2"}),
            "command line: error: a key must be text, not a list or a map (is a bracket left open?)\n"
            "   train.epochs=[1, 2\n"
            "                ^");
  EXPECT_EQ(error_of({"train.epochs=*x"}),
            "command line: error: aliases (*name) are not supported: write the value out\n"
            "   train.epochs=*x\n"
            "                ^");
  EXPECT_EQ(error_of({"train.epochs='x"}),
            "command line: error: this quote is never closed\n"
            "   train.epochs='x\n"
            "                ^");
  EXPECT_EQ(error_of({"data={a: 1, a: 2}"}),
            "command line: error: duplicate key 'a'\n"
            "   data={a: 1, a: 2}\n"
            "               ^");
}

}  // namespace
}  // namespace bantam::config_override_test
