// DLPack both ways: the memory is the same, its owner is right, streams are ordered, and what does not fit is refused.
#include "bantam/engine/interop/dlpack.h"

#include <array>
#include <cstring>
#include <numeric>

#include "bantam/base/error.h"
#include "bantam/engine/interop/dlpack_abi.h"
#include "bantam/engine/interop/external_memory.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/message_of.h"

namespace bantam::testing::dlpack_test {
namespace {

class DlpackTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(DlpackTest);

TEST_P(DlpackTest, AnExportedStructDescribesTheTensorsOwnMemory) {
  const Context ctx = context();
  const Tensor tensor = ctx.upload({2, 1, 3}, random_floats(6, 1).data());
  DLManagedTensorVersioned* const out = to_dlpack(tensor, {.producer = ctx.stream, .read_only = true});
  EXPECT_EQ(out->version.major, 1u);
  EXPECT_EQ(out->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  const DLTensor& dl = out->dl_tensor;
  EXPECT_EQ(static_cast<std::byte*>(dl.data) + dl.byte_offset, tensor.data());
  EXPECT_EQ(dl.device.device_type, device().is_cuda() ? kDLCUDA : kDLCPU);
  EXPECT_EQ(dl.device.device_id, 0);
  EXPECT_EQ(std::vector<std::int64_t>(dl.shape, dl.shape + dl.ndim), (std::vector<std::int64_t>{2, 1, 3}));
  EXPECT_EQ(std::vector<std::int64_t>(dl.strides, dl.strides + dl.ndim), (std::vector<std::int64_t>{3, 3, 1}));
  EXPECT_EQ(dl.dtype.code, kDLFloat);
  EXPECT_EQ(dl.dtype.bits, 32);
  EXPECT_EQ(dl.dtype.lanes, 1);
  out->deleter(out);
}

TEST_P(DlpackTest, MemoryStaysUntilTheConsumerDeletesIt) {
  const Context ctx = context();
  BfcAllocator& allocator = runtime().allocator(device());
  const std::uint64_t before = allocator.stats().in_use_bytes;
  Tensor tensor = ctx.upload({64}, random_floats(64, 1).data());
  DLManagedTensor* const first = to_dlpack_unversioned(tensor, {.producer = ctx.stream});
  DLManagedTensorVersioned* const second = to_dlpack(tensor.slice(16, {32}), {.producer = ctx.stream});
  EXPECT_EQ(second->dl_tensor.data, tensor.as<float>() + 16);
  tensor = Tensor();
  first->deleter(first);
  EXPECT_EQ(allocator.stats().in_use_bytes, before + 256) << "the slice's struct still owns it";
  second->deleter(second);
  EXPECT_EQ(allocator.stats().in_use_bytes, before);
}

TEST_P(DlpackTest, EveryTypeComesBackAsItWent) {
  const Context ctx = context();
  for (const DType dtype :
       {DType::float32, DType::float16, DType::bfloat16, DType::float64, DType::uint8, DType::int32, DType::int64}) {
    std::vector<std::byte> values(12 * size_of(dtype));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 37);
    const Tensor tensor = ctx.upload_bytes({3, 4}, dtype, values.data(), Category::input);
    const Tensor back = from_dlpack(to_dlpack(tensor, {.producer = ctx.stream, .consumer = dlpack_stream(ctx.stream)}),
                                    {.consumer = ctx.stream});
    EXPECT_EQ(back.data(), tensor.data()) << to_string(dtype);
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.shape(), tensor.shape());
    EXPECT_FALSE(back.sole_owner()) << "nothing may work in place in another's memory";
    EXPECT_EQ(to_host<std::uint8_t>(
                  back.reinterpret(0, {tensor.elements() * static_cast<std::int64_t>(size_of(dtype))}, DType::uint8),
                  ctx.stream),
              to_host<std::uint8_t>(tensor.reinterpret(0, {static_cast<std::int64_t>(values.size())}, DType::uint8),
                                    ctx.stream));
  }
}

TEST_P(DlpackTest, ARuntimeLivesAsLongAsItsConsumerWants) {
  auto owner = std::make_shared<Runtime>(RuntimeOptions{.threads = 1});
  const std::weak_ptr<Runtime> watch = owner;
  const Context ctx = Context::make(*owner, device());
  DLManagedTensorVersioned* const out =
      to_dlpack(ctx.upload({8}, random_floats(8, 1).data()), {.producer = ctx.stream, .keep_alive = owner});
  owner.reset();
  EXPECT_FALSE(watch.expired());
  out->deleter(out);
  EXPECT_TRUE(watch.expired());
}

/// A struct that another library made, over host memory or over memory of the device; its deleter counts.
struct Foreign {
  alignas(64) std::array<float, 32> values{};
  std::array<std::int64_t, 3> shape{2, 3, 4}, strides{12, 4, 1};
  DLManagedTensorVersioned managed{};
  int deleted = 0;

