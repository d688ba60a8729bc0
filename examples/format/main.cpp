// A data format of a program's own: a reader of one split, registered under a name, and a configuration that trains on
// it. The samples are stripes, horizontal or vertical, with noise.
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

constexpr std::int64_t kSize = 16;

// One split. `facts` opens no file, so that runs can be planned without their data; `read` is called by several worker
// threads at once, and returns the same bytes for the same index.
class Stripes : public SampleReader {
 public:
  Stripes(std::int64_t samples, std::uint64_t seed) : samples_(samples), seed_(seed) {}
  DatasetFacts facts() const override {
    return {.size = samples_, .image_shape = {kSize, kSize, 1}, .class_names = {"horizontal", "vertical"}};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    PhiloxSequence random(philox_key(seed_, RandomPurpose::dataset, static_cast<std::uint64_t>(index)));
    const auto label = static_cast<std::int32_t>(random.below(2));
    const std::uint64_t phase = random.below(4);
    for (std::size_t i = 0; i < fields[0].size(); ++i) {  // (16, 16, 1), uint8
      const std::size_t along = label == 0 ? i / kSize : i % kSize;
      fields[0][i] = static_cast<std::byte>(((along + phase) / 2 % 2 == 0 ? 40 : 140) + random.below(100));
    }
    std::memcpy(fields[1].data(), &label, sizeof(label));  // the labels: one int32 a sample
  }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
};

constexpr const char* kConfig = R"(
data:
  format: stripes
  train_samples: 512
  pipeline: [shuffle: {}, normalize: {scale: 0.0039}, batch: {size: 32}]
model:
  input: [16, 16, 1]
  layers: [conv2d: {filters: 8, kernel: 3, stride: 2, activation: relu}, flatten, dense: {units: 2}]
train: {epochs: 3, optimizer: {adam: {learning_rate: 0.005}}}
)";

}  // namespace

int main() {
  try {
    // The reader of the format's own keys returns both splits: what is trained on, and what is evaluated on.
    sample_formats().add("stripes", [](ConfigMap& data) -> SampleSplits {
      const std::int64_t samples = data.integer("train_samples", {.min = 1}, 512);
      return {std::make_shared<Stripes>(samples, 1), std::make_shared<Stripes>(128, 2)};
    });
    const run::Config config = run::Config::from_text(kConfig, "stripes.yaml");
    const auto folder = std::filesystem::temp_directory_path() / "bantam-stripes";
    const run::Outcome outcome = run::train(config, {.folder = folder, .overwrite = true});
    std::printf("accuracy %.3f\n", outcome.result.validation.accuracy);
    return outcome.result.validation.accuracy > 0.9 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
