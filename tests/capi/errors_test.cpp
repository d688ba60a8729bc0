// Every status of the C interface with its message, and what happens to a program that is older than the library.
#include <cmath>
#include <thread>

#include "tests/capi/capi_fixture.h"

namespace bantam::testing::errors_test {
namespace {

TEST(CapiErrors, NullPointersAreNamed) {
  bantam_config* config = nullptr;
  bantam_engine* engine = nullptr;
  bantam_model* model = nullptr;
  char* text = nullptr;
  expect_error(bantam_config_from_text(nullptr, nullptr, &config), BANTAM_BAD_ARGUMENT, "yaml is null");
  expect_error(bantam_config_from_text("", nullptr, nullptr), BANTAM_BAD_ARGUMENT, "config is null");
  expect_error(bantam_config_from_file(nullptr, nullptr, &config), BANTAM_BAD_ARGUMENT, "path is null");
  expect_error(bantam_config_resolved(nullptr, &text), BANTAM_BAD_ARGUMENT, "config is null");
  expect_error(bantam_plan(nullptr, 0, nullptr), BANTAM_BAD_ARGUMENT, "config is null");
  expect_error(bantam_engine_create(nullptr, nullptr), BANTAM_BAD_ARGUMENT, "engine is null");
  expect_error(bantam_engine_set_limit(nullptr, "cpu", 0), BANTAM_BAD_ARGUMENT, "engine is null");
  expect_error(bantam_engine_memory_report(engine, "cpu", &text), BANTAM_BAD_ARGUMENT, "engine is null");
  expect_error(bantam_devices(nullptr), BANTAM_BAD_ARGUMENT, "json is null");
  expect_error(bantam_train(nullptr, nullptr, nullptr, nullptr), BANTAM_BAD_ARGUMENT, "config is null");
  expect_error(bantam_model_create(nullptr, nullptr, &model), BANTAM_BAD_ARGUMENT, "config is null");
  expect_error(bantam_model_open(nullptr, nullptr, nullptr, &model), BANTAM_BAD_ARGUMENT, "path is null");
  expect_error(bantam_model_step(nullptr, nullptr, 0, nullptr), BANTAM_BAD_ARGUMENT, "model is null");
  expect_error(bantam_model_predict(nullptr, nullptr, 0, nullptr, 0), BANTAM_BAD_ARGUMENT, "model is null");
  EXPECT_EQ(config, nullptr);
  bantam_config_destroy(nullptr);
  bantam_engine_destroy(nullptr);
  bantam_model_destroy(nullptr);
  bantam_free(nullptr);
}

TEST(CapiErrors, ConfigurationsSayWhere) {
  bantam_config* config = nullptr;
  const bantam_status status =
      bantam_config_from_text("model: {input: [4], layers: [dens: {units: 2}]}", nullptr, &config);
  EXPECT_EQ(status, BANTAM_CONFIG_ERROR);
  EXPECT_STREQ(bantam_status_name(status), "BANTAM_CONFIG_ERROR");
  EXPECT_EQ(std::string(bantam_last_error()).find("config.yaml:1:30: error: unknown"), 0u) << bantam_last_error();
  EXPECT_EQ(bantam_config_from_file("/nowhere/at/all.yaml", nullptr, &config), BANTAM_CONFIG_ERROR);
  EXPECT_EQ(config, nullptr);
}

TEST(CapiErrors, ADeviceThatIsNotThere) {
  const Owned<bantam_config> config = config_of("device: cuda:63\nmodel: {input: [4], layers: [dense: {units: 2}]}\n");
  bantam_model* model = nullptr;
  EXPECT_EQ(bantam_model_create(nullptr, config.get(), &model), BANTAM_DEVICE_ERROR);
  bantam_engine* engine = nullptr;
  const char* const devices[] = {"gpu7"};
  const std::uint64_t limits[] = {1};
  bantam_engine_options options = BANTAM_INIT(bantam_engine_options);
  options.limit_devices = devices;
  options.limits = limits;
  options.limit_count = 1;
  EXPECT_EQ(bantam_engine_create(&options, &engine), BANTAM_DEVICE_ERROR);
  EXPECT_NE(std::string(bantam_last_error()).find("gpu7"), std::string::npos);
}

TEST(CapiErrors, ALimitIsTold) {
  bantam_engine* made = nullptr;
  const char* const devices[] = {"cpu"};
  const std::uint64_t limits[] = {1000};
  bantam_engine_options options = BANTAM_INIT(bantam_engine_options);
  options.limit_devices = devices;
  options.limits = limits;
  options.limit_count = 1;
  expect_ok(bantam_engine_create(&options, &made));
  const Owned<bantam_engine> engine(made);
  const Owned<bantam_config> config = config_of(kSmall);
  bantam_model* model = nullptr;
  EXPECT_EQ(bantam_model_create(engine.get(), config.get(), &model), BANTAM_OUT_OF_MEMORY);
  EXPECT_EQ(model, nullptr);
  expect_ok(bantam_engine_set_limit(engine.get(), "cpu", 64 << 20));
  expect_ok(bantam_model_create(engine.get(), config.get(), &model));
  const Owned<bantam_model> owned(model);
}

TEST(CapiErrors, ArraysAreChecked) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const Halves halves(4);
  const auto step = [&](const std::vector<bantam_array>& batch) {
    return bantam_model_step(model.get(), batch.data(), batch.size(), nullptr);
  };
  std::vector<bantam_array> batch = halves.batch();
  expect_error(step({}), BANTAM_BAD_ARGUMENT, "expected at least one array, got none");
  EXPECT_EQ(step({batch[0]}), BANTAM_SHAPE_ERROR);
  EXPECT_NE(std::string(bantam_last_error()).find("labels"), std::string::npos) << bantam_last_error();
  expect_error(
      step(halves.bytes_batch()), BANTAM_DTYPE_ERROR,
      "images (4, 4, 4, 1) uint8: the network reads float32 images, scaled and normalised as it shall see them");
  expect_error(step({batch[0], batch[0]}), BANTAM_BAD_ARGUMENT, "two arrays are named 'images'");
  bantam_array wrong = batch[0];
  wrong.dtype = 99;
  expect_error(step({wrong, batch[1]}), BANTAM_BAD_ARGUMENT, "array 'images': 99 is no BANTAM_… element type");
  wrong = batch[0];
  wrong.data = nullptr;
  expect_error(step({wrong, batch[1]}), BANTAM_BAD_ARGUMENT, "array 'images': data is null");
  wrong.rank = 9;
  expect_error(step({wrong, batch[1]}), BANTAM_BAD_ARGUMENT,
               "array 'images': expected 1 to 8 axes, the first that of samples, got 9");
  const std::int64_t two[] = {2};
  wrong = {"labels", BANTAM_INT32, 1, two, halves.labels.data()};
  expect_error(step({batch[0], wrong}), BANTAM_BAD_ARGUMENT,
               "images (4, 4, 4, 1) float32 and labels (2) int32 have not as many samples");
  const std::int32_t labels[] = {0, 1, 2, 0};
  batch[1].data = labels;
  expect_error(step(batch), BANTAM_DATA_ERROR,
               "sample 2 of the batch has the label 2; expected one of 2 classes, 0 to 1");
  expect_ok(step(halves.batch()));  // the model is as usable as before
}

TEST(CapiErrors, AnArrayTooManyIsRefused) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const Halves halves(4);
  std::vector<bantam_array> batch = halves.batch();
  const std::int64_t shape[] = {4, 2};
  const float values[8] = {};
  batch.push_back({"targets", BANTAM_FLOAT32, 2, shape, values});
  const char* const message =
      "batch's array 'targets' is read by nothing: the network and its loss read images and labels";
  bantam_metrics metrics = BANTAM_INIT(bantam_metrics);
  expect_error(bantam_model_step(model.get(), batch.data(), 3, nullptr), BANTAM_BAD_ARGUMENT, message);
  expect_error(bantam_model_evaluate(model.get(), batch.data(), 3, &metrics), BANTAM_BAD_ARGUMENT, message);
  expect_error(bantam_model_accumulate(model.get(), batch.data(), 3, 0, 4), BANTAM_BAD_ARGUMENT, message);
  bantam_samples samples = BANTAM_INIT(bantam_samples);
  std::vector<bantam_array> stored = halves.bytes_batch();
  stored.push_back(batch[2]);
  samples.arrays = stored.data();
  samples.array_count = stored.size();
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.train = &samples;
  bantam_config* made = nullptr;
  expect_error(bantam_config_from_text(kSmall, &options, &made), BANTAM_BAD_ARGUMENT,
               "samples' array 'targets' is read by nothing: the network and its loss read images and labels");
  EXPECT_EQ(made, nullptr);
  expect_ok(bantam_model_step(model.get(), batch.data(), 2, nullptr));
}

