// Test support: arrays on a device, random values, and comparison by relative error.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/dtype.h"
#include "bantam/base/philox.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/memory/allocator/allocator.h"

namespace bantam::testing {

/// One device with a stream, libraries and an allocator, for kernel tests. `threads` is for the CPU.
class KernelDevice {
 public:
  explicit KernelDevice(Device device, int threads = 2)
      : stream_(device),
        allocator_(device.is_cuda() ? make_cuda_source(device) : make_host_source(), device,
                   {.name = to_string(device)}),
        libraries_(kernels::make_device_libraries(device)),
        exec_{device, stream_.get(), threads, libraries_.get()} {}
  const kernels::Exec& exec() const { return exec_; }
  BfcAllocator& allocator() { return allocator_; }
  Stream stream() const { return stream_.get(); }
  void synchronize() const { bantam::synchronize(stream_.get()); }

 private:
  OwnedStream stream_;
  BfcAllocator allocator_;
  std::unique_ptr<kernels::DeviceLibraries> libraries_;
  kernels::Exec exec_;
};

/// Values on a device in `dtype`; uploaded from and downloaded to float vectors. Poisoned with NaN bits at
/// construction.
class DeviceBuffer {
 public:
  DeviceBuffer(KernelDevice& device, std::int64_t count, DType dtype) : device_(device), count_(count), dtype_(dtype) {
    data_ = device.allocator().allocate(bytes(), device.stream(), {Category::other, "test"});
    const std::vector<std::uint8_t> poison(bytes(), 0xff);
    copy_bytes(data_, poison.data(), bytes(), device.stream());
    device.synchronize();
  }
  DeviceBuffer(KernelDevice& device, const std::vector<float>& values, DType dtype)
      : DeviceBuffer(device, static_cast<std::int64_t>(values.size()), dtype) {
    upload(values);
  }
  ~DeviceBuffer() { device_.allocator().free(data_, device_.stream()); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * size_of(dtype_); }

  void upload(const std::vector<float>& values) {
    std::vector<std::uint8_t> raw(bytes());
    for (std::int64_t i = 0; i < count_; ++i) {
      const float v = values[static_cast<std::size_t>(i)];
      switch (dtype_) {
        case DType::float32:
          reinterpret_cast<float*>(raw.data())[i] = v;
          break;
        case DType::float16:
          reinterpret_cast<Half*>(raw.data())[i] = Half(v);
          break;
        case DType::bfloat16:
          reinterpret_cast<BFloat16*>(raw.data())[i] = BFloat16(v);
          break;
        case DType::uint8:
          raw[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(v);
          break;
        case DType::int32:
          reinterpret_cast<std::int32_t*>(raw.data())[i] = static_cast<std::int32_t>(v);
          break;
        default:
          FAIL() << "unsupported test dtype";
      }
    }
    copy_bytes(data_, raw.data(), bytes(), device_.stream());
    device_.synchronize();
  }
  std::vector<float> download() const {
    std::vector<std::uint8_t> raw = download_bytes();
    std::vector<float> values(static_cast<std::size_t>(count_));
    for (std::int64_t i = 0; i < count_; ++i) {
      float& v = values[static_cast<std::size_t>(i)];
      switch (dtype_) {
        case DType::float32:
          v = reinterpret_cast<const float*>(raw.data())[i];
          break;
        case DType::float16:
          v = reinterpret_cast<const Half*>(raw.data())[i];
          break;
        case DType::bfloat16:
          v = reinterpret_cast<const BFloat16*>(raw.data())[i];
          break;
        case DType::uint8:
          v = raw[static_cast<std::size_t>(i)];
          break;
        case DType::int32:
          v = static_cast<float>(reinterpret_cast<const std::int32_t*>(raw.data())[i]);
          break;
        default:
          ADD_FAILURE() << "unsupported test dtype";
      }
    }
    return values;
  }
  std::vector<std::uint8_t> download_bytes() const {
    std::vector<std::uint8_t> raw(bytes());
    copy_bytes(raw.data(), data_, bytes(), device_.stream());
    device_.synchronize();
    return raw;
  }

 private:
  KernelDevice& device_;
  std::int64_t count_;
  DType dtype_;
  void* data_ = nullptr;
};

/// Scratch memory of a kernel call, for a scope.
class TestWorkspace {
 public:
  TestWorkspace(KernelDevice& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    data_ = device.allocator().allocate(bytes, device.stream(), {Category::workspace, "test"});
  }
  ~TestWorkspace() { device_.allocator().free(data_, device_.stream()); }
  TestWorkspace(const TestWorkspace&) = delete;
  TestWorkspace& operator=(const TestWorkspace&) = delete;
  kernels::Workspace get() const { return {data_, bytes_}; }

