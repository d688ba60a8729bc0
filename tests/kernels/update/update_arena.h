// Test support: a parameter arena of a few spans on a device, and one whole update of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/update/update.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing {

/// One parameter of a test's arena.
struct TestSpan {
  std::int64_t elements = 0;
  kernels::ArenaSpan values;
};

/// Spans laid one after another, each padded with zeros to whole weight blocks.
class TestArena {
 public:
  TestArena(KernelDevice& device, const std::vector<TestSpan>& spans, const std::vector<kernels::UpdateGroup>& groups,
            DType compute_dtype = DType::float16)
      : device_(device),
        layout_(spans),
        weight_blocks_(count_weight_blocks(spans)),
        spans_(device, span_values(spans)),
        groups_(device, groups),
        span_of_weight_block_(device, span_indices(spans)),
        group_count_(static_cast<std::int32_t>(groups.size())),
        chunk_list_(chunks_of(spans)),
        chunks_(device, chunk_list_),
        chunk_sums_(device, std::vector<double>(2 * chunk_list_.size() + 1, std::nan(""))),
        control(device, std::vector<kernels::UpdateControl>(1)),
        master(device, std::vector<float>(elements()), DType::float32),
        gradient(device, std::vector<float>(elements()), DType::float32),
        moment1(device, std::vector<float>(elements()), DType::float32),
        moment2(device, std::vector<float>(elements()), DType::float32),
        moment3(device, std::vector<float>(elements()), DType::float32),
        moment4(device, std::vector<float>(elements()), DType::float32),
        compute(device, static_cast<std::int64_t>(elements()), compute_dtype),
        compute_dtype_(compute_dtype) {}

  std::size_t elements() const { return static_cast<std::size_t>(weight_blocks_ * kernels::kWeightBlockSize); }
  /// Index of a span's first element.
  std::size_t offset(std::size_t span) const {
    return static_cast<std::size_t>(
        count_weight_blocks({layout_.begin(), layout_.begin() + static_cast<std::ptrdiff_t>(span)}) *
        kernels::kWeightBlockSize);
  }
  /// Values for every element of every span, zeros in the padding.
  std::vector<float> padded(const std::vector<std::vector<float>>& values) const {
    std::vector<float> all(elements());
    for (std::size_t s = 0; s < values.size(); ++s)
      std::copy(values[s].begin(), values[s].end(), all.begin() + static_cast<std::ptrdiff_t>(offset(s)));
    return all;
  }
  std::vector<float> random_padded(std::uint64_t seed, float low = -1, float high = 1) const {
    std::vector<std::vector<float>> values;
    for (const TestSpan& s : layout_) values.push_back(random_values(s.elements, seed++, DType::float32, low, high));
    return padded(values);
  }

  kernels::UpdateArena arena() const {
    return {.weight_blocks = weight_blocks_,
            .span_of_weight_block = span_of_weight_block_.data(),
            .spans = spans_.data(),
            .groups = groups_.data(),
            .group_count = group_count_,
            .frozen_updates = frozen_updates,
            .master = master.as<float>(),
            .first_master = first_master,
            .keeps_masters = keeps_masters,
            .gradient = gradient.as<float>(),
            .slots = {moment1.as<float>(), moment2.as<float>(), moment3.as<float>(), moment4.as<float>()},
            .compute = compute.data(),
            .compute_dtype = compute_dtype_,
            .narrow = narrow,
            .chunks = {.list = chunks_.data(),
                       .count = static_cast<std::int32_t>(chunk_list_.size()),
                       .weight_blocks = weight_blocks_,
                       .sums = chunk_sums_.data()},
            .clip_value = clip_value,
            .rows = rows,
            .halt_after = halt_after};
  }
  /// From the next kernel on; its chunks stay in the list.
  void freeze(std::size_t span) {
    std::vector<kernels::ArenaSpan> values = spans_.download();
    values[span].frozen = 1;
    spans_.upload(values);
  }
  /// Chunks of all spans that are not frozen at first.
  const std::vector<kernels::SpanChunk>& chunks() const { return chunk_list_; }

