// A whole run from a C++ program: the configuration of `bantam train`, a callback of one's own, and the folder that
// `bantam train --resume` goes on with.
//
//     run_example [CONFIG.yaml [RUN_DIR]]
#include <cstdio>
#include <exception>
#include <filesystem>

#include "bantam/bantam.h"

namespace {

using namespace bantam;

constexpr const char* kConfig = R"(
data:
  format: generated
  train_samples: 512
  test_samples: 64
  pipeline: [shuffle: {}, random_flip: {}, normalize: {scale: 0.0039}, batch: {size: 32}]
model:
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, bias: false}
    - batch_norm: {activation: relu}
    - global_average_pool
    - dense: {units: 10}
train: {epochs: 3, optimizer: {adam: {learning_rate: 0.01}}}
)";

/// Prints a line an epoch. A callback that only looks on says so, which lets the trainer run ahead.
class EpochLines : public Callback {
 public:
  bool observes() const override { return true; }
  void on_epoch_end(const EpochEvent& event) override {
    std::printf("epoch %lld: loss %.3f, validation loss %.3f\n", static_cast<long long>(event.epoch + 1),
                event.train.loss, event.validation.loss);
  }
};

/// The configuration's keys are those of the files in configs/.
run::Config configuration(int argc, char** argv) {
  return argc > 1 ? run::Config::from_file(argv[1]) : run::Config::from_text(kConfig, "example.yaml");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const run::Config config = configuration(argc, argv);
    const run::MemoryPlan planned = run::plan(config);
    std::printf("planned: a pool of %llu bytes\n", static_cast<unsigned long long>(planned.rows.front().pool_bytes));

    EpochLines lines;
    Callback* const callbacks[] = {&lines};
    const std::filesystem::path folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path() / "bantam-example";
    const run::Outcome outcome = run::train(config, {.folder = folder, .overwrite = true}, callbacks);
    std::printf("%lld updates; weights are in %s\n", static_cast<long long>(outcome.result.updates),
                (outcome.folder / "weights.safetensors").c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
