// The bytes and operations that the kernels' twins in kernels::work note, computed by hand at one small shape or more.
// A kernel's own test may have its cases instead.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "bantam/kernels/conv/conv2d_inference.h"
#include "bantam/kernels/conv/conv2d_pool.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/depthwise/depthwise_inference.h"
#include "bantam/kernels/depthwise/norm_depthwise.h"
#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/elementwise/bias_activation.h"
#include "bantam/kernels/elementwise/channel_factor.h"
#include "bantam/kernels/elementwise/dropout.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/exchange/rank_sums.h"
#include "bantam/kernels/expand/expand.h"
#include "bantam/kernels/head/classifier_head.h"
#include "bantam/kernels/head/softmax.h"
#include "bantam/kernels/image/depth_to_space.h"
#include "bantam/kernels/image/pad2d.h"
#include "bantam/kernels/image/resize2d.h"
#include "bantam/kernels/input/image_batch.h"
#include "bantam/kernels/input/image_views.h"
#include "bantam/kernels/input/mix_batch.h"
#include "bantam/kernels/join/channel_scale.h"
#include "bantam/kernels/join/concat.h"
#include "bantam/kernels/join/mean.h"
#include "bantam/kernels/join/multiply.h"
#include "bantam/kernels/join/norm_gate.h"
#include "bantam/kernels/join/squeeze_excite.h"
#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/loss/dice_loss.h"
#include "bantam/kernels/loss/value_loss.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/metric/metric_counts.h"
#include "bantam/kernels/metric/view_outputs.h"
#include "bantam/kernels/norm/group_norm.h"
#include "bantam/kernels/norm/sync_norm.h"
#include "bantam/kernels/pointwise/masked_gradient.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"
#include "bantam/kernels/pool/norm_pool.h"
#include "bantam/kernels/pool/pool_relu.h"
#include "bantam/kernels/separable/separable_block.h"
#include "bantam/kernels/update/muon.h"
#include "bantam/kernels/update/pruning.h"
#include "bantam/kernels/update/tree_sum.h"
#include "bantam/kernels/update/update.h"
#include "bantam/kernels/update/weight_average.h"
#include "tests/kernels/work_case.h"

namespace bantam::kernels::kernel_work_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

auto* const kBytes = reinterpret_cast<std::uint8_t*>(work_storage);
auto* const kWinners = reinterpret_cast<std::uint16_t*>(work_storage);

/// (2, 4, 4, 3) to (2, 4, 4, 8): 96 elements of x, 216 of w, 256 of y; 2·256·27 operations.
Conv2dShape image_conv() {
  return {.batch = 2,
          .in_h = 4,
          .in_w = 4,
          .in_channels = 3,
          .out_channels = 8,
          .kernel_h = 3,
          .kernel_w = 3,
          .pad_top = 1,
          .pad_bottom = 1,
          .pad_left = 1,
          .pad_right = 1};
}
/// 1x1 at stride 2: of 2·4·4·16 = 512 elements of x a quarter is read; 128 of w, y (2, 2, 2, 8).
Conv2dShape strided_conv() {
  return {.batch = 2, .in_h = 4, .in_w = 4, .in_channels = 16, .out_channels = 8, .stride_h = 2, .stride_w = 2};
}

void add_convolutions(std::vector<WorkCase>& cases) {
  const StatisticsOutput statistics{
      .running_mean = kFloats, .running_variance = kFloats, .mean = kFloats, .inv_std = kFloats};
  cases.push_back({"conv2d_forward",
                   [](const Exec& e) { work::conv2d_forward(e, image_conv(), kHalf, kSome, kSome, kSome, {}); },
                   2 * (96 + 216 + 256), 2 * 256 * 27, KernelKind::convolution});
  cases.push_back({"conv2d_forward",
                   [](const Exec& e) { work::conv2d_forward(e, strided_conv(), kHalf, kSome, kSome, kSome, {}); },
                   2 * (128 + 128 + 64), 2 * 64 * 16, KernelKind::product});
  const Epilogue epilogue{.bias = kSome, .residual = kSome};
  cases.push_back({"conv2d_pack_weights",
                   [](const Exec& e) { work::conv2d_pack_weights(e, image_conv(), kHalf, kSome, {}); }, 2 * 2 * 216,
                   0});
  cases.push_back(
      {"conv2d_inference",  // a bias a channel, and a sum like y
       [=](const Exec& e) { work::conv2d_inference(e, image_conv(), kHalf, kSome, kSome, epilogue, kSome, {}); },
       2 * (96 + 216 + 256 + 8 + 256), 2 * 256 * 27, KernelKind::convolution});
  cases.push_back({"conv2d_forward_statistics",  // two vectors are written, two written and read
                   [=](const Exec& e) {
                     work::conv2d_forward_statistics(e, image_conv(), kHalf, kSome, kSome, kSome, statistics, {});
                   },
                   2 * (96 + 216 + 256) + 6 * 32, 2 * 256 * 27, KernelKind::convolution, 2});
  cases.push_back(
      {"conv2d_forward_statistics",  // recomputed: only y
       [](const Exec& e) { work::conv2d_forward_statistics(e, image_conv(), kHalf, kSome, kSome, kSome, {}, {}); },
       2 * (96 + 216 + 256), 2 * 256 * 27, KernelKind::convolution});
  cases.push_back({"conv2d_grad_input",
                   [](const Exec& e) { work::conv2d_grad_input(e, strided_conv(), kHalf, kSome, kSome, kSome, {}); },
                   2 * (64 + 128 + 512), 2 * 64 * 16, KernelKind::product});
  cases.push_back(
      {"conv2d_grad_weight",
       [](const Exec& e) { work::conv2d_grad_weight(e, image_conv(), kHalf, kSome, kSome, {.dw = kFloats}, {}); },
       2 * (96 + 256) + 4 * 216, 2 * 256 * 27, KernelKind::convolution});
  cases.push_back({"conv2d_grad_weight",  // what is added to is read, too
                   [](const Exec& e) {
                     work::conv2d_grad_weight(e, image_conv(), kFloat, kSome, kSome,
                                              {.dw = kFloats, .accumulate = true}, {});
                   },
                   4 * (96 + 256) + 8 * 216, 2 * 256 * 27, KernelKind::convolution});
  cases.push_back(
      {"conv2d_pool_forward",  // on the CPU what lies between is written and read
       [](const Exec& e) { work::conv2d_pool_forward(e, image_conv(), kHalf, kSome, kSome, kSome, kWinners, {}); },
       2 * (96 + 216) + 2 * (64 + 2 * 256) + 2 * 64, 2 * 256 * 27, KernelKind::convolution});
  cases.push_back({"conv2d_pool_grad_weight",
                   [](const Exec& e) {
                     work::conv2d_pool_grad_weight(e, image_conv(), kHalf, kSome, kSome, kWinners, {.dw = kFloats}, {});
                   },
                   2 * 96 + 2 * (64 + 2 * 256) + 2 * 64 + 4 * 216, 2 * 256 * 27, KernelKind::convolution});
  cases.push_back(
      {"conv2d_input_sums",
       [](const Exec& e) { work::conv2d_input_sums(e, image_conv(), kHalf, kSome, kFloats, kFloats, false); },
       2 * 216 + 4 * 216 + 4 * 3, 0});
  cases.push_back({"matmul",
                   [](const Exec& e) {
                     work::matmul(e, {.m = 4, .n = 5, .k = 6}, kHalf, kSome, kSome,
                                  {.data = kSome, .dtype = kFloat, .accumulate = true}, {});
                   },
                   2 * (24 + 30) + 2 * 4 * 20, 2 * 4 * 5 * 6, KernelKind::product});
  cases.push_back({"matmul",
                   [](const Exec& e) {
                     work::matmul(e, {.m = 4, .n = 5, .k = 6}, kHalf, kSome, kSome,
                                  {.data = kSome, .dtype = kHalf, .bias = kSome, .residual = kSome}, {});
                   },
                   2 * (24 + 30 + 20) + 2 * (5 + 20), 2 * 4 * 5 * 6, KernelKind::product});
  cases.push_back({"batched_matmul",
                   [](const Exec& e) {
                     work::batched_matmul(e, {.m = 4, .n = 5, .k = 6}, {3, 24, 32, 24}, kHalf, kSome, kSome,
                                          {.data = kSome, .dtype = kHalf}, {});
                   },
                   3 * 2 * (24 + 30 + 20), 3 * 2 * 4 * 5 * 6, KernelKind::product});
}

