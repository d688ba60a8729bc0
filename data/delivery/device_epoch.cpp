// Batches by the device's own count.
#include "bantam/data/delivery/device_epoch.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "bantam/base/error.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {
namespace {

// One kernel makes as many batches as fit, so that small ones cost a share of a launch; and a launch of steps takes
// some milliseconds at most, so that a stop is not long in coming.
constexpr std::uint64_t kRingBytes = 2u << 20;
constexpr std::uint64_t kLaunchBytes = 32u << 20;
constexpr std::int64_t kMostAtOnce = 32;

std::uint64_t image_bytes(const kernels::ImageBatchShape& s, DType dtype) {
  return static_cast<std::uint64_t>(s.batch * s.out_h * s.out_w * s.channels) * size_of(dtype);
}

std::int64_t batches_in(std::uint64_t bytes, std::uint64_t batch_bytes) {
  const std::uint64_t count = bytes / std::max<std::uint64_t>(batch_bytes, 1);
  return static_cast<std::int64_t>(std::clamp<std::uint64_t>(count, 1, kMostAtOnce));
}

/// One, where batches side by side would not all be aligned as kernels of libraries need.
std::int64_t ring_size(const kernels::ImageBatchShape& shape, DType dtype) {
  constexpr std::uint64_t kAlignment = 128;
  const std::uint64_t bytes = image_bytes(shape, dtype), label_bytes = static_cast<std::uint64_t>(shape.batch) * 4;
  if (bytes % kAlignment != 0 || label_bytes % 16 != 0) return 1;
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(batches_in(kRingBytes, bytes))));
}

}  // namespace

DeviceEpoch::DeviceEpoch(Runtime& runtime, Device device, DeviceDataset dataset, const kernels::ImageBatchShape& shape,
                         DType dtype)
    : device_(device),
      stream_(runtime.stream(device)),
      dataset_(std::move(dataset)),
      shape_(shape),
      ring_batches_(ring_size(shape, dtype)),
      copied_(device) {
  const Context context = Context::make(runtime, device).at("data");
  const auto table_bytes = dataset_.epoch_samples * static_cast<std::int64_t>(sizeof(kernels::ImagePlacement));
  table_ = context.allocate({table_bytes}, DType::uint8, Category::input);
  cursor_ = context.allocate({1}, DType::int64, Category::input);
  ring_.size = ring_batches_ * shape_.batch;
  ring_.tensors.set(kImages, context.allocate(finished_image(shape_, dataset_.image_shape).prepend(ring_.size), dtype,
                                              Category::input));
  ring_.tensors.set(dataset_.target, context.allocate({ring_.size}, DType::int32, Category::input));
  if (device.meta) return;
  BfcAllocator& pinned = runtime.pinned_allocator();
  const std::size_t host_bytes = sizeof(std::int64_t) + table_.bytes();
  host_ = {std::make_shared<Storage>(pinned, host_bytes, Stream{}, AllocationTag{Category::input, "data"}),
           Shape{static_cast<std::int64_t>(host_bytes)}, DType::uint8};
}

DeviceEpoch::~DeviceEpoch() {
  try {
    copied_.synchronize();  // the host's memory goes
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
}

std::span<kernels::ImagePlacement> DeviceEpoch::placements() {
  if (!host_.defined()) return {};
  copied_.synchronize();
  auto* first = reinterpret_cast<kernels::ImagePlacement*>(host_.as<std::byte>() + sizeof(std::int64_t));
  return {first, static_cast<std::size_t>(dataset_.epoch_samples)};
}

void DeviceEpoch::start(std::int64_t samples, std::int64_t first_batch) {
  samples_ = samples;
  next_ = first_batch;
  if (!host_.defined()) return;
  copied_.synchronize();
  *host_.as<std::int64_t>() = first_batch * shape_.batch;
  copy_bytes(cursor_.data(), host_.data(), sizeof(std::int64_t), stream_);
  copy_bytes(table_.data(), host_.as<std::byte>() + sizeof(std::int64_t), table_.bytes(), stream_);
  copied_.record(stream_);
}

std::int64_t DeviceEpoch::left() const { return samples_ / shape_.batch - next_; }

std::int64_t DeviceEpoch::most_at_once() const {
  return batches_in(kLaunchBytes, image_bytes(shape_, ring_.at(kImages).dtype()));
}

kernels::EpochTable DeviceEpoch::table() const {
  return {dataset_.images.data(), dataset_.labels.as<std::int32_t>(), table_.as<kernels::ImagePlacement>(),
          cursor_.as<std::int64_t>()};
}

/// The samples from the cursor's place + `offset` on.
void DeviceEpoch::fill(const Context& context, std::int64_t offset, const Batch& into) const {
  kernels::ImageBatchShape shape = shape_;
  shape.batch = into.size;
  const Tensor& images = into.at(kImages);
  BANTAM_KERNEL(context.exec, epoch_batch, shape, table(), offset, images.dtype(), images.data(),
                into.at(dataset_.target).as<std::int32_t>());
}

Batch DeviceEpoch::in_ring(std::int64_t batches, std::int64_t place) const {
  const std::int64_t values = shape_.out_h * shape_.out_w * shape_.channels, first = place * shape_.batch;
  Batch batch{.size = batches * shape_.batch};
  const Shape images = finished_image(shape_, dataset_.image_shape).prepend(batch.size);
  batch.tensors = {{kImages, ring_.at(kImages).slice(first * values, images)},
                   {dataset_.target, ring_.at(dataset_.target).slice(first, {batch.size})}};
  return batch;
}

Batch DeviceEpoch::make(const Context& context, std::int64_t i, std::int64_t count) {
  const std::int64_t place = i % ring_batches_;
  if (place == 0) {
    const std::int64_t batches = std::min(ring_batches_, count - i);
    fill(context, i * shape_.batch, in_ring(batches, 0));
    if (i + batches == count) BANTAM_KERNEL(context.exec, advance_epoch, table(), count * shape_.batch);
  }
  return in_ring(1, place);
}

Batch DeviceEpoch::next(const Context& context) {
  const Context inputs = context.at("data");
  const std::int64_t size = std::min(shape_.batch, samples_ - next_ * shape_.batch);
  Batch batch{.size = size, .index = next_++};
  const Shape images = finished_image(shape_, dataset_.image_shape).prepend(size);
  batch.tensors.set(kImages, inputs.allocate(images, ring_.at(kImages).dtype(), Category::input));
  batch.tensors.set(dataset_.target, inputs.allocate({size}, DType::int32, Category::input));
  fill(context, 0, batch);
  BANTAM_KERNEL(context.exec, advance_epoch, table(), size);
  return batch;
}

}  // namespace bantam
