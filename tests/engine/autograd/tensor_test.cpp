// Storage goes back to its allocator, views share it, foreign memory is welcome.
#include "bantam/base/error.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::tensor_test {
namespace {

using testing::EngineTest;

class TensorTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(TensorTest);

TEST_P(TensorTest, MemoryGoesBackWithTheLastTensor) {
  const Context ctx = context();
  BfcAllocator& allocator = runtime().allocator(device());
  const std::uint64_t before = allocator.stats().in_use_bytes;
  {
    const Tensor a = ctx.allocate({10, 10}, DType::float32);
    Tensor b = a.view({100});
    EXPECT_FALSE(a.sole_owner());
    EXPECT_EQ(allocator.stats().in_use_bytes, before + 512);
    EXPECT_EQ(allocator.stats().by_category[Category::activation], 512u);
  }
  EXPECT_EQ(allocator.stats().in_use_bytes, before);
}

TEST_P(TensorTest, ViewsAndSlicesShowTheSameValues) {
  const Context ctx = context();
  const std::vector<float> values = testing::random_floats(12, 1);
  const Tensor a = ctx.upload({3, 4}, values.data());
  EXPECT_EQ(to_host<float>(a.view({2, 6}), ctx.stream), values);
  EXPECT_EQ(to_host<float>(a.slice(4, {4}), ctx.stream), std::vector<float>(values.begin() + 4, values.begin() + 8));
  EXPECT_THROW((void)a.view({5}), ShapeError);
  Tensor known = a;
  set_statistics(known, {});
  EXPECT_NE(statistics_of(known), nullptr);
  EXPECT_EQ(statistics_of(Tensor(known)), statistics_of(known));
  EXPECT_EQ(statistics_of(known.view({12})), nullptr) << "a view may be written to, as another value";
  EXPECT_THROW((void)a.slice(9, {4}), ShapeError);
  EXPECT_THROW((void)a.reinterpret(44, {2}, DType::float32), ShapeError);
  EXPECT_THROW((void)to_host<std::int32_t>(a, ctx.stream), DTypeError);
}

TEST_P(TensorTest, HalfTypesReadAsFloats) {
  const Context ctx = context({PrecisionKind::mixed_float16});
  const std::vector<float> values = {0.5f, -2.0f, 1.0f / 3.0f};
  const Tensor half = ops::cast(ctx, ctx.upload({3}, values.data()), DType::float16);
  EXPECT_EQ(to_host_floats(half, ctx.stream), (std::vector<float>{0.5f, -2.0f, static_cast<float>(Half(1.0f / 3.0f))}));
  const Tensor brain = ops::cast(ctx, ctx.upload({3}, values.data()), DType::bfloat16);
  EXPECT_EQ(to_host_floats(brain, ctx.stream)[2], static_cast<float>(BFloat16(1.0f / 3.0f)));
}

TEST(StorageTest, ForeignMemoryIsPassedToItsDeleterOnce) {
  std::vector<float> mine = {1, 2, 3};
  int deleted = 0;
  {
    const auto storage = std::make_shared<Storage>(mine.data(), 12, Device::cpu(), [&](void* p) {
      EXPECT_EQ(p, mine.data());
      ++deleted;
    });
    const Tensor tensor(storage, {3}, DType::float32);
    EXPECT_EQ(tensor.as<float>()[2], 3.0f);
    EXPECT_THROW(Tensor(storage, {4}, DType::float32), ShapeError);
  }
  EXPECT_EQ(deleted, 1);
}

TEST(StorageTest, OpsDoNotChangeForeignMemory) {
  Runtime runtime;
  const Context ctx = Context::make(runtime, Device::cpu());
  std::vector<float> mine = {-1, 2, -3};
  const Tensor y = ops::activation(
      ctx, Tensor(std::make_shared<Storage>(mine.data(), 12, Device::cpu(), nullptr), {3}, DType::float32),
      Activation::relu);
  EXPECT_EQ(mine, (std::vector<float>{-1, 2, -3}));
  EXPECT_EQ(to_host<float>(y, ctx.stream), (std::vector<float>{0, 2, 0}));
}

TEST(RuntimeTest, TwoRuntimesDoNotSeeEachOther) {
  Runtime a, b;
  const Context ctx = Context::make(a, Device::cpu());
  const Tensor tensor = ctx.allocate({1000}, DType::float32);
  EXPECT_GT(a.allocator(Device::cpu()).stats().in_use_bytes, 0u);
  EXPECT_EQ(b.allocator(Device::cpu()).stats().in_use_bytes, 0u);
}

TEST(RuntimeTest, ALimitHolds) {
  Runtime runtime({.limits = {{"cpu", 1u << 20}}});
  const Context ctx = Context::make(runtime, Device::cpu());
  EXPECT_NO_THROW((void)ctx.allocate({100000}, DType::float32));
  EXPECT_THROW((void)ctx.allocate({300000}, DType::float32), OutOfMemory);
  EXPECT_LE(runtime.allocator(Device::cpu()).stats().pool_bytes, 1u << 20);
}

TEST(RuntimeTest, NamesAreInternedOnce) {
  Runtime runtime;
  const std::string name = "layer";
  EXPECT_EQ(runtime.intern(name), runtime.intern("layer"));
  EXPECT_NE(runtime.intern("layer"), runtime.intern("layer2"));
}

}  // namespace
}  // namespace bantam::tensor_test
