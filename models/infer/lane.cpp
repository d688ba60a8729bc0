// Passes of a lane: planned on a stand-in, run from the lane's arena, captured on GPUs.
#include "bantam/models/infer/lane.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/engine/step/step_placements.h"

namespace bantam {
namespace {

/// One block of an allocator's memory, as the source of another allocator. It is allocated and freed on `stream`, which
/// must outlive that allocator; whoever uses the block on another stream waits for both.
class BlockSource final : public RegionSource {
 public:
  BlockSource(BfcAllocator& allocator, std::uint64_t bytes, Stream stream)
      : allocator_(allocator),
        bytes_(bytes),
        stream_(stream),
        block_(allocator.allocate(bytes, stream, {Category::activation, "predictor/arena"})) {}
  ~BlockSource() override { allocator_.free(block_, stream_); }

  void* acquire(std::size_t bytes) override {
    if (acquired_ || bytes > bytes_) return nullptr;
    acquired_ = true;
    return block_;
  }
  void release(void*, std::size_t) noexcept override { acquired_ = false; }
  const char* name() const override { return "predictor"; }

 private:
  BfcAllocator& allocator_;
  std::size_t bytes_;
  Stream stream_;
  void* block_;
  bool acquired_ = false;
};

/// memcpy on several threads: one core copies a large batch more slowly than a GPU computes it.
void copy_on_host(void* to, const void* from, std::size_t bytes, int threads) {
  constexpr std::int64_t kGrain = 1 << 20;
  parallel_ranges(static_cast<std::int64_t>(bytes), kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

std::uint64_t whole_units(std::uint64_t bytes) {
  return (bytes + BfcAllocator::kAllocationUnit - 1) / BfcAllocator::kAllocationUnit * BfcAllocator::kAllocationUnit;
}

/// Samples that lie in memory of somebody else.
Tensor foreign_tensor(const float* data, const Shape& shape, Device device) {
  const auto bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  return {std::make_shared<Storage>(const_cast<float*>(data), bytes, device, nullptr), shape, DType::float32};
}

/// The model's output, float32, of float32 inputs.
Tensor forward(Model& model, const Context& context, const Tensor& inputs) {
  const Tensor x = ops::cast(context, inputs, context.precision.compute());
  return ops::cast(context, model.forward(context, x), DType::float32);
}

Tensor pinned_floats(Runtime& runtime, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  return {std::make_shared<Storage>(runtime.pinned_allocator(), bytes, Stream{},
                                    AllocationTag{Category::other, "predictor/staging"}),
          {count},
          DType::float32};
}

}  // namespace

std::uint64_t PassPlans::arena_bytes() const {
  std::uint64_t most = 0;
  for (const auto& [size, plan] : by_size)
    if (plan != nullptr) most = std::max(most, plan->arena_bytes());
  return most;
}

PassPlans PassPlans::of(const Graph& graph, const ModelOptions& options, Device device,
                        std::span<const std::int64_t> sizes) {
  PassPlans plans;
  Runtime runtime({.threads = 1});
  const Device stand_in = Device::meta_of(device);
  Model model(runtime, stand_in, graph, options);
  model.prepare_inference();
  const Context context = model.context(Pass::evaluate);
  for (const std::int64_t size : sizes) {
    const Tensor x = context.allocate(graph.input_shape().prepend(size), DType::float32, Category::input);
    AllocationTrace calls;
    BfcAllocator& memory = runtime.allocator(stand_in);
    {
      const TraceScope tracing(memory, calls);
      (void)forward(model, context, foreign_tensor(x.as<float>(), x.shape(), stand_in));
    }
    const std::vector<PlannerBuffer> buffers = closed_buffers(calls);
    if (buffers.empty() && !calls.intervals().empty())
      throw Error("predictor: a layer keeps memory that it allocates in forward, so that no pass can be planned");
    plans.by_size.emplace(size, solve_placements(buffers, plans.arena_bytes()));
  }
  return plans;
}

Lane::Lane(Model& model, const PassPlans& plans)
    : model_(model), plans_(plans), stream_(model.device()), context_(model.context(Pass::evaluate)) {
  context_.stream = context_.exec.stream = stream_.get();
  context_.exec.log = nullptr;
  reserve_arena();
  if (!model.device().is_cuda()) return;
  make_staging(plans.by_size.rbegin()->first);
  for (const auto& [size, plan] : plans.by_size) {
    pass(size, staging_.as<float>(), host_outputs_.as<float>());  // loads kernels and libraries, which choose
    synchronize(stream_.get());
    capture(size);
  }
}

Lane::~Lane() = default;

Lane::Drained::~Drained() {
  try {
    synchronize(stream);
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
}

/// The runtime's allocator knows its own stream alone: a lane's is gone before it is.
void Lane::reserve_arena() {
  block_bytes_ = whole_units(plans_.arena_bytes());
  if (block_bytes_ == 0) return;
  const Context setup = model_.context(Pass::evaluate);
  memory_ = std::make_unique<BfcAllocator>(
      std::make_unique<BlockSource>(setup.allocator(), block_bytes_, setup.stream), model_.device(),
      AllocatorOptions{.name = "predictor", .limit_bytes = block_bytes_, .growth = false});
  synchronize(setup.stream);  // what used the block before
  if (!memory_->reserve_arena(block_bytes_, stream_.get())) throw Error("predictor: its arena cannot be reserved");
  context_.memory = memory_.get();
}

void Lane::make_staging(std::int64_t most) {
  const Graph& graph = model_.graph();
  const std::int64_t inputs = most * graph.input_shape().elements(), outputs = most * graph.output_shape().elements();
  const Context setup = model_.context(Pass::evaluate);
  staging_ = setup.at("predictor/inputs").allocate({inputs}, DType::float32, Category::input);
  zero_bytes(staging_.data(), staging_.bytes(), setup.stream);
  synchronize(setup.stream);
  host_inputs_ = pinned_floats(model_.runtime(), inputs);
  host_outputs_ = pinned_floats(model_.runtime(), outputs);
}

/// From the device's memory at `from` to `to`, which may be the host's.
void Lane::pass(std::int64_t size, const float* from, float* to) {
  const Tensor inputs = foreign_tensor(from, model_.graph().input_shape().prepend(size), model_.device());
  const std::shared_ptr<const PlacementPlan>& plan = plans_.by_size.at(size);
  std::optional<PlacementScope> scope;
  if (plan != nullptr) scope.emplace(*memory_, plan, stream_.get());
  const Tensor y = forward(model_, context_, inputs);
  if (scope && scope->departed()) throw Error("predictor: a pass did not allocate as planned");
  copy_bytes(to, y.data(), y.bytes(), stream_.get());
}

void Lane::capture(std::int64_t size) {
  captured_.emplace(size,
                    CapturedWork(stream_.get(), [&] { pass(size, staging_.as<float>(), host_outputs_.as<float>()); }));
}

void Lane::run(std::int64_t size, std::int64_t samples, const float* inputs, float* outputs) {
  if (!model_.device().is_cuda()) return pass(size, inputs, outputs);
  const auto bytes_of = [samples](const Shape& sample) {
    return static_cast<std::size_t>(samples * sample.elements()) * sizeof(float);
  };
  upload(inputs, bytes_of(model_.graph().input_shape()));
  run_resident(size);
  copy_on_host(outputs, host_outputs_.data(), bytes_of(model_.graph().output_shape()), context_.exec.threads);
}

/// In chunks, each of which the device copies while the host copies the next.
void Lane::upload(const float* inputs, std::size_t bytes) {
  constexpr std::size_t kChunk = 8 << 20;
  for (std::size_t done = 0; done < bytes; done += kChunk) {
    const std::size_t count = std::min(kChunk, bytes - done);
    char* const locked = host_inputs_.as<char>() + done;
    copy_on_host(locked, reinterpret_cast<const char*>(inputs) + done, count, context_.exec.threads);
    copy_bytes(staging_.as<char>() + done, locked, count, stream_.get());
  }
}

void Lane::run_resident(std::int64_t size) {
  if (!model_.device().is_cuda()) return;
  const DeviceScope scope(model_.device());
  captured_.at(size).launch();
  synchronize(stream_.get());
}

}  // namespace bantam
