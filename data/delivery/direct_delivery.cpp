// Batches made where they are used: a worker plans, gathers, augments and casts into tensors that the step then reads.
#include <deque>
#include <utility>

#include "bantam/data/delivery/delivery.h"

namespace bantam {
namespace {

/// Values of a batch below which starting threads costs more than it saves.
constexpr std::int64_t kLeastParallelValues = std::int64_t{1} << 20;

class DirectDelivery : public BatchDelivery {
 public:
  explicit DirectDelivery(DeliveryParts parts) : parts_(std::move(parts)) {}

  Work prepare(const BatchRequest& request, DType dtype) override {
    const kernels::ImageBatchShape& s = parts_.shape;
    Made made{allocate({request.size, s.out_h, s.out_w, s.channels}, dtype), allocate({request.size}, DType::int32)};
    made_.push_back(made);
    if (parts_.device.meta) return {};
    // The tensors stay in made_ until the work is done; the work itself must not own them, so that no worker gives
    // memory back.
    return [this, request, dtype, images = made.images.data(), labels = made.labels.as<std::int32_t>()](int threads) {
      make(request, dtype, threads, images, labels);
    };
  }

  void deliver(const Context&, Batch& batch) override {
    batch.size = made_.front().labels.elements();
    batch.tensors.set(kImages, std::move(made_.front().images));
    batch.tensors.set(kLabels, std::move(made_.front().labels));
    made_.pop_front();
  }

  void drop() override { made_.clear(); }
  bool needs_dtype() const override { return true; }

 private:
  struct Made {
    Tensor images;
    Tensor labels;
  };

  Tensor allocate(const Shape& shape, DType dtype) const {
    BfcAllocator& allocator = parts_.runtime->allocator(parts_.device);
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    return {std::make_shared<Storage>(allocator, bytes, parts_.runtime->stream(parts_.device),
                                      AllocationTag{Category::input, "data"}),
            shape, dtype};
  }

  void make(const BatchRequest& request, DType dtype, int threads, void* images, std::int32_t* labels) const {
    std::vector<kernels::ImagePlacement> placements(static_cast<std::size_t>(request.size));
    parts_.planner.plan(request.samples(), request.epoch, request.first, placements);
    kernels::ImageBatchShape shape = parts_.shape;
    shape.batch = request.size;
    const std::int64_t values = shape.batch * shape.out_h * shape.out_w * shape.channels;
    const kernels::Exec exec{.device = parts_.device, .threads = values < kLeastParallelValues ? 1 : threads};
    const Dataset& set = *parts_.dataset;
    BANTAM_KERNEL(exec, image_batch, shape, set.images().data(), placements.data(), dtype, images);
    BANTAM_KERNEL(exec, label_batch, request.size, set.labels().data(), placements.data(), labels);
  }

  DeliveryParts parts_;
  std::deque<Made> made_;
};

}  // namespace

std::unique_ptr<BatchDelivery> make_direct_delivery(DeliveryParts parts) {
  return std::make_unique<DirectDelivery>(std::move(parts));
}

}  // namespace bantam