TEST(CapiErrors, LearningRatesAreFiniteAndNotNegative) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  for (const double wrong : {-1.0, -1e-300, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e39}) {
    EXPECT_EQ(bantam_model_set_learning_rate(model.get(), wrong), BANTAM_CONFIG_ERROR) << wrong;
    EXPECT_NE(std::string(bantam_last_error()).find("expected a finite number of at least 0"), std::string::npos);
  }
  for (const double fine : {0.0, 1e-30, 0.5}) expect_ok(bantam_model_set_learning_rate(model.get(), fine));
}

TEST(CapiErrors, HandlesThatWereDestroyedAreRefused) {
  const Owned<bantam_config> config = config_of(kSmall);
  bantam_engine* engine = nullptr;
  expect_ok(bantam_engine_create(nullptr, &engine));
  bantam_model* model = nullptr;
  expect_ok(bantam_model_create(engine, config.get(), &model));
  bantam_engine_destroy(engine);
  char* text = nullptr;
  const char* const gone = " is no handle: it was destroyed, or this library has not made it";
  expect_error(bantam_engine_memory_report(engine, "cpu", &text), BANTAM_BAD_ARGUMENT, std::string("engine") + gone);
  expect_error(bantam_engine_set_limit(engine, "cpu", 1), BANTAM_BAD_ARGUMENT, std::string("engine") + gone);
  bantam_model* other = nullptr;
  expect_error(bantam_model_create(engine, config.get(), &other), BANTAM_BAD_ARGUMENT, std::string("engine") + gone);
  expect_ok(bantam_model_memory_report(model, &text));  // the model keeps what it needs of its engine
  bantam_free(text);
  bantam_engine_destroy(engine);
  EXPECT_STREQ(bantam_last_error(), "bantam_engine_destroy: this is no handle of the program's");
  bantam_model_destroy(model);
  bantam_model_destroy(model);
  EXPECT_STREQ(bantam_last_error(), "bantam_model_destroy: this is no handle of the program's");
  expect_error(bantam_model_update(model), BANTAM_BAD_ARGUMENT, std::string("model") + gone);
  expect_error(bantam_model_class_names(model, &text), BANTAM_BAD_ARGUMENT, std::string("model") + gone);
  int other_memory = 0;
  expect_error(bantam_config_resolved(reinterpret_cast<bantam_config*>(&other_memory), &text), BANTAM_BAD_ARGUMENT,
               std::string("config") + gone);
}

