// No allocation that fails ends the process: each function of the C interface returns BANTAM_OUT_OF_MEMORY with its
// message or does without that memory, frees all that it has made, and leaves its engine as it was. Every n-th operator
// new fails where BANTAM_EVERY_ALLOCATION is set (nightly), a sample of them otherwise.
#include <functional>
#include <string>
#include <vector>

#include "bantam/base/json.h"
#include "tests/capi/capi_fixture.h"
#include "tests/public/fail_each.h"

namespace bantam::testing::failing_memory_test {
namespace {

/// A call that failed, which ends a script.
struct Failed {
  bantam_status status;
};

void call(bantam_status status) {
  if (status != BANTAM_OK) throw Failed{status};
}

/// How a script of calls ended: out of memory, with a message, is the only failure that is right. (Of a whole run also
/// another one that has a name: a file that could not be written, or a folder that could not be listed, is an error of
/// data that says why.)
Ended ended_script(const std::function<void()>& script, bool is_run, std::string& what) {
  try {
    script();
    return Ended::well;
  } catch (const Failed& failed) {
    const char* const message = bantam_last_error();
    if ((failed.status == BANTAM_OUT_OF_MEMORY || (is_run && failed.status != BANTAM_ERROR)) && *message != '\0')
      return Ended::bad_alloc;
    what = std::string(bantam_status_name(failed.status)) + ": " + message;
    return Ended::otherwise;
  }
}

void fail_each_script(const char* name, int trials, const std::function<void()>& script, Left left = Left::nothing,
                      bool is_run = false) {
  // The thread's message has room from now on: what it keeps is no leak.
  bantam_config* none = nullptr;
  const std::string file(3000, 'x');
  EXPECT_NE(bantam_config_from_file(file.c_str(), nullptr, &none), BANTAM_OK);
  fail_each(
      name, trials, [&](std::string& what) { return ended_script(script, is_run, what); }, left);
}

/// Calls of a script that the test's own allocations must not fail in.
Owned<char> text_by(const std::function<bantam_status(char**)>& function) {
  char* text = nullptr;
  call(function(&text));
  return Owned<char>(text);
}

Owned<bantam_engine> made_engine() {
  bantam_engine* engine = nullptr;
  bantam_engine_options options = BANTAM_INIT(bantam_engine_options);
  options.threads = 1;
  call(bantam_engine_create(&options, &engine));
  return Owned<bantam_engine>(engine);
}

Owned<bantam_model> made_model(bantam_engine* engine, const bantam_config* config) {
  bantam_model* model = nullptr;
  call(bantam_model_create(engine, config, &model));
  return Owned<bantam_model>(model);
}

std::uint64_t bytes_in_use(bantam_engine* engine) {
  char* text = nullptr;
  expect_ok(bantam_engine_memory_report(engine, "cpu", &text));
  const Owned<char> owned(text);
  return nlohmann::json::parse(text).at("in_use_bytes").get<std::uint64_t>();
}

TEST(CapiFailingMemory, Questions) {
  const Owned<bantam_engine> engine = made_engine();
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_model> model = model_of(config.get(), engine.get());
  fail_each_script(
      "devices", 300, [] { (void)text_by([](char** to) { return bantam_devices(to); }); }, Left::anything);
  fail_each_script(
      "schema", 10, [] { (void)text_by([](char** to) { return bantam_config_schema(to); }); }, Left::anything);
  fail_each_script(
      "memory reports", 500,
      [&] {
        (void)text_by([&](char** to) { return bantam_engine_memory_report(engine.get(), "cpu", to); });
        (void)text_by([&](char** to) { return bantam_model_memory_report(model.get(), to); });
      },
      Left::anything);
  fail_each_script(
      "names", 300,
      [&] {
        (void)text_by([&](char** to) { return bantam_model_class_names(model.get(), to); });
        (void)text_by([&](char** to) { return bantam_model_parameter_names(model.get(), to); });
        (void)text_by([&](char** to) { return bantam_config_resolved(config.get(), to); });
        bantam_model_info info = BANTAM_INIT(bantam_model_info);
        call(bantam_model_get_info(model.get(), &info));
      },
      Left::anything);
}

TEST(CapiFailingMemory, ErrorsOfBadArguments) {
  fail_each(
      "errors", 300,
      [](std::string& what) {
        bantam_config* config = nullptr;
        const bantam_status status =
            bantam_config_from_text("model: {input: [4], layers: [dens: {}]}", nullptr, &config);
        what = bantam_last_error();
        if (status == BANTAM_OUT_OF_MEMORY) return Ended::bad_alloc;
        return status == BANTAM_CONFIG_ERROR && !what.empty() ? Ended::well : Ended::otherwise;
      },
      Left::anything);
}

TEST(CapiFailingMemory, ConfigurationsAndPlans) {
  const Halves halves(32);
  const std::vector<bantam_array> arrays = halves.bytes_batch();
  fail_each_script("read and plan", 300, [&] {
    bantam_samples train = BANTAM_INIT(bantam_samples);
    train.arrays = arrays.data();
    train.array_count = arrays.size();
    bantam_config_options options = BANTAM_INIT(bantam_config_options);
    options.train = &train;
    options.batch_size = 16;
    bantam_config* made = nullptr;
    call(bantam_config_from_text(kSmall, &options, &made));
    const Owned<bantam_config> config(made);
    bantam_memory_plan plan = BANTAM_INIT(bantam_memory_plan);
    call(bantam_plan(config.get(), 0, &plan));
  });
}

TEST(CapiFailingMemory, EnginesAndTensors) {
  const Halves halves(4);
  const std::vector<bantam_array> batch = halves.batch();
  fail_each_script("engines and tensors", 500, [&] {
    const Owned<bantam_engine> engine = made_engine();
    call(bantam_engine_set_limit(engine.get(), "cpu", 64 << 20));
    bantam_tensor* tensor = nullptr;
    call(bantam_tensor_create(engine.get(), "cpu", batch.data(), &tensor));
    float values[64];
    const bantam_status read = bantam_tensor_read(tensor, values, sizeof values);
    bantam_tensor_destroy(tensor);
    call(read);
    call(bantam_engine_trim(engine.get(), "cpu", nullptr));
  });
}

TEST(CapiFailingMemory, TrainingSavingLoadingPredicting) {
  const Folder folder;
  const std::string weights = folder.at("weights.safetensors"), state = folder.at("state.safetensors");
  const Owned<bantam_engine> engine = made_engine();
  const Owned<bantam_config> config = config_of(kSmall);
  const Halves halves(8);
  const std::vector<bantam_array> batch = halves.batch();
  float outputs[16];
  const auto script = [&] {
    const Owned<bantam_model> model = made_model(engine.get(), config.get());
    bantam_metrics metrics = BANTAM_INIT(bantam_metrics);
    call(bantam_model_step(model.get(), batch.data(), batch.size(), nullptr));
    call(bantam_model_step(model.get(), batch.data(), batch.size(), &metrics));
    call(bantam_model_set_learning_rate(model.get(), 0.5));
    call(bantam_model_evaluate(model.get(), batch.data(), batch.size(), &metrics));
    call(bantam_model_save(model.get(), weights.c_str()));
    call(bantam_model_load(model.get(), weights.c_str()));
    call(bantam_model_save_state(model.get(), state.c_str()));
    call(bantam_model_load_state(model.get(), state.c_str()));
    call(bantam_model_predict(model.get(), batch.data(), BANTAM_INPUT_NETWORK, outputs, 16));
  };
  script();
  const std::vector<float> expected(outputs, outputs + 16);
  const std::uint64_t in_use = bytes_in_use(engine.get());
  fail_each_script("train, save, load, predict", 500, script);
  EXPECT_EQ(bytes_in_use(engine.get()), in_use) << "the engine's memory is not all free";
  script();
  EXPECT_EQ(std::vector<float>(outputs, outputs + 16), expected) << "the engine computes other bits";
}

TEST(CapiFailingMemory, TrainingOnTheProgramsBatches) {
  const Owned<bantam_engine> engine = made_engine();
  const Owned<bantam_config> config = config_of(kSmall);
  const Halves halves(8);
  const std::vector<bantam_array> arrays = halves.batch();
  bantam_batches batches = BANTAM_INIT(bantam_batches);
  batches.batches = 2;
  batches.batch_size = 8;
  batches.user = const_cast<bantam_array*>(arrays.data());
  batches.next = [](void* user, std::int64_t, std::int64_t, bantam_array* to, std::size_t* count) -> std::int32_t {
    std::copy_n(static_cast<const bantam_array*>(user), 2, to);
    *count = 2;
    return 0;
  };
  fail_each_script("train on batches", 300, [&] {
    const Owned<bantam_model> model = made_model(engine.get(), config.get());
    call(bantam_model_train(
        model.get(), &batches, nullptr, [](void*, const bantam_event*) -> std::int32_t { return 0; }, nullptr,
        nullptr));
  });
}

TEST(CapiFailingMemory, WholeRuns) {
  const Folder folder;
  const std::string run = folder.at("run");
  const Halves halves(32);
  const Owned<bantam_config> config = config_with(halves, {"train.epochs=1"});
  const Owned<bantam_engine> engine = made_engine();
  const std::vector<bantam_array> batch = halves.batch();
  // Other threads save and log: what they allocate is freed, but not at once.
  fail_each_script(
      "train a run, open it", 150,
      [&] {
        bantam_train_options options = BANTAM_INIT(bantam_train_options);
        options.folder = run.c_str();
        options.overwrite = 1;
        options.threads = 1;
        call(bantam_train(config.get(), &options, nullptr, nullptr));
        bantam_model* opened = nullptr;
        call(bantam_model_open(engine.get(), run.c_str(), nullptr, &opened));
        const Owned<bantam_model> model(opened);
        float outputs[64];
        call(bantam_model_predict(model.get(), batch.data(), BANTAM_INPUT_NETWORK, outputs, 64));
      },
      Left::anything, true);
}

}  // namespace
}  // namespace bantam::testing::failing_memory_test
