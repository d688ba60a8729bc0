// ONNX' node vectors of transposed convolutions, pads, resizing, depth to space and pools, on every device.
#include "tests/engine/ops/onnx_vectors.h"

#include <functional>

#include "tests/engine/engine_fixture.h"

namespace bantam::onnx_vectors_test {
namespace {

using testing::EngineTest;

class OnnxVectorsTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OnnxVectorsTest);

using Op = std::function<Tensor(const Context&, const Tensor& x, const Tensor& w)>;
using Ops = std::map<std::string, Op>;

Padding sides(std::int64_t top, std::int64_t left, std::int64_t bottom, std::int64_t right) {
  return {PaddingKind::explicit_, top, bottom, left, right};
}

Op transposed(Window2d window, Extent2d output_padding = {0, 0}, std::int64_t groups = 1) {
  return [=](const Context& context, const Tensor& x, const Tensor& w) {
    return ops::transposed_conv2d(context, x, w, window, output_padding, groups);
  };
}
Op padded(ops::PaddingMode mode) {
  return [=](const Context& context, const Tensor& x, const Tensor&) {
    return ops::pad2d(context, x, Padding::symmetric(1), mode);
  };
}
Op resized(const ops::ResizeSettings& settings) {
  return [=](const Context& context, const Tensor& x, const Tensor&) { return ops::resize2d(context, x, settings); };
}
Op shuffled(ops::DepthOrder order) {
  return
      [=](const Context& context, const Tensor& x, const Tensor&) { return ops::depth_to_space(context, x, 2, order); };
}
Op maximum(Window2d window, bool ceil_mode = false) {
  return [=](const Context& context, const Tensor& x, const Tensor&) {
    return ops::max_pool2d(context, x, window, ceil_mode);
  };
}
Op mean(Window2d window, bool count_padding = false, bool ceil_mode = false) {
  return [=](const Context& context, const Tensor& x, const Tensor&) {
    return ops::avg_pool2d(context, x, window, count_padding, ceil_mode);
  };
}

const Extent2d kOne{1, 1}, kTwo{2, 2}, kThree{3, 3}, kFive{5, 5};

void add_images(Ops& all) {
  const Window2d plain{.kernel = kThree};
  all["convtranspose"] = transposed(plain);
  all["convtranspose_pad"] = transposed({.stride = {3, 2}}, {1, 1});
  all["convtranspose_pads"] = transposed({.stride = {3, 2}, .padding = sides(1, 2, 1, 2)});
  all["convtranspose_dilations"] = transposed({.dilation = kTwo});
  all["convtranspose_autopad_same"] = transposed({.stride = kTwo, .padding = Padding::same()});
  all["convtranspose_group_2"] = transposed(plain, {0, 0}, 2);
  all["convtranspose_group_2_image_3"] = transposed(plain, {0, 0}, 2);
  all["edge_pad"] = padded(ops::PaddingMode::replicate);
  all["reflect_pad"] = padded(ops::PaddingMode::reflect);
  all["wrap_pad"] = padded(ops::PaddingMode::circular);
  all["resize_upsample_scales_nearest"] = resized({{4, 6}});
  all["resize_upsample_scales_linear"] = resized({{4, 4}, ops::Interpolation::bilinear});
  all["resize_upsample_scales_linear_align_corners"] = resized({{4, 4}, ops::Interpolation::bilinear, true});
  all["depthtospace_example"] = shuffled(ops::DepthOrder::depth_first);
  all["depthtospace_crd_mode_example"] = shuffled(ops::DepthOrder::channel_first);
}

void add_pools(Ops& all) {
  const Window2d padded{.kernel = kFive, .padding = Padding::symmetric(2)}, strided{kTwo, kTwo};
  const Window2d same{.kernel = kThree, .stride = kTwo, .padding = Padding::same()}, three{kThree, kTwo};
  const Window2d dilated{.kernel = kTwo, .dilation = kTwo};
  all["averagepool_2d_precomputed_pads"] = mean(padded);
  all["averagepool_2d_precomputed_pads_count_include_pad"] = mean(padded, true);
  all["averagepool_2d_precomputed_strides"] = mean(strided);
  all["averagepool_2d_precomputed_same_upper"] = mean(same);
  all["averagepool_2d_ceil"] = mean(three, false, true);
  all["averagepool_2d_ceil_last_window_starts_on_pad"] =
      mean({.kernel = kThree, .stride = kThree, .padding = Padding::symmetric(1)}, true, true);
  all["averagepool_2d_dilations"] = mean(dilated, false, true);
  all["maxpool_2d_precomputed_pads"] = maximum(padded);
  all["maxpool_2d_precomputed_strides"] = maximum(strided);
  all["maxpool_2d_precomputed_same_upper"] = maximum(same);
  all["maxpool_2d_ceil"] = maximum(three, true);
  all["maxpool_2d_ceil_output_size_reduce_by_one"] = maximum({.kernel = kOne, .stride = kTwo}, true);
  all["maxpool_2d_dilations"] = maximum(dilated);
}

TEST_P(OnnxVectorsTest, AreComputed) {
  Ops all;
  add_images(all);
  add_pools(all);
  const Context ctx = context();
  ASSERT_EQ(all.size(), testing::onnx_image_vectors().size());
  for (const auto& [name, vector] : testing::onnx_image_vectors()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(all.contains(name));
    const auto upload = [&](const testing::OnnxTensor& tensor) {
      return tensor.values.empty() ? Tensor() : ctx.upload(Shape(tensor.shape), tensor.values.data());
    };
    const Tensor y = all.at(name)(ctx, upload(vector.x), upload(vector.w));
    EXPECT_EQ(y.shape(), Shape(vector.y.shape));
    const std::vector<float> values = to_host<float>(y, ctx.stream);
    ASSERT_EQ(values.size(), vector.y.values.size());
    // Sums of at most 25 small integers, or blends of values up to 8: a few roundings of float32. One vector has values
    // of four digits, x and y: 0.5e-4·4/9 of the former, and 0.5e-4 of the latter.
    const double tolerance = name == "averagepool_2d_ceil_last_window_starts_on_pad" ? 0.75e-4 : 1e-5;
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], vector.y.values[i], tolerance) << i;
  }
}

}  // namespace
}  // namespace bantam::onnx_vectors_test
