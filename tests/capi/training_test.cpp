// Whole runs through the C interface: a program's arrays and callbacks as data, events, stops, resumes, and
// predictions.
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>

#include "bantam/base/json.h"
#include "tests/capi/capi_fixture.h"

namespace bantam::testing::training_test {
namespace {

struct Heard {
  std::vector<int> kinds;
  std::int64_t stop_after = -1;  // epochs
  std::string report;
  double learning_rate = 0;
};

std::int32_t hear(void* user, const bantam_event* event) {
  Heard& heard = *static_cast<Heard*>(user);
  heard.kinds.push_back(event->kind);
  if (event->kind == BANTAM_EVENT_PROGRESS) heard.learning_rate = event->learning_rate;
  if (event->kind == BANTAM_EVENT_EPOCH_END) {
    char* json = nullptr;
    expect_ok(bantam_engine_memory_report(event->engine, "cpu", &json));
    heard.report = text_of(json);
    return event->epoch + 1 == heard.stop_after ? 1 : 0;
  }
  return 0;
}

bantam_train_result run(const bantam_config* config, const std::string& folder, Heard& heard, bool resume = false) {
  bantam_train_options options = BANTAM_INIT(bantam_train_options);
  options.folder = folder.c_str();
  options.resume = resume ? 1 : 0;
  options.on_event = hear;
  options.user = &heard;
  bantam_train_result result = BANTAM_INIT(bantam_train_result);
  char* path = nullptr;
  expect_ok(bantam_train(config, &options, &result, &path));
  EXPECT_EQ(text_of(path), folder);
  return result;
}

std::vector<float> predictions(const std::string& folder, const Halves& halves) {
  bantam_model* made = nullptr;
  expect_ok(bantam_model_open(nullptr, folder.c_str(), nullptr, &made));
  const Owned<bantam_model> model(made);
  const bantam_array images = halves.bytes_batch()[0];
  std::vector<float> outputs(static_cast<std::size_t>(halves.shape[0] * 2));
  expect_ok(bantam_model_predict(model.get(), &images, BANTAM_INPUT_DATA, outputs.data(), outputs.size()));
  return outputs;
}

TEST(CapiTraining, ArraysAreSplitTrainedOnAndPredicted) {
  const Folder folder;
  const Halves halves(320);
  const Owned<bantam_config> config = config_with(halves, {"data.validation={split: 0.2}"});
  bantam_memory_plan plan = BANTAM_INIT(bantam_memory_plan);
  expect_ok(bantam_plan(config.get(), 0, &plan));
  EXPECT_EQ(plan.batch_size, 16);
  Heard heard;
  const bantam_train_result result = run(config.get(), folder.at("run"), heard);
  EXPECT_EQ(result.updates, 3 * 256 / 16);
  EXPECT_EQ(result.validation_samples, 64);
  EXPECT_EQ(result.test_samples, 0);
  EXPECT_EQ(result.validation_accuracy, 1.0);
  EXPECT_EQ(result.peak_bytes, plan.peak_bytes);
  EXPECT_EQ(heard.kinds.front(), BANTAM_EVENT_BEGIN);
  EXPECT_EQ(std::count(heard.kinds.begin(), heard.kinds.end(), BANTAM_EVENT_EVALUATED), 3);
  EXPECT_EQ(std::count(heard.kinds.begin(), heard.kinds.end(), BANTAM_EVENT_EPOCH_END), 3);
  EXPECT_NEAR(heard.learning_rate, 0.02, 1e-6);
  EXPECT_GT(nlohmann::json::parse(heard.report)["in_use_bytes"].get<std::uint64_t>(), 0u);
  const std::vector<float> outputs = predictions(folder.at("run"), halves);
  for (std::size_t i = 0; i < halves.labels.size(); ++i)
    EXPECT_EQ(outputs[2 * i + 1] > outputs[2 * i], halves.labels[i] == 1) << i;
}

// A pipeline scales bytes: floats of 0 to 1 would be evaluated as bytes of 0 and 1.
TEST(CapiTraining, ValidationImagesHaveTheTypeOfTrainingImages) {
  const Halves halves(64);
  const auto status_of = [&](const std::vector<bantam_array>& train, const std::vector<bantam_array>& validation) {
    bantam_samples first = BANTAM_INIT(bantam_samples), second = BANTAM_INIT(bantam_samples);
    first.arrays = train.data();
    second.arrays = validation.data();
    first.array_count = second.array_count = 2;
    bantam_config_options options = BANTAM_INIT(bantam_config_options);
    options.train = &first;
    options.validation = &second;
    bantam_config* made = nullptr;
    const bantam_status status = bantam_config_from_text(kSmall, &options, &made);
    const Owned<bantam_config> config(made);
    return status;
  };
  const std::vector<bantam_array> bytes = halves.bytes_batch(), floats = halves.batch();
  expect_ok(status_of(bytes, bytes));
  expect_ok(status_of(floats, floats));
  expect_error(status_of(bytes, floats), BANTAM_DATA_ERROR,
               "the validation images are float32, the training images uint8: expected one type");
  expect_error(status_of(floats, bytes), BANTAM_DATA_ERROR,
               "the validation images are uint8, the training images float32: expected one type");
}

TEST(CapiTraining, WithoutHeldOutSamplesNothingIsEvaluated) {
  const Folder folder;
  const Halves halves(64);
  Heard heard;
  const bantam_train_result result = run(config_with(halves).get(), folder.at("run"), heard);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_EQ(result.validation_samples, 0);
  EXPECT_EQ(std::count(heard.kinds.begin(), heard.kinds.end(), BANTAM_EVENT_EVALUATED), 0);
}

TEST(CapiTraining, HeldOutSamplesThatAreNotThereAreAskedFor) {
  const Halves halves(64);
  const std::vector<bantam_array> arrays = halves.bytes_batch();
  bantam_samples train = BANTAM_INIT(bantam_samples);
  train.arrays = arrays.data();
  train.array_count = arrays.size();
  const char* overrides[] = {"data.validation={from: test}"};
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.train = &train;
  options.overrides = overrides;
  options.override_count = 1;
  bantam_config* config = nullptr;
  expect_error(bantam_config_from_text(kSmall, &options, &config), BANTAM_CONFIG_ERROR,
               "command line: error: there are no held-out samples: give some, or data.validation: {split: 0.1}\n"
               "   data.validation={from: test}\n"
               "                   ^");
  EXPECT_EQ(config, nullptr);
  options.validation = &train;
  expect_ok(bantam_config_from_text(kSmall, &options, &config));
  const Owned<bantam_config> owned(config);
}

// A run that a callback stops, and goes on with the same samples, ends with the bits of one that was not stopped.
TEST(CapiTraining, StopsAndGoesOn) {
  const Folder folder;
  const Halves halves(64);
  const Owned<bantam_config> config = config_with(halves);
  Heard whole, half{.kinds = {}, .stop_after = 1}, rest, again;
  run(config.get(), folder.at("whole"), whole);
  const bantam_train_result stopped = run(config.get(), folder.at("parts"), half);
  EXPECT_EQ(stopped.stopped, 1);
  EXPECT_LT(stopped.epochs, 3);
  EXPECT_EQ(run(config.get(), folder.at("parts"), rest, true).stopped, 0);
  EXPECT_EQ(predictions(folder.at("parts"), halves), predictions(folder.at("whole"), halves));
  EXPECT_EQ(run(config.get(), folder.at("parts"), again, true).finished_before, 1);
  bantam_train_options options = BANTAM_INIT(bantam_train_options);
  const std::string path = folder.at("whole");
  options.folder = path.c_str();
  EXPECT_EQ(bantam_train(config.get(), &options, nullptr, nullptr), BANTAM_CONFIG_ERROR);  // a run is there
  options.folder = nullptr;
  options.resume = 1;
  expect_error(bantam_train(config.get(), &options, nullptr, nullptr), BANTAM_BAD_ARGUMENT,
               "options.resume needs options.folder: the run to go on with");
}

// Stages that make targets of labels ask for the number of classes, which images alone do not have.
TEST(CapiTraining, RunsThatMixTargetsPredictStoredImages) {
  const Folder folder;
  const Halves halves(64);
  constexpr const char* kTargets =
      "device: cpu\n"
      "model: {input: [4, 4, 1], layers: [flatten, dense: {units: 2}]}\n"
      "train: {epochs: 2, loss: {softmax_cross_entropy: {targets: values}}, optimizer: {sgd: {learning_rate: 0.1}}}\n";
  for (const std::string stage : {"one_hot", "mixup: {alpha: 0.2}", "cutmix: {alpha: 1}"}) {
    const std::string pipeline = "data.pipeline=[shuffle, normalize: {scale: 1/255}, " + stage + ", batch: {size: 16}]";
    Heard heard;
    const std::string path = folder.at(stage.substr(0, 5).c_str());
    run(config_with(halves, {pipeline.c_str()}, kTargets).get(), path, heard);
    bantam_model* made = nullptr;
    expect_ok(bantam_model_open(nullptr, path.c_str(), nullptr, &made));
    const Owned<bantam_model> model(made);
    const bantam_array bytes = halves.bytes_batch()[0], floats = halves.batch()[0];
    std::vector<float> stored(128), ready(128);
    expect_ok(bantam_model_predict(model.get(), &bytes, BANTAM_INPUT_DATA, stored.data(), stored.size()));
    expect_ok(bantam_model_predict(model.get(), &floats, BANTAM_INPUT_NETWORK, ready.data(), ready.size()));
    // Bytes times 1/255 and bytes over 255 differ by a rounding each, of 16 products of weights near 1.
    for (std::size_t i = 0; i < stored.size(); ++i) EXPECT_NEAR(stored[i], ready[i], 1e-5f) << stage;
  }
}

std::int64_t parameters_of(const bantam_model* model) {
  bantam_model_info info = BANTAM_INIT(bantam_model_info);
  expect_ok(bantam_model_get_info(model, &info));
  return info.parameters;
}

// Running statistics are in the weights file, and are no parameters.
TEST(CapiTraining, ParametersAreTheSameNumberEverywhere) {
  const Folder folder;
  const Halves halves(64);
  const Owned<bantam_config> config =
      config_with(halves, {},
                  "device: cpu\nmodel: {input: [4, 4, 1], layers: [conv2d: {filters: 3, kernel: 3}, "
                  "batch_norm, flatten, dense: {units: 2}]}\ntrain: {epochs: 1}\n");
  const std::int64_t parameters = (9 * 3 + 3) + 2 * 3 + (2 * 2 * 3 * 2 + 2);  // the filters' bias, too; 6 statistics
  Heard heard;
  EXPECT_EQ(run(config.get(), folder.at("run"), heard).parameters, parameters);
  EXPECT_EQ(parameters_of(model_of(config.get()).get()), parameters);
  bantam_model* opened = nullptr;
  expect_ok(bantam_model_open(nullptr, folder.at("run").c_str(), nullptr, &opened));
  EXPECT_EQ(parameters_of(Owned<bantam_model>(opened).get()), parameters);
}

// `resume` begins a run where the folder holds none, whatever else lies there, and never one in the place of a run that
// has lost its configuration.
TEST(CapiTraining, ResumeBeginsARunWhereThereIsNone) {
  const Folder folder;
  const Halves halves(64);
  const Owned<bantam_config> config = config_with(halves);
  for (const char* name : {"none", "empty", "notes"}) {
    if (name != std::string("none")) std::filesystem::create_directory(folder.at(name));
    if (name == std::string("notes")) std::ofstream(folder.path / name / "notes.txt") << "of the program's user";
    Heard heard, again;
    const bantam_train_result result = run(config.get(), folder.at(name), heard, true);
    EXPECT_EQ(result.epochs, 3) << name;
    EXPECT_EQ(result.finished_before, 0) << name;
    EXPECT_EQ(run(config.get(), folder.at(name), again, true).finished_before, 1) << name;
  }
  EXPECT_EQ(predictions(folder.at("empty"), halves), predictions(folder.at("none"), halves));
  std::filesystem::remove(folder.path / "empty" / "config.yaml");
  const std::string path = folder.at("empty");
  bantam_train_options options = BANTAM_INIT(bantam_train_options);
  options.folder = path.c_str();
  options.resume = 1;
  options.overwrite = 1;
  expect_error(bantam_train(config.get(), &options, nullptr, nullptr), BANTAM_DATA_ERROR,
               "--resume: " + path + " holds no run (there is no config.yaml)");
  EXPECT_TRUE(std::filesystem::exists(folder.path / "empty" / "weights.safetensors"));
}

/// Samples that a callback makes.
struct Made {
  const Halves& halves;
  std::int64_t broken = -1;
  std::atomic<int> released = 0;