TEST(CapiErrors, AnEngineThatWasLentIsNotDestroyed) {
  const Folder folder;
  const Halves halves(32);
  const Owned<bantam_config> config = config_with(halves, {"train.epochs=1"});
  bantam_train_options options = BANTAM_INIT(bantam_train_options);
  const std::string run = folder.at("run");
  options.folder = run.c_str();
  options.on_event = [](void*, const bantam_event* event) -> std::int32_t {
    if (event->engine == nullptr) return 0;
    bantam_engine_destroy(event->engine);
    char* text = nullptr;
    expect_ok(bantam_engine_memory_report(event->engine, "cpu", &text));
    bantam_free(text);
    return 0;
  };
  expect_ok(bantam_train(config.get(), &options, nullptr, nullptr));
}

TEST(CapiErrors, SizesThatAreNoneAreRefused) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const Halves halves(4);
  float outputs[8];
  bantam_array images = halves.batch()[0];
  const std::int64_t shapes[][4] = {{0, 4, 4, 1}, {-1, 4, 4, 1}, {4, -4, -4, 1}, {std::int64_t{1} << 62, 4, 4, 1},
                                    {4, 4, 1, 4}, {4, 4, 4, 2}};
  for (const auto& shape : shapes) {
    std::vector<bantam_array> batch = halves.batch();
    batch[0].shape = shape;
    EXPECT_NE(bantam_model_step(model.get(), batch.data(), 2, nullptr), BANTAM_OK) << shape[0] << " " << shape[1];
    EXPECT_STRNE(bantam_last_error(), "");
    EXPECT_NE(bantam_model_predict(model.get(), &batch[0], BANTAM_INPUT_NETWORK, outputs, 8), BANTAM_OK) << shape[0];
  }
  images.rank = 1;
  EXPECT_EQ(bantam_model_predict(model.get(), &images, BANTAM_INPUT_NETWORK, outputs, 8), BANTAM_SHAPE_ERROR);
  images.rank = 0;
  EXPECT_EQ(bantam_model_predict(model.get(), &images, BANTAM_INPUT_NETWORK, outputs, 8), BANTAM_BAD_ARGUMENT);
  EXPECT_EQ(bantam_model_predict(model.get(), nullptr, BANTAM_INPUT_NETWORK, outputs, 8), BANTAM_BAD_ARGUMENT);
  EXPECT_EQ(bantam_model_step(model.get(), nullptr, 2, nullptr), BANTAM_BAD_ARGUMENT);
  std::vector<bantam_array> batch = halves.batch();
  expect_ok(bantam_model_predict(model.get(), &batch[0], BANTAM_INPUT_NETWORK, outputs, 8));
}

