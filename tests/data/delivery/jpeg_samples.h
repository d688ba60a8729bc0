// Samples that are JPEG files in memory, of sizes and forms of their own.
#pragma once

#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/formats/sample_reader.h"
#include "tests/data/images/image_files.h"

namespace bantam::testing {

/// Sample i has (120 + i mod 5, 130 - i mod 7) pixels; every fifth is grey, every seventh CMYK, every sixth progressive
/// and turned. Broken ones are cut short.
class JpegSamples : public SampleReader {
 public:
  explicit JpegSamples(std::int64_t size, std::vector<std::int64_t> broken = {}) {
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t channels = i % 7 == 6 ? 4 : i % 5 == 4 ? 1 : 3;
      const int chroma = channels == 1 ? 1 : 2;
      files_.push_back(write_jpeg(smooth_image({120 + i % 5, 130 - i % 7}, channels, static_cast<std::uint32_t>(i)),
                                  {.chroma_across = chroma,
                                   .chroma_down = chroma,
                                   .progressive = i % 6 == 5,
                                   .orientation = i % 6 == 5 ? 6 : 0}));
    }
    for (const std::int64_t i : broken) files_[static_cast<std::size_t>(i)].resize(300);
  }

  DatasetFacts facts() const override {
    return {.size = std::ssize(files_), .image_shape = {0, 0, 3}, .class_names = {"a", "b", "c", "d"}};
  }
  void read(std::int64_t, std::span<const std::span<std::byte>>) const override { throw DataError("not to be read"); }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    fields[0] = files_[static_cast<std::size_t>(index)];
    const auto label = static_cast<std::int32_t>(index % 4);
    fields[1].resize(sizeof label);
    std::memcpy(fields[1].data(), &label, sizeof label);
  }
  std::uint64_t encoded_bytes(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].size();
  }
  std::string name_of(std::int64_t index) const override { return fmt::format("{}.jpg", index); }

 private:
  std::vector<FileBytes> files_;
};

}  // namespace bantam::testing
