// Memory of the application under a runtime's allocator, and tensors over its buffers.
#include "bantam/engine/interop/external_memory.h"

#include <array>
#include <map>

#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/message_of.h"

namespace bantam::testing::external_memory_test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

/// An application with memory functions, which counts what is asked of them.
struct Application {
  explicit Application(Device device)
      : source(device.is_cuda() ? make_cuda_source(device) : make_host_source()), device(device) {}

  static void* allocate(void* state, std::size_t bytes, void* stream) {
    auto& self = *static_cast<Application*>(state);
    if (bytes > self.most - self.in_use) return nullptr;
    void* const address = self.source->acquire(bytes);
    self.live[address] = bytes;
    self.in_use += bytes;
    self.peak = std::max(self.peak, self.in_use);
    self.stream = stream;
    return address;
  }
  static void release(void* state, void* address, std::size_t bytes, void*) {
    auto& self = *static_cast<Application*>(state);
    EXPECT_EQ(self.live.at(address), bytes) << "whole regions";
    self.live.erase(address);
    self.in_use -= bytes;
    self.source->release(address, bytes);
  }
  ExternalAllocator functions(void* on = nullptr) {
    return {.device = device, .allocate = allocate, .release = release, .state = this, .stream = on, .name = "app"};
  }

  std::unique_ptr<RegionSource> source;
  Device device;
  std::map<void*, std::size_t> live;
  std::uint64_t in_use = 0, peak = 0, most = ~std::uint64_t{0};
  void* stream = nullptr;
};

std::vector<float> trained(Runtime& runtime, Device device) {
  Model model(runtime, device, small_network(), {.seed = 5});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 0.01f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {8}});
  const Context context = Context::make(runtime, device);
  for (int update = 0; update < 3; ++update)
    step.step(make_batch(context, model.graph().input_shape(), 5, update * 8, 8));
  return to_host_floats(model.parameters().master(), runtime.stream(device));
}

class ExternalMemoryTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ExternalMemoryTest);

TEST_P(ExternalMemoryTest, AModelTrainsInTheApplicationsMemoryToTheSameBits) {
  Application application(device());
  std::vector<float> weights;
  {
    Runtime runtime({.threads = 2, .source = external_source(application.functions())});
    weights = trained(runtime, device());
    const MemoryStats stats = runtime.allocator(device()).stats();
    EXPECT_EQ(application.in_use, stats.pool_bytes) << "every byte of the pool is the application's";
    EXPECT_GT(stats.peak_bytes, 0u);
    runtime.allocator(device()).trim();
    EXPECT_EQ(application.in_use, runtime.allocator(device()).stats().pool_bytes);
  }
  EXPECT_EQ(application.in_use, 0u);
  EXPECT_TRUE(application.live.empty());
  EXPECT_EQ(weights, trained(runtime(), device()));
}

TEST_P(ExternalMemoryTest, WhatTheApplicationRefusesIsOutOfMemory) {
  Application application(device());
  application.most = 4 * kMiB;
  Runtime runtime({.threads = 1, .source = external_source(application.functions())});
  const Context ctx = Context::make(runtime, device());
  const Tensor fits = ctx.allocate({static_cast<std::int64_t>(3 * kMiB)}, DType::uint8);
  EXPECT_THROW((void)ctx.allocate({static_cast<std::int64_t>(4 * kMiB)}, DType::uint8), OutOfMemory);
  EXPECT_LE(application.peak, 4 * kMiB);
}

TEST_P(ExternalMemoryTest, ALimitHoldsForTheApplicationsMemoryToo) {
  Application application(device());
  Runtime runtime(
      {.threads = 1, .budgets = {{to_string(device()), 4 * kMiB}}, .source = external_source(application.functions())});
  const Context ctx = Context::make(runtime, device());
  EXPECT_THROW((void)ctx.allocate({static_cast<std::int64_t>(5 * kMiB)}, DType::uint8), OutOfMemory);
  EXPECT_EQ(application.in_use, 0u);
}

TEST_P(ExternalMemoryTest, TheFunctionsGetTheApplicationsStream) {
  Application application(device());
  const OwnedStream mine(device());
  Runtime runtime({.threads = 1, .source = external_source(application.functions(mine.get().handle))});
  const Tensor tensor = Context::make(runtime, device()).allocate({16}, DType::float32);
  EXPECT_EQ(application.stream, mine.get().handle);
}

