// Choosing and running oneDNN's convolution kernels.
#include "bantam/kernels/conv/cpu/onednn/onednn_conv2d.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"

namespace bantam::kernels::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
constexpr auto kFloat = dnnl::memory::data_type::f32;

Dims weight_dims(const Conv2dShape& s) {
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  if (s.groups == 1) return {out, in, s.kernel_h, s.kernel_w};
  return {s.groups, out, in, s.kernel_h, s.kernel_w};
}

/// The same geometry for each pass, in oneDNN's terms (its dilation counts from 0).
struct Geometry {
  explicit Geometry(const Conv2dShape& s)
      : x({s.batch, s.in_channels, s.in_h, s.in_w}, kFloat, dnnl::memory::format_tag::nhwc),
        y({s.batch, s.out_channels, s.out_h(), s.out_w()}, kFloat, dnnl::memory::format_tag::nhwc),
        stride{s.stride_h, s.stride_w},
        dilation{s.dilation_h - 1, s.dilation_w - 1},
        before{s.pad_top, s.pad_left},
        after{s.pad_bottom, s.pad_right} {}
  Desc x, y;
  Dims stride, dilation, before, after;
};

dnnl::memory bind(const Desc& desc, const dnnl::engine& engine, const void* data) {
  return dnnl::memory(desc, engine, const_cast<void*>(data));  // oneDNN writes through output arguments only
}

}  // namespace

Desc plain_weights(const Conv2dShape& s) {
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  const std::int64_t row = s.kernel_w * in, filter = s.kernel_h * row;
  if (s.groups == 1) return Desc(weight_dims(s), kFloat, Dims{filter, 1, row, in});
  return Desc(weight_dims(s), kFloat, Dims{out * filter, filter, 1, row, in});
}

template <class PrimitiveDesc, class Primitive>
bool OneDnnConv2d::accept(const PrimitiveDesc& desc, const OneDnnLimits& limits) {
  scratch_ = desc.scratchpad_desc();
  if (std::string_view(desc.impl_info_str()).starts_with("ref")) return false;
  if (scratch_.get_size() > limits.scratch_bytes || packed_.get_size() > limits.packed_bytes) return false;
  primitive_ = Primitive(desc);
  return true;
}

std::unique_ptr<OneDnnConv2d> OneDnnConv2d::make(const dnnl::engine& engine, const Conv2dShape& shape, Conv2dPass pass,
                                                 const OneDnnLimits& limits, const Desc* packed) {
  using Forward = dnnl::convolution_forward;
  using GradInput = dnnl::convolution_backward_data;
  using GradWeight = dnnl::convolution_backward_weights;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const OpenMpThreads one_thread(1);  // kernels note the number of threads when they are made
  const Geometry g(shape);
  const Desc w = packed != nullptr ? *packed : Desc(weight_dims(shape), kFloat, dnnl::memory::format_tag::any);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  std::unique_ptr<OneDnnConv2d> made(new OneDnnConv2d(engine, pass));
  try {
    const Desc free_w(weight_dims(shape), kFloat, dnnl::memory::format_tag::any);
    const Desc& hint_w = pass == Conv2dPass::forward ? w : free_w;
    const Forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kDirect, g.x, hint_w, g.y, g.stride, g.dilation, g.before, g.after},
        attributes, engine);
    bool accepted = false;
    if (pass == Conv2dPass::forward) {
      made->first_ = g.x, made->second_ = made->packed_ = forward.weights_desc(), made->out_ = g.y;
      accepted = made->accept<Forward::primitive_desc, Forward>(forward, limits);
    } else if (pass == Conv2dPass::grad_input) {
      const GradInput::primitive_desc desc({kDirect, g.x, w, g.y, g.stride, g.dilation, g.before, g.after}, attributes,
                                           engine, forward);
      made->first_ = g.y, made->second_ = made->packed_ = desc.weights_desc(), made->out_ = g.x;
      accepted = made->accept<GradInput::primitive_desc, GradInput>(desc, limits);
    } else {
      const GradWeight::primitive_desc desc({kDirect, g.x, w, g.y, g.stride, g.dilation, g.before, g.after}, attributes,
                                            engine, forward);
      made->first_ = g.x, made->second_ = g.y, made->out_ = made->packed_ = desc.diff_weights_desc();
      accepted = made->accept<GradWeight::primitive_desc, GradWeight>(desc, limits);
    }
    return accepted ? std::move(made) : nullptr;
  } catch (const dnnl::error&) {
    return nullptr;  // no kernel for this shape: the caller has its own path
  }
}

void OneDnnConv2d::execute(const float* first, const float* second, float* out, void* scratch) const {
  const OpenMpThreads one_thread(1);
  int first_arg = DNNL_ARG_SRC, second_arg = DNNL_ARG_WEIGHTS, out_arg = DNNL_ARG_DST;
  if (pass_ == Conv2dPass::grad_input) first_arg = DNNL_ARG_DIFF_DST, out_arg = DNNL_ARG_DIFF_SRC;
  if (pass_ == Conv2dPass::grad_weight) second_arg = DNNL_ARG_DIFF_DST, out_arg = DNNL_ARG_DIFF_WEIGHTS;
  try {
    dnnl::stream stream(engine_);
    primitive_.execute(stream, {{first_arg, bind(first_, engine_, first)},
                                {second_arg, bind(second_, engine_, second)},
                                {out_arg, bind(out_, engine_, out)},
                                {DNNL_ARG_SCRATCHPAD, bind(scratch_, engine_, scratch)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("conv2d: oneDNN failed: {}", error.what()));
  }
}

WeightReorder::WeightReorder(const dnnl::engine& engine, const Desc& from, const Desc& to) : engine_(engine) {
  constexpr std::int64_t kFilters = 64;  // of a chunk: whole blocks of any packed order
  const Dims dims = from.dims();
  const std::size_t axis = dims.size() - 4;  // output channels, after the groups where there are some
  const OpenMpThreads one_thread(1);
  for (std::int64_t first = 0; first < dims[axis]; first += kFilters) {
    Dims size = dims, offset(dims.size(), 0);
    size[axis] = std::min(kFilters, dims[axis] - first);
    offset[axis] = first;
    const Desc part_from = from.submemory_desc(size, offset), part_to = to.submemory_desc(size, offset);
    chunks_.push_back({part_from, part_to, dnnl::reorder({engine, part_from, engine, part_to})});
  }
}

void WeightReorder::execute(const float* from, float* to, int threads) const {
  parallel_parts(static_cast<std::int64_t>(chunks_.size()), threads, [&](std::int64_t i) {
    const Chunk& chunk = chunks_[static_cast<std::size_t>(i)];
    const OpenMpThreads one_thread(1);
    try {
      dnnl::stream stream(engine_);
      chunk.reorder.execute(
          stream, {{DNNL_ARG_FROM, bind(chunk.from, engine_, from)}, {DNNL_ARG_TO, bind(chunk.to, engine_, to)}});
      stream.wait();
    } catch (const dnnl::error& error) {
      throw Error(fmt::format("conv2d: oneDNN could not reorder weights: {}", error.what()));
    }
  });
}

}  // namespace bantam::kernels::cpu
