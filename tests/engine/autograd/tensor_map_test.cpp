// Named tensors: order, look-up, replacement, and what is said of a name that is not there.
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/step/batch_source.h"

namespace bantam::tensor_map_test {
namespace {

Tensor host_tensor(float& value) {
  return {std::make_shared<Storage>(&value, sizeof(value), Device::cpu(), Storage::Deleter{}), {1}, DType::float32};
}

std::string message_of(const TensorMap& tensors, std::string_view name) {
  try {
    (void)tensors.at(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TensorMapTest, KeepsTheOrderAndReplacesByName) {
  float a = 1, b = 2, c = 3;
  TensorMap tensors = {{"images", host_tensor(a)}, {"labels", host_tensor(b)}};
  EXPECT_EQ(tensors.at("images").data(), &a);
  EXPECT_EQ(tensors.at("labels").data(), &b);
  EXPECT_EQ(tensors.find("weights"), nullptr);
  tensors.set("weights", host_tensor(c));
  tensors.set("images", host_tensor(b));
  ASSERT_EQ(tensors.size(), 3u);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"images", "labels", "weights"}));
  EXPECT_EQ(tensors.at("images").data(), &b);
}

TEST(TensorMapTest, SaysWhatThereIs) {
  float a = 1;
  EXPECT_EQ(message_of({}, "images"), "there is no tensor 'images'; there are none");
  EXPECT_EQ(message_of({{"x", host_tensor(a)}}, "images"), "there is no tensor 'images'; there is x");
  EXPECT_EQ(message_of({{"x", host_tensor(a)}, {"y", host_tensor(a)}}, "images"),
            "there is no tensor 'images'; there are x and y");
  EXPECT_THROW((TensorMap{{"x", host_tensor(a)}, {"x", host_tensor(a)}}), Error);
}

/// Targets are floats, and there are no classes.
class RegressionSource : public BatchSource {
 public:
  std::vector<TensorFacts> tensors() const override {
    return {{.name = "images", .shape = {2, 2, 1}}, {.name = "targets", .shape = {3}, .dtype = DType::float32}};
  }
  std::int64_t batch_size() const override { return 1; }
  std::int64_t batches_per_epoch() const override { return 0; }
  std::int64_t size_of(std::int64_t) const override { return 1; }
  void start(std::int64_t, std::int64_t) override {}
  bool next(const Context&, Batch&) override { return false; }
};

TEST(BatchSourceTest, DescribesItsTensors) {
  const RegressionSource source;
  EXPECT_EQ(source.image_shape(), (Shape{2, 2, 1}));
  EXPECT_EQ(source.classes(), 0);
  const std::vector<TensorFacts> tensors = source.tensors();
  ASSERT_NE(find_facts(tensors, "targets"), nullptr);
  EXPECT_EQ(find_facts(tensors, "targets")->shape, Shape{3});
  EXPECT_EQ(find_facts(tensors, "labels"), nullptr);
}

}  // namespace
}  // namespace bantam::tensor_map_test
