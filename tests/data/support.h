// Test support: small data sets with known pixels, batches copied to the host, and folders that go away.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/data/delivery/loader.h"
#include "bantam/memory/device/device.h"

namespace bantam::testing {

/// Never zero, and different for neighbours, channels and images.
inline std::uint8_t ramp_pixel(std::int64_t image, std::int64_t position) {
  return static_cast<std::uint8_t>(1 + (image * 37 + position * 11) % 251);
}
inline std::int32_t ramp_label(std::int64_t image, std::int64_t classes) {
  return static_cast<std::int32_t>((image * 7 + 3) % classes);
}

/// `size` images of `shape` with ramp pixels and labels of `classes` classes: a, b, c, …
inline std::shared_ptr<const Dataset> ramp_dataset(Runtime& runtime, std::int64_t size, const Shape& shape = {4, 5, 3},
                                                   std::int64_t classes = 3) {
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < classes; ++c) names.emplace_back(1, static_cast<char>('a' + c));
  auto set = std::make_shared<Dataset>(runtime, DatasetFacts{size, shape, names});
  const std::int64_t positions = shape.elements();
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t p = 0; p < positions; ++p)
      set->images_out()[static_cast<std::size_t>(i * positions + p)] = ramp_pixel(i, p);
    set->labels_out()[static_cast<std::size_t>(i)] = ramp_label(i, classes);
  }
  return set;
}

/// Both splits in memory.
struct DatasetSplits {
  std::shared_ptr<const Dataset> train, test;
};

/// As a run opens them with `cache: ram`.
inline DatasetSplits read_splits(Runtime& runtime, const SampleSplits& splits, bool verify = false) {
  for (const auto& reader : {splits.train, splits.validation}) reader->check(verify, runtime.threads());
  return {read_dataset(runtime, *splits.train), read_dataset(runtime, *splits.validation)};
}

/// A batch on the host.
struct HostBatch {
  std::int64_t index = 0, size = 0;
  Shape shape;
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  bool operator==(const HostBatch&) const = default;
};

inline HostBatch copy_batch(const Batch& batch, Stream stream) {
  return {batch.index, batch.size, batch.at(kImages).shape(), to_host_floats(batch.at(kImages), stream),
          to_host<std::int32_t>(batch.at(kLabels), stream)};
}

/// All batches that `next` still returns.
inline std::vector<HostBatch> rest_of_epoch(BatchSource& source, const Context& context) {
  std::vector<HostBatch> batches;
  Batch batch;
  while (source.next(context, batch)) batches.push_back(copy_batch(batch, context.stream));
  return batches;
}

inline std::vector<HostBatch> whole_epoch(BatchSource& source, const Context& context, std::int64_t epoch) {
  source.start(epoch);
  return rest_of_epoch(source, context);
}

/// A folder of this test's own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bantam-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The message of the exception of type E that `call` throws; fails the test where none or another comes.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text) << "\nnot: " << (part)

}  // namespace bantam::testing