/// (2, 4, 4, 8), 3x3: 256 elements on both sides, 72 weights; 2·256·9 operations.
DepthwiseConv2dShape depthwise() {
  return {.batch = 2,
          .in_h = 4,
          .in_w = 4,
          .channels = 8,
          .kernel_h = 3,
          .kernel_w = 3,
          .pad_top = 1,
          .pad_bottom = 1,
          .pad_left = 1,
          .pad_right = 1};
}
/// x with four vectors of the norm's.
NormOperand normed() {
  return {.x = kSome, .affine = {.scale = kFloats, .shift = kFloats}, .mean = kFloats, .inv_std = kFloats};
}

void add_depthwise(std::vector<WorkCase>& cases) {
  constexpr std::int64_t kTaps = 2 * 256 * 9;
  const StatisticsOutput statistics{.mean = kFloats, .inv_std = kFloats};
  cases.push_back({"depthwise_conv2d_forward",
                   [](const Exec& e) { work::depthwise_conv2d_forward(e, depthwise(), kHalf, kSome, kSome, kSome); },
                   2 * (256 + 72 + 256), kTaps, KernelKind::stencil});
  cases.push_back({"depthwise_conv2d_inference",
                   [](const Exec& e) {
                     work::depthwise_conv2d_inference(e, depthwise(), kHalf, kSome, kSome, {.bias = kSome}, kSome);
                   },
                   2 * (256 + 72 + 256 + 8), kTaps, KernelKind::stencil});
  cases.push_back({"depthwise_conv2d_grad_input",
                   [](const Exec& e) { work::depthwise_conv2d_grad_input(e, depthwise(), kHalf, kSome, kSome, kSome); },
                   2 * (256 + 72 + 256), kTaps, KernelKind::stencil});
  cases.push_back({"depthwise_conv2d_grad_weight",
                   [](const Exec& e) {
                     work::depthwise_conv2d_grad_weight(e, depthwise(), kHalf, kSome, kSome, kFloats, false, {});
                   },
                   2 * (256 + 256) + 4 * 72, kTaps, KernelKind::stencil, 2});
  cases.push_back({"norm_depthwise_forward",
                   [=](const Exec& e) {
                     work::norm_depthwise_forward(e, depthwise(), kHalf, normed(), kSome, kSome, statistics, {});
                   },
                   2 * (256 + 72 + 256) + (4 + 2) * 32, kTaps, KernelKind::stencil, 2});
  const NormDepthwiseInputs inputs{.x = normed(), .w = kSome, .y = normed(), .dy = kSome};
  NormDepthwiseGradients to{.dx = kSome, .dw = kFloats, .before = {kFloats, kFloats}, .after = {kFloats, kFloats}};
  // y and dy for sums; x, y, dy and dz; x, dz and dx.
  cases.push_back({"norm_depthwise_backward",
                   [=](const Exec& e) { work::norm_depthwise_backward(e, depthwise(), kHalf, inputs, to, {}); },
                   2 * (9 * 256 + 72) + (8 + 4) * 32 + 4 * 72, 2 * kTaps, KernelKind::fused, 5});
  to.totals = kFloats;  // dx is left to the reader, with two vectors
  cases.push_back({"norm_depthwise_backward",
                   [=](const Exec& e) { work::norm_depthwise_backward(e, depthwise(), kHalf, inputs, to, {}); },
                   2 * (6 * 256 + 72) + (8 + 4 + 2) * 32 + 4 * 72, 2 * kTaps, KernelKind::fused, 4});
}

/// Rows of 16 channels to 8; da and dw.
void add_pointwise(std::vector<WorkCase>& cases) {
  constexpr std::int64_t kFlops = 2 * 10 * 16 * 8;
  const PointwiseShape shape{.rows = 10, .in = 16, .out = 8};
  cases.push_back(
      {"pointwise_norm_forward",
       [=](const Exec& e) { work::pointwise_norm_forward(e, shape, kHalf, normed(), kSome, kSome, nullptr, {}); },
       2 * (160 + 80 + 128) + 4 * 64, kFlops, KernelKind::stencil});
  const NormInputGradient dz{.dz = kSome, .y = normed(), .totals = kFloats};
  const std::int64_t reads = pointwise_norm_supports_gradient(shape, kHalf) ? 1 : 2;
  cases.push_back({"pointwise_norm_backward",
                   [=](const Exec& e) {
                     work::pointwise_norm_backward(e, shape, kHalf, normed(), kSome, {.dz = kSome},
                                                   {.da = kSome, .dw = kFloats}, {});
                   },
                   2 * (reads * 80 + 160 + 128 + 160) + 4 * 64 + 4 * 128, 2 * kFlops, KernelKind::stencil,
                   static_cast<int>(1 + reads)});
  cases.push_back(
      {"norm_input_gradient",
       [=](const Exec& e) { work::norm_input_gradient(e, {.rows = 10, .channels = 8}, kHalf, dz, kSome, {}); },
       2 * 3 * 80 + (4 + 2) * 32, 0});
  cases.push_back(
      {"masked_gradient",
       [=](const Exec& e) { work::masked_gradient(e, shape, kHalf, kSome, kSome, kSome, kBytes, kSome, kFloats, {}); },
       2 * (80 + 2 * 160 + 128) + 20 + 4 * 16, kFlops, KernelKind::product, 2});
}