TEST(CapiErrors, MessagesReachNoTerminal) {
  bantam_config* config = nullptr;
  EXPECT_NE(bantam_config_from_file("no\x1b[31m\x9b\u202E.yaml", nullptr, &config), BANTAM_OK);
  const std::string message = bantam_last_error();
  EXPECT_NE(message.find("no\\x1b[31m\\x9b\\u202e.yaml"), std::string::npos) << message;
}

TEST(CapiErrors, SamplesAreChecked) {
  const Halves halves(4);
  std::vector<bantam_array> arrays = halves.bytes_batch();
  const auto refused = [&](std::vector<bantam_array> given) {
    bantam_samples samples = BANTAM_INIT(bantam_samples);
    samples.arrays = given.data();
    samples.array_count = given.size();
    bantam_config_options options = BANTAM_INIT(bantam_config_options);
    options.train = &samples;
    bantam_config* config = nullptr;
    return bantam_config_from_text(kSmall, &options, &config);
  };
  expect_error(refused({arrays[1]}), BANTAM_BAD_ARGUMENT, "no array is named 'images'; the first is labels (4) int32");
  bantam_array wrong = arrays[1];
  wrong.dtype = BANTAM_INT64;
  expect_error(refused({arrays[0], wrong}), BANTAM_BAD_ARGUMENT, "labels (4) int64: expected int32");
  wrong = arrays[0];
  wrong.dtype = BANTAM_FLOAT16;
  expect_error(refused({wrong, arrays[1]}), BANTAM_BAD_ARGUMENT,
               "images (4, 4, 4, 1) float16: expected uint8 or float32");
  const std::int32_t negative[] = {0, -1, 0, 0};
  wrong = arrays[1];
  wrong.data = negative;
  expect_error(refused({arrays[0], wrong}), BANTAM_DATA_ERROR,
               "sample 1 has the label -1; expected class numbers from 0 to 1048575");
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.batch_size = 8;
  bantam_config* config = nullptr;
  expect_error(bantam_config_from_text(kSmall, &options, &config), BANTAM_BAD_ARGUMENT,
               "options.validation and options.batch_size go with options.train, which is null");
}

TEST(CapiErrors, AProgramsSamplesNeedTheProgram) {
  bantam_config* config = nullptr;
  const std::string yaml = std::string(kSmall) + "data: {format: program, pipeline: [batch: {size: 2}]}\n";
  EXPECT_EQ(bantam_config_from_text(yaml.c_str(), nullptr, &config), BANTAM_CONFIG_ERROR);
  EXPECT_NE(std::string(bantam_last_error()).find("a program's own arrays"), std::string::npos) << bantam_last_error();
}

