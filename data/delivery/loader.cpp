// The source: which batch is next, how many are made ahead, and who makes them.
#include "bantam/data/delivery/loader.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/data/delivery/delivery.h"
#include "bantam/data/delivery/encoded_cache.h"
#include "bantam/data/delivery/packed_file.h"
#include "bantam/data/delivery/sample_weights.h"
#include "bantam/data/delivery/worker_pool.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kMostWorkersForGpu = 8;

/// The batches that one source makes of an epoch's: of every `of` in a row, `count` from the `first` on.
struct Share {
  std::int64_t first = 0, count = 1, of = 1;

  /// The first batch of the share from `index` on.
  std::int64_t from(std::int64_t index) const {
    const std::int64_t begin = index / of * of + first;
    return index < begin + count ? std::max(index, begin) : begin + of;
  }
  /// How many of the share's batches come before `index`.
  std::int64_t before(std::int64_t index) const {
    return index / of * count + std::clamp<std::int64_t>(index % of - first, 0, count);
  }
  /// The share's batch number `n`.
  std::int64_t at(std::int64_t n) const { return n / count * of + first + n % count; }
};

/// How a source's batches are made.
struct Making {
  bool slow = false;           ///< samples are read, decoded or changed for each batch
  std::int64_t part_rows = 1;  ///< that one worker makes at a time
  bool shares = false;         ///< a batch has more than one such part

  Making(const StageForms& forms, const LoaderOptions& options, const kernels::ImageBatchShape& shape) {
    // A part costs a lock; so many bytes of stored images cost far more, most of all where they are decoded.
    constexpr std::int64_t kSlowBytes = std::int64_t{1} << 16, kFastBytes = std::int64_t{1} << 20;
    const CacheKind cache = options.pipeline.cache;
    slow = cache == CacheKind::off || cache == CacheKind::disk || !forms.worker.empty();
    const std::int64_t row_bytes = std::max<std::int64_t>(1, forms.gathered.elements());
    part_rows = std::max<std::int64_t>(1, (slow ? kSlowBytes : kFastBytes) / row_bytes);
    if (options.decoder != nullptr) part_rows = std::max(part_rows, GpuDecoder::kMostFiles);
    shares = shape.batch > part_rows;
  }
  std::int64_t parts(std::int64_t size) const { return (size + part_rows - 1) / part_rows; }
};

/// On the CPU the step itself wants the processors, all but where it would wait for samples that take long; for a GPU
/// they are free, but for the thread that drives it.
WorkerBounds worker_bounds(Device device, int threads, const Making& making) {
  const bool gpu = device.kind == DeviceKind::cuda;
  const std::int64_t free = gpu ? threads - 1 : threads / 2;
  WorkerBounds bounds{.most = std::clamp<std::int64_t>(free, 1, gpu ? kMostWorkersForGpu : free + 1),
                      .share_batches = making.shares};
  if (!making.slow) return bounds;
  bounds.first = std::max<std::int64_t>(1, free);
  bounds.most = gpu ? bounds.first : std::max(1, threads);
  return bounds;
}

/// Finished batches that lie ready in the step's own memory are part of what a run needs, which is known before it
/// begins: so their number is not found while it runs. Buffers of other memory may come as they are wanted.
PrefetchTuner make_tuner(const LoaderOptions& options, int threads, const Making& making) {
  constexpr std::int64_t kReadyOnCpu = 2;
  const PrefetchOptions& prefetch = options.pipeline.prefetch;
  const bool direct = options.device.kind == DeviceKind::cpu && !options.staged_on_cpu;
  const std::int64_t busy = making.shares ? 0 : prefetch.workers.value_or(0) + 1;
  return {prefetch.depth.value_or(direct ? std::max(kReadyOnCpu, busy) : -1), prefetch.workers.value_or(-1),
          worker_bounds(options.device, threads, making)};
}

void check_sizes(const PipelineOptions& pipeline, std::int64_t samples, std::int64_t of_epoch) {
  if (samples < 1) throw DataError("the data set has no images");
  if (of_epoch > std::numeric_limits<std::int32_t>::max())
    throw ConfigError(fmt::format("an epoch has at most 2,147,483,647 samples, not {}", of_epoch));
  if (pipeline.drop_last && of_epoch < pipeline.batch_size)
    throw ConfigError(
        fmt::format("a batch of {} with drop_last drops all {}", pipeline.batch_size, counted(of_epoch, "image")));
}

