// What the tests of the C interface share: a configuration, arrays, and expectations of a status with its message.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/bantam_c.h"

namespace bantam::testing {

struct Destroy {
  void operator()(bantam_engine* engine) const { bantam_engine_destroy(engine); }
  void operator()(bantam_config* config) const { bantam_config_destroy(config); }
  void operator()(bantam_model* model) const { bantam_model_destroy(model); }
  void operator()(char* text) const { bantam_free(text); }
};
template <class Handle>
using Owned = std::unique_ptr<Handle, Destroy>;

inline void expect_ok(bantam_status status) {
  EXPECT_EQ(status, BANTAM_OK) << bantam_status_name(status) << ": " << bantam_last_error();
}

inline void expect_error(bantam_status status, bantam_status expected, const std::string& message) {
  EXPECT_EQ(status, expected) << bantam_status_name(status);
  EXPECT_EQ(bantam_last_error(), message);
}

/// Two classes of 4 × 4 images: what is dark in one half is bright in the other.
struct Halves {
  explicit Halves(std::int64_t samples) : shape{samples, 4, 4, 1} {
    std::uint32_t state = 7;
    for (std::int64_t i = 0; i < samples; ++i) {
      labels.push_back(static_cast<std::int32_t>(i % 2));
      for (int at = 0; at < 16; ++at) {
        state = state * 1664525u + 1013904223u;
        const int noise = static_cast<int>(state >> 26);
        images.push_back(static_cast<std::uint8_t>(((at < 8) == (i % 2 == 0) ? 180 : 20) + noise));
      }
    }
    for (const std::uint8_t pixel : images) floats.push_back(static_cast<float>(pixel) / 255.0f);
  }
  std::vector<bantam_array> bytes_batch() const {
    return {{"images", BANTAM_UINT8, 4, shape, images.data()}, {"labels", BANTAM_INT32, 1, shape, labels.data()}};
  }
  std::vector<bantam_array> batch() const {
    return {{"images", BANTAM_FLOAT32, 4, shape, floats.data()}, {"labels", BANTAM_INT32, 1, shape, labels.data()}};
  }

  std::int64_t shape[4];
  std::vector<std::uint8_t> images;
  std::vector<float> floats;
  std::vector<std::int32_t> labels;
};

inline const char* kSmall =
    "device: cpu\n"
    "model: {input: [4, 4, 1], layers: [flatten, dense: {units: 8, activation: relu}, dense: {units: 2}]}\n"
    "train: {epochs: 3, optimizer: {adam: {learning_rate: 0.02}}}\n";

inline Owned<bantam_config> config_of(const char* yaml, const bantam_config_options* options = nullptr) {
  bantam_config* config = nullptr;
  expect_ok(bantam_config_from_text(yaml, options, &config));
  return Owned<bantam_config>(config);
}

inline Owned<bantam_model> model_of(const bantam_config* config, bantam_engine* engine = nullptr) {
  bantam_model* model = nullptr;
  expect_ok(bantam_model_create(engine, config, &model));
  return Owned<bantam_model>(model);
}

/// A configuration that trains on `samples`, which must outlive it.
inline Owned<bantam_config> config_with(const Halves& samples, std::vector<const char*> overrides = {},
                                        const char* yaml = kSmall) {
  const std::vector<bantam_array> arrays = samples.bytes_batch();
  bantam_samples train = BANTAM_INIT(bantam_samples);
  train.arrays = arrays.data();
  train.array_count = arrays.size();
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.train = &train;
  options.batch_size = 16;
  options.overrides = overrides.data();
  options.override_count = overrides.size();
  return config_of(yaml, &options);
}

/// Removed with it.
struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / ("bantam_capi_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string at(const char* name) const { return (path / name).string(); }
  std::filesystem::path path;
};

inline std::string text_of(char* text) {
  const Owned<char> owned(text);
  return text != nullptr ? text : "";
}

}  // namespace bantam::testing