/// Rows of 64 channels to 128: 6,400 elements of x and ã, 12,800 of y and dz, 8,192 of w.
void add_expand(std::vector<WorkCase>& cases) {
  constexpr std::int64_t kFlops = 2 * 100 * 64 * 128;
  const ExpandShape shape{.rows = 100, .in = 64, .out = 128};
  const ExpandMoments moments{kFloats, kFloats};
  const StatisticsOutput statistics{.mean = kFloats, .inv_std = kFloats};
  cases.push_back({"expand_centre",
                   [=](const Exec& e) { work::expand_centre(e, shape, kHalf, normed(), kSome, moments, {}); },
                   2 * 3 * 6400 + 4 * 4 * 64 + 4 * (64 + 64 * 64), 2 * 100 * 64 * 64, KernelKind::pass, 4});
  cases.push_back({"expand_centre",
                   [=](const Exec& e) { work::expand_centre(e, shape, kHalf, normed(), kSome, {}, {}); },
                   2 * 2 * 6400 + 4 * 4 * 64, 0});
  cases.push_back({"expand_statistics",
                   [=](const Exec& e) {
                     work::expand_statistics(e, shape, kHalf, kSome, moments, normed().affine, statistics, kFloats, {});
                   },
                   2 * 8192 + 4 * (64 * 64 + 5 * 8192) + 4 * 2 * 64 + 4 * 2 * 128, 2 * 128 * 64 * 64, KernelKind::pass,
                   3});
  cases.push_back(
      {"expand_sum",
       [=](const Exec& e) { work::expand_sum(e, shape, kHalf, normed(), kSome, {.x = kSome}, kSome, kBytes, {}); },
       2 * (6400 + 2 * 12800 + 8192) + 4 * 4 * 128 + 1600, kFlops, KernelKind::product});
  cases.push_back({"sum_gradient_totals",
                   [=](const Exec& e) {
                     work::sum_gradient_totals(e, {.rows = 100, .channels = 128}, kHalf,
                                               {.dy = kSome, .other = kSome, .mask = kBytes}, kSome, kFloats, {});
                   },
                   2 * 3 * 12800 + 1600 + 4 * 128, 0, KernelKind::pass, 2});
  const ExpandInputs inputs{.x = normed(), .product = normed()};
  const ExpandGradients to{.dw = kFloats, .dscale = kFloats, .dshift_before = kFloats};
  cases.push_back(
      {"expand_backward", [=](const Exec& e) { work::expand_backward(e, shape, kHalf, inputs, to, {}); },
       2 * (2 * (6400 + 12800) + 2 * 6400 + 8192) + 4 * 4 * (64 + 128) + 40 * 8192 + 4 * 8192 + 4 * 128 + 4 * 64,
       2 * kFlops + 2 * 100 * 64 * 64 + 2 * 64 * 64 * 128, KernelKind::fused, 8});
}

/// (10, 8), a part of a larger batch; a message of 17 numbers.
void add_sync_norms(std::vector<WorkCase>& cases) {
  const BatchNormShape shape{.rows = 10, .channels = 8};
  const StatisticsOutput moments{
      .running_mean = kFloats, .running_variance = kFloats, .mean = kFloats, .inv_std = kFloats};
  cases.push_back({"pack_moments", [](const Exec& e) { work::pack_moments(e, 8, 10, kFloats, kFloats, nullptr); },
                   2 * 32 + 8 * 17, 0});
  cases.push_back({"unpack_moments", [=](const Exec& e) { work::unpack_moments(e, 8, nullptr, moments, nullptr); },
                   8 * 17 + (2 + 4) * 32 + 4, 0});
  cases.push_back({"sync_norm_input_gradient",
                   [=](const Exec& e) {
                     work::sync_norm_input_gradient(e, shape, kHalf, normed(), kSome, nullptr, nullptr, kSome);
                   },
                   2 * 3 * 80 + (4 + 4) * 32 + 4, 0, KernelKind::pass, 2});
}

/// (10, 8): 80 elements.
void add_norms(std::vector<WorkCase>& cases) {
  const BatchNormShape shape{.rows = 10, .channels = 8};
  const BatchNormAffine affine{.scale = kFloats, .shift = kFloats};
  const StatisticsOutput statistics{.mean = kFloats, .inv_std = kFloats};
  const NormGradients to{.dx = kSome, .dscale = kFloats, .dshift = kFloats};
  cases.push_back(
      {"batch_norm_forward_training",
       [=](const Exec& e) { work::batch_norm_forward_training(e, shape, kHalf, kSome, affine, kSome, statistics, {}); },
       2 * 3 * 80 + 4 * 32, 0, KernelKind::pass, 3});
  cases.push_back({"batch_norm_forward_training",  // statistics only
                   [=](const Exec& e) {
                     work::batch_norm_forward_training(e, shape, kHalf, kSome, affine, nullptr, statistics, {});
                   },
                   2 * 80 + 2 * 32, 0, KernelKind::pass, 2});
  cases.push_back(
      {"batch_norm_apply",
       [=](const Exec& e) { work::batch_norm_apply(e, shape, kHalf, kSome, affine, kFloats, kFloats, kSome); },
       2 * 2 * 80 + 4 * 32, 0});
  cases.push_back({"batch_norm_backward_training",
                   [=](const Exec& e) { work::batch_norm_backward_training(e, shape, kHalf, normed(), kSome, to, {}); },
                   2 * 5 * 80 + (4 + 2) * 32, 0, KernelKind::pass, 3});
  cases.push_back({"batch_norm_forward_inference",
                   [=](const Exec& e) {
                     work::batch_norm_forward_inference(e, shape, kHalf, kSome, affine,
                                                        {.mean = kFloats, .variance = kFloats}, kSome);
                   },
                   2 * 2 * 80 + 4 * 32, 0});
  cases.push_back({"batch_norm_backward_inference",
                   [=](const Exec& e) {
                     work::batch_norm_backward_inference(e, shape, kHalf, kSome, affine,
                                                         {.mean = kFloats, .variance = kFloats}, kSome, to, {});
                   },
                   2 * 5 * 80 + (4 + 2) * 32, 0, KernelKind::pass, 3});
  cases.push_back(
      {"batch_norm_add",
       [=](const Exec& e) { work::batch_norm_add(e, {}, shape, kHalf, normed(), {.x = kSome}, kSome, kBytes); },
       2 * 3 * 80 + 4 * 32 + 10, 0});
  const SumGradient sum{.dy = kSome, .other = kSome, .mask = kBytes};
  cases.push_back({"batch_norm_add_grad",  // dy, other, x and dz; dz, x and dx
                   [=](const Exec& e) { work::batch_norm_add_grad(e, shape, kHalf, sum, normed(), kSome, to, {}); },
                   2 * 7 * 80 + 10 + (4 + 2) * 32, 0, KernelKind::pass, 3});
}

/// Two samples of five positions and eight channels in two groups; and ten rows of eight values.
void add_group_norms(std::vector<WorkCase>& cases) {
  const GroupNormShape images{.samples = 2, .positions = 5, .channels = 8, .groups = 2};
  const GroupNormShape rows{.samples = 10, .positions = 1, .channels = 8, .groups = 1};
  const NormGradients to{.dx = kSome, .dscale = kFloats, .dshift = kFloats};
  const BatchNormAffine affine{.scale = kFloats, .shift = kFloats};
  const auto forward = [=](const GroupNormShape& shape, void* y) {
    return [=](const Exec& e) {
      work::group_norm_forward(e, shape, kHalf, kSome, affine, 1e-5f, y, kFloats, kFloats, {});
    };
  };
  cases.push_back({"group_norm_forward", forward(images, kSome), 2 * 3 * 80 + 2 * 32 + 2 * 16, 0, KernelKind::pass, 3});
  cases.push_back({"group_norm_forward", forward(images, nullptr), 2 * 80 + 2 * 16, 0, KernelKind::pass, 2});
  cases.push_back({"group_norm_forward", forward(rows, kSome), 2 * 2 * 80 + 2 * 32 + 2 * 40, 0});
  cases.push_back({"group_norm_apply",
                   [=](const Exec& e) { work::group_norm_apply(e, images, kHalf, normed(), kSome); },
                   2 * 2 * 80 + 2 * 32 + 2 * 16, 0});
  cases.push_back(
      {"group_norm_backward",  // x and dy; x, dy and dx
       [=](const Exec& e) { work::group_norm_backward(e, images, kHalf, normed(), kSome, nullptr, to, {}); },
       2 * 5 * 80 + 2 * 32 + 2 * 16 + 2 * 32, 0, KernelKind::pass, 4});
  cases.push_back({"group_norm_backward",
                   [=](const Exec& e) { work::group_norm_backward(e, rows, kHalf, normed(), kSome, nullptr, to, {}); },
                   2 * 3 * 80 + 2 * 32 + 2 * 40 + 2 * 32, 0, KernelKind::pass, 2});
}