/// Where the device makes the batches itself, no worker sees the samples, and its kernel knows class numbers only.
void check_device_cache(const PipelineOptions& pipeline, const StageForms& forms, const DatasetFacts& facts) {
  if (pipeline.cache != CacheKind::device) return;
  if (!forms.worker.empty())
    throw ConfigError(
        fmt::format("cache: device does not go with {}, which changes samples on the host: use cache: auto, ram or off",
                    forms.worker[0]->name()));
  if (pipeline.mix.any())
    throw ConfigError(
        "cache: device does not go with one_hot, mixup and cutmix, which change finished batches: use cache: auto, ram "
        "or off");
  if (!facts.has_int32_target())
    throw ConfigError(
        "cache: device needs data with one target, an int32 a sample (class numbers): use cache: auto, ram or off");
}

DatasetFacts checked(DatasetFacts facts) {
  check_facts(facts);
  return facts;
}

}  // namespace

struct ImageBatchSource::Impl {
  LoaderOptions options;
  DatasetFacts stored;  // as the reader has them
  StageForms forms;
  DatasetFacts facts;  // as the kernel reads them
  kernels::ImageBatchShape shape;
  BatchPlanner planner;
  SampleWeights weights;  // empty: every sample comes as often as others
  int threads;
  Making making;
  PrefetchTuner tuner;
  std::unique_ptr<BatchDelivery> delivery;
  std::unique_ptr<DeviceEpoch> device_epoch;  // once asked for, all batches are its
  WorkerPool pool;                            // after the delivery: its work uses it

  Share share;
  std::int64_t epoch = 0;
  std::int64_t next_out = 0;               // the batch that `next` returns
  std::int64_t next_prepared = 0;          // the first one not yet being made
  std::deque<WorkerPool::Ticket> tickets;  // of batches being made; null where there is nothing to wait for
  std::shared_ptr<const std::vector<std::int32_t>> order;
  std::shared_ptr<const std::vector<std::int32_t>> passes;  // of the order; null where no sample comes twice
  std::optional<std::int64_t> order_epoch;
  std::optional<DType> dtype;
  double waited = 0;

  /// An epoch that the device counts through.
  struct DevicePlan {
    std::int64_t epoch = 0;
    std::vector<std::int32_t> order;
    std::vector<kernels::ImagePlacement> placements;
  };
  std::optional<std::int64_t> planned_epoch;  // whose placements device_epoch has
  std::future<DevicePlan> planned_ahead;      // last: its thread reads what stands before it

  /// `dataset` may be null: then it is read, where the pipeline has it cached.
  Impl(Runtime& runtime, std::shared_ptr<const SampleReader> reader, std::shared_ptr<const Dataset> dataset,
       LoaderOptions given)
      : options(std::move(given)),
        stored(checked(reader->facts())),
        forms(stage_forms(options.pipeline.augmentations, stored)),
        facts(with_image_shape(stored, forms.gathered)),
        shape(batch_shape(options.pipeline, stored)),
        planner(forms.placed, shape, options.seed),
        threads(runtime.threads()),
        making(forms, options, shape),
        tuner(make_tuner(options, threads, making)) {
    check_sizes(options.pipeline, facts.size, epoch_samples());
    if (!options.device.meta) weights = weights_of(*reader, options.pipeline.sampling, threads);
    shape.batch = std::min(shape.batch, epoch_samples());  // buffers need not hold more than there is
    const bool staged = options.device.kind == DeviceKind::cuda || options.staged_on_cpu;
    if (staged) check_device_cache(options.pipeline, forms, facts);
    DeliveryParts parts = make_parts(runtime, std::move(reader), std::move(dataset));
    delivery = staged ? make_staged_delivery(std::move(parts), options.pipeline.cache)
                      : make_direct_delivery(std::move(parts));
  }

