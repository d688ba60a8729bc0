// Steps of a program's own loop through the C interface: they learn, add up, evaluate, predict, save and resume.
#include <cmath>
#include <thread>

#include "bantam/base/json.h"
#include "tests/capi/capi_fixture.h"

namespace bantam::testing::models_test {
namespace {

bantam_metrics step(bantam_model* model, const Halves& halves) {
  const std::vector<bantam_array> batch = halves.batch();
  bantam_metrics metrics = BANTAM_INIT(bantam_metrics);
  expect_ok(bantam_model_step(model, batch.data(), batch.size(), &metrics));
  return metrics;
}

std::vector<float> predict(bantam_model* model, const Halves& halves) {
  const bantam_array images = halves.batch()[0];
  std::vector<float> outputs(static_cast<std::size_t>(halves.shape[0] * 2));
  expect_ok(bantam_model_predict(model, &images, BANTAM_INPUT_NETWORK, outputs.data(), outputs.size()));
  return outputs;
}

TEST(CapiModels, StepsLearn) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const Halves halves(32);
  const std::vector<bantam_array> batch = halves.batch();
  const double first = step(model.get(), halves).loss;
  for (int i = 0; i < 40; ++i) expect_ok(bantam_model_step(model.get(), batch.data(), batch.size(), nullptr));
  bantam_metrics all = BANTAM_INIT(bantam_metrics);
  expect_ok(bantam_model_read_metrics(model.get(), &all));
  EXPECT_EQ(all.updates, 41);
  EXPECT_EQ(all.samples, 41 * 32);
  EXPECT_LT(all.loss, first);
  bantam_metrics evaluated = BANTAM_INIT(bantam_metrics);
  expect_ok(bantam_model_evaluate(model.get(), batch.data(), batch.size(), &evaluated));
  EXPECT_EQ(evaluated.samples, 32);
  EXPECT_EQ(evaluated.accuracy, 1.0);
  EXPECT_STREQ(evaluated.values, "{}");
  expect_ok(bantam_model_read_metrics(model.get(), &all));
  EXPECT_EQ(all.updates, 0);
}

// More updates than the device counts before they have to be read.
TEST(CapiModels, StepsNeedNoReading) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const Halves halves(2);
  const std::vector<bantam_array> batch = halves.batch();
  for (int i = 0; i < 1100; ++i) expect_ok(bantam_model_step(model.get(), batch.data(), batch.size(), nullptr));
  bantam_metrics all = BANTAM_INIT(bantam_metrics);
  expect_ok(bantam_model_read_metrics(model.get(), &all));
  EXPECT_EQ(all.updates, 1100);
  EXPECT_EQ(all.samples, 2200);
}

// Two halves of a batch, and the batch at once: the same mean, whose sums are added in another order.
TEST(CapiModels, GradientsAccumulate) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> whole = model_of(config.get()), parts = model_of(config.get());
  const Halves halves(8);
  std::vector<bantam_array> batch = halves.batch();
  step(whole.get(), halves);
  const std::int64_t four[] = {4, 4, 4, 1};
  for (const std::int64_t first : {0, 4}) {
    const bantam_array part[] = {{"images", BANTAM_FLOAT32, 4, four, halves.floats.data() + first * 16},
                                 {"labels", BANTAM_INT32, 1, four, halves.labels.data() + first}};
    expect_ok(bantam_model_accumulate(parts.get(), part, 2, first, 8));
  }
  bantam_metrics metrics = BANTAM_INIT(bantam_metrics);
  expect_error(bantam_model_read_metrics(parts.get(), &metrics), BANTAM_BAD_ARGUMENT,
               "bantam_model_read_metrics: an effective batch is under way: end it with bantam_model_update");
  expect_ok(bantam_model_update(parts.get()));
  expect_error(bantam_model_update(parts.get()), BANTAM_BAD_ARGUMENT,
               "bantam_model_update: there are no gradients: call bantam_model_accumulate first");
  const std::vector<float> a = predict(whole.get(), halves), b = predict(parts.get(), halves);
  // One step of Adam moves a weight by at most the rate, 0.02; sums of 8 float32 terms differ by far less than 1e-4 of
  // it.
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4f);
}

TEST(CapiModels, TheLearningRateCounts) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const Halves halves(8);
  const std::vector<float> before = predict(model.get(), halves);
  expect_ok(bantam_model_set_learning_rate(model.get(), 0.0));
  step(model.get(), halves);
  EXPECT_EQ(predict(model.get(), halves), before);
  EXPECT_EQ(bantam_model_set_learning_rate(model.get(), -1.0), BANTAM_CONFIG_ERROR);
  expect_ok(bantam_model_set_learning_rate(model.get(), 0.1));
  step(model.get(), halves);
  EXPECT_NE(predict(model.get(), halves), before);
}

