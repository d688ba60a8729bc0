// Test support: a parameter arena of a few segments on a device, and one whole update of it.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/contracts/update/update.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing {

/// One parameter of a test's arena.
struct TestSegment {
  std::int64_t elements = 0;
  kernels::UpdateSegment values;
};

/// Segments laid one after another, each padded with zeros to whole granules.
class TestArena {
 public:
  TestArena(KernelDevice& device, const std::vector<TestSegment>& segments,
            const std::vector<kernels::UpdateGroup>& groups, DType compute_dtype = DType::float16, bool momentum = true)
      : device_(device),
        layout_(segments),
        granules_(count_granules(segments)),
        momentum_(momentum),
        segments_(device, segment_values(segments)),
        groups_(device, groups),
        segment_of_granule_(device, segment_indices(segments)),
        group_count_(static_cast<std::int32_t>(groups.size())),
        control(device, std::vector<kernels::UpdateControl>(1)),
        master(device, std::vector<float>(elements()), DType::float32),
        gradient(device, std::vector<float>(elements()), DType::float32),
        moment1(device, std::vector<float>(elements()), DType::float32),
        moment2(device, std::vector<float>(elements()), DType::float32),
        compute(device, static_cast<std::int64_t>(elements()), compute_dtype),
        compute_dtype_(compute_dtype) {}

  std::size_t elements() const { return static_cast<std::size_t>(granules_ * kernels::kSegmentGranule); }
  /// Index of a segment's first element.
  std::size_t offset(std::size_t segment) const {
    return static_cast<std::size_t>(
        count_granules({layout_.begin(), layout_.begin() + static_cast<std::ptrdiff_t>(segment)}) *
        kernels::kSegmentGranule);
  }
  /// Values for every element of every segment, zeros in the padding.
  std::vector<float> padded(const std::vector<std::vector<float>>& values) const {
    std::vector<float> all(elements());
    for (std::size_t s = 0; s < values.size(); ++s)
      std::copy(values[s].begin(), values[s].end(), all.begin() + static_cast<std::ptrdiff_t>(offset(s)));
    return all;
  }
  std::vector<float> random_padded(std::uint64_t seed, float low = -1, float high = 1) const {
    std::vector<std::vector<float>> values;
    for (const TestSegment& s : layout_) values.push_back(random_values(s.elements, seed++, DType::float32, low, high));
    return padded(values);
  }

  kernels::UpdateArena arena() const {
    return {.granules = granules_,
            .segment_of_granule = segment_of_granule_.data(),
            .segments = segments_.data(),
            .groups = groups_.data(),
            .group_count = group_count_,
            .master = master.as<float>(),
            .gradient = gradient.as<float>(),
            .moment1 = momentum_ ? moment1.as<float>() : nullptr,
            .moment2 = moment2.as<float>(),
            .compute = compute.data(),
            .compute_dtype = compute_dtype_,
            .narrow = narrow};
  }

  void begin(const kernels::PartialSums& partial = {}) {
    const std::size_t bytes = kernels::begin_update_workspace_bytes(granules_, device_.exec().device.kind);
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
  void apply(kernels::OptimizerKind kind, const kernels::UpdateBuffers& buffers = {}) {
    BANTAM_KERNEL(device_.exec(), apply_update, kind, arena(), buffers, control.data());
  }
  void step(kernels::OptimizerKind kind, const kernels::UpdateBuffers& buffers = {}) {
    begin();
    apply(kind, buffers);
  }
  kernels::UpdateControl control_now() const { return control.download()[0]; }

 private:
  static std::int64_t granules_of(const TestSegment& s) {
    return (s.elements + kernels::kSegmentGranule - 1) / kernels::kSegmentGranule;
  }
  static std::int64_t count_granules(const std::vector<TestSegment>& segments) {
    std::int64_t sum = 0;
    for (const TestSegment& s : segments) sum += granules_of(s);
    return sum;
  }
  static std::vector<kernels::UpdateSegment> segment_values(const std::vector<TestSegment>& segments) {
    std::vector<kernels::UpdateSegment> values;
    for (const TestSegment& s : segments) values.push_back(s.values);
    return values;
  }
  static std::vector<std::int32_t> segment_indices(const std::vector<TestSegment>& segments) {
    std::vector<std::int32_t> indices;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      indices.insert(indices.end(), static_cast<std::size_t>(granules_of(segments[i])), static_cast<std::int32_t>(i));
    }
    return indices;
  }

  KernelDevice& device_;
  std::vector<TestSegment> layout_;
  std::int64_t granules_;
  bool momentum_;
  DeviceArray<kernels::UpdateSegment> segments_;
  DeviceArray<kernels::UpdateGroup> groups_;
  DeviceArray<std::int32_t> segment_of_granule_;
  std::int32_t group_count_;

 public:
  DeviceArray<kernels::UpdateControl> control;
  DeviceBuffer master, gradient, moment1, moment2, compute;
  kernels::NarrowGradients narrow;  ///< segments whose gradient a test wrote so

 private:
  DType compute_dtype_;
};

}  // namespace bantam::testing