void add_elementwise(std::vector<WorkCase>& cases) {
  cases.push_back({"activation_forward",
                   [](const Exec& e) { work::activation_forward(e, Activation::relu, 0, 20, kHalf, kSome, kSome); },
                   2 * 2 * 20, 0});
  cases.push_back({"activation_grad",
                   [](const Exec& e) { work::activation_grad(e, Activation::relu, 0, 20, kHalf, kSome, kSome, kSome); },
                   2 * 3 * 20, 0});
  cases.push_back({"bias_activation_forward",
                   [](const Exec& e) {
                     work::bias_activation_forward(e, {Activation::relu}, {10, 8}, kHalf, kSome, kSome, kSome, kBytes);
                   },
                   2 * (2 * 80 + 8) + 10, 0});
  cases.push_back({"bias_activation_grad",
                   [](const Exec& e) {
                     work::bias_activation_grad(e, {Activation::relu}, {10, 8}, kHalf, {.dy = kSome, .mask = kBytes},
                                                {.dx = kSome, .db = kFloats}, {});
                   },
                   2 * 2 * 80 + 10 + 4 * 8, 0, KernelKind::pass, 2});
  cases.push_back({"bias_activation_slopes",
                   [](const Exec& e) {
                     work::bias_activation_slopes(e, {Activation::gelu}, {10, 8}, kHalf, kSome, kSome, kSome);
                   },
                   2 * (2 * 80 + 8), 0});
  cases.push_back({"bias_forward", [](const Exec& e) { work::bias_forward(e, 10, 8, kHalf, kSome, kSome, kSome); },
                   2 * (2 * 80 + 8), 0});
  cases.push_back(
      {"epilogue_forward",
       [](const Exec& e) { work::epilogue_forward(e, 10, 8, kHalf, {.bias = kSome, .residual = kSome}, kSome); },
       2 * (3 * 80 + 8), 0});
  cases.push_back({"bias_grad", [](const Exec& e) { work::bias_grad(e, 10, 8, kHalf, kSome, kFloats, false, {}); },
                   2 * 80 + 4 * 8, 0, KernelKind::pass, 2});
  const ChannelFactorShape scale{.rows = 10, .channels = 8}, shared{.rows = 10, .channels = 8, .shared = true};
  cases.push_back({"channel_factor_forward",
                   [=](const Exec& e) { work::channel_factor_forward(e, scale, kHalf, kSome, kFloats, kSome); },
                   2 * 2 * 80 + 4 * 8, 0});
  cases.push_back({"channel_factor_grad",
                   [=](const Exec& e) {
                     work::channel_factor_grad(e, scale, kHalf, {kSome, kFloats, kSome}, {kSome, kFloats, true}, {});
                   },
                   2 * 3 * 80 + 4 * 8 * 3, 0, KernelKind::pass, 2});
  cases.push_back(
      {"channel_factor_grad",
       [=](const Exec& e) {
         work::channel_factor_grad(e, shared, kHalf, {kSome, kFloats, kSome}, {nullptr, kFloats, false}, {});
       },
       2 * 2 * 80 + 4 * 2, 0, KernelKind::pass, 3});
  cases.push_back(
      {"softmax_forward", [](const Exec& e) { work::softmax_forward(e, 10, 8, kHalf, kSome, kSome); }, 2 * 2 * 80, 0});
  cases.push_back(
      {"softmax_grad", [](const Exec& e) { work::softmax_grad(e, 10, 8, kHalf, kSome, kSome, kSome); }, 2 * 3 * 80, 0});
  const DropoutShape dropout{.samples = 2, .sample_elements = 40};  // two words a sample
  auto* const words = reinterpret_cast<std::uint32_t*>(work_storage);
  cases.push_back({"dropout_forward",
                   [=](const Exec& e) { work::dropout_forward(e, dropout, kHalf, nullptr, kSome, kSome, words); },
                   2 * 2 * 80 + 16, 0});
  const DropoutShape channels{.samples = 2, .sample_elements = 40, .draws = 8};  // one
  cases.push_back({"dropout_forward",
                   [=](const Exec& e) { work::dropout_forward(e, channels, kHalf, nullptr, kSome, kSome, words); },
                   2 * 2 * 80 + 8, 0});
  cases.push_back({"dropout_grad", [=](const Exec& e) { work::dropout_grad(e, dropout, kHalf, words, kSome, kSome); },
                   2 * 2 * 80 + 16, 0});
  cases.push_back({"add", [](const Exec& e) { work::add(e, 20, kFloat, kSome, kSome, kSome); }, 4 * 3 * 20, 0});
  cases.push_back({"scale", [](const Exec& e) { work::scale(e, 20, kFloat, 2, kSome, kSome); }, 4 * 2 * 20, 0});
  cases.push_back({"cast", [](const Exec& e) { work::cast(e, 20, kHalf, kSome, kFloat, kSome); }, 6 * 20, 0});
  cases.push_back({"fill", [](const Exec& e) { work::fill(e, 20, kFloat, 0, kSome); }, 4 * 20, 0});
  cases.push_back(
      {"masked_activation_forward",
       [](const Exec& e) { work::masked_activation_forward(e, {}, 80, kHalf, kSome, kSome, kSome, kBytes); },
       2 * 3 * 80 + 10, 0});
  cases.push_back(
      {"masked_activation_forward",
       [](const Exec& e) { work::masked_activation_forward(e, {}, 80, kHalf, kSome, nullptr, kSome, nullptr); },
       2 * 2 * 80, 0});
  cases.push_back({"masked_activation_grad",
                   [](const Exec& e) { work::masked_activation_grad(e, {}, 80, kHalf, kBytes, kSome, kSome); },
                   2 * 2 * 80 + 10, 0});
}

/// (2, 4, 4, 8) to (2, 2, 2, 8).
void add_pools(std::vector<WorkCase>& cases) {
  const Pool2dShape shape{
      .batch = 2, .in_h = 4, .in_w = 4, .channels = 8, .window_h = 2, .window_w = 2, .stride_h = 2, .stride_w = 2};
  auto* const winner = reinterpret_cast<std::uint16_t*>(work_storage);
  cases.push_back({"max_pool2d_forward",
                   [=](const Exec& e) { work::max_pool2d_forward(e, shape, kHalf, kSome, kSome, nullptr); },
                   2 * (256 + 64), 0});
  cases.push_back({"max_pool2d_grad_input",
                   [=](const Exec& e) { work::max_pool2d_grad_input(e, shape, kHalf, kSome, winner, kSome); },
                   2 * (256 + 64) + 2 * 64, 0});
  cases.push_back(
      {"max_pool2d_relu_grad",  // on the CPU dy is masked in a pass of its own
       [=](const Exec& e) { work::max_pool2d_relu_grad(e, shape, kHalf, kSome, kSome, winner, kSome, kFloats, {}); },
       2 * (256 + 64) + 2 * 64 + 3 * 2 * 64 + 32, 0, KernelKind::pass, 3});
  cases.push_back({"avg_pool2d_forward",
                   [=](const Exec& e) { work::avg_pool2d_forward(e, shape, kFloat, true, kSome, kSome); },
                   4 * (256 + 64), 0});
  cases.push_back({"avg_pool2d_grad_input",
                   [=](const Exec& e) { work::avg_pool2d_grad_input(e, shape, kFloat, true, kSome, kSome); },
                   4 * (256 + 64), 0});
  const auto on = [](Exec e, Device device) { return e.device = Device::meta_of(device), e; };
  const auto forward = [=](const Exec& e, Device device) {
    work::norm_pool_forward(on(e, device), shape, kHalf, normed(), kSome, winner, {});
  };
  const auto backward = [=](const Exec& e, Device device) {
    const NormGradients to{.dx = kSome, .dscale = kFloats, .dshift = kFloats};
    work::norm_pool_backward(on(e, device), shape, kHalf, normed(), kSome, winner, to, {});
  };
  // dy, winners and dx; x; x, dx and dx.
  cases.push_back(
      {"norm_pool_forward", [=](const Exec& e) { forward(e, Device::cpu()); }, 2 * (256 + 64) + 2 * 64 + 4 * 32, 0});
  cases.push_back({"norm_pool_backward", [=](const Exec& e) { backward(e, Device::cpu()); },
                   2 * (5 * 256 + 64) + 2 * 64 + (4 + 2) * 32, 0, KernelKind::pass, 3});
  // On CUDA places are bytes, and x, dy and winners are read twice.
  cases.push_back(
      {"norm_pool_forward", [=](const Exec& e) { forward(e, Device::cuda()); }, 2 * (256 + 64) + 64 + 4 * 32, 0});
  cases.push_back({"norm_pool_backward", [=](const Exec& e) { backward(e, Device::cuda()); },
                   2 * (3 * 256 + 2 * 64) + 2 * 64 + (4 + 2) * 32, 0, KernelKind::pass, 2});
}