 private:
  KernelDevice& device_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// Reproducible values in [low, high), rounded to what `dtype` can hold, so that inputs are exact on every backend.
inline std::vector<float> random_values(std::int64_t count, std::uint64_t seed, DType dtype = DType::float32,
                                        float low = -1.0f, float high = 1.0f) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) {
    v = random.uniform(low, high);
    if (dtype == DType::float16) v = Half(v);
    if (dtype == DType::bfloat16) v = BFloat16(v);
  }
  return values;
}

/// ‖actual - expected‖ / ‖expected‖ (the absolute norm where expected is zero); NaN where anything is.
template <class T>
double relative_error(const std::vector<float>& actual, const std::vector<T>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1.0);
}

/// Half the spacing of `dtype` at 1, relative: the error of one rounding. float32 2^-24, float16 2^-11, bfloat16 2^-8 …
/// .
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return std::ldexp(1.0, -11);
    case DType::bfloat16:
      return std::ldexp(1.0, -8);
    default:
      return std::ldexp(1.0, -24);
  }
}

/// Gradient check of a scalar function in double: central differences of `loss` at `x` against `gradient`, at up to
/// `samples` places.
template <class Loss>
void expect_gradient(std::vector<double> x, const std::vector<double>& gradient, Loss&& loss, int samples = 40,
                     double step = 1e-5, double tolerance = 1e-6) {
  ASSERT_EQ(x.size(), gradient.size());
  PhiloxSequence random(philox_key(7, RandomPurpose::test));
  double scale = 1e-12;
  for (const double g : gradient) scale = std::max(scale, std::abs(g));
  for (int s = 0; s < samples; ++s) {
    const std::size_t i =
        x.size() <= static_cast<std::size_t>(samples) ? static_cast<std::size_t>(s) % x.size() : random.below(x.size());
    const double kept = x[i];
    x[i] = kept + step;
    const double up = loss(x);
    x[i] = kept - step;
    const double down = loss(x);
    x[i] = kept;
    ASSERT_NEAR((up - down) / (2 * step), gradient[i], tolerance * scale) << "element " << i;
  }
}

/// Devices a kernel test runs on: instantiate with these; CUDA instances skip where there is no GPU.
inline std::vector<Device> test_devices() { return {Device::cpu(), Device::cuda(0)}; }
inline std::string device_test_name(const ::testing::TestParamInfo<Device>& info) {
  return info.param.is_cpu() ? "cpu" : "cuda";
}

/// Base of tests that run on every device: `class Conv2dTest : public DeviceTest {}` and
/// `INSTANTIATE_TEST_SUITE_P(Devices, Conv2dTest,
/// ::testing::ValuesIn(test_devices()), device_test_name)`. Names end in /cpu or /cuda, by which CTest splits them.
class DeviceTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
    device_ = std::make_unique<KernelDevice>(GetParam());
  }
  KernelDevice& device() { return *device_; }
  const kernels::Exec& exec() { return device_->exec(); }

 private:
  std::unique_ptr<KernelDevice> device_;
};

}  // namespace bantam::testing
