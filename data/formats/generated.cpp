// The generated data set as a format: its keys, its facts, and an image drawn at each read.
#include "bantam/data/formats/generated.h"

#include <array>
#include <cstring>

#include "bantam/base/config/config.h"
#include "bantam/data/formats/drawing.h"

namespace bantam {
namespace {

constexpr std::int64_t kPlaceValues = 3;

/// 0.8 of the class, and 0.2 of its neighbour: disc and ring, square and triangle, cross and star, both stripes,
/// checkerboard and dots.
std::array<float, kGeneratedClasses> soft_label(std::int32_t label) {
  std::array<float, kGeneratedClasses> shares{};
  shares[static_cast<std::size_t>(label)] = 0.8f;
  shares[static_cast<std::size_t>(label ^ 1)] = 0.2f;
  return shares;
}

std::vector<SampleField> target_fields(GeneratedLabels labels) {
  const SampleField classes{"labels", {}, DType::int32};
  switch (labels) {
    case GeneratedLabels::soft:
      return {classes, {"targets", {kGeneratedClasses}, DType::float32}};
    case GeneratedLabels::pixels:
      return {{"labels", {kGeneratedExtent, kGeneratedExtent}, DType::int32}};
    case GeneratedLabels::values:
      return {classes, {"targets", {kPlaceValues}, DType::float32}};
    case GeneratedLabels::class_:
      break;
  }
  return {classes};
}

template <class Values>
void copy_to(std::span<std::byte> field, const Values& values) {
  std::memcpy(field.data(), values.data(), field.size());
}

class GeneratedReader : public SampleReader {
 public:
  GeneratedReader(std::int64_t size, const GeneratedOptions& options, GeneratedSplit split)
      : size_(size), seed_(options.seed), split_(split), labels_(options.labels) {}

  DatasetFacts facts() const override {
    DatasetFacts facts{size_,
                       {kGeneratedExtent, kGeneratedExtent, 3},
                       {"disc", "ring", "square", "triangle", "cross", "star", "horizontal stripes", "vertical stripes",
                        "checkerboard", "dots"}};
    if (labels_ == GeneratedLabels::pixels) facts.class_names.insert(facts.class_names.begin(), "background");
    facts.targets = target_fields(labels_);
    return facts;
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const std::span<std::uint8_t, kGeneratedBytes> pixels(reinterpret_cast<std::uint8_t*>(fields[0].data()),
                                                          kGeneratedBytes);
    draw_generated_image(seed_, split_, index, pixels);
    read_targets(index, fields.subspan(1));
  }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    if (labels_ == GeneratedLabels::pixels) {
      std::array<std::int32_t, kGeneratedPixels> classes;
      draw_generated_pixels(seed_, split_, index, classes);
      return copy_to(targets[0], classes);
    }
    const std::int32_t label = generated_label(index);
    std::memcpy(targets[0].data(), &label, sizeof label);
    if (labels_ == GeneratedLabels::soft) copy_to(targets[1], soft_label(label));
    if (labels_ == GeneratedLabels::values) copy_to(targets[1], generated_place(seed_, split_, index));
  }

 private:
  std::int64_t size_;
  std::uint64_t seed_;
  GeneratedSplit split_;
  GeneratedLabels labels_;
};

GeneratedLabels read_labels(ConfigMap& data) {
  const std::string labels = data.choice(
      {"labels",
       "What a sample has beside its image. class: labels, a class number. soft: also targets (10), 0.8 of the class "
       "and 0.2 of the one most like it. pixels: labels (32, 32), 0 outside the figure and 1 + its class inside. "
       "values: also targets (3), x and y of the figure's centre and its size, in half extents of the image.",
       "pixels"},
      {"class", "soft", "pixels", "values"}, "class");
  if (labels == "soft") return GeneratedLabels::soft;
  if (labels == "pixels") return GeneratedLabels::pixels;
  return labels == "values" ? GeneratedLabels::values : GeneratedLabels::class_;
}

}  // namespace

SampleSplits generated_readers(const GeneratedOptions& options) {
  return {std::make_shared<GeneratedReader>(options.train_samples, options, GeneratedSplit::train),
          std::make_shared<GeneratedReader>(options.test_samples, options, GeneratedSplit::test)};
}

/// `data: {format: generated}`: train_samples, test_samples, seed, labels.
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
  options.labels = read_labels(data);
  return generated_readers(options);
}

}  // namespace bantam