/// Images of 8 channels: (2, 4, 4) padded to (2, 5, 3), resized to (2, 6, 5); (2, 2, 3, 8) to (2, 4, 6, 2).
void add_images(std::vector<WorkCase>& cases) {
  const Pad2dShape pad{.batch = 2, .in_h = 4, .in_w = 4, .channels = 8, .top = 1, .left = -1};
  cases.push_back(
      {"pad2d_forward", [=](const Exec& e) { work::pad2d_forward(e, pad, kHalf, kSome, kSome); }, 2 * (240 + 240), 0});
  cases.push_back({"pad2d_grad_input", [=](const Exec& e) { work::pad2d_grad_input(e, pad, kHalf, kSome, kSome); },
                   2 * (256 + 240), 0});
  const Resize2dShape resize{.batch = 2, .in_h = 4, .in_w = 4, .channels = 8, .out_h = 6, .out_w = 5};
  cases.push_back({"resize2d_forward", [=](const Exec& e) { work::resize2d_forward(e, resize, kHalf, kSome, kSome); },
                   2 * (256 + 480), 0});
  cases.push_back({"resize2d_grad_input",
                   [=](const Exec& e) { work::resize2d_grad_input(e, resize, kFloat, kSome, kSome); }, 4 * (256 + 480),
                   0});
  const DepthToSpaceShape depth{.batch = 2, .h = 2, .w = 3, .channels = 2, .block = 2};
  cases.push_back(
      {"depth_to_space", [=](const Exec& e) { work::depth_to_space(e, depth, kHalf, kSome, kSome); }, 2 * 2 * 96, 0});
  cases.push_back(
      {"space_to_depth", [=](const Exec& e) { work::space_to_depth(e, depth, kHalf, kSome, kSome); }, 2 * 2 * 96, 0});
}

/// Four rows of three: the output, labels or targets, and the sums read and written.
void add_metrics(std::vector<WorkCase>& cases) {
  auto* const labels = reinterpret_cast<std::int32_t*>(work_storage);
  cases.push_back(
      {"label_counts",
       [=](const Exec& e) { work::label_counts(e, {.rows = 4, .classes = 3}, kHalf, kSome, labels, {.count = 9}); },
       2 * 12 + 4 * 4 + 16 * 9, 0});
  cases.push_back({"view_outputs",
                   [=](const Exec& e) {
                     work::view_outputs(e, {.rows = 4, .columns = 3, .adds = true}, kHalf, kSome, labels, kFloats);
                   },
                   2 * 12 + 2 * 4 * 12 + 4 * 4, 0});
  cases.push_back({"least_certain",
                   [=](const Exec& e) {
                     static std::int32_t chosen[2] = {};
                     work::least_certain(e, {.rows = 4, .classes = 3, .count = 2}, kFloats, chosen, {});
                   },
                   4 * 12 + 7 * 4 * 4 + 4 * 2, 0, KernelKind::pass, 2});
  cases.push_back({"target_counts",
                   [=](const Exec& e) {
                     work::target_counts(e, {4, 3}, kHalf, kSome, kFloats, {.count = 9});
                   },
                   2 * 12 + 4 * 12 + 16 * 9, 0});
  cases.push_back({"score_histograms",  // the output twice
                   [=](const Exec& e) {
                     work::score_histograms(e, {4, 3, 5}, kHalf, kSome, {labels}, {.count = 30});
                   },
                   2 * 2 * 12 + 4 * 4 + 16 * 30, 0});
  cases.push_back({"error_sums",
                   [=](const Exec& e) {
                     work::error_sums(e, {4, 3}, kHalf, kSome, kFloats, {.count = 13}, {});
                   },
                   2 * 12 + 4 * 12 + 16 * 13, 0, KernelKind::pass, 2});
}

/// (2, 4, 4, 8) to (2, 2, 2, 16): 32 positions before pooling, 256 elements of x, 72 + 128 weights, 128 of y, 64 bytes
/// of codes.
void add_separable(std::vector<WorkCase>& cases) {
  const SeparableBlockShape shape{.batch = 2,
                                  .in_h = 4,
                                  .in_w = 4,
                                  .in_channels = 8,
                                  .out_channels = 16,
                                  .pad_top = 1,
                                  .pad_bottom = 1,
                                  .pad_left = 1,
                                  .pad_right = 1,
                                  .pool = 2};
  const SeparableBlockWeights weights{.depthwise = kSome, .pointwise = kSome, .bias = kSome};
  cases.push_back(
      {"separable_block_forward",
       [=](const Exec& e) { work::separable_block_forward(e, shape, kHalf, kSome, weights, kSome, kBytes, {}); },
       2 * (256 + 72 + 128 + 16 + 128) + 64, 2 * 32 * (72 + 128), KernelKind::fused});
  const SeparableBlockInputs inputs{.x = kSome, .weights = weights, .dy = kSome, .codes = kBytes};
  const SeparableBlockGradients to{.dx = kSome, .depthwise = {kFloats}, .pointwise = {kFloats}, .bias = {kFloats}};
  cases.push_back({"separable_block_backward",
                   [=](const Exec& e) { work::separable_block_backward(e, shape, kHalf, inputs, to, {}); },
                   2 * (256 + 72 + 128 + 128 + 256) + 64 + 4 * (72 + 128 + 16), 2 * 32 * (3 * 72 + 2 * 128),
                   KernelKind::fused, 2});
}