TEST(CapiModels, StateGoesOnWithTheSameBits) {
  const Folder folder;
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> one = model_of(config.get()), other = model_of(config.get());
  const Halves halves(8);
  for (int i = 0; i < 3; ++i) step(one.get(), halves);
  expect_ok(bantam_model_save_state(one.get(), folder.at("state").c_str()));
  expect_ok(bantam_model_load_state(other.get(), folder.at("state").c_str()));
  for (int i = 0; i < 3; ++i) step(one.get(), halves);
  for (int i = 0; i < 3; ++i) step(other.get(), halves);
  EXPECT_EQ(predict(one.get(), halves), predict(other.get(), halves));
  expect_ok(bantam_model_save(one.get(), folder.at("weights").c_str()));
  const Owned<bantam_model> loaded = model_of(config.get());
  expect_ok(bantam_model_load(loaded.get(), folder.at("weights").c_str()));
  EXPECT_EQ(predict(one.get(), halves), predict(loaded.get(), halves));
}

TEST(CapiModels, FactsAndReports) {
  bantam_engine* made = nullptr;
  expect_ok(bantam_engine_create(nullptr, &made));
  Owned<bantam_engine> engine(made);
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get(), engine.get());
  bantam_model_info info = BANTAM_INIT(bantam_model_info);
  expect_ok(bantam_model_get_info(model.get(), &info));
  EXPECT_EQ(info.input_rank, 3);
  EXPECT_EQ(info.input_shape[2], 1);
  EXPECT_EQ(info.output_rank, 1);
  EXPECT_EQ(info.output_shape[0], 2);
  EXPECT_EQ(info.parameters, 16 * 8 + 8 + 8 * 2 + 2);
  EXPECT_EQ(info.trains, 1);
  EXPECT_STREQ(info.device, "cpu");
  EXPECT_EQ(info.repeated_batches, 0);
  char* json = nullptr;
  expect_ok(bantam_engine_memory_report(engine.get(), "cpu", &json));
  const auto report = nlohmann::json::parse(text_of(json));
  std::uint64_t held = 0;
  for (const auto& holder : report["holders"]) held += holder["bytes"].get<std::uint64_t>();
  EXPECT_EQ(held, report["in_use_bytes"].get<std::uint64_t>());
  EXPECT_GT(held, 0u);
  engine.reset();  // the model keeps what it needs
  step(model.get(), Halves(4));
  expect_ok(bantam_model_class_names(model.get(), &json));
  EXPECT_EQ(text_of(json), "[]");
  expect_ok(bantam_devices(&json));
  EXPECT_EQ(nlohmann::json::parse(text_of(json))["devices"][0]["device"], "cpu");
  expect_ok(bantam_config_resolved(config.get(), &json));
  EXPECT_NE(text_of(json).find("learning_rate: 0.02"), std::string::npos);
  EXPECT_EQ(bantam_c_version(), BANTAM_C_VERSION);
}

// The batches of an update, where one for which memory ends is repeated.
TEST(CapiModels, RepeatedBatchesAreThoseOfAnUpdate) {
  const auto repeated = [](std::vector<const char*> overrides) {
    bantam_config_options options = BANTAM_INIT(bantam_config_options);
    options.overrides = overrides.data();
    options.override_count = overrides.size();
    const Owned<bantam_config> config = config_of(kSmall, &options);
    bantam_model_info info = BANTAM_INIT(bantam_model_info);
    expect_ok(bantam_model_get_info(model_of(config.get()).get(), &info));
    return info.repeated_batches;
  };
  EXPECT_EQ(repeated({"memory.on_oom=accumulate"}), 1);
  EXPECT_EQ(repeated({"memory.on_oom=accumulate", "train.accumulate=3", "train.replicas=2"}), 6);
  EXPECT_EQ(repeated({"train.accumulate=3"}), 0);
}

TEST(CapiModels, TwoThreadsTrainTwoModels) {
  const auto train = [] {
    const Owned<bantam_config> config = config_of(kSmall);
    const Owned<bantam_model> model = model_of(config.get());
    const Halves halves(16);
    for (int i = 0; i < 20; ++i) step(model.get(), halves);
    return predict(model.get(), halves);
  };
  const std::vector<float> alone = train();
  std::vector<float> first, second;
  std::thread one([&] { first = train(); }), two([&] { second = train(); });
  one.join();
  two.join();
  EXPECT_EQ(first, alone);
  EXPECT_EQ(second, alone);
}

}  // namespace
}  // namespace bantam::testing::models_test
