// Tensors through the C interface: shared by DLPack both ways, stepped on, and outliving the handles they came from.
#include <cstring>

#include "bantam/base/json.h"
#include "bantam/engine/interop/dlpack_abi.h"
#include "tests/capi/capi_fixture.h"

namespace bantam::testing::tensors_test {
namespace {

Owned<bantam_engine> engine() {
  bantam_engine* made = nullptr;
  expect_ok(bantam_engine_create(nullptr, &made));
  return Owned<bantam_engine>(made);
}

struct DestroyTensor {
  void operator()(bantam_tensor* tensor) const { bantam_tensor_destroy(tensor); }
};
using OwnedTensor = std::unique_ptr<bantam_tensor, DestroyTensor>;

OwnedTensor tensor_of(bantam_engine* engine, const bantam_array& array) {
  bantam_tensor* made = nullptr;
  expect_ok(bantam_tensor_create(engine, "cpu", &array, &made));
  return OwnedTensor(made);
}

std::vector<float> floats(const bantam_tensor* tensor) {
  bantam_tensor_info info = BANTAM_INIT(bantam_tensor_info);
  expect_ok(bantam_tensor_get_info(tensor, &info));
  std::vector<float> values(info.bytes / sizeof(float));
  expect_ok(bantam_tensor_read(tensor, values.data(), info.bytes));
  return values;
}

TEST(CapiTensors, AStructOutlivesEveryHandle) {
  for (const std::int32_t versioned : {0, 1}) {
    const Halves halves(2);
    Owned<bantam_engine> owner = engine();
    OwnedTensor tensor = tensor_of(owner.get(), halves.batch()[0]);
    bantam_tensor_info info = BANTAM_INIT(bantam_tensor_info);
    expect_ok(bantam_tensor_get_info(tensor.get(), &info));
    EXPECT_EQ(info.dlpack_device_type, 1);
    EXPECT_EQ(info.rank, 4);
    EXPECT_EQ(info.bytes, 2u * 16 * sizeof(float));
    void* managed = nullptr;
    expect_ok(bantam_tensor_to_dlpack(tensor.get(), nullptr, versioned, &managed));
    tensor.reset();
    owner.reset();
    const DLTensor& seen = versioned != 0 ? static_cast<DLManagedTensorVersioned*>(managed)->dl_tensor
                                          : static_cast<DLManagedTensor*>(managed)->dl_tensor;
    EXPECT_EQ(seen.data, info.data);
    EXPECT_EQ(std::memcmp(seen.data, halves.floats.data(), info.bytes), 0);
    if (versioned != 0)
      static_cast<DLManagedTensorVersioned*>(managed)->deleter(static_cast<DLManagedTensorVersioned*>(managed));
    else
      static_cast<DLManagedTensor*>(managed)->deleter(static_cast<DLManagedTensor*>(managed));
  }
}

TEST(CapiTensors, AcceptsAndGivesBack) {
  const Owned<bantam_engine> owner = engine();
  Halves halves(2);
  int deleted = 0;
  std::int64_t shape[] = {2, 4, 4, 1};
  DLManagedTensor lent = {{halves.floats.data(), {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, nullptr, 0},
                          &deleted,
                          [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); }};
  bantam_tensor* made = nullptr;
  expect_ok(bantam_tensor_from_dlpack(owner.get(), "cpu", &lent, 0, &made));
  halves.floats[3] = 42;
  EXPECT_EQ(floats(made)[3], 42.0f);
  EXPECT_EQ(deleted, 0);
  bantam_tensor_destroy(made);
  EXPECT_EQ(deleted, 1);
  lent.dl_tensor.dtype = {kDLComplex, 64, 1};
  EXPECT_EQ(bantam_tensor_from_dlpack(owner.get(), "cpu", &lent, 0, &made), BANTAM_DTYPE_ERROR);
  EXPECT_EQ(deleted, 1);  // it is still the caller's
  std::int64_t stream = 7;
  expect_ok(bantam_engine_dlpack_stream(owner.get(), "cpu", &stream));
  EXPECT_EQ(stream, 0);
}

TEST(CapiTensors, StepsAndForwardAreThoseOfArrays) {
  const Owned<bantam_config> config = config_of(kSmall);
  const Owned<bantam_engine> owner = engine();
  const Owned<bantam_model> one = model_of(config.get()), other = model_of(config.get(), owner.get());
  const Halves halves(8);
  const std::vector<bantam_array> batch = halves.batch();
  const OwnedTensor images = tensor_of(owner.get(), batch[0]), labels = tensor_of(owner.get(), batch[1]);
  const char* const names[] = {"images", "labels"};
  const bantam_tensor* const tensors[] = {images.get(), labels.get()};
  bantam_metrics a = BANTAM_INIT(bantam_metrics), b = BANTAM_INIT(bantam_metrics);
  for (int i = 0; i < 3; ++i) {
    expect_ok(bantam_model_step(one.get(), batch.data(), 2, &a));
    expect_ok(bantam_model_step_tensors(other.get(), names, tensors, 2, &b));
    EXPECT_EQ(a.loss, b.loss);
  }
  bantam_tensor* output = nullptr;
  expect_ok(bantam_model_forward(other.get(), images.get(), &output));
  const OwnedTensor owned(output);
  std::vector<float> predicted(16);
  expect_ok(bantam_model_predict(one.get(), &batch[0], BANTAM_INPUT_AUTO, predicted.data(), predicted.size()));
  EXPECT_EQ(floats(output), predicted);
  expect_error(bantam_model_step_tensors(other.get(), names, tensors, 0, nullptr), BANTAM_BAD_ARGUMENT,
               "expected at least one tensor, got none");
  EXPECT_EQ(bantam_model_step_tensors(other.get(), names, tensors, 1, nullptr), BANTAM_SHAPE_ERROR);
  EXPECT_EQ(bantam_model_forward(other.get(), labels.get(), &output), BANTAM_SHAPE_ERROR);
}

TEST(CapiTensors, ParametersAreTheWeights) {
  const Owned<bantam_config> config = config_of(kSmall);
  Owned<bantam_model> model = model_of(config.get());
  char* json = nullptr;
  expect_ok(bantam_model_parameter_names(model.get(), &json));
  const auto names = nlohmann::json::parse(text_of(json)).get<std::vector<std::string>>();
  ASSERT_EQ(names.size(), 4u);
  bantam_tensor* made = nullptr;
  expect_ok(bantam_model_parameter(model.get(), names[0].c_str(), &made));
  const OwnedTensor weights(made);
  const std::vector<float> before = floats(made);
  const Halves halves(8);
  const std::vector<bantam_array> batch = halves.batch();
  expect_ok(bantam_model_step(model.get(), batch.data(), 2, nullptr));
  const std::vector<float> after = floats(made);
  EXPECT_NE(after, before);
  model.reset();
  EXPECT_EQ(floats(made), after);  // they are kept
  const Owned<bantam_model> another = model_of(config.get());
  expect_error(bantam_model_parameter(another.get(), "none", &made), BANTAM_BAD_ARGUMENT,
               "the network has no parameter 'none'");
}

}  // namespace
}  // namespace bantam::testing::tensors_test