  DeliveryParts make_parts(Runtime& runtime, std::shared_ptr<const SampleReader> reader,
                           std::shared_ptr<const Dataset> dataset) const {
    SamplePath::Stages stages{forms.worker, forms.gathered, options.seed, options.decoder};
    const bool reads = !forms.reading.empty() || options.broken != nullptr;  // the reader's samples are not the cache's
    if (options.pipeline.cache == CacheKind::off) {
      dataset.reset();
      stages.stages.insert(stages.stages.begin(), forms.reading.begin(), forms.reading.end());
    } else if (options.pipeline.cache == CacheKind::disk) {
      dataset.reset();
      reader = packed(std::move(reader), runtime);
    } else if (forms.stored.elements() == 0) {
      if (options.broken != nullptr) reader = fetched_or_empty(std::move(reader));
      reader = encoded_in_ram(runtime, std::move(reader), options.device);
    } else {
      if (reads || dataset == nullptr) dataset = cached(runtime, reader);
      reader = reader_of(dataset);
    }
    return {.runtime = &runtime,
            .facts = facts,
            .epoch_samples = epoch_samples(),
            .dataset = std::move(dataset),
            .gather = std::make_shared<SampleGather>(SamplePath(std::move(reader), std::move(stages), options.broken)),
            .changes_samples = !forms.worker.empty(),
            .shape = shape,
            .planner = planner,
            .mixer = {options.pipeline.mix, facts, shape, options.seed},
            .device = options.device};
  }

  SamplePath::Stages reading_stages() const { return {forms.reading, forms.stored, options.seed, options.decoder}; }

  /// In the packed file, what a cache in host memory holds too, but for broken samples: each run is to count and name
  /// them, so that they are replaced as they are read. On a meta device nothing is written.
  std::shared_ptr<const SampleReader> packed(std::shared_ptr<const SampleReader> reader, Runtime& runtime) const {
    const bool skips = options.broken != nullptr;
    if (forms.stored.elements() > 0) reader = read_through(std::move(reader), reading_stages(), nullptr);
    if (options.device.meta) return reader;
    std::string recipe = to_string(forms.stored);
    for (const auto& stage : forms.reading) recipe += fmt::format(" {}", stage->name());
    if (forms.stored.elements() > 0 && options.decoder != nullptr && stored.has_encoded_images())
      recipe += fmt::format(", decoded by {}", options.decoder->name());
    if (skips) recipe += ", broken samples kept";  // without on_error: skip the first one ends the packing
    return PackedFile::open(std::move(reader), options.packed_file,
                            {.threads = runtime.threads(),
                             .recipe = recipe,
                             .keeps_broken = skips,
                             .on_read = options.on_read,
                             .on_no_locks = [&runtime](std::string_view text) { runtime.log(text); }});
  }

  /// Samples in host memory, after the stages that belong to reading.
  std::shared_ptr<const Dataset> cached(Runtime& runtime, std::shared_ptr<const SampleReader> reader) const {
    if (options.device.meta) return Dataset::stand_in(runtime, with_image_shape(stored, forms.stored), options.device);
    return read_dataset(runtime, *read_through(std::move(reader), reading_stages(), options.broken), options.on_read);
  }

  std::int64_t epoch_samples() const { return options.pipeline.sampling.epoch_samples(facts.size); }
  std::int64_t batches() const {
    const std::int64_t size = options.pipeline.batch_size;
    return options.pipeline.drop_last ? epoch_samples() / size : (epoch_samples() + size - 1) / size;
  }
  std::int64_t size_of(std::int64_t index) const {
    const std::int64_t size = options.pipeline.batch_size;
    return std::min(size, epoch_samples() - index * size);
  }

  void find_order();
  std::vector<std::int32_t> order_of(std::int64_t of_epoch) const;
  void restart(std::int64_t at);
  BatchRequest request(std::int64_t index);
  bool has_workers();
  void fill();
  void make_ahead(bool send);
  void make_now(int step_threads);
  void await_oldest();
  std::int64_t position() const { return device_epoch ? share.at(device_epoch->next_batch()) : next_out; }
  std::int64_t samples_of_share() const;
  void start_on_device(std::int64_t first_batch);
  void plan_on_device(std::span<kernels::ImagePlacement> placements);
  void plan_ahead(std::int64_t of_epoch);
  void plan_share(const std::vector<std::int32_t>& of_order, std::int64_t of_epoch,
                  std::span<kernels::ImagePlacement> placements, int with_threads) const;
};

