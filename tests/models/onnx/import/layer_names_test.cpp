// Names of layers from what exporters write.
#include <gtest/gtest.h>

#include "bantam/models/onnx/import/layer_list.h"

namespace bantam::onnx::layer_names_test {
namespace {

TEST(OnnxLayerNames, ArePathsOfModules) {
  EXPECT_EQ(name_of_path("/conv1/Conv", "Conv"), "conv1");
  EXPECT_EQ(name_of_path("/layer1/layer1.0/conv1/Conv", "Conv"), "layer1.0.conv1");
  EXPECT_EQ(name_of_path("/features/features.1/conv/conv.0/conv.0.0/Conv", "Conv"), "features.1.conv.0.0");
  EXPECT_EQ(name_of_path("/layer1/layer1.0/relu_1/Relu", "Relu"), "layer1.0.relu_1");
  EXPECT_EQ(name_of_path("stage1_block1/conv2", "Conv"), "stage1_block1.conv2");
  EXPECT_EQ(name_of_path("Conv_12", "Conv"), "");
  EXPECT_EQ(name_of_path("Convolution", "Conv"), "Convolution");
  EXPECT_EQ(name_of_path("resnet/pool:0 x", "MaxPool"), "resnet.pool_0_x");
  EXPECT_EQ(name_of_path("12", "Conv"), "");
  EXPECT_EQ(name_of_path("", "Conv"), "");
}

TEST(OnnxLayerNames, AreNoWordsOfYaml) {
  EXPECT_EQ(name_of_path("0/Conv", "Conv"), "");
  EXPECT_EQ(name_of_path("0/a", "Conv"), "layer_0.a");
  EXPECT_EQ(name_of_path("True", "Conv"), "layer_True");
  EXPECT_EQ(name_of_path("input", "Conv"), "layer_input");
  EXPECT_EQ(name_of_path("1e5", "Conv"), "layer_1e5");
  const std::string long_path(300, 'a');
  EXPECT_EQ(name_of_path(long_path, "Conv").size(), 90u);
}

}  // namespace
}  // namespace bantam::onnx::layer_names_test