  static std::int32_t read(void* user, std::int64_t index, void* const* buffers) {
    const Made& made = *static_cast<Made*>(user);
    if (index == made.broken) {
      bantam_set_error("the camera is off");
      return 1;
    }
    std::memcpy(buffers[0], made.halves.floats.data() + index * 16, 16 * sizeof(float));
    std::memcpy(buffers[1], &made.halves.labels[static_cast<std::size_t>(index)], sizeof(std::int32_t));
    return 0;
  }
  static void release(void* user) { ++static_cast<Made*>(user)->released; }
};

bantam_status config_made(Made& made, const char* const* class_names, Owned<bantam_config>& config) {
  const bantam_array arrays[] = {{"images", BANTAM_FLOAT32, 4, made.halves.shape, nullptr},
                                 {"labels", BANTAM_INT32, 1, made.halves.shape, nullptr}};
  bantam_samples samples = BANTAM_INIT(bantam_samples);
  samples.arrays = arrays;
  samples.array_count = 2;
  samples.class_names = class_names;
  samples.class_count = class_names != nullptr ? 2 : 0;
  samples.read = Made::read;
  samples.release = Made::release;
  samples.user = &made;
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.train = &samples;
  options.batch_size = 16;
  bantam_config* made_config = nullptr;
  const bantam_status status = bantam_config_from_text(kSmall, &options, &made_config);
  config.reset(made_config);
  return status;
}

TEST(CapiTraining, ACallbackMakesSamples) {
  const Folder folder;
  const Halves halves(64);
  const char* const names[] = {"top", "bottom"};
  Made made{halves};
  Owned<bantam_config> config;
  expect_error(config_made(made, nullptr, config), BANTAM_BAD_ARGUMENT,
               "labels (64) int32: name the classes (class_names): they cannot be counted");
  EXPECT_EQ(made.released, 1);  // also where it failed
  expect_ok(config_made(made, names, config));
  Heard heard;
  EXPECT_EQ(run(config.get(), folder.at("run"), heard).accuracy, 1.0);
  EXPECT_EQ(made.released, 1);
  config.reset();
  EXPECT_EQ(made.released, 2);
  // The same arrays train to the same weights.
  bantam_model* opened = nullptr;
  expect_ok(bantam_model_open(nullptr, folder.at("run").c_str(), nullptr, &opened));
  const Owned<bantam_model> model(opened);
  char* json = nullptr;
  expect_ok(bantam_model_class_names(model.get(), &json));
  EXPECT_EQ(text_of(json), "[\"top\",\"bottom\"]");
}

// Of folders they are any bytes, in JSON they are UTF-8.
TEST(CapiTraining, ClassNamesThatAreNotUtf8) {
  const Halves halves(64);
  const char* const names[] = {"top", "caf\xe9"};
  Made made{halves};
  Owned<bantam_config> config;
  expect_ok(config_made(made, names, config));
  const Owned<bantam_model> model = model_of(config.get());
  char* json = nullptr;
  expect_ok(bantam_model_class_names(model.get(), &json));
  EXPECT_EQ(text_of(json), "[\"top\",\"caf\\\\xe9\"]");
}

TEST(CapiTraining, ACallbackSaysWhyItFails) {
  const Folder folder;
  const Halves halves(64);
  const char* const names[] = {"top", "bottom"};
  Made made{halves};
  made.broken = 5;
  Owned<bantam_config> config;
  expect_ok(config_made(made, names, config));
  bantam_train_options options = BANTAM_INIT(bantam_train_options);
  const std::string path = folder.at("run");
  options.folder = path.c_str();
  expect_error(bantam_train(config.get(), &options, nullptr, nullptr), BANTAM_DATA_ERROR,
               "sample 5: the camera is off");
}

/// Batches of the halves, in order.
struct Stream {
  const Halves& halves;
  std::int64_t broken = -1;
  std::int64_t image_shape[4] = {16, 4, 4, 1};

