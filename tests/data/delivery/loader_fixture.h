// Shared by the loader's tests: a small data set on every device, and the pipelines over it.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "bantam/data/augment/built_in.h"
#include "bantam/data/delivery/loader.h"
#include "tests/data/support.h"

namespace bantam {

inline constexpr std::int64_t kSamples = 53;
inline constexpr std::int64_t kBatch = 8;
inline const Shape kShape = {4, 5, 3};

class LoaderTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
    // One thread for kernels: OpenMP tells ThreadSanitizer nothing of its order, and this test is for the workers.
    runtime_ = std::make_unique<Runtime>(RuntimeOptions{.threads = 1});
  }
  Context context(PrecisionKind precision = PrecisionKind::float32) {
    return Context::make(*runtime_, GetParam(), Precision{precision});
  }
  std::shared_ptr<const Dataset> dataset(std::int64_t size = kSamples) {
    return testing::ramp_dataset(*runtime_, size, kShape);
  }
  std::unique_ptr<ImageBatchSource> source(PipelineOptions pipeline, std::uint64_t seed = 1, bool staged = false) {
    LoaderOptions options{.pipeline = std::move(pipeline), .device = GetParam(), .seed = seed, .staged_on_cpu = staged};
    return std::make_unique<ImageBatchSource>(*runtime_, dataset(), std::move(options));
  }

  std::unique_ptr<Runtime> runtime_;
};

inline PipelineOptions plain() {
  PipelineOptions options;
  options.batch_size = kBatch;
  return options;
}

/// Every stage at once.
inline PipelineOptions full() {
  PipelineOptions options = plain();
  options.shuffle.emplace();
  options.normalize = {.scale = 1.0 / 255, .mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}};
  options.augmentations = {random_crop({.padding = 2, .mode = kernels::PadMode::reflect}), random_flip(),
                           jitter(0.14f, 0.13f)};
  return options;
}

inline PipelineOptions with_workers(PipelineOptions options, std::optional<std::int64_t> workers,
                                    std::optional<std::int64_t> depth) {
  options.prefetch = {.depth = depth, .workers = workers};
  return options;
}

}  // namespace bantam