  Foreign() {
    std::iota(values.begin(), values.end(), 0.0f);
    managed = {.version = {1, 7},
               .manager_ctx = this,
               .deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; },
               .flags = 0,
               .dl_tensor = {.data = values.data(),
                             .device = {kDLCPU, 0},
                             .ndim = 3,
                             .dtype = {kDLFloat, 32, 1},
                             .shape = shape.data(),
                             .strides = strides.data(),
                             .byte_offset = 0}};
  }
  Tensor import() { return from_dlpack(&managed, {}); }
};

TEST(DlpackImportTest, TheDeleterIsCalledOnceWithTheLastView) {
  Foreign foreign;
  {
    Tensor tensor = foreign.import();
    EXPECT_EQ(tensor.data(), foreign.values.data());
    EXPECT_EQ(tensor.shape(), (Shape{2, 3, 4}));
    const Tensor view = tensor.slice(20, {4});
    tensor = Tensor();
    EXPECT_EQ(to_host<float>(view, {}), (std::vector<float>{20, 21, 22, 23}));
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DlpackImportTest, OffsetsAndTheStridesThatMeanRowMajorAreAccepted) {
  Foreign foreign;
  foreign.managed.dl_tensor.byte_offset = 4;
  EXPECT_EQ(to_host<float>(foreign.import().slice(0, {1}), {}), std::vector<float>{1});
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(foreign.import().elements(), 24);
  foreign.managed.dl_tensor.strides = foreign.strides.data();
  foreign.shape = {1, 6, 4};
  foreign.strides = {-7, 4, 1};
  EXPECT_EQ(foreign.import().shape(), (Shape{1, 6, 4})) << "the stride of an axis of one element says nothing";
  foreign.shape = {0, 6, 4};
  foreign.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(foreign.import().elements(), 0);
  foreign.managed.dl_tensor.ndim = 0;
  foreign.managed.dl_tensor.data = foreign.values.data();
  EXPECT_EQ(foreign.import().shape(), Shape());
  EXPECT_EQ(foreign.deleted, 5);
}

TEST(DlpackImportTest, BoolIsReadAsBytesAndPageLockedMemoryAsTheHosts) {
  Foreign foreign;
  foreign.managed.dl_tensor.dtype = {kDLBool, 8, 1};
  foreign.managed.dl_tensor.device = {kDLCUDAHost, 0};
  EXPECT_EQ(foreign.import().dtype(), DType::uint8);
}

struct Refusal {
  std::function<void(Foreign&)> change;
  std::string message;
};

const std::vector<Refusal> kRefusals = {
    {[](Foreign& f) {
       f.managed.version = {2, 0};
     },
     "from_dlpack: DLPack 2.0; expected version 1"},
    {[](Foreign& f) {
       f.managed.dl_tensor.device = {kDLCUDA, 3};
     },
     "from_dlpack: the tensor is on cuda:3, its consumer on cpu"},
    {[](Foreign& f) {
       f.managed.dl_tensor.device = {kDLMetal, 0};
     },
     "from_dlpack: the tensor is on a device of DLPack's type 8, its consumer on cpu"},
    {[](Foreign& f) {
       f.managed.dl_tensor.dtype = {kDLComplex, 64, 1};
     },
     "from_dlpack: complex64 elements; expected float16, bfloat16, float32, float64, uint8, bool8, int32 or int64"},
    {[](Foreign& f) {
       f.managed.dl_tensor.dtype = {kDLFloat, 32, 4};
     },
     "from_dlpack: float32 x 4 elements; expected float16, bfloat16, float32, float64, uint8, bool8, int32 or int64"},
    {[](Foreign& f) {
       f.strides = {12, 1, 3};
     },
     "from_dlpack: stride 3 of axis 2 of a tensor (2, 3, 4); expected 1: row-major without gaps (make it contiguous)"},
    {[](Foreign& f) {
       f.strides = {24, 4, 1};
     },
     "from_dlpack: stride 24 of axis 0 of a tensor (2, 3, 4); expected 12: row-major without gaps (make it "
     "contiguous)"},
    {[](Foreign& f) { f.managed.dl_tensor.ndim = 9; }, "from_dlpack: 9 axes; expected 0 to 8"},
    {[](Foreign& f) { f.managed.dl_tensor.shape = nullptr; }, "from_dlpack: 3 axes; expected 0 to 8"},
    {[](Foreign& f) { f.managed.dl_tensor.data = nullptr; }, "from_dlpack: a tensor (2, 3, 4) without memory"},
    {[](Foreign& f) { f.managed.dl_tensor.byte_offset = 2; },
     "from_dlpack: a float32 tensor at an address that is no multiple of 4 (copy it first)"},
};

TEST(DlpackImportTest, WhatDoesNotFitIsRefusedAndStaysTheCallers) {
  for (const Refusal& refusal : kRefusals) {
    Foreign foreign;
    refusal.change(foreign);
    EXPECT_EQ(message_of([&] { (void)foreign.import(); }), refusal.message);
    EXPECT_EQ(foreign.deleted, 0) << refusal.message;
  }
  EXPECT_EQ(message_of([] { (void)from_dlpack(static_cast<DLManagedTensor*>(nullptr), {}); }),
            "from_dlpack: a null pointer");
}

TEST(DlpackExportTest, WhatCannotGoOutIsRefused) {
  Runtime runtime({.threads = 1});
  const Tensor tensor = Context::make(runtime, Device::cpu()).upload({2}, std::array{1.0f, 2.0f}.data());
  EXPECT_EQ(message_of([] { (void)to_dlpack({}, {}); }), "to_dlpack: an undefined tensor");
  EXPECT_EQ(message_of([&] { (void)to_dlpack(tensor, {.consumer = 1}); }),
            "to_dlpack: stream 1 for a tensor on cpu; expected none");
  EXPECT_EQ(message_of([&] { (void)to_dlpack_unversioned(tensor, {.read_only = true}); }),
            "to_dlpack: the consumer asks for DLPack without a version, which cannot say that a tensor is read-only");
  const Context meta = Context::make(runtime, Device::meta_of(Device::cpu()));
  const Tensor shadow = meta.allocate({2}, DType::float32);
  EXPECT_EQ(message_of([&] { (void)to_dlpack(shadow, {}); }), "dlpack: meta(cpu) has no memory");
  EXPECT_FALSE(dlpack_stream(runtime.stream(Device::cpu())));
  EXPECT_EQ(dlpack_stream({.device = Device::cuda()}), 1);
  EXPECT_EQ(dlpack_device(Device::cuda(2).logical(1)), (DlpackDevice{kDLCUDA, 2}));
}

/// Order between streams, which only a GPU has. Work that needs many milliseconds is queued first, so that whoever does
/// not wait for it sees what was there before.
class DlpackStreamTest : public EngineTest {
 protected:
  static constexpr std::int64_t kElements = 64 << 20;

  Tensor filled(const Context& ctx, std::uint8_t value) const {
    Tensor tensor = ctx.allocate({kElements}, DType::uint8);
    const std::vector<std::uint8_t> host(kElements, value);
    copy_bytes(tensor.data(), host.data(), tensor.bytes(), ctx.stream);
    synchronize(ctx.stream);
    return tensor;
  }
  /// Queues about 30 ms on an H200.
  static void delay(Stream stream, const Tensor& a, const Tensor& b) {
    for (int i = 0; i < 1000; ++i) copy_bytes(a.data(), b.data(), a.bytes(), stream);
  }
  static std::uint8_t last_of(const Tensor& tensor, Stream stream) {
    return to_host<std::uint8_t>(tensor.slice(kElements - 1, {1}), stream)[0];
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DlpackStreamTest, ::testing::Values(Device::cuda(0)), engine_test_name);

TEST_P(DlpackStreamTest, TheConsumersStreamWaitsForTheProducers) {
  const Context ctx = context();
  const OwnedStream consumer(device());
  const Tensor old = filled(ctx, 1), fresh = filled(ctx, 2), scratch = filled(ctx, 3);
  delay(ctx.stream, scratch, old);
  copy_bytes(old.data(), fresh.data(), old.bytes(), ctx.stream);
  DLManagedTensorVersioned* const out = to_dlpack(
      old, {.producer = ctx.stream, .consumer = dlpack_stream(consumer.get()), .consumer_stream_lives = true});
  EXPECT_EQ(last_of(old, consumer.get()), 2);
  out->deleter(out);
}

TEST_P(DlpackStreamTest, MemoryIsReusedOnlyAfterTheConsumersWork) {
  for (const bool lives : {true, false}) {
    const Context ctx = context();
    const OwnedStream consumer(device());
    const Tensor scratch = filled(ctx, 3), copy = filled(ctx, 4);
    Tensor tensor = filled(ctx, 1);
    const void* const address = tensor.data();
    DLManagedTensorVersioned* const out = to_dlpack(
        tensor, {.producer = ctx.stream, .consumer = dlpack_stream(consumer.get()), .consumer_stream_lives = lives});
    tensor = Tensor();
    delay(consumer.get(), scratch, copy);
    copy_bytes(copy.data(), address, copy.bytes(), consumer.get());
    out->deleter(out);
    const Tensor next = ctx.allocate({kElements}, DType::uint8);
    EXPECT_EQ(next.data(), address) << "else this test shows nothing";
    zero_bytes(next.data(), next.bytes(), ctx.stream);
    EXPECT_EQ(last_of(copy, consumer.get()), 1);
  }
}

TEST_P(DlpackStreamTest, AnImportersWorkIsDoneBeforeTheProducerReuses) {
  const Context ctx = context();
  const OwnedStream other(device());
  const Tensor theirs = filled(ctx, 1), scratch = filled(ctx, 3), copy = filled(ctx, 4), zeros = filled(ctx, 0);
  DLManagedTensorVersioned* const out = to_dlpack(theirs, {.producer = ctx.stream, .consumer = kDlpackNoWait});
  Tensor imported = from_dlpack(out, {.consumer = ctx.stream, .producer = dlpack_stream(other.get())});
  delay(ctx.stream, scratch, copy);
  copy_bytes(copy.data(), imported.data(), copy.bytes(), ctx.stream);
  imported = Tensor();  // its producer's stream waits for ours
  copy_bytes(theirs.data(), zeros.data(), theirs.bytes(), other.get());
  EXPECT_EQ(last_of(copy, ctx.stream), 1);
  synchronize(other.get());
}

TEST_P(DlpackStreamTest, AnImporterCanWaitForAProducerThatWasToldOfNoStream) {
  const Context ctx = context();
  const OwnedStream other(device());
  const Tensor theirs = filled(ctx, 1), fresh = filled(ctx, 2), scratch = filled(ctx, 3);
  delay(other.get(), scratch, fresh);
  copy_bytes(theirs.data(), fresh.data(), theirs.bytes(), other.get());
  DLManagedTensorVersioned* const out = to_dlpack(theirs, {.producer = other.get(), .consumer = kDlpackNoWait});
  const Tensor imported =
      from_dlpack(out, {.consumer = ctx.stream, .producer = dlpack_stream(other.get()), .wait_for_producer = true});
  EXPECT_EQ(last_of(imported, ctx.stream), 2);
}

TEST_P(DlpackStreamTest, AddressesThatKernelsCannotReadAreRefused) {
  const Context ctx = context();
  const Tensor tensor = ctx.allocate({64}, DType::float32);
  DLManagedTensorVersioned* const out = to_dlpack(tensor.slice(1, {8}), {.producer = ctx.stream});
  EXPECT_EQ(message_of([&] { (void)from_dlpack(out, {.consumer = ctx.stream}); }),
            "from_dlpack: a float32 tensor at an address that is no multiple of 16 (copy it first)");
  out->deleter(out);
}

}  // namespace
}  // namespace bantam::testing::dlpack_test
