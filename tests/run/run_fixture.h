// A folder of a test's own, and small configurations on generated images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/json.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bantam-run-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~RunTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  /// Bytes of a weights file's tensors; of which evaluation it is stands in its metadata.
  static std::map<std::string, std::vector<std::byte>> tensors_of(const std::filesystem::path& file) {
    std::map<std::string, std::vector<std::byte>> bytes;
    for (auto& [name, tensor] : read_safetensors(file).tensors) bytes.emplace(name, std::move(tensor.bytes));
    return bytes;
  }
  /// Lines of metrics.jsonl without what a clock or the memory says, which a resumed run has of its own.
  static std::vector<nlohmann::json> lines_without_clock(const std::string& text) {
    std::vector<nlohmann::json> lines;
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      lines.push_back(nlohmann::json::parse(text.substr(begin, text.find('\n', begin) - begin)));
      for (const char* of_session :
           {"seconds", "evaluation_seconds", "images_per_s", "data_wait_share", "peak_bytes", "pool_bytes"})
        lines.back().erase(of_session);
    }
    return lines;
  }
  /// The safetensors file with a note of such a length in its metadata that its header has `bytes` bytes, a multiple of
  /// 8: the file's first eight bytes are that number.
  static void write_with_header_of(const std::filesystem::path& to, SafetensorsFile file, std::uint64_t bytes) {
    const auto header = [&] {
      write_safetensors(to, file);
      const std::string written = read_file(to);
      std::uint64_t length = 0;
      std::memcpy(&length, written.data(), sizeof(length));
      return length;
    };
    file.metadata["note"] = "";
    const std::uint64_t least = header();
    ASSERT_LE(least, bytes);
    file.metadata["note"].resize(bytes - least, '-');
    ASSERT_EQ(header(), bytes);
  }
  /// A network of some hundred parameters; an epoch is 6 updates of 16 images; 20 images are for validation.
  static RunConfig tiny(const std::vector<std::string>& overrides = {}) {
    return parse_run_config(R"(seed: 7
device: cpu
data:
  format: generated
  train_samples: 96
  test_samples: 20
  pipeline:
    - shuffle: {}
    - normalize: {scale: 0.0039}
    - batch: {size: 16}
    - prefetch: {depth: 2, workers: 0}
model:
  name: tiny
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 4, kernel: 3, stride: 4}
    - batch_norm: {activation: relu}
    - global_average_pool
    - dense: {units: 10}
train: {epochs: 2, optimizer: {sgd: {learning_rate: 0.05}}}
)",
                            "tiny.yaml", overrides);
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace bantam::run
