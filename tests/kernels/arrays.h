// Test support: arrays of plain structs on a device, and comparison element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/device_buffer.h"

namespace bantam::testing {

/// Values of a plain type T on a device.
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceArray(KernelDevice& device, const std::vector<T>& values) : device_(device), count_(values.size()) {
    data_ = device.allocator().allocate(count_ * sizeof(T), device.stream(), {Category::other, "test"});
    upload(values);
  }
  ~DeviceArray() { device_.allocator().free(data_, device_.stream()); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  void upload(const std::vector<T>& values) {
    copy_bytes(data_, values.data(), count_ * sizeof(T), device_.stream());
    device_.synchronize();
  }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    copy_bytes(values.data(), data_, count_ * sizeof(T), device_.stream());
    device_.synchronize();
    return values;
  }

 private:
  KernelDevice& device_;
  std::size_t count_;
  void* data_ = nullptr;
};

template <class T>
std::vector<double> to_double(const std::vector<T>& values) {
  return std::vector<double>(values.begin(), values.end());
}

/// |actual - expected| <= tolerance·max(1, |expected|) everywhere; NaN fails.
template <class T>
void expect_close(const std::vector<float>& actual, const std::vector<T>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double e = static_cast<double>(expected[i]);
    const double bound = tolerance * std::max(1.0, std::abs(e));
    ASSERT_TRUE(std::abs(static_cast<double>(actual[i]) - e) <= bound)
        << "element " << i << ": " << actual[i] << ", expected " << e << " +- " << bound;
  }
}

/// Normal values of deviation 1 around `mean` (Box and Muller 1958), float32.
inline std::vector<float> normal_values(std::int64_t count, std::uint64_t seed, double mean) {
  const std::vector<float> radius = random_values(count, seed, DType::float32, 0.0f, 1.0f);
  const std::vector<float> angle = random_values(count, seed + 1, DType::float32, 0.0f, 6.2831853f);
  std::vector<float> values;
  for (std::size_t i = 0; i < radius.size(); ++i)
    values.push_back(static_cast<float>(mean + std::sqrt(-2 * std::log(1.0 - radius[i])) * std::cos(angle[i])));
  return values;
}

/// The floating types of kernels.
inline const std::vector<DType>& kernel_dtypes() {
  static const std::vector<DType> all = {DType::float32, DType::float16, DType::bfloat16};
  return all;
}

/// Counts around a vector's, a warp's and a part's end.
inline const std::vector<std::int64_t>& odd_counts() {
  static const std::vector<std::int64_t> all = {1, 3, 127, 128, 1000003};
  return all;
}

/// `value` as `dtype` holds it.
inline float rounded(float value, DType dtype) {
  if (dtype == DType::float16) return Half(value);
  if (dtype == DType::bfloat16) return BFloat16(value);
  return value;
}

/// Floats as bits, for comparisons that NaN and -0 must not fool.
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

}  // namespace bantam::testing
