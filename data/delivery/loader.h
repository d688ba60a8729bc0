// ImageBatchSource: batches of a data set, made ahead by worker threads and ready on the step's device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bantam/data/delivery/broken_samples.h"
#include "bantam/data/formats/dataset.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/step/batch_source.h"

namespace bantam {

class GpuDecoder;

/// Moments at which a test may let the loader fail.
enum class LoaderEvent : std::uint8_t {
  grow,    ///< before worker threads are looked for
  submit,  ///< before a prepared batch is handed to them
  work     ///< in a worker, before it makes a batch
};

struct LoaderOptions {
  PipelineOptions pipeline;
  Device device;                           ///< where batches go; contexts given to `next` must be of it
  std::uint64_t seed = 0;                  ///< seeds shuffling (unless the stage has its own) and augmentation
  std::filesystem::path packed_file = {};  ///< the file that `cache: disk` packs samples into
  /// Where samples that cannot be read are counted, each replaced by the next one that can; null: the first such sample
  /// is an error.
  std::shared_ptr<BrokenSamples> broken = nullptr;
  /// Decodes JPEG files, as far as it can; null: the CPU decodes them. It is on `device`, or on the CPU for tests.
  std::shared_ptr<GpuDecoder> decoder = nullptr;
  /// While the split is read or packed.
  OnSamplesRead on_read = {};
  /// Use a GPU's path (a ring of host buffers, staging memory, one kernel on the step's stream) on the CPU too. For
  /// tests.
  bool staged_on_cpu = false;
  /// Called at each event, `work` from several threads at once; what it throws counts as a failure there. For tests.
  std::function<void(LoaderEvent)> probe = {};
};

/// Batches of a data set through a pipeline.
///
/// On the CPU, workers make finished batches. For a GPU, workers gather stored samples and choices of crop and flip
/// into page-locked buffers; a stream of its own copies them into one of two staging buffers while the step works, and
/// one kernel on the step's stream makes the batch. With `cache: device` the data set lies on the GPU and only the
/// choices are copied. With `cache: disk` and `off` workers read each sample from the packed file or its format as a
/// batch needs it. The host waits for the device only when every buffer of the ring is still being copied. On a meta
/// device batches have shapes and allocate memory as on their target, but have no values.
///
/// A batch depends on (data set, pipeline, seed, epoch, index) only: not on the cache, workers, depth, or where an
/// epoch was started. Used by one thread at a time. `next` rethrows an exception of a worker and may then be called
/// again. Where the system refuses more threads, the loader uses those it has, or makes batches in `next`.
///
/// An explicit `depth` costs depth × batch bytes of host memory on the CPU: that many finished batches lie ready.
class ImageBatchSource : public BatchSource {
 public:
  /// Reads the whole split now, in parallel (with `cache: disk` only where its packed file is not there yet), unless
  /// `cache` is off or `device` a meta device, where nothing is read.
  /// The runtime must outlive the source. Throws ShapeError and ConfigError for options that do not fit the data set,
  /// DataError for an empty one and what the reader throws, and OutOfMemory.
  ImageBatchSource(Runtime& runtime, std::shared_ptr<const SampleReader> reader, LoaderOptions options);
  /// Serves samples that are in memory already; `cache: off` then reads them from there one by one.
  ImageBatchSource(Runtime& runtime, std::shared_ptr<const Dataset> dataset, LoaderOptions options);
  ~ImageBatchSource() override;

  std::vector<TensorFacts> tensors() const override;
  std::vector<std::string> class_names() const override;
  std::int64_t batch_size() const override;
  std::int64_t batches_per_epoch() const override;
  std::int64_t size_of(std::int64_t index) const override;
  std::vector<std::int64_t> sample_numbers(std::int64_t epoch, std::int64_t index) override;
  /// Reads the share's batches only. device_batches has those then, and must not have been called before.
  void set_share(std::int64_t first, std::int64_t count, std::int64_t of) override;
  /// Also begins to make the first batches, where their type is known. Without a call, epoch 0 starts at its beginning.
  /// Throws Error for a place outside the epoch.
  void start(std::int64_t epoch, std::int64_t first_batch = 0) override;
  bool next(const Context& context, Batch& batch) override;
  /// With `cache: device`, which throws ConfigError above where targets are not one int32 a sample, or an augmentation
  /// is of host form.
  DeviceBatches* device_batches(const Context& context) override;
  /// Seconds since `start` in which the host waited for a batch to be made. On a GPU that is not the device's idle
  /// time: the host queues steps ahead, at most three batches of them, and it is the loader that holds it back there.
  double waited_seconds() const override;

  /// Worker threads and batches made ahead at present (they change where they are `auto`).
  std::int64_t workers() const;
  std::int64_t depth() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
