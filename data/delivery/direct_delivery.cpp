// Batches made where they are used: a worker plans, gathers, augments and casts into tensors that the step then reads.
#include <cstring>
#include <deque>
#include <utility>

#include "bantam/data/delivery/delivery.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {
namespace {

/// Values of a batch below which starting threads costs more than it saves.
constexpr std::int64_t kLeastParallelValues = std::int64_t{1} << 20;

/// A batch on its way, and addresses for its worker.
struct Made {
  std::vector<Tensor> fields;  ///< images finished, targets
  Tensor stored;               ///< images as stored, where they do not lie in the data set
  std::int64_t epoch = 0, first = 0;
};

class DirectDelivery : public BatchDelivery {
 public:
  explicit DirectDelivery(DeliveryParts parts) : parts_(std::move(parts)), fields_(parts_.facts.fields()) {}

  Work prepare(const BatchRequest& request, DType dtype) override {
    made_.push_back(allocate(request.size, dtype));
    made_.back().epoch = request.epoch;
    made_.back().first = request.first;
    if (parts_.device.meta) return {};
    // The tensors stay in made_ until the work is done; the work itself must not own them, so that no worker
    // releases memory.
    std::vector<std::byte*> columns;  // of stored fields: what mixing adds comes after them
    for (std::size_t f = 0; f < fields_.size(); ++f) columns.push_back(made_.back().fields[f].as<std::byte>());
    std::byte* images = std::exchange(columns[0], nullptr);
    if (gathers()) columns[0] = made_.back().stored.as<std::byte>();
    return [this, request, dtype, images, columns](RowRange rows, int threads) {
      const std::size_t row_bytes = static_cast<std::size_t>(row_values()) * size_of(dtype);
      std::vector<std::byte*> first = columns;
      for (std::size_t f = 0; f < first.size(); ++f)
        if (first[f] != nullptr) first[f] += static_cast<std::size_t>(rows.begin) * fields_[f].bytes();
      make(request, rows, {dtype, threads, images + static_cast<std::size_t>(rows.begin) * row_bytes}, first);
    };
  }

  void deliver(const Context& context, Batch& batch) override {
    Made& made = made_.front();
    batch.size = made.fields[0].shape()[0];
    if (parts_.mixer.is_active() && !parts_.device.meta) mix(made, context.exec.threads);
    batch.tensors.set(kImages, std::move(made.fields[0]));
    const std::vector<SampleField>& targets = parts_.mixer.targets();
    for (std::size_t f = 0; f < targets.size(); ++f) batch.tensors.set(targets[f].name, std::move(made.fields[f + 1]));
    made_.pop_front();
  }

  void drop() override { made_.clear(); }
  bool needs_dtype() const override { return true; }

 private:
  /// Whether a worker writes stored images before it makes a batch of them.
  bool gathers() const { return parts_.dataset == nullptr || parts_.changes_samples; }

  Tensor allocate(const Shape& shape, DType dtype) const {
    BfcAllocator& allocator = parts_.runtime->allocator(parts_.device);
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    return {std::make_shared<Storage>(allocator, bytes, parts_.runtime->stream(parts_.device),
                                      AllocationTag{Category::input, "data"}),
            shape, dtype};
  }
  Made allocate(std::int64_t size, DType dtype) const {
    const Shape image = finished_image(parts_.shape, parts_.facts.image_shape);
    Made made{.fields = {allocate(image.prepend(size), dtype)}};
    for (const SampleField& target : parts_.mixer.targets())
      made.fields.push_back(allocate(target.shape.prepend(size), target.dtype));
    if (gathers()) made.stored = allocate(parts_.facts.image_shape.prepend(size), parts_.facts.image_dtype);
    return made;
  }

  std::int64_t row_values() const { return parts_.shape.out_h * parts_.shape.out_w * parts_.shape.channels; }

  /// Where finished images go.
  struct Finished {
    DType dtype;
    int threads;
    std::byte* images;
  };

  /// Rows `rows` of a batch. `columns`: their stored images, where they are gathered, then targets.
  void make(const BatchRequest& request, RowRange rows, const Finished& finished,
            std::span<std::byte* const> columns) const {
    const std::span<const std::int32_t> samples = request.samples(rows);
    std::vector<kernels::ImagePlacement> placements(samples.size());
    parts_.planner.plan(samples, request.epoch, request.first + rows.begin, placements);
    const std::byte* stored = nullptr;
    if (gathers()) {
      parts_.gather->gather(request.places(rows), columns, finished.threads);
      for (std::size_t i = 0; i < placements.size(); ++i) placements[i].image = static_cast<std::int32_t>(i);
      stored = columns[0];
    } else {
      copy_targets(samples, columns);
      stored = parts_.dataset->field(0).data();
    }
    kernels::ImageBatchShape shape = parts_.shape;
    shape.batch = rows.size();
    const bool small = shape.batch * row_values() < kLeastParallelValues;
    const kernels::Exec exec{.device = parts_.device, .threads = small ? 1 : finished.threads};
    BANTAM_KERNEL(exec, image_batch, shape, stored, placements.data(), finished.dtype, finished.images);
  }

  /// Pairs are of the whole batch, whose rows several workers may have made.
  void mix(const Made& made, int threads) const {
    std::vector<kernels::SampleMix> table;
    if (parts_.mixer.has_table()) {
      table.resize(static_cast<std::size_t>(made.fields[0].shape()[0]));
      parts_.mixer.plan(made.epoch, made.first, table);
    }
    const bool small = made.fields[0].shape().elements() < kLeastParallelValues;
    parts_.mixer.mix({.device = parts_.device, .threads = small ? 1 : threads}, table.empty() ? nullptr : table.data(),
                     made.fields);
  }

  void copy_targets(std::span<const std::int32_t> samples, std::span<std::byte* const> columns) const {
    for (std::size_t f = 1; f < fields_.size(); ++f) {
      const std::size_t bytes = fields_[f].bytes();
      const std::byte* all = parts_.dataset->field(f).data();
      for (std::size_t i = 0; i < samples.size(); ++i)
        std::memcpy(columns[f] + i * bytes, all + static_cast<std::size_t>(samples[i]) * bytes, bytes);
    }
  }

  DeliveryParts parts_;
  std::vector<SampleField> fields_;
  std::deque<Made> made_;
};

}  // namespace

std::unique_ptr<BatchDelivery> make_direct_delivery(DeliveryParts parts) {
  return std::make_unique<DirectDelivery>(std::move(parts));
}

}  // namespace bantam
