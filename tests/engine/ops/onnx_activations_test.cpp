// ONNX' node vectors of activations, PReLU and softmax (onnx_activations.h).
#include "tests/engine/ops/onnx_activations.h"

#include <functional>

#include "tests/engine/engine_fixture.h"

namespace bantam::onnx_activations_test {
namespace {

class OnnxActivationsTest : public testing::EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OnnxActivationsTest);

using Op = std::function<Tensor(const Context&, std::vector<Tensor>)>;

Op function(Activation kind, float slope = 0) {
  return [=](const Context& c, std::vector<Tensor> in) { return ops::activation(c, in[0], kind, slope); };
}

std::map<std::string, Op> all_ops() {
  const Op softmax = [](const Context& c, std::vector<Tensor> in) { return ops::softmax(c, in[0]); };
  const Op prelu = [](const Context& c, std::vector<Tensor> in) { return ops::prelu(c, in[0], in[1]); };
  return {{"elu", function(Activation::elu, 2)},
          {"elu_default", function(Activation::elu, 1)},
          {"elu_example", function(Activation::elu, 2)},
          {"hardswish", function(Activation::hard_swish)},
          {"mish", function(Activation::mish)},
          {"prelu_broadcast", prelu},
          {"selu_default", function(Activation::selu)},
          {"softmax_axis_2", softmax},
          {"softmax_default_axis", softmax},
          {"softmax_example", softmax},
          {"softmax_large_number", softmax},
          {"softplus", function(Activation::softplus)},
          {"softplus_example", function(Activation::softplus)}};
}

TEST_P(OnnxActivationsTest, AreComputed) {
  const std::map<std::string, Op> ops = all_ops();
  const Context c = context();
  ASSERT_EQ(ops.size(), testing::onnx_activations().size());
  for (const auto& [name, vector] : testing::onnx_activations()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(ops.contains(name));
    std::vector<Tensor> inputs;
    for (const auto& in : vector.inputs) inputs.push_back(c.upload(in.shape, in.values.data()));
    const Tensor y = ops.at(name)(c, inputs);
    EXPECT_EQ(y.shape(), vector.output.shape);
    const std::vector<float> values = to_host<float>(y, c.stream);
    ASSERT_EQ(values.size(), vector.output.values.size());
    // A few roundings of float32 here and in the vectors, of values up to 10.
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], vector.output.values[i], 1e-6 * std::max(1.0f, std::abs(values[i]))) << i;
  }
}

}  // namespace
}  // namespace bantam::onnx_activations_test
