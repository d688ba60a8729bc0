// The generated data set as a format: its keys, its facts, and an image drawn at each read.
#include "bantam/data/formats/generated.h"

#include <cstring>

#include "bantam/base/config/config.h"
#include "bantam/data/formats/drawing.h"

namespace bantam {
namespace {

class GeneratedReader : public SampleReader {
 public:
  GeneratedReader(std::int64_t size, std::uint64_t seed, GeneratedSplit split)
      : size_(size), seed_(seed), split_(split) {}

  DatasetFacts facts() const override {
    return {size_,
            {kGeneratedExtent, kGeneratedExtent, 3},
            {"disc", "ring", "square", "triangle", "cross", "star", "horizontal stripes", "vertical stripes",
             "checkerboard", "dots"}};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const std::span<std::uint8_t, kGeneratedBytes> pixels(reinterpret_cast<std::uint8_t*>(fields[0].data()),
                                                          kGeneratedBytes);
    draw_generated_image(seed_, split_, index, pixels);
    const std::int32_t label = generated_label(index);
    std::memcpy(fields[1].data(), &label, sizeof label);
  }

 private:
  std::int64_t size_;
  std::uint64_t seed_;
  GeneratedSplit split_;
};

}  // namespace

SampleSplits generated_readers(const GeneratedOptions& options) {
  return {std::make_shared<GeneratedReader>(options.train_samples, options.seed, GeneratedSplit::train),
          std::make_shared<GeneratedReader>(options.test_samples, options.seed, GeneratedSplit::test)};
}

/// `data: {format: generated}`: train_samples, test_samples, seed.
SampleSplits generated_format(ConfigMap& data) {
  data.describe("Drawn shapes and textures, ten classes, 32 × 32 in colour. Needs no files.");
  const GeneratedOptions defaults;
  constexpr IntegerRange kSamples{.min = 1, .max = 10'000'000};
  GeneratedOptions options;
  options.train_samples = data.integer({"train_samples", "Training images to draw."}, kSamples, defaults.train_samples);
  options.test_samples = data.integer({"test_samples", "Held-out images to draw."}, kSamples, defaults.test_samples);
  options.seed = static_cast<std::uint64_t>(data.integer(
      {"seed", "Seed of the drawings, apart from the run's, so that runs of other seeds see the same data."},
      {.min = 0}, static_cast<std::int64_t>(defaults.seed)));
  return generated_readers(options);
}

}  // namespace bantam