TEST_P(ExternalMemoryTest, ABufferIsReleasedOnceWithTheStreamThatUsedIt) {
  const Context ctx = context();
  const Tensor memory = ctx.upload({2, 4}, random_floats(8, 1).data());
  int released = 0;
  {
    const Tensor tensor = external_tensor(
        {.data = memory.data(), .shape = {2, 4}, .stream = ctx.stream, .release = [&](void* data, Stream stream) {
           EXPECT_EQ(data, memory.data());
           EXPECT_EQ(stream.handle, ctx.stream.handle);
           ++released;
         }});
    const Tensor row = tensor.slice(4, {4});
    EXPECT_EQ(tensor.device(), device());
    EXPECT_EQ(to_host<float>(row, ctx.stream), to_host<float>(memory.slice(4, {4}), ctx.stream));
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST_P(ExternalMemoryTest, StreamsAreEqualByTheirHandles) {
  const OwnedStream own(device());
  const Stream stream = external_stream(device(), own.get().handle);
  EXPECT_EQ(stream.handle, own.get().handle);
  EXPECT_EQ(stream.id, external_stream(device(), own.get().handle).id);
  order_streams(own.get(), stream);
  order_streams(stream, context().stream);
  synchronize_device(device());
}

TEST(ExternalBufferTest, WhatIsNoBufferIsRefusedAndNotReleased) {
  alignas(16) std::array<float, 8> values{};
  const auto refused = [](ExternalBuffer buffer) {
    buffer.release = [](void*, Stream) { ADD_FAILURE() << "released"; };
    return message_of([&] { (void)external_tensor(buffer); });
  };
  EXPECT_EQ(refused({.shape = {8}}), "external_tensor: null for a tensor (8)");
  EXPECT_EQ(refused({.data = reinterpret_cast<std::byte*>(values.data()) + 2, .shape = {4}}),
            "external_tensor: the address of a float32 tensor on cpu is no multiple of 4");
  EXPECT_EQ(refused({.data = values.data(), .shape = {8}, .stream = {.device = Device::meta_of(Device::cpu())}}),
            "external_tensor: meta(cpu) has no memory");
  EXPECT_EQ(external_tensor({.shape = {0, 3}}).elements(), 0);
}

class ExternalAddressTest : public EngineTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ExternalAddressTest, ::testing::Values(Device::cuda(0)), engine_test_name);

TEST_P(ExternalAddressTest, AddressesOfTheHostAreNoDeviceMemory) {
  alignas(16) std::array<float, 8> values{};
  EXPECT_EQ(
      message_of([&] { (void)external_tensor({.data = values.data(), .shape = {8}, .stream = context().stream}); }),
      "external_tensor: the address is no device memory, the stream is of cuda:0");
}

TEST(ExternalSourceTest, BothFunctionsAreNeeded) {
  EXPECT_EQ(message_of([] { (void)external_source({.allocate = Application::allocate}); }),
            "external_source: an allocator needs both functions, allocate and release");
}

TEST(ExternalSourceTest, OtherDevicesHaveTheSystemsMemory) {
  Application application(Device::cpu());
  const auto source = external_source(application.functions());
  EXPECT_STREQ(source(Device::cpu())->name(), "app");
  EXPECT_STRNE(source(Device::meta_of(Device::cpu()))->name(), "app");
}

TEST(ExternalSourceTest, AddressesThatAreNotAlignedAreRefused) {
  static std::array<std::byte, 3 << 20> memory;
  ExternalAllocator odd{.allocate = [](void*, std::size_t, void*) -> void* {
                          const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
                          return reinterpret_cast<void*>(at / 256 * 256 + 256 + 64);
                        },
                        .release = [](void*, void*, std::size_t, void*) {}};
  Runtime runtime({.threads = 1, .source = external_source(odd)});
  EXPECT_EQ(message_of([&] { (void)Context::make(runtime, Device::cpu()).allocate({4}, DType::float32); }),
            "cpu: source 'application' gave an address that is not aligned to 256 bytes");
}

}  // namespace
}  // namespace bantam::testing::external_memory_test