std::vector<std::int32_t> ImageBatchSource::Impl::order_of(std::int64_t of_epoch) const {
  const auto& shuffle = options.pipeline.shuffle;
  const std::int64_t count = epoch_samples();
  if (!weights.weights.empty())
    return weighted_order(weights, count, shuffle ? shuffle->seed.value_or(options.seed) : options.seed, of_epoch);
  return consecutive_order(facts.size, of_epoch * count, count, shuffle ? &*shuffle : nullptr, options.seed);
}

/// The epoch's order; kept while the epoch, or the lack of shuffling, lasts.
void ImageBatchSource::Impl::find_order() {
  const bool changes = options.pipeline.shuffle || !weights.weights.empty() || epoch_samples() % facts.size != 0;
  if (order && (!changes || order_epoch == epoch)) return;
  order = std::make_shared<const std::vector<std::int32_t>>(order_of(epoch));
  const bool comes_again = epoch_samples() > facts.size || !weights.weights.empty();
  if (comes_again) passes = std::make_shared<const std::vector<std::int32_t>>(passes_of(*order, facts.size));
  order_epoch = epoch;
}

/// Drops everything under way and goes on at batch `at`, or the next of the share.
void ImageBatchSource::Impl::restart(std::int64_t at) {
  pool.clear();
  tickets.clear();
  delivery->drop();
  next_out = next_prepared = share.from(at);
  tuner.on_start();
}

BatchRequest ImageBatchSource::Impl::request(std::int64_t index) {
  find_order();
  return {order, epoch, index * options.pipeline.batch_size, size_of(index), passes};
}

/// Starts the wanted workers; where the system refuses more threads, the existing ones do the work. Threads beyond the
/// parts of all batches made ahead would have nothing to do, and on a meta device there is no work at all.
bool ImageBatchSource::Impl::has_workers() {
  if (tuner.workers() == 0) return false;
  if (options.device.meta) return true;
  try {
    if (options.probe) options.probe(LoaderEvent::grow);
    pool.grow_to(std::min(tuner.workers(), tuner.depth() * making.parts(shape.batch)));
  } catch (const std::exception&) {
    return pool.size() > 0;  // it is tried again with the next batch
  }
  return true;
}

/// Hands out work until `depth` batches are being made or ready; fewer where memory is short. Where it throws, delivery
/// and tickets may not agree any more: `restart` is due.
void ImageBatchSource::Impl::fill() {
  if ((delivery->needs_dtype() && !dtype) || !has_workers()) return;
  while (next_prepared < batches() && static_cast<std::int64_t>(tickets.size()) < tuner.depth()) {
    BatchDelivery::Work work;
    try {
      work = delivery->prepare(request(next_prepared), dtype.value_or(DType::float32));
    } catch (const OutOfMemory&) {
      return;  // making a batch ahead is a favour: it is asked for again, and reported, when it is due
    }
    WorkerPool::Ticket ticket;
    if (work) {
      if (options.probe) options.probe(LoaderEvent::submit);
      const std::int64_t size = size_of(next_prepared), rows = making.part_rows;
      ticket = pool.submit(
          [this, size, rows, work = std::move(work)](std::int64_t part) {
            if (options.probe) options.probe(LoaderEvent::work);
            work({part * rows, std::min(size, (part + 1) * rows)}, 1);
          },
          making.parts(size));
    }
    next_prepared = share.from(next_prepared + 1);
    tickets.push_back(std::move(ticket));
  }
}

/// Prefetching must not lose a batch already made: a failure is dropped, and reported when its batch is due. With
/// `send`, the copy of the next batch may run while the step works on the last one.
void ImageBatchSource::Impl::make_ahead(bool send) {
  try {
    fill();
    if (send && !tickets.empty() && (tickets.front() == nullptr || pool.done(tickets.front()))) delivery->send_ahead();
  } catch (...) {
    restart(next_out);
  }
}

/// Nothing was made ahead: the caller makes the next batch, with the step's threads.
void ImageBatchSource::Impl::make_now(int step_threads) {
  const Clock::time_point begin = Clock::now();
  const BatchDelivery::Work work = delivery->prepare(request(next_out), *dtype);
  next_prepared = share.from(next_out + 1);
  tickets.emplace_back();
  if (work) work({0, size_of(next_out)}, step_threads);
  waited += seconds_since(begin);
}