/// 4 samples of 6 inputs, 8 hidden units, 3 classes.
void add_heads(std::vector<WorkCase>& cases) {
  constexpr std::int64_t kParts = 4 * (24 + 3 + 8);  // gradients of w2, b2 and b1
  const ClassifierHeadShape head{.batch = 4, .inputs = 6, .hidden = 8, .classes = 3};
  const ClassifierHeadSaved saved{.dhidden = kSome, .partials = kFloats};
  cases.push_back({"classifier_head_forward",  // weights, labels and loss; nothing for a backward
                   [=](const Exec& e) { work::classifier_head_forward(e, head, kHalf, kSome, {}, {}, {}, {}); },
                   2 * (24 + 48 + 8 + 24 + 3) + 16 + 4, 2 * 4 * (48 + 24), KernelKind::fused, 2});
  cases.push_back({"classifier_head_forward",
                   [=](const Exec& e) { work::classifier_head_forward(e, head, kHalf, kSome, {}, {}, saved, {}); },
                   2 * (24 + 48 + 8 + 24 + 3 + 32) + 16 + 4 + kParts, 2 * 4 * (48 + 3 * 24), KernelKind::fused, 2});
  const ClassifierHeadGradients to{.dx = kSome, .w1 = {kFloats}, .b1 = {kFloats}, .w2 = {kFloats}, .b2 = {kFloats}};
  cases.push_back({"classifier_head_backward",
                   [=](const Exec& e) { work::classifier_head_backward(e, head, kHalf, kSome, kSome, saved, to, {}); },
                   2 * (24 + 32 + 48 + 24) + 2 * kParts + 4 * 48, 2 * 2 * 4 * 48, KernelKind::fused});
  const SoftmaxCrossEntropyShape loss{.batch = 4, .classes = 3};
  const SoftmaxCrossEntropyOutputs outputs{.losses = kFloats,
                                           .log_sum_exp = reinterpret_cast<LogSumExp<float>*>(work_storage),
                                           .loss = kFloats,
                                           .correct = kBytes};
  cases.push_back(
      {"softmax_cross_entropy_forward",  // label, loss, log-sum-exp and a byte a sample
       [=](const Exec& e) { work::softmax_cross_entropy_forward(e, loss, kHalf, kSome, nullptr, 1, outputs); },
       2 * 12 + 4 * (4 + 4 + 8 + 1) + 4, 0, KernelKind::pass, 2});
  cases.push_back({"softmax_cross_entropy_grad",
                   [=](const Exec& e) { work::softmax_cross_entropy_grad(e, loss, kHalf, {}, kSome); },
                   2 * 2 * 12 + 4 * (4 + 8) + 4, 0});
}

/// 2 samples of 6 positions and 3 classes, 36 elements.
void add_losses(std::vector<WorkCase>& cases) {
  auto* const labels = reinterpret_cast<const std::int32_t*>(work_storage);
  const LossOutputs all{.loss = kFloats, .dx = kSome}, only_loss{.loss = kFloats};
  const ClassLossShape classes{.batch = 2, .positions = 6, .classes = 3};
  const ClassLossInputs weighted{.logits = kSome, .labels = labels, .class_weights = kFloats};
  cases.push_back({"class_loss", [=](const Exec& e) { work::class_loss(e, classes, kHalf, weighted, all, {}); },
                   2 * 2 * 36 + 4 * 12 + 4 * 3 + 4, 0, KernelKind::pass, 2});
  const ClassLossInputs soft{.logits = kSome, .targets = kFloats};
  cases.push_back({"class_loss", [=](const Exec& e) { work::class_loss(e, classes, kHalf, soft, only_loss, {}); },
                   2 * 36 + 4 * 36 + 4, 0, KernelKind::pass, 2});
  const ValueLossShape values{.batch = 2, .values = 18};
  cases.push_back({"value_loss", [=](const Exec& e) { work::value_loss(e, values, kHalf, {}, all, {}); },
                   2 * 2 * 36 + 4 * 36 + 4, 0, KernelKind::pass, 2});
  const DiceLossShape dice{.batch = 2, .positions = 6, .classes = 3};
  const DiceLossInputs inputs{.logits = kSome, .labels = labels};
  cases.push_back({"dice_loss",  // sums of all positions come before the gradient
                   [=](const Exec& e) { work::dice_loss(e, dice, kHalf, inputs, all, {}); },
                   2 * (2 * 36 + 4 * 12) + 2 * 36 + 4, 0, KernelKind::pass, 4});
  cases.push_back({"dice_loss", [=](const Exec& e) { work::dice_loss(e, dice, kHalf, inputs, only_loss, {}); },
                   2 * 36 + 4 * 12 + 4, 0, KernelKind::pass, 3});
  cases.push_back({"store_constants", [=](const Exec& e) { work::store_constants(e, kFloats, 5, kFloats); }, 20, 0});
}

void add_updates(std::vector<WorkCase>& cases) {
  UpdateArena arena{.weight_blocks = 3,
                    .master = kFloats,
                    .gradient = kFloats,
                    .slots = {kFloats, kFloats},
                    .compute = kSome,
                    .compute_dtype = kHalf};
  PartialSums partial;
  partial.add({.from = kFloats, .to = kFloats, .parts = 5, .stride = 8, .elements = 8});
  NarrowGradients narrow;
  narrow.add({.begin = 1, .end = 2});
  const auto control = 2 * static_cast<std::int64_t>(sizeof(UpdateControl));
  cases.push_back({"begin_update", [=](const Exec& e) { work::begin_update(e, arena, partial, nullptr, {}); },
                   4 * 384 + 4 * 8 * 6 + control, 0});
  cases.push_back({"apply_update",  // master and two moments read and written, gradient read, copy written
                   [=](const Exec& e) { work::apply_update(e, UpdateKind::adam, arena, {.elements = 10}, nullptr); },
                   (6 * 4 + 4 + 2) * 384 + 8 * 10, 0});
  cases.push_back({"apply_update",  // one moment
                   [=](const Exec& e) { work::apply_update(e, UpdateKind::lion, arena, {}, nullptr); },
                   (4 * 4 + 4 + 2) * 384, 0});
  cases.push_back({"apply_update",  // master and moments are read by both passes
                   [=](const Exec& e) { work::apply_update(e, UpdateKind::lamb, arena, {}, nullptr); },
                   (9 * 4 + 4 + 2) * 384, 0, KernelKind::pass, 2});
  cases.push_back({"publish_weights",  // masters read, copies written
                   [=](const Exec& e) { work::publish_weights(e, arena, {.elements = 10}, nullptr); },
                   (4 + 2) * 384 + 8 * 10, 0});
  cases.push_back(
      {"clip_gradients", [=](const Exec& e) { work::clip_gradients(e, arena, nullptr, nullptr); }, 2 * 4 * 384, 0});
  arena.chunks.weight_blocks = 2;
  const MuonMatrices matrices{.count = 1, .elements = 256};
  cases.push_back({"muon_momentum",  // gradient and momentum read, momentum and step written
                   [=](const Exec& e) { work::muon_momentum(e, arena, true, {}, nullptr); }, 4 * 4 * 256, 0});
  cases.push_back({"muon_momentum",  // and weights read for their norm
                   [=](const Exec& e) { work::muon_momentum(e, arena, true, {.every = 1}, nullptr); }, 5 * 4 * 256, 0});
  cases.push_back({"muon_normalize", [=](const Exec& e) { work::muon_normalize(e, arena, matrices, kHalf, nullptr); },
                   (4 + 2) * 256, 0});
  cases.push_back({"muon_polynomial",
                   [=](const Exec& e) {
                     work::muon_polynomial(e, {.count = 2, .n = 5, .stride = 128}, {}, kHalf, nullptr, nullptr,
                                           nullptr);
                   },
                   3 * 2 * 50, 0});
  cases.push_back({"muon_apply",
                   [=](const Exec& e) { work::muon_apply(e, arena, matrices, {}, kHalf, nullptr, nullptr); },
                   (2 * 4 + 2 + 2) * 256, 0});
  arena.narrow = narrow;
  cases.push_back({"begin_update", [=](const Exec& e) { work::begin_update(e, arena, {}, nullptr, {}); },
                   4 * 256 + 2 * 128 + control, 0});
  cases.push_back({"add_up_parts", [=](const Exec& e) { work::add_up_parts(e, partial); }, 4 * 8 * 6, 0});
  cases.push_back(
      {"widen_gradients", [=](const Exec& e) { work::widen_gradients(e, kFloats, narrow, kHalf); }, (2 + 4) * 128, 0});
}