  void begin(const kernels::PartialSums& partial = {}) {
    const std::size_t bytes = kernels::begin_update_workspace_bytes(weight_blocks_, device_.exec().device.kind);
    const TestWorkspace workspace(device_, bytes + 64);
    const std::vector<std::uint8_t> guard(bytes + 64, 0xab);
    copy_bytes(workspace.get().data, guard.data(), guard.size(), device_.stream());
    BANTAM_KERNEL(device_.exec(), begin_update, arena(), partial, control.data(),
                  kernels::Workspace{workspace.get().data, bytes});
    std::vector<std::uint8_t> after(bytes + 64);
    copy_bytes(after.data(), workspace.get().data, after.size(), device_.stream());
    device_.synchronize();
    EXPECT_TRUE(std::equal(after.begin() + static_cast<std::ptrdiff_t>(bytes), after.end(), guard.begin()))
        << "wrote past the workspace";
  }
  void apply(kernels::UpdateKind kind, const kernels::UpdateBuffers& buffers = {}) {
    BANTAM_KERNEL(device_.exec(), apply_update, kind, arena(), buffers, control.data());
  }
  void step(kernels::UpdateKind kind, const kernels::UpdateBuffers& buffers = {}) {
    begin();
    apply(kind, buffers);
  }
  kernels::UpdateControl control_now() const { return control.download()[0]; }

 private:
  static std::int64_t weight_blocks_of(const TestSpan& s) {
    return (s.elements + kernels::kWeightBlockSize - 1) / kernels::kWeightBlockSize;
  }
  static std::int64_t count_weight_blocks(const std::vector<TestSpan>& spans) {
    std::int64_t sum = 0;
    for (const TestSpan& s : spans) sum += weight_blocks_of(s);
    return sum;
  }
  static std::vector<kernels::ArenaSpan> span_values(const std::vector<TestSpan>& spans) {
    std::vector<kernels::ArenaSpan> values;
    for (const TestSpan& s : spans) values.push_back(s.values);
    return values;
  }
  static std::vector<std::int32_t> span_indices(const std::vector<TestSpan>& spans) {
    std::vector<std::int32_t> indices;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      indices.insert(indices.end(), static_cast<std::size_t>(weight_blocks_of(spans[i])), static_cast<std::int32_t>(i));
    }
    return indices;
  }

  static std::vector<kernels::SpanChunk> chunks_of(const std::vector<TestSpan>& spans) {
    std::vector<std::uint8_t> wanted;
    for (const TestSpan& s : spans) wanted.push_back(s.values.frozen == 0 ? 1 : 0);
    return kernels::cut_spans(span_indices(spans), wanted);
  }

  KernelDevice& device_;
  std::vector<TestSpan> layout_;
  std::int64_t weight_blocks_;
  DeviceArray<kernels::ArenaSpan> spans_;
  DeviceArray<kernels::UpdateGroup> groups_;
  DeviceArray<std::int32_t> span_of_weight_block_;
  std::int32_t group_count_;
  std::vector<kernels::SpanChunk> chunk_list_;
  DeviceArray<kernels::SpanChunk> chunks_;
  DeviceArray<double> chunk_sums_;

 public:
  DeviceArray<kernels::UpdateControl> control;
  DeviceBuffer master, gradient, moment1, moment2, moment3, moment4, compute;
  float clip_value = 0;
  std::int64_t first_master = 0;  ///< without masters: `master` has those of the spans from this element on
  bool keeps_masters = true;
  kernels::UpdateRow* rows = nullptr;
  std::int32_t halt_after = 0;
  kernels::NarrowGradients narrow;               ///< spans whose gradient a test wrote so
  const std::int64_t* frozen_updates = nullptr;  ///< of the groups, on the device

 private:
  DType compute_dtype_;
};

}  // namespace bantam::testing