TEST(CapiErrors, ModelsForPredictionsDoNotTrain) {
  const Folder folder;
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  const std::string weights = folder.at("weights.safetensors"), yaml = folder.at("net.yaml");
  expect_ok(bantam_model_save(model.get(), weights.c_str()));
  FILE* file = std::fopen(yaml.c_str(), "w");
  std::fputs(kSmall, file);
  std::fclose(file);
  bantam_open_options options = BANTAM_INIT(bantam_open_options);
  options.config = yaml.c_str();
  bantam_model* made = nullptr;
  expect_ok(bantam_model_open(nullptr, weights.c_str(), &options, &made));
  const Owned<bantam_model> opened(made);
  const Halves halves(2);
  const std::vector<bantam_array> batch = halves.batch();
  expect_error(
      bantam_model_step(opened.get(), batch.data(), batch.size(), nullptr), BANTAM_BAD_ARGUMENT,
      "bantam_model_step: this model was opened for predictions (bantam_model_open); one that trains is made by "
      "bantam_model_create");
  float outputs[4];
  expect_error(bantam_model_predict(opened.get(), &batch[0], BANTAM_INPUT_NETWORK, outputs, 3), BANTAM_BAD_ARGUMENT,
               "output_count is 3; expected 4: 2 outputs for each of 2 samples");
  expect_error(
      bantam_model_predict(opened.get(), &batch[0], BANTAM_INPUT_DATA, outputs, 4), BANTAM_BAD_ARGUMENT,
      "bantam_model_predict: BANTAM_INPUT_DATA needs the section `data` in the configuration; without it pass what "
      "the network reads (BANTAM_INPUT_NETWORK)");
  EXPECT_EQ(bantam_model_open(nullptr, folder.at("none").c_str(), nullptr, &made), BANTAM_DATA_ERROR);
  EXPECT_EQ(bantam_model_load(model.get(), yaml.c_str()), BANTAM_DATA_ERROR);
}

// What an older program passes: a shorter struct; a newer one: members that this library does not know.
TEST(CapiErrors, StructsMayBeOfAnotherVersion) {
  const Owned<bantam_config> config = config_of(kSmall);
  struct {
    std::size_t struct_size = sizeof(std::size_t) + sizeof(std::int64_t);
    std::int64_t batch_size = 0;
    std::uint64_t untouched = 77;
  } shorter;
  expect_ok(bantam_plan(config.get(), 0, reinterpret_cast<bantam_memory_plan*>(&shorter)));
  EXPECT_GT(shorter.batch_size, 0);
  EXPECT_EQ(shorter.untouched, 77u);
  EXPECT_EQ(shorter.struct_size, 16u);
  struct {
    bantam_memory_plan known = BANTAM_INIT(bantam_memory_plan);
    std::uint64_t unknown = 77;
  } longer;
  longer.known.struct_size = sizeof longer;
  expect_ok(bantam_plan(config.get(), 0, &longer.known));
  EXPECT_EQ(longer.unknown, 77u);
  EXPECT_EQ(longer.known.parameter_bytes + longer.known.gradient_bytes + longer.known.optimizer_bytes +
                longer.known.activation_bytes + longer.known.workspace_bytes + longer.known.input_bytes +
                longer.known.other_bytes,
            longer.known.peak_bytes);
  bantam_memory_plan unset = {};
  expect_error(bantam_plan(config.get(), 0, &unset), BANTAM_BAD_ARGUMENT,
               "plan.struct_size is not set: use BANTAM_INIT");
}

TEST(CapiErrors, MessagesAreAThreads) {
  expect_error(bantam_devices(nullptr), BANTAM_BAD_ARGUMENT, "json is null");
  std::thread([] { EXPECT_STREQ(bantam_last_error(), ""); }).join();
  EXPECT_STREQ(bantam_last_error(), "json is null");
  EXPECT_STREQ(bantam_status_name(99), "an unknown status");
}

}  // namespace
}  // namespace bantam::testing::errors_test
