// The engine's tables: what is built in, what a program adds, and how a configuration names either.
#include <filesystem>

#include <unistd.h>

#include "bantam/base/text.h"
#include "bantam/engine/optimizers/muon.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/engine/train/trainer.h"
#include "tests/base/config_error.h"
#include "tests/engine/train/regression.h"

namespace bantam::tables_test {
namespace {

struct Silent : Callback {
  explicit Silent(std::int64_t every) : every(every) {}
  std::int64_t every;
};

/// A program registers once, before it reads a configuration.
void register_own() {
  static const bool done = [] {
    losses().add("mean_squared_error", [](ConfigMap&) { return std::make_shared<testing::MeanSquaredError>(); });
    metrics().add("rmse", [](ConfigMap&) { return std::make_shared<testing::RootMeanSquaredError>(); });
    schedules().add("to_end", [](ConfigMap& options) -> ScheduleMaker {
      const auto end = static_cast<float>(options.number("end", {.min = 0}, 0.0));
      return [end](const ScheduleFacts& run) -> Schedule {
        return [=](std::int64_t n) {
          const float done = static_cast<float>(n) / static_cast<float>(run.updates);
          return run.learning_rate + (end - run.learning_rate) * done;
        };
      };
    });
    optimizers().add("fixed", [](ConfigMap& options) {
      return OptimizerOptions{.rule = adam({.learning_rate = static_cast<float>(options.number("rate", {.min = 0}))})};
    });
    callbacks().add("silent", [](ConfigMap& options) -> CallbackMaker {
      const std::int64_t every = options.integer("every", {.min = 1}, 10);
      return [every] { return std::make_unique<Silent>(every); };
    });
    exporters().add("count", [](Model& model, const std::filesystem::path& path) {
      write_safetensors(path,
                        {.tensors = {}, .metadata = {{"n", std::to_string(model.parameters().parameter_count())}}});
    });
    return true;
  }();
  (void)done;
}

ConfigMap section(const std::string& yaml) { return ConfigDocument::parse(yaml, "own.yaml").map(); }

#define EXPECT_SAYS(call, part)                                               \
  do {                                                                        \
    const std::string said = testing::config_error_of([&] { (void)(call); }); \
    EXPECT_NE(said.find(part), std::string::npos) << said << "\n" << (part);  \
  } while (false)

TEST(LossTable, NamesAreRead) {
  register_own();
  ConfigMap plain = section("{}"), smooth = section("label_smoothing: 0.25"),
            inside = section("loss: {softmax_cross_entropy: {label_smoothing: 0.25}}"),
            own = section("loss: mean_squared_error");
  EXPECT_EQ(read_loss(plain)->kind(), "softmax_cross_entropy");
  EXPECT_EQ(read_loss(own)->kind(), "mean_squared_error");
  for (ConfigMap* map : {&smooth, &inside})
    EXPECT_FLOAT_EQ(read_loss(*map)->as_softmax_cross_entropy({})->options.label_smoothing, 0.25f);
  for (ConfigMap* map : {&plain, &smooth, &inside, &own}) EXPECT_NO_THROW(map->finish());
  ConfigMap slip = section("loss: mean_square_error"), far = section("loss: hinge"),
            option = section("loss: {mean_squared_error: {power: 3}}");
  EXPECT_SAYS(read_loss(slip),
              "own.yaml:1:1: error: unknown loss 'mean_square_error'; did you mean 'mean_squared_error'?");
  EXPECT_EQ(losses().names().front(), "softmax_cross_entropy");
  EXPECT_SAYS(read_loss(far), "unknown loss 'hinge'; valid: " + join(losses().names(), ", ", " and "));
  EXPECT_SAYS(read_loss(option), "unknown key 'power'");
  EXPECT_SAYS(losses().add("mean_squared_error", nullptr), "loss 'mean_squared_error' is registered already");
  EXPECT_THROW((void)softmax_cross_entropy({.label_smoothing = 1.0f}), ConfigError);
}

TEST(LossTable, OptionsAreRead) {
  const auto read = [](const std::string& loss) {
    ConfigMap map = section("loss: " + loss);
    return read_loss(map);
  };
  EXPECT_EQ(read("mae")->kind(), "mae");
  EXPECT_EQ(read("{huber: {delta: 0.5, reduction: sum}}")->kind(), "huber");
  EXPECT_EQ(read("{binary_cross_entropy: {positive_weights: [1, 2]}}")->targets({2}).at(0).name, kTargets);
  EXPECT_EQ(read("{dice: {ignore_index: 255}}")->targets({2, 2, 3}).at(0).name, kLabels);
  EXPECT_EQ(read("{focal: {targets: values, alpha: 0.25, gamma: 1}}")->targets({3}).at(0).name, kTargets);
  EXPECT_FALSE(read("{softmax_cross_entropy: {class_weights: [1, 2]}}")->as_softmax_cross_entropy({}));
  EXPECT_EQ(read("{softmax_cross_entropy: {reduction: sum}}")->as_softmax_cross_entropy({})->options.divisor, 1.0f);
  EXPECT_SAYS(read("{softmax_cross_entropy: {class_weights: [1, 0]}}"), "own.yaml:1:");
  EXPECT_SAYS(read("{softmax_cross_entropy: {targets: values, ignore_index: 0}}"),
              "own.yaml:1:31: error: softmax_cross_entropy: ignore_index is a label, and targets: values has none");
  EXPECT_SAYS(read("{focal: {alpha: 0.25}}"), "labels have class_weights");
  EXPECT_SAYS(read("{huber: {delta: 0}}"), "delta");
  EXPECT_SAYS(read("{mse: {reduction: average}}"), "reduction");
}

TEST(MetricTable, NamesAreRead) {
  register_own();
  ConfigMap plain = section("{}"), own = section("metrics: [accuracy, rmse]"), none = section("metrics: []");
  EXPECT_EQ(read_metrics(plain).size(), 1u);
  EXPECT_TRUE(read_metrics(none).empty());
  const std::vector<MetricPtr> both = read_metrics(own);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(both[0]->counted_by_loss());
  EXPECT_EQ(both[1]->kind(), "rmse");
  ConfigMap slip = section("metrics: [rmsd]"), twice = section("metrics: [rmse, rmse]"),
            text = section("metrics: rmse");
  EXPECT_SAYS(read_metrics(slip), "unknown metric 'rmsd'; did you mean 'rmse'?");
  EXPECT_SAYS(read_metrics(twice), "the metric 'rmse' is named twice");
  EXPECT_SAYS(read_metrics(text), "expected a list");
}

TEST(MetricTable, MergedValuesAreOfMergedSums) {
  const auto rmse = std::make_shared<testing::RootMeanSquaredError>();
  Metrics sum;
  merge(sum, {.loss = 1, .accuracy = 0, .samples = 1, .values = {{rmse, {9, 1}}}});
  merge(sum, {.loss = 4, .accuracy = 1, .samples = 3, .values = {{rmse, {7, 3}}}});
  merge(sum, {});
  EXPECT_EQ(sum.samples, 4);
  EXPECT_DOUBLE_EQ(sum.loss, 3.25);
  EXPECT_DOUBLE_EQ(sum.accuracy, 0.75);
  EXPECT_DOUBLE_EQ(sum.values.at(0).value(), 2.0);  // √(16/4)
}

TEST(ScheduleTable, NamesAreRead) {
  register_own();
  const ScheduleFacts run{.learning_rate = 0.5f, .updates = 4, .updates_per_epoch = 2};
  ConfigMap none = section("{}"), constant = section("schedule: constant"),
            own = section("schedule: {to_end: {end: 0.1}}");
  EXPECT_FALSE(read_schedule(none)) << "the optimizer's rate, which callbacks may change";
  EXPECT_EQ(read_schedule(constant)(run)(3), 0.5f);
  const Schedule linear = read_schedule(own)(run);
  EXPECT_FLOAT_EQ(linear(0), 0.5f);
  EXPECT_FLOAT_EQ(linear(2), 0.3f);
  EXPECT_FLOAT_EQ(linear(2), linear(2));
  ConfigMap slip = section("schedule: to_ent");
  EXPECT_SAYS(read_schedule(slip), "unknown schedule 'to_ent'; did you mean 'to_end'?");
}

TEST(OptimizerTable, NamesAreRead) {
  register_own();
  ConfigMap none = section("{}"), sgd = section("optimizer: {sgd: {momentum: 0.5}}"),
            own = section("optimizer: {fixed: {rate: 2}}");
  EXPECT_EQ(read_optimizer(none).rule->kind(), "adam");
  EXPECT_FLOAT_EQ(read_optimizer(sgd).rule->values().learning_rate, 0.01f);
  EXPECT_FLOAT_EQ(read_optimizer(own).rule->values().learning_rate, 2.0f);
  ConfigMap slip = section("optimizer: fixd"), missing = section("optimizer: fixed"),
            both = section("optimizer: {sgd: {nesterov: true, momentun: 0.9}}"),
            between = section("optimizer: {sgd: {nesterov: true}}");
  EXPECT_SAYS(read_optimizer(slip), "unknown optimizer 'fixd'; did you mean 'fixed'?");
  EXPECT_SAYS(read_optimizer(missing), "missing key 'rate'");
  EXPECT_SAYS(read_optimizer(both), "unknown key 'momentun'");
  EXPECT_SAYS(read_optimizer(between), "nesterov: true needs a momentum above 0");
  EXPECT_SAYS(optimizers().add("adam", nullptr), "optimizer 'adam' is registered already");
}

TEST(OptimizerTable, MuonsOwnKeysAreRead) {
  ConfigMap none = section("optimizer: muon"),
            all = section("optimizer: {muon: {steps: 3, coefficients: [3.5, -4.75, 2], normalize_weights: true}}"),
            every = section("optimizer: {muon: {normalize_weights: {every: 4}}}"),
            never = section("optimizer: {muon: {normalize_weights: false}}");
  const auto options_of = [](ConfigMap& map) { return *muon_options(*read_optimizer(map).rule); };
  const MuonOptions plain = options_of(none), given = options_of(all);
  EXPECT_EQ(plain.steps, 5);
  EXPECT_EQ(plain.coefficients, (std::array<float, 3>{3.4445f, -4.7750f, 2.0315f}));
  EXPECT_EQ(plain.normalize_every, 0);
  EXPECT_EQ(given.steps, 3);
  EXPECT_EQ(given.coefficients, (std::array<float, 3>{3.5f, -4.75f, 2.0f}));
  EXPECT_EQ(given.normalize_every, 1);
  EXPECT_EQ(options_of(every).normalize_every, 4);
  EXPECT_EQ(options_of(never).normalize_every, 0);
  ConfigMap many = section("optimizer: {muon: {steps: 11}}"),
            two = section("optimizer: {muon: {coefficients: [1, 2]}}"),
            steep = section("optimizer: {muon: {coefficients: [3.4576, -4.7391, 2.0843]}}"),
            negative = section("optimizer: {muon: {normalize_weights: {every: 0}}}");
  EXPECT_SAYS(read_optimizer(many), "expected an integer");
  EXPECT_SAYS(read_optimizer(two), "coefficients are three numbers [a, b, c], got 2");
  EXPECT_SAYS(read_optimizer(steep), "in 5 steps; at most 2 is accepted");
  EXPECT_SAYS(read_optimizer(negative), "expected an integer");
}

TEST(CallbackTable, ARunMakesItsOwn) {
  register_own();
  ConfigMap none = section("{}"), own = section("callbacks: [silent, {silent: {every: 3}}]");
  EXPECT_TRUE(read_callbacks(none).empty());
  const std::vector<CallbackMaker> makers = read_callbacks(own);
  ASSERT_EQ(makers.size(), 2u);
  const auto first = makers[1](), second = makers[1]();
  EXPECT_NE(first, second);
  EXPECT_EQ(dynamic_cast<Silent&>(*first).every, 3);
  EXPECT_EQ(dynamic_cast<Silent&>(*makers[0]()).every, 10);
  ConfigMap slip = section("callbacks: [silemt]"), text = section("callbacks: silent");
  EXPECT_SAYS(read_callbacks(slip), "unknown callback 'silemt'; did you mean 'silent'?");
  EXPECT_SAYS(read_callbacks(text), "expected a list");
}

TEST(ExporterTable, WritesByName) {
  register_own();
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::cpu(), testing::regression_network(), {.seed = 4});
  const auto folder = std::filesystem::path(::testing::TempDir()) / ("tables" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  export_model(model, "safetensors", folder / "weights");
  export_model(model, "count", folder / "count");
  EXPECT_EQ(read_safetensors(folder / "weights").tensors.count("values/bias"), 1u);
  EXPECT_EQ(read_safetensors(folder / "count").metadata.at("n"), std::to_string(7 * 16 + 17 * 2));
  EXPECT_SAYS((export_model(model, "safetensor", folder / "x"), 0),
              "unknown export format 'safetensor'; did you mean 'safetensors'?");
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace bantam::tables_test