void add_after_updates(std::vector<WorkCase>& cases) {
  const AverageArena average{.elements = 384, .buffer_elements = 128};
  cases.push_back({"move_average", [=](const Exec& e) { work::move_average(e, {.every = 2}, average, nullptr); },
                   3 * 4 * 512 / 2, 0});
  cases.push_back({"swap_values", [](const Exec& e) { work::swap_values(e, 384, kFloats, kFloats); }, 16 * 384, 0});
  TreeTerms terms;
  for (int term = 0; term < 3; ++term) terms.add(kFloats);
  cases.push_back({"tree_sum", [=](const Exec& e) { work::tree_sum(e, DType::float64, 128, terms, 1.0, kFloats); },
                   4 * 8 * 128, 0});
  cases.push_back({"narrow_tree_sum",
                   [=](const Exec& e) { work::narrow_tree_sum(e, 128, terms, DType::float16, kSome); },
                   (3 * 4 + 2) * 128, 0});
  cases.push_back(
      {"store_at_slot", [](const Exec& e) { work::store_at_slot(e, 3, nullptr, nullptr, nullptr); }, 2 * 8 * 3, 0});
  const PruneArena pruned{
      .tensor_count = 1, .weight_blocks = 2, .weights = kFloats, .compute = kSome, .compute_dtype = kHalf};
  cases.push_back(
      {"prune_weights", [=](const Exec& e) { work::prune_weights(e, {}, pruned, nullptr); }, (1 + 8 + 2) * 256, 0});
}

/// Two ranks with two partial sums each.
void add_exchanges(std::vector<WorkCase>& cases) {
  const SumTree tree{.ranks = 2, .sums = 4, .owners = {0, 0, 1, 1}, .merges = {0, 1, 0, 2}};
  cases.push_back(
      {"exchange_sums",  // of 48 and 32 bytes half: 4 sums are read, the root is written to 2 ranks
       [=](const Exec& e) {
         const SumSpan spans[2] = {{.elements = 10}, {.dtype = DType::float64, .offset = 48, .elements = 3}};
         work::exchange_sums(e, tree, {}, spans, 1);
       },
       (4 + 2) * 40, 0});
  cases.push_back({"add_rank_sums",
                   [=](const Exec& e) {
                     const void* const sums[4] = {kSome, kSome, kSome, kSome};
                     work::add_rank_sums(e, tree, kFloat, 10, sums, 1.0, kSome);
                   },
                   (4 + 1) * 40, 0});
  cases.push_back({"meet_ranks",  // the other rank's flag is written, the own one read; the count both
                   [=](const Exec& e) { work::meet_ranks(e, tree, {}); }, 4 * 4, 0});
}

/// Two images of 4 x 4 x 3, of which 2 x 2 are shown.
void add_inputs(std::vector<WorkCase>& cases) {
  const ImageBatchShape shape{.batch = 2, .in_h = 4, .in_w = 4, .channels = 3, .out_h = 2, .out_w = 2};
  constexpr auto kPlacement = static_cast<std::int64_t>(sizeof(ImagePlacement));
  constexpr std::int64_t kImages = 2 * (12 + kPlacement + 2 * 12);
  cases.push_back(
      {"image_batch", [=](const Exec& e) { work::image_batch(e, shape, nullptr, nullptr, kHalf, kSome); }, kImages, 0});
  cases.push_back({"label_batch", [](const Exec& e) { work::label_batch(e, 2, nullptr, nullptr, nullptr); },
                   2 * (kPlacement + 8), 0});
  cases.push_back({"epoch_batch", [=](const Exec& e) { work::epoch_batch(e, shape, {}, 0, kHalf, kSome, nullptr); },
                   kImages + 2 * 8, 0});
  cases.push_back({"advance_epoch", [](const Exec& e) { work::advance_epoch(e, {}, 2); }, 16, 0});
  // A table's row of 12 bytes a sample; images read and written; targets written from labels, which are replaced.
  cases.push_back({"image_views",  // two images of 2 x 3 x 2, each with its row
                   [](const Exec& e) {
                     static const std::int32_t rows[2] = {};
                     work::image_views(e, {.count = 2, .height = 2, .width = 3, .channels = 2}, kHalf, kSome, rows,
                                       kSome);
                   },
                   2 * (24 + 24 + 4), 0});
  cases.push_back({"mix_images",
                   [](const Exec& e) {
                     work::mix_images(e, {2, 2, 3, 2}, nullptr, kHalf, kSome);
                   },
                   2 * (12 + 2 * 24), 0});
  cases.push_back({"mix_targets",
                   [](const Exec& e) {
                     static const SampleMix mixes[2] = {};
                     static std::int32_t labels[2] = {};
                     work::mix_targets(e, {.batch = 2, .classes = 5, .from_labels = true}, mixes, labels, nullptr);
                   },
                   2 * (12 + 8 + 20), 0});
}

