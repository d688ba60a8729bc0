// Fills both splits of the generated data set, image by image in parallel.
#include "bantam/data/formats/generated.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/data/formats/drawing.h"

namespace bantam {
namespace {

DatasetFacts facts_of(std::int64_t size) {
  return {size,
          {kGeneratedExtent, kGeneratedExtent, 3},
          {"disc", "ring", "square", "triangle", "cross", "star", "horizontal stripes", "vertical stripes",
           "checkerboard", "dots"}};
}

std::shared_ptr<const Dataset> draw_split(Runtime& runtime, DatasetFacts facts, std::uint64_t seed,
                                          GeneratedSplit split) {
  auto set = std::make_shared<Dataset>(runtime, std::move(facts));
  const std::span<std::uint8_t> images = set->images_out();
  const std::span<std::int32_t> labels = set->labels_out();
  constexpr std::int64_t kGrain = 64;
  parallel_ranges(set->size(), kGrain, runtime.threads(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto offset = static_cast<std::size_t>(i * kGeneratedBytes);
      draw_generated_image(seed, split, i, images.subspan(offset).first<kGeneratedBytes>());
      labels[static_cast<std::size_t>(i)] = generated_label(i);
    }
  });
  return set;
}

}  // namespace

DatasetFacts generated_train_facts(const GeneratedOptions& options) {
  return facts_of(options.limit > 0 ? std::min(options.limit, options.train_samples) : options.train_samples);
}

DatasetFacts generated_test_facts(const GeneratedOptions& options) { return facts_of(options.test_samples); }

DatasetSplits generate_dataset(Runtime& runtime, const GeneratedOptions& options) {
  return {draw_split(runtime, generated_train_facts(options), options.seed, GeneratedSplit::train),
          draw_split(runtime, generated_test_facts(options), options.seed, GeneratedSplit::test)};
}

}  // namespace bantam
