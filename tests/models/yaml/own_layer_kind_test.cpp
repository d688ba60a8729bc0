// A program's own kind of layer in a configuration's list: its options, and what is said of a slip.
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/models/yaml/network.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models::own_layer_kind_test {
namespace {

/// Drops the last rows of an image.
class Cropped : public Layer {
 public:
  explicit Cropped(std::int64_t rows) : rows_(rows) {}
  std::string_view kind() const override { return "crop_rows"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() != 3 || inputs[0][0] <= rows_) throw ShapeError("crop_rows: no rows are left");
    return {inputs[0][0] - rows_, inputs[0][1], inputs[0][2]};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Tensor forward(const Context&, std::span<Tensor> inputs) override { return inputs[0]; }
    };
    return std::make_unique<Bound>();
  }

 private:
  std::int64_t rows_;
};

class OwnLayerKind : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    layer_kinds().add("crop_rows", [](ConfigMap& options) -> LayerPtr {
      return std::make_shared<Cropped>(options.integer("rows", {.min = 1}, 1));
    });
  }
};

std::string error_of(const std::string& layer) {
  try {
    (void)one_layer(layer);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(OwnLayerKind, StandsInAListAsTheBuiltInOnesDo) {
  EXPECT_EQ(one_layer("crop_rows").graph.output_shape(), (Shape{8, 9, 4}));
  const ModelSpec model = one_layer("crop_rows: {name: top, rows: 3}");
  EXPECT_EQ(model.graph.output_shape(), (Shape{6, 9, 4}));
  EXPECT_EQ(model.graph.nodes()[1].name, "top");
  EXPECT_EQ(model.graph.nodes()[1].layer->kind(), "crop_rows");
  EXPECT_EQ(layer_kinds().names().back(), "crop_rows");
}

TEST_F(OwnLayerKind, IsCheckedAsTheBuiltInOnesAre) {
  EXPECT_NE(error_of("crop_row").find("unknown layer 'crop_row'; did you mean 'crop_rows'?"), std::string::npos);
  EXPECT_NE(error_of("crop_rows: {row: 1}").find("unknown key 'row'"), std::string::npos);
  EXPECT_NE(
      error_of("crop_rows: {rows: 9}").find("test.yaml:4:7: error: layer 'crop_rows': crop_rows: no rows are left"),
      std::string::npos)
      << error_of("crop_rows: {rows: 9}");
  EXPECT_THROW(layer_kinds().add("crop_rows", nullptr), ConfigError);
  EXPECT_THROW(layer_kinds().add("dense", nullptr), ConfigError);
}

}  // namespace
}  // namespace bantam::models::own_layer_kind_test