  static std::int32_t next(void* user, std::int64_t, std::int64_t batch, bantam_array* arrays, std::size_t* count) {
    Stream& stream = *static_cast<Stream*>(user);
    if (batch == stream.broken) return 9;
    stream.image_shape[0] = batch == 3 ? 8 : 16;
    arrays[0] = {"images", BANTAM_FLOAT32, 4, stream.image_shape, stream.halves.floats.data() + batch * 16 * 16};
    arrays[1] = {"labels", BANTAM_INT32, 1, stream.image_shape, stream.halves.labels.data() + batch * 16};
    *count = 2;
    return 0;
  }
};

TEST(CapiTraining, BatchesComeFromAStream) {
  const Halves halves(56);
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get());
  Stream stream{halves};
  bantam_batches batches = BANTAM_INIT(bantam_batches);
  batches.batches = 4;
  batches.batch_size = 16;
  batches.last_batch_size = 8;
  batches.next = Stream::next;
  batches.user = &stream;
  Heard heard;
  bantam_train_result result = BANTAM_INIT(bantam_train_result);
  expect_ok(bantam_model_train(model.get(), &batches, &batches, hear, &heard, &result));
  EXPECT_EQ(result.updates, 12);
  EXPECT_EQ(result.validation_samples, 56);
  EXPECT_EQ(result.validation_accuracy, 1.0);
  EXPECT_EQ(result.parameters, 154);
  Heard stopping{.kinds = {}, .stop_after = 1};
  expect_ok(bantam_model_train(model.get(), &batches, nullptr, hear, &stopping, &result));
  EXPECT_EQ(result.stopped, 1);
  stream.broken = 2;
  expect_error(bantam_model_train(model.get(), &batches, nullptr, nullptr, nullptr, nullptr), BANTAM_DATA_ERROR,
               "train, batch 2 of epoch 1: the program's callback returned 9");
  batches.last_batch_size = 17;
  expect_error(bantam_model_train(model.get(), &batches, nullptr, nullptr, nullptr, nullptr), BANTAM_BAD_ARGUMENT,
               "train: last_batch_size must be from 1 to batch_size");
}

/// A model that has trained on the stream's first `batches` batches by two, then on the first one by a step.
std::string weights_after_a_step(const Folder& folder, Stream& stream, std::int64_t batches, bantam_status expected) {
  const char* const overrides[] = {"train.accumulate=2", "train.epochs=1"};
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.overrides = overrides;
  options.override_count = 2;
  const Owned<bantam_model> model = model_of(config_of(kSmall, &options).get());
  bantam_batches given = BANTAM_INIT(bantam_batches);
  given.batches = batches;
  given.batch_size = 16;
  given.last_batch_size = batches > 3 ? 8 : 16;
  given.next = Stream::next;
  given.user = &stream;
  EXPECT_EQ(bantam_model_train(model.get(), &given, nullptr, nullptr, nullptr, nullptr), expected);
  bantam_array arrays[8] = {};
  std::size_t count = 0;
  EXPECT_EQ(Stream::next(&stream, 0, 0, arrays, &count), 0);
  expect_ok(bantam_model_step(model.get(), arrays, count, nullptr));
  expect_ok(bantam_model_save(model.get(), folder.at("w.safetensors").c_str()));
  std::ifstream file(folder.at("w.safetensors"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Batch 2 has been seen where batch 3 fails: the step that follows has nothing of it.
TEST(CapiTraining, AfterAStreamThatFailsAStepHasItsOwnGradientsAlone) {
  const Folder folder;
  const Halves halves(56);
  Stream stream{halves};
  const std::string never_seen = weights_after_a_step(folder, stream, 2, BANTAM_OK);
  stream.broken = 3;
  EXPECT_EQ(weights_after_a_step(folder, stream, 4, BANTAM_DATA_ERROR), never_seen);
}

// The validation of a run fails at its second batch: an evaluation of 8 samples counts those 8. One without a place for
// its result counts nothing.
TEST(CapiTraining, AfterAValidationThatFailsAnEvaluationCountsItsOwnSamples) {
  const Halves halves(56), eight(8);
  const Owned<bantam_model> model = model_of(config_of(kSmall).get());
  Stream stream{halves}, failing{halves};
  failing.broken = 1;
  bantam_batches train = BANTAM_INIT(bantam_batches);
  train.batches = 3;
  train.batch_size = 16;
  train.next = Stream::next;
  train.user = &stream;
  bantam_batches validation = train;
  validation.user = &failing;
  expect_error(bantam_model_train(model.get(), &train, &validation, nullptr, nullptr, nullptr), BANTAM_DATA_ERROR,
               "validation, batch 1 of epoch 1: the program's callback returned 9");
  const std::vector<bantam_array> batch = eight.batch();
  bantam_metrics metrics = BANTAM_INIT(bantam_metrics);
  expect_ok(bantam_model_evaluate(model.get(), batch.data(), 2, &metrics));
  EXPECT_EQ(metrics.samples, 8);
  expect_error(bantam_model_evaluate(model.get(), batch.data(), 2, nullptr), BANTAM_BAD_ARGUMENT, "metrics is null");
  expect_ok(bantam_model_evaluate(model.get(), batch.data(), 2, &metrics));
  EXPECT_EQ(metrics.samples, 8);
}

}  // namespace
}  // namespace bantam::testing::training_test