void ImageBatchSource::Impl::await_oldest() {
  const WorkerPool::Ticket& ticket = tickets.front();
  if (ticket == nullptr) return;
  const bool ready = pool.done(ticket);
  tuner.on_batch(!ready);
  const Clock::time_point begin = Clock::now();
  pool.wait(ticket);
  if (!ready) waited += seconds_since(begin);
}

/// Counts the samples of this source's batches in an epoch, without those that are dropped.
std::int64_t ImageBatchSource::Impl::samples_of_share() const {
  const std::int64_t count = share.before(batches());
  if (count == 0) return 0;
  return (count - 1) * options.pipeline.batch_size + size_of(share.at(count - 1));
}

/// Plans the epoch's batches of the share, one after the other: the device counts through them. Then the next epoch's,
/// while the device works on this one's.
void ImageBatchSource::Impl::start_on_device(std::int64_t first_batch) {
  const std::span<kernels::ImagePlacement> placements = device_epoch->placements();
  if (!placements.empty() && planned_epoch != epoch) plan_on_device(placements);
  device_epoch->start(samples_of_share(), share.before(first_batch));
  if (!placements.empty()) plan_ahead(epoch + 1);
}

void ImageBatchSource::Impl::plan_share(const std::vector<std::int32_t>& of_order, std::int64_t of_epoch,
                                        std::span<kernels::ImagePlacement> placements, int with_threads) const {
  constexpr std::int64_t kPlacesOfPart = 2048;
  const std::int64_t size = options.pipeline.batch_size;
  parallel_ranges(share.before(batches()), std::max<std::int64_t>(1, kPlacesOfPart / size), with_threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t n = begin; n < end; ++n) {
                      const std::int64_t first = share.at(n) * size;
                      const auto count = static_cast<std::size_t>(size_of(share.at(n)));
                      planner.plan(std::span(of_order).subspan(static_cast<std::size_t>(first), count), of_epoch, first,
                                   placements.subspan(static_cast<std::size_t>(n * size), count));
                    }
                  });
}

void ImageBatchSource::Impl::plan_on_device(std::span<kernels::ImagePlacement> placements) {
  planned_epoch.reset();
  if (planned_ahead.valid()) {
    DevicePlan ahead = planned_ahead.get();
    if (ahead.epoch == epoch) {
      std::ranges::copy(ahead.placements, placements.begin());
      order = std::make_shared<const std::vector<std::int32_t>>(std::move(ahead.order));
      order_epoch = planned_epoch = epoch;
      return;
    }
  }
  find_order();
  plan_share(*order, epoch, placements, threads);
  planned_epoch = epoch;
}

/// Where the system refuses a thread, the epoch is planned when it starts.
void ImageBatchSource::Impl::plan_ahead(std::int64_t of_epoch) {
  if (planned_ahead.valid()) return;  // of an epoch that was begun more than once
  try {
    planned_ahead = std::async(std::launch::async, [this, of_epoch] {
      DevicePlan plan{.epoch = of_epoch, .order = order_of(of_epoch), .placements = {}};
      plan.placements.resize(static_cast<std::size_t>(samples_of_share()));
      plan_share(plan.order, of_epoch, plan.placements, 1);
      return plan;
    });
  } catch (const std::system_error&) {
    return;
  }
}

ImageBatchSource::ImageBatchSource(Runtime& runtime, std::shared_ptr<const SampleReader> reader, LoaderOptions options)
    : impl_(std::make_unique<Impl>(runtime, std::move(reader), nullptr, std::move(options))) {}

ImageBatchSource::ImageBatchSource(Runtime& runtime, std::shared_ptr<const Dataset> dataset, LoaderOptions options) {
  if (!options.device.meta && !dataset->has_data()) throw DataError("a data set without data serves meta devices only");
  impl_ = std::make_unique<Impl>(runtime, reader_of(dataset), dataset, std::move(options));
}

ImageBatchSource::~ImageBatchSource() = default;

