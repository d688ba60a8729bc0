// Batches on their way to a GPU: a ring of page-locked blocks, copies on a stream of their own, two staging blocks on
// the device.
//
// A block holds one batch's placements, how its samples are mixed, targets and stored images (with the data set on the
// device: placements only), so that one copy brings up all of it. Order is kept by events both ways: the kernel waits
// for the copy (`copied`), and the copy after next, into the same staging block, waits for the kernel (`used`).
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bantam/data/delivery/delivery.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {
namespace {

constexpr std::size_t kAlign = 256;
constexpr std::size_t kSpareBlocks = 2;  // beyond those in use, before the host waits for a copy

std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Tensor byte_tensor(BfcAllocator& allocator, std::size_t bytes, Stream stream) {
  return {std::make_shared<Storage>(allocator, bytes, stream, AllocationTag{Category::input, "data"}),
          Shape{static_cast<std::int64_t>(bytes)}, DType::uint8};
}

/// Where things lie in a block: placements, where samples are mixed a table of that, then with the data set on the host
/// the targets and the images, which come last, so that a short batch copies a prefix.
struct BlockLayout {
  std::vector<SampleField> fields;   // images, then targets; none with the data set on the device
  std::vector<std::size_t> offsets;  // of the fields
  std::size_t mixes = 0;             // offset of the table
  std::size_t bytes = 0;

  BlockLayout(std::int64_t batch, std::vector<SampleField> gathered, bool has_mixes)
      : fields(std::move(gathered)), offsets(fields.size()) {
    const auto count = static_cast<std::size_t>(batch);
    mixes = aligned(count * sizeof(kernels::ImagePlacement));
    bytes = mixes + (has_mixes ? aligned(count * sizeof(kernels::SampleMix)) : 0);
    for (std::size_t f = 1; f < fields.size(); ++f) {
      offsets[f] = bytes;
      bytes += aligned(count * fields[f].bytes());
    }
    if (!has_fields()) return;
    offsets[0] = bytes;
    bytes += count * fields[0].bytes();
  }
  bool has_fields() const { return !fields.empty(); }
  std::size_t used_bytes(std::int64_t batch) const {
    const auto count = static_cast<std::size_t>(batch);
    return has_fields() ? offsets[0] + count * fields[0].bytes() : count * sizeof(kernels::ImagePlacement);
  }
};

/// A page-locked block that a worker fills.
struct HostBlock {
  Tensor memory;
  Event copied;  ///< the last copy out of it
};

/// A block on the device that a kernel reads.
struct DeviceBlock {
  Tensor memory;
  Event used;  ///< the last kernel that read it
};

class StagedDelivery : public BatchDelivery {
 public:
  StagedDelivery(DeliveryParts parts, CacheKind cache);
  ~StagedDelivery() override;

  Work prepare(const BatchRequest& request, DType dtype) override;
  void deliver(const Context& context, Batch& batch) override;
  void send_ahead() override;
  void drop() override;
  bool needs_dtype() const override { return false; }
  const DeviceDataset* on_device() const override { return cached_.images.defined() ? &cached_ : nullptr; }

 private:
  struct Prepared {
    std::unique_ptr<HostBlock> block;  // null on meta devices
    std::int64_t size = 0;
    std::optional<std::size_t> staging;  // which device block it was sent to
  };

  void cache_dataset();
  std::unique_ptr<HostBlock> take_block();
  void fill(const BatchRequest& request, RowRange rows, std::byte* block, int threads) const;
  void send(Prepared& prepared);
  void make(const Context& context, const DeviceBlock& staging, std::int64_t size,
            std::span<const Tensor> fields) const;

  DeliveryParts parts_;
  BlockLayout layout_;
  OwnedStream copy_stream_;
  DeviceDataset cached_;  // with CacheKind::device
  std::array<DeviceBlock, 2> staging_;
  std::size_t next_staging_ = 0;
  std::deque<std::unique_ptr<HostBlock>> free_blocks_;  // longest free first
  std::deque<Prepared> prepared_;
};

StagedDelivery::StagedDelivery(DeliveryParts parts, CacheKind cache)
    : parts_(std::move(parts)),
      layout_(parts_.shape.batch, cache == CacheKind::device ? std::vector<SampleField>() : parts_.facts.fields(),
              parts_.mixer.has_table()),
      copy_stream_(parts_.device),
      staging_{DeviceBlock{{}, Event(parts_.device)}, DeviceBlock{{}, Event(parts_.device)}} {
  const Stream stream = parts_.runtime->stream(parts_.device);
  if (cache == CacheKind::device) cache_dataset();
  for (DeviceBlock& block : staging_) {
    block.memory = byte_tensor(parts_.runtime->allocator(parts_.device), layout_.bytes, stream);
    // Given in order of the compute stream, which may still use what lay there: the first copy must wait for it as
    // well.
    block.used.record(stream);
  }
}

StagedDelivery::~StagedDelivery() {
  // Blocks are released below, so nothing may still read or write them. A device that failed has said so before.
  try {
    synchronize(copy_stream_.get());
    for (const DeviceBlock& block : staging_) block.used.synchronize();
  } catch (const Error&) {
  }
}

/// Uploads the data set to the device and releases the host's copy.
void StagedDelivery::cache_dataset() {
  const Stream stream = parts_.runtime->stream(parts_.device);
  BfcAllocator& allocator = parts_.runtime->allocator(parts_.device);
  const Dataset& set = *parts_.dataset;
  const auto samples = static_cast<std::size_t>(set.size());
  cached_.images = byte_tensor(allocator, samples * set.facts().fields()[0].bytes(), stream);
  cached_.labels = byte_tensor(allocator, samples * sizeof(std::int32_t), stream);
  copy_bytes(cached_.images.data(), set.field(0).data(), cached_.images.bytes(), stream);
  copy_bytes(cached_.labels.data(), set.labels().data(), cached_.labels.bytes(), stream);
  synchronize(stream);
  cached_.epoch_samples = parts_.epoch_samples;
  cached_.image_shape = set.image_shape();
  cached_.target = set.facts().targets[0].name;
  parts_.dataset.reset();
  parts_.gather.reset();
}

/// The block that has been free the longest; a new one while all free ones are still being copied, up to the spares.
std::unique_ptr<HostBlock> StagedDelivery::take_block() {
  const bool ready = !free_blocks_.empty() && free_blocks_.front()->copied.done();
  if (ready || free_blocks_.size() >= kSpareBlocks) {
    std::unique_ptr<HostBlock> block = std::move(free_blocks_.front());
    free_blocks_.pop_front();
    block->copied.synchronize();
    return block;
  }
  return std::make_unique<HostBlock>(
      HostBlock{byte_tensor(parts_.runtime->pinned_allocator(), layout_.bytes, Stream{}), Event(parts_.device)});
}

BatchDelivery::Work StagedDelivery::prepare(const BatchRequest& request, DType) {
  if (parts_.device.meta) {
    prepared_.push_back({nullptr, request.size, {}});
    return {};
  }
  prepared_.push_back({take_block(), request.size, {}});
  return [this, request, block = static_cast<std::byte*>(prepared_.back().block->memory.data())](
             RowRange rows, int threads) { fill(request, rows, block, threads); };
}

/// A worker's rows: places, and with the data set on the host its targets and stored images, in the batch's order.
void StagedDelivery::fill(const BatchRequest& request, RowRange rows, std::byte* block, int threads) const {
  auto* placements = reinterpret_cast<kernels::ImagePlacement*>(block) + rows.begin;
  const std::span<const std::int32_t> samples = request.samples(rows);
  parts_.planner.plan(samples, request.epoch, request.first + rows.begin, {placements, samples.size()});
  if (!layout_.has_fields()) return;
  if (parts_.mixer.has_table())
    parts_.mixer.plan(request.epoch, request.first + rows.begin,
                      {reinterpret_cast<kernels::SampleMix*>(block + layout_.mixes) + rows.begin, samples.size()});
  std::vector<std::byte*> columns;
  for (std::size_t f = 0; f < layout_.fields.size(); ++f)
    columns.push_back(block + layout_.offsets[f] + static_cast<std::size_t>(rows.begin) * layout_.fields[f].bytes());
  parts_.gather->gather(request.places(rows), columns, threads);
  // Its place in the block.
  for (std::size_t i = 0; i < samples.size(); ++i)
    placements[i].image = static_cast<std::int32_t>(rows.begin) + static_cast<std::int32_t>(i);
}

void StagedDelivery::send(Prepared& prepared) {
  DeviceBlock& staging = staging_[next_staging_];
  prepared.staging = next_staging_;
  next_staging_ = 1 - next_staging_;
  if (prepared.block == nullptr) return;
  const Stream stream = copy_stream_.get();
  staging.used.make_wait(stream);
  copy_bytes(staging.memory.data(), prepared.block->memory.data(), layout_.used_bytes(prepared.size), stream);
  prepared.block->copied.record(stream);
}

void StagedDelivery::send_ahead() {
  if (!prepared_.empty() && !prepared_.front().staging) send(prepared_.front());
}

void StagedDelivery::deliver(const Context& context, Batch& batch) {
  const Context inputs = context.at("data");
  const std::int64_t size = prepared_.front().size;
  batch.size = size;
  std::vector<Tensor> fields = {inputs.allocate(finished_image(parts_.shape, parts_.facts.image_shape).prepend(size),
                                                context.precision.compute(), Category::input)};
  batch.tensors.set(kImages, fields[0]);
  for (const SampleField& target : parts_.mixer.targets()) {
    fields.push_back(inputs.allocate(target.shape.prepend(size), target.dtype, Category::input));
    batch.tensors.set(target.name, fields.back());
  }
  if (!prepared_.front().staging) send(prepared_.front());
  Prepared prepared = std::move(prepared_.front());
  prepared_.pop_front();
  DeviceBlock& staging = staging_[*prepared.staging];
  if (prepared.block == nullptr) return;
  HostBlock& block = *prepared.block;
  free_blocks_.push_back(std::move(prepared.block));
  block.copied.make_wait(context.stream);
  make(context, staging, size, fields);
  staging.used.record(context.stream);
}

/// Targets of class numbers come by the kernel that can also gather them from the cached set, others by a copy of what
/// the worker has gathered.
void StagedDelivery::make(const Context& context, const DeviceBlock& staging, std::int64_t size,
                          std::span<const Tensor> fields) const {
  kernels::Exec exec = context.exec;
  exec.stream = context.stream;
  const auto* block = static_cast<const std::byte*>(staging.memory.data());
  const auto* placements = reinterpret_cast<const kernels::ImagePlacement*>(block);
  const auto from = [&](std::size_t f) -> const std::byte* {
    if (layout_.has_fields()) return block + layout_.offsets[f];
    return (f == 0 ? cached_.images : cached_.labels).as<std::byte>();
  };
  kernels::ImageBatchShape shape = parts_.shape;
  shape.batch = size;
  BANTAM_KERNEL(exec, image_batch, shape, from(0), placements, fields[0].dtype(), fields[0].data());
  for (std::size_t f = 1; f <= parts_.facts.targets.size(); ++f) {
    if (parts_.facts.has_int32_target())
      BANTAM_KERNEL(exec, label_batch, size, reinterpret_cast<const std::int32_t*>(from(f)), placements,
                    fields[f].as<std::int32_t>());
    else
      copy_bytes(fields[f].data(), from(f), fields[f].bytes(), context.stream);
  }
  const auto* table = reinterpret_cast<const kernels::SampleMix*>(block + layout_.mixes);
  if (parts_.mixer.is_active()) parts_.mixer.mix(exec, parts_.mixer.has_table() ? table : nullptr, fields);
}

void StagedDelivery::drop() {
  for (Prepared& prepared : prepared_)
    if (prepared.block != nullptr) free_blocks_.push_back(std::move(prepared.block));
  prepared_.clear();
}

}  // namespace

std::unique_ptr<BatchDelivery> make_staged_delivery(DeliveryParts parts, CacheKind cache) {
  return std::make_unique<StagedDelivery>(std::move(parts), cache);
}

}  // namespace bantam
