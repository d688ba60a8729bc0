// Test support: outputs and workspaces with guard bytes after them, and one body run with 1, 2 and 3 threads.
#pragma once

#include <bit>
#include <cstring>

#include "tests/kernels/device_buffer.h"

namespace bantam::testing {

inline constexpr std::size_t kGuardBytes = 512;

/// Device bytes that end in guard bytes of 0xff; the part before them is 0xff too, until a kernel writes it.
class GuardedBytes {
 public:
  GuardedBytes(KernelDevice& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    data_ = device.allocator().allocate(bytes + kGuardBytes, device.stream(), {Category::other, "guarded"});
    const std::vector<std::uint8_t> poison(bytes + kGuardBytes, 0xff);
    copy_bytes(data_, poison.data(), poison.size(), device.stream());
    device.synchronize();
  }
  ~GuardedBytes() {
    EXPECT_TRUE(intact()) << "a kernel wrote past the end of " << bytes_ << " bytes";
    device_.allocator().free(data_, device_.stream());
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  kernels::Workspace workspace() const { return {data_, bytes_}; }
  std::vector<std::uint8_t> download_bytes() const {
    std::vector<std::uint8_t> raw(bytes_);
    copy_bytes(raw.data(), data_, bytes_, device_.stream());
    device_.synchronize();
    return raw;
  }
  template <class T>
  std::vector<T> download_as() const {
    const std::vector<std::uint8_t> raw = download_bytes();
    std::vector<T> values(bytes_ / sizeof(T));
    std::memcpy(static_cast<void*>(values.data()), raw.data(), values.size() * sizeof(T));
    return values;
  }
  /// The values, read as `dtype`, as floats.
  std::vector<float> download(DType dtype) const {
    if (dtype == DType::float32) return download_as<float>();
    std::vector<float> values;
    for (const std::uint16_t bits : download_as<std::uint16_t>()) {
      values.push_back(dtype == DType::float16 ? half_bits_to_float(bits) : BFloat16(std::bit_cast<BFloat16>(bits)));
    }
    return values;
  }
  void upload(const void* from) {
    copy_bytes(data_, from, bytes_, device_.stream());
    device_.synchronize();
  }

 private:
  bool intact() const {
    std::vector<std::uint8_t> guard(kGuardBytes);
    copy_bytes(guard.data(), static_cast<const std::uint8_t*>(data_) + bytes_, kGuardBytes, device_.stream());
    device_.synchronize();
    for (const std::uint8_t byte : guard) {
      if (byte != 0xff) return false;
    }
    return true;
  }

  KernelDevice& device_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// A guarded output of `count` elements.
class GuardedBuffer : public GuardedBytes {
 public:
  GuardedBuffer(KernelDevice& device, std::int64_t count, DType dtype)
      : GuardedBytes(device, static_cast<std::size_t>(count) * size_of(dtype)), dtype_(dtype) {}
  /// Float32 with values to start from.
  GuardedBuffer(KernelDevice& device, const std::vector<float>& values)
      : GuardedBuffer(device, static_cast<std::int64_t>(values.size()), DType::float32) {
    upload(values.data());
  }
  std::vector<float> download() const { return GuardedBytes::download(dtype_); }

 private:
  DType dtype_;
};

/// Expects body(device) to compute the same bytes on the CPU with 1, 2 and 3 threads.
template <class Body>
void expect_same_bits_for_all_threads(Body&& body) {
  KernelDevice one(Device::cpu(), 1);
  const std::vector<std::uint8_t> expected = body(one);
  ASSERT_FALSE(expected.empty());
  for (const int threads : {2, 3}) {
    KernelDevice device(Device::cpu(), threads);
    EXPECT_EQ(body(device), expected) << threads << " threads";
  }
}

inline std::vector<double> as_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

inline constexpr DType kFloatingTypes[] = {DType::float32, DType::float16, DType::bfloat16};

/// Tolerance of a relative error in the norm: one rounding to `dtype`, and float32 sums of `terms` terms. Rounding
/// errors of such a sum are independent and grow like the root of the number of terms; the bound allows them to grow in
/// proportion.
inline double sum_tolerance(DType dtype, std::int64_t terms) {
  return unit_roundoff(dtype) + static_cast<double>(terms + 2) * unit_roundoff(DType::float32);
}

}  // namespace bantam::testing