std::vector<TensorFacts> ImageBatchSource::tensors() const {
  std::vector<TensorFacts> tensors = {
      {.name = std::string(kImages), .shape = finished_image(impl_->shape, impl_->facts.image_shape)}};
  for (const SampleField& target : batch_targets(impl_->options.pipeline.mix, impl_->facts)) {
    const bool names_classes = target.name == kLabels && target.dtype == DType::int32;
    const std::size_t classes = names_classes ? impl_->facts.class_names.size() : 0;
    tensors.push_back({target.name, target.shape, target.dtype, static_cast<std::int64_t>(classes)});
  }
  return tensors;
}
std::vector<std::string> ImageBatchSource::class_names() const { return impl_->facts.class_names; }
std::int64_t ImageBatchSource::batch_size() const { return impl_->options.pipeline.batch_size; }
std::int64_t ImageBatchSource::batches_per_epoch() const { return impl_->batches(); }
double ImageBatchSource::waited_seconds() const { return impl_->waited; }
std::int64_t ImageBatchSource::workers() const { return impl_->tuner.workers(); }
std::int64_t ImageBatchSource::depth() const { return impl_->tuner.depth(); }

std::vector<std::int64_t> ImageBatchSource::sample_numbers(std::int64_t epoch, std::int64_t index) {
  const std::vector<std::int32_t> order = impl_->order_of(epoch);
  const auto first = order.begin() + index * impl_->options.pipeline.batch_size;
  return {first, first + size_of(index)};
}

std::int64_t ImageBatchSource::size_of(std::int64_t index) const {
  if (index < 0 || index >= impl_->batches())
    throw Error(fmt::format("batch {} is outside an epoch of {} batches", index, impl_->batches()));
  return impl_->size_of(index);
}

void ImageBatchSource::set_share(std::int64_t first, std::int64_t count, std::int64_t of) {
  if (first < 0 || count < 1 || first + count > of)
    throw Error(fmt::format("batches {} to {} of each {}: expected some of them", first, first + count, of));
  if (impl_->device_epoch) throw Error("batches that the device makes by itself were not shared when they began");
  impl_->share = {first, count, of};
}

void ImageBatchSource::start(std::int64_t epoch, std::int64_t first_batch) {
  if (epoch < 0 || first_batch < 0 || first_batch > impl_->batches())
    throw Error(fmt::format("cannot start at batch {} of epoch {}: an epoch has {} batches", first_batch, epoch,
                            impl_->batches()));
  impl_->epoch = epoch;
  impl_->waited = 0;
  if (impl_->device_epoch) return impl_->start_on_device(first_batch);
  impl_->restart(first_batch);
  impl_->make_ahead(false);
}

bool ImageBatchSource::next(const Context& context, Batch& batch) {
  Impl& s = *impl_;
  if (context.device != s.options.device)
    throw DeviceError(fmt::format("batches are for {}, but the step runs on {}", to_string(s.options.device),
                                  to_string(context.device)));
  if (s.position() >= s.batches()) return false;
  if (s.device_epoch) {
    const std::int64_t index = s.position();
    batch = {};
    batch = s.device_epoch->next(context);
    batch.index = index;
    return true;
  }
  const DType dtype = context.precision.compute();
  if (s.dtype != dtype && s.delivery->needs_dtype()) s.restart(s.next_out);  // what was made ahead has another type
  s.dtype = dtype;
  batch = {};  // this batch may use the memory of the one before
  try {
    s.fill();
    if (s.tickets.empty()) s.make_now(context.exec.threads);
    s.await_oldest();
    s.delivery->deliver(context, batch);
  } catch (...) {
    s.restart(s.next_out);
    throw;
  }
  s.tickets.pop_front();
  batch.index = s.next_out;
  s.next_out = s.share.from(s.next_out + 1);
  s.make_ahead(true);
  return true;
}

DeviceBatches* ImageBatchSource::device_batches(const Context& context) {
  Impl& s = *impl_;
  const DeviceDataset* dataset = s.delivery->on_device();
  if (s.device_epoch || dataset == nullptr) return s.device_epoch.get();
  DeviceDataset shared = *dataset;
  shared.epoch_samples = std::max<std::int64_t>(1, s.samples_of_share());
  s.device_epoch = std::make_unique<DeviceEpoch>(*context.runtime, s.options.device, std::move(shared), s.shape,
                                                 context.precision.compute());
  const std::int64_t place = s.next_out;
  s.restart(place);  // nothing is made ahead any more
  s.start_on_device(place);
  return s.device_epoch.get();
}

}  // namespace bantam