/// Ten rows: 3, 5 and 8 columns of 20.
void add_joins(std::vector<WorkCase>& cases) {
  const JoinShape shape{.rows = 10, .channels = 20, .count = 3, .begin = {2, 5, 10, 18}};
  cases.push_back({"concat", [=](const Exec& e) { work::concat(e, shape, kHalf, {}, kSome); }, 2 * 2 * 160, 0});
  const SplitOutputs outputs{.data = {kSome, nullptr, kSome}, .addend = {nullptr, nullptr, kSome}};
  cases.push_back({"split",  // 30 read and written; 80 read twice and written
                   [=](const Exec& e) { work::split(e, shape, kHalf, {kSome}, outputs); }, 2 * (2 * 30 + 3 * 80), 0});
  cases.push_back({"split",  // and each once more
                   [=](const Exec& e) {
                     work::split(e, shape, kHalf, {kSome, kSome}, outputs);
                   },
                   2 * (3 * 30 + 4 * 80), 0});
  cases.push_back({"mean_of", [](const Exec& e) { work::mean_of(e, 20, kHalf, {.count = 3}, kSome); }, 2 * 4 * 20, 0});
  cases.push_back(
      {"multiply", [](const Exec& e) { work::multiply(e, 20, kHalf, kSome, kSome, kSome); }, 2 * 3 * 20, 0});
  cases.push_back({"multiply_grad",
                   [](const Exec& e) { work::multiply_grad(e, 20, kHalf, {}, {.da = kSome, .db = kSome}); }, 2 * 5 * 20,
                   0});
  cases.push_back(
      {"multiply_grad", [](const Exec& e) { work::multiply_grad(e, 20, kHalf, {}, {.db = kSome}); }, 2 * 3 * 20, 0});
  const ChannelScaleShape gate{.samples = 2, .positions = 9, .channels = 4, .dtype = kHalf};  // 72 and 8 elements
  cases.push_back({"channel_scale_forward",
                   [=](const Exec& e) { work::channel_scale_forward(e, gate, kSome, kSome, kSome, kSome); },
                   2 * 2 * 72 + 4 * 2 * 8, 0});
  cases.push_back({"channel_scale_grad",
                   [=](const Exec& e) { work::channel_scale_grad(e, gate, {}, {.dx = kSome, .dfactor = kSome}, {}); },
                   2 * 3 * 72 + 4 * 2 * 8, 0, KernelKind::pass, 2});
  cases.push_back({"channel_scale_grad",
                   [=](const Exec& e) { work::channel_scale_grad(e, gate, {}, {.dx = kSome}, {}); }, 2 * 2 * 72 + 4 * 8,
                   0});
  cases.push_back({"position_mean", [=](const Exec& e) { work::position_mean(e, gate, kSome, kFloats, {}); },
                   2 * 72 + 4 * 8, 0, KernelKind::pass, 2});
  const NormOperand norm{.x = kSome, .mean = kFloats, .inv_std = kFloats};
  cases.push_back({"norm_gate_mean", [=](const Exec& e) { work::norm_gate_mean(e, gate, norm, kFloats, {}); },
                   2 * 72 + 4 * 2 * 4 + 4 * 8, 0, KernelKind::pass, 2});
  cases.push_back({"norm_gate_apply", [=](const Exec& e) { work::norm_gate_apply(e, gate, norm, kFloats, kSome, {}); },
                   2 * 2 * 72 + 4 * 2 * 4 + 4 * 8, 0});
  cases.push_back({"norm_gate_grad_sums",
                   [=](const Exec& e) { work::norm_gate_grad_sums(e, gate, norm, kSome, kFloats, {}); },
                   2 * 2 * 72 + 4 * 2 * 4 + 4 * 5 * 8, 0, KernelKind::pass, 2});
  cases.push_back(
      {"norm_gate_grad",
       [=](const Exec& e) { work::norm_gate_grad(e, gate, {.x = norm}, {.dx = kSome, .dscale = kFloats}, {}); },
       4 * (6 + 2) * 8 + 2 * 3 * 72 + 4 * 2 * 4 + 4 * 4, 0, KernelKind::pass, 2});
  const SqueezeExciteShape squeeze{.samples = 2, .channels = 4, .units = 3, .dtype = kHalf};  // 12 weights twice
  cases.push_back({"squeeze_excite_forward",
                   [=](const Exec& e) { work::squeeze_excite_forward(e, squeeze, kFloats, {}, {}); },
                   2 * (24 + 7) + 4 * 2 * (3 * 4 + 2 * 3), 2 * 2 * 24, KernelKind::fused});
  const SqueezeExciteGradients to{
      .dx_offset = kFloats, .reduce = {kFloats}, .expand = {kFloats, true}, .expand_bias = {kFloats}};
  cases.push_back({"squeeze_excite_grad", [=](const Exec& e) { work::squeeze_excite_grad(e, squeeze, {}, to, {}); },
                   2 * 24 + 4 * 2 * (4 * 4 + 2 * 3) + 4 * (12 + 2 * 12 + 4), 4 * 2 * 24, KernelKind::fused, 2});
}

std::vector<WorkCase> all_cases() {
  std::vector<WorkCase> cases;
  for (const auto add : {add_convolutions, add_depthwise, add_pointwise, add_expand, add_norms, add_sync_norms,
                         add_group_norms, add_elementwise, add_pools, add_images, add_separable, add_heads, add_losses,
                         add_metrics, add_updates, add_exchanges, add_after_updates, add_inputs, add_joins})
    add(cases);
  return cases;
}

TEST(KernelWork, IsWhatTheContractSays) { expect_work(all_cases()); }

/// What `pattern` captures in the files below `folder` whose names end with `ending`, wherever they say `begin`, with
/// which it begins. (A search for the pattern itself would take seconds.)
std::set<std::string> captured(const char* folder, const std::string& ending, const std::string& begin,
                               const std::string& pattern) {
  std::set<std::string> found;
  const std::regex name(pattern);
  const std::filesystem::path root = std::filesystem::path(BANTAM_SOURCE_DIR) / folder;
  for (const auto& file : std::filesystem::recursive_directory_iterator(root)) {
    if (!file.path().filename().string().ends_with(ending)) continue;
    const std::string text = read_file(file.path());
    for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
      std::smatch match;
      const auto from = text.begin() + static_cast<std::ptrdiff_t>(at);
      if (std::regex_search(from, text.end(), match, name, std::regex_constants::match_continuous))
        found.insert(match[1]);
    }
  }
  return found;
}

// Here, or in the kernel's own test.
TEST(KernelWork, EveryDeclaredKernelHasACase) {
  EXPECT_EQ(captured("tests/kernels", "_test.cpp", "work::", R"(work::(\w+)\()"),
            captured("kernels", ".h", "BANTAM_DECLARE_", R"(BANTAM_DECLARE_(?:CPU_)?KERNEL\(\w+, (\w+)\);)"));
}

TEST(KernelWork, TensorCoresMultiplyDepthsInEights) {
  KernelLog log;
  const Exec exec{.device = Device::meta_of(Device::cuda()), .log = &log};
  work::conv2d_forward(exec, image_conv(), kHalf, kSome, kSome, kSome, {});  // three channels
  work::matmul(exec, {.m = 4, .n = 5, .k = 12}, kHalf, kSome, kSome, {.data = kSome, .dtype = kHalf}, {});
  work::depthwise_conv2d_forward(exec, depthwise(), kHalf, kSome, kSome, kSome);
  EXPECT_EQ(log.entries()[0].work.matrix_flops, 2 * 256 * 9 * 8);
  EXPECT_EQ(log.entries()[1].work.matrix_flops, 2 * 4 * 5 * 16);
  EXPECT_EQ(log.entries()[2].work.matrix_flops, 0) << "no matrix units";
}

TEST(KernelLog, IsWrittenThroughTheCallThatWouldRunTheKernel) {
  KernelLog log;
  Exec exec{.device = Device::meta_of(Device::cpu())};
  BANTAM_KERNEL(exec, fill, 20, kFloat, 1.0f, kSome);  // nobody asks
  exec.log = &log;
  {
    const KernelPhaseScope forward(&log, KernelPhase::forward);
    BANTAM_KERNEL(exec, fill, 20, kFloat, 1.0f, kSome);
    const KernelPhaseScope rebuild(&log, KernelPhase::rebuild);
    BANTAM_KERNEL(exec, scale, 20, kFloat, 2.0f, kSome, kSome);
  }
  BANTAM_KERNEL(exec, add, 20, kFloat, kSome, kSome, kSome);
  const KernelPhaseScope nowhere(nullptr, KernelPhase::update);
  ASSERT_EQ(log.entries().size(), 3u);
  EXPECT_EQ(log.entries()[0].phase, KernelPhase::forward);
  EXPECT_EQ(log.entries()[1].phase, KernelPhase::rebuild);
  EXPECT_EQ(log.entries()[2].phase, KernelPhase::input);
}

TEST(KernelLog, IsWrittenWhereKernelsRunTooWithTheTimeOfEachCall) {
  KernelLog log;
  std::int64_t time = 7;
  log.set_clock([&time] { return time++; });
  float values[4] = {};
  const Exec exec{.device = Device::cpu(), .log = &log};
  BANTAM_KERNEL(exec, fill, 4, kFloat, 3.0f, static_cast<void*>(values));
  EXPECT_EQ(values[3], 3.0f);
  BANTAM_KERNEL(exec, fill, 2, kFloat, 3.0f, static_cast<void*>(values));
  ASSERT_EQ(log.entries().size(), 2u);
  EXPECT_EQ(log.entries()[0].at, 7);
  EXPECT_EQ(log.entries()[1].at, 8);
}

}  // namespace
}  // namespace bantam::kernels::kernel_work_test
