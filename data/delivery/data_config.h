// The `data:` section of a configuration, and the two batch sources it describes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/data/delivery/broken_samples.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/engine/step/batch_source.h"

namespace bantam {

class GpuDecoder;

/// `data.validation`: where the samples come from that a run is evaluated on while it trains.
struct ValidationOptions {
  /// Share of the training samples that is held out, chosen at random by the seed alone; 0: none is. The choice does
  /// not look at classes.
  double split = 0;
  std::optional<std::uint64_t> seed = {};             ///< seeds the choice; absent: the run's seed does
  std::shared_ptr<const SampleReader> own = nullptr;  ///< samples of another data set; null: none
  /// Whether the format's held-out samples are the validation samples. Else, and where it has test samples of their
  /// own, those are a run's test samples, which it looks at once, at its end.
  bool from_test() const { return split == 0 && own == nullptr; }
};

/// Chooses the validation samples of an evaluation and the size of its batches. Test samples share only the latter.
struct EvaluationOptions {
  std::int64_t batch_size = 0;  ///< also of the test samples; 0: that of training
  std::int64_t samples = 0;     ///< only so many, chosen as by DataOptions::limit; 0: all
  std::int64_t batches = 0;     ///< only so many batches of them; 0: all
};

/// Who decodes JPEG files.
enum class DecodeKind : std::uint8_t {
  automatic,  ///< whoever opens the data decides (decide_decoder); until then the same as cpu
  cpu,        ///< libjpeg-turbo, by the workers
  gpu         ///< nvJPEG on the step's GPU, as far as it can (GpuDecoder), and the CPU else
};

/// All that `data:` says.
///
///     data:
///       format: cifar10          # or generated, or one that the program has registered (sample_formats())
///       path: data/cifar10       # cifar10: the folder of the binary files; relative to the current folder
///       train_samples: 40000     # generated, as are test_samples and seed
///       limit: 1000              # any format: only the first so many training samples
///       verify: true             # any format: check the published SHA-256 of files, where there are some
///       validation: {split: 0.1} # any format; {from: test} without the key, or {path: …}: another data set
///       sampling: {balanced: true}  # any format: which samples an epoch has, and how many
///       decode: gpu              # JPEG files: nvJPEG decodes them
///       background: white        # image files: what shows through transparent pixels
///       range: stored            # image files: values as stored, float32
///       on_error: skip           # any format: samples that cannot be read are replaced by the next ones, and counted
///       pipeline: […]            # see read_pipeline
///       evaluation: {pipeline: […]}  # stages of validation samples that do not follow from training's
struct DataOptions {
  SampleSplits source;     ///< the splits of all samples
  std::int64_t limit = 0;  ///< first training samples, or spread ones where they are sorted by class; 0: all
  bool verify = false;
  DecodeKind decode = DecodeKind::automatic;
  bool skips_broken = false;  ///< samples that cannot be read or decoded; else the first one is an error
  ValidationOptions validation;
  PipelineOptions pipeline;
  bool cache_is_auto = false;    ///< `pipeline.cache` is what decide_cache has chosen
  EvaluationOptions evaluation;  ///< not of `data:`: whoever trains says it
  /// Likewise: called while a set ("training", "validation", "test") is read or packed, by one thread at a time. What
  /// it throws ends it.
  std::function<void(std::string_view set, std::int64_t read, std::int64_t samples)> on_read = {};
  std::string run_folder = {};  ///< likewise: where `cache: disk` puts its files, unless it names a folder
};

/// The values to which image files are decoded, beside their channels: `data.background` and `data.range`.
struct ImageValues {
  std::optional<Background> background = {};  ///< shows through transparent pixels
  bool as_stored = false;                     ///< float32 values as stored; else bytes of 0 to 255

  /// Facts of encoded images that are decoded so.
  DatasetFacts applied_to(DatasetFacts facts) const;
};
/// Reads both keys of `data`. Throws ConfigError.
ImageValues read_image_values(ConfigMap& data);

/// Reads the value of `data`. Opens no file. Throws ConfigError at the node, also where `drop_last` drops the only
/// batch. For a survey it needs no pipeline, and images need not get one size.
DataOptions read_data_config(const ConfigNode& data, StagesFor use = StagesFor::batches);
/// Whether training images have one size after their stages: else they make no batches.
bool has_one_size(const DataOptions& options);

/// Sizes, fields (images as stored, before a crop) and class names, without reading any data.
DatasetFacts train_facts(const DataOptions& options);
/// Training samples of an epoch: each one once, or what `sampling` says.
std::int64_t epoch_samples(const DataOptions& options);
DatasetFacts validation_facts(const DataOptions& options);
/// Collects what a user should read about the samples before training on them (SampleReader::notes), of all parts.
std::vector<std::string> data_notes(const DataOptions& options);
DatasetFacts test_facts(const DataOptions& options);
/// Describes training samples as batches have them, after all stages.
DatasetFacts batch_facts(const DataOptions& options);

/// One image of a batch of validation, as its stages finish it: of another size than training's where
/// `evaluation.pipeline` says so.
Shape evaluated_image(const DataOptions& options);

/// The part of a set that `cache: ram` stores: samples after the stages that belong to reading, or stored files.
struct CachedSet {
  DatasetFacts facts;
  std::uint64_t encoded_bytes = 0;  ///< bytes of files; 0 where samples are values
  std::uint64_t bytes() const { return encoded_bytes + static_cast<std::uint64_t>(facts.size) * facts.sample_bytes(); }
};
/// Lists all sets that open_data opens: training, validation, and, where that is another one, test. A share of a set's
/// files counts as the same share of their bytes.
std::vector<CachedSet> cached_sets(const DataOptions& options);

/// Host memory of the readers' own, beside any cache: decompressed files.
std::uint64_t resident_bytes(const DataOptions& options);

/// Memory for all splits together, in bytes.
struct CacheRoom {
  std::uint64_t device_bytes = 0;  ///< memory of the step's GPU; 0 on a CPU
  std::uint64_t host_bytes = 0;    ///< host memory
  std::uint64_t disk_bytes = 0;    ///< space on the disk that packed files are written to
};

/// The samples of each split as open_data reads them: with `limit`, and with the choice of a `split` by the seed; test
/// samples are null where the validation samples are the test samples.
SampleSplits open_splits(const DataOptions& options, std::uint64_t seed);

/// Decides `cache: auto`: device where the set fits there and its samples can be gathered there (one int32 target, no
/// stage of workers), else ram. Where it does not fit host memory, which `device` reads it into first, beside what
/// readers occupy: disk where a cache keeps decoded samples of image files and they fit the disk, else off. Other
/// values are not changed.
void decide_cache(DataOptions& options, const CacheRoom& room);

/// Decides `decode: auto`: cpu, whatever the device. Throws ConfigError where `gpu` does not suit the device.
void decide_decoder(DataOptions& options, Device device);

/// A run's batches. All sources share the runtime, which must outlive them.
struct OpenedData {
  std::unique_ptr<BatchSource> train;
  std::unique_ptr<BatchSource> validation;      ///< in order, without augmentation, every sample (of EvaluationOptions)
  std::unique_ptr<BatchSource> test;            ///< likewise; null where the validation samples are the test samples
  std::shared_ptr<const BrokenSamples> broken;  ///< shared by all sources; null where a broken sample is an error
  std::shared_ptr<const GpuDecoder> gpu_decoder;  ///< shared by all sources; null where the CPU decodes
  /// Who decodes image files, with all that their pixels depend on: "CPU", or GpuDecoder::name; "" where there are
  /// none.
  std::string decoder;
  /// Charges what readers keep in host memory beside the allocators (resident_bytes) to the CPU's limit: the limit is
  /// lower by as much until this is released, and then higher by as much than it is by then. A limit that is set in
  /// between is therefore one without the readers' memory. Not to be opened or closed while another thread sets it.
  std::shared_ptr<const void> readers_memory;
};

/// Checks the data set's files and makes the sources for steps on `device`, which read it now or as they go, as the
/// pipeline's `cache` says. On a meta device nothing is read and batches have no values; the same memory is allocated
/// as on the target, that of the data set on the CPU's stand-in. Throws DataError, OutOfMemory, and ConfigError where
/// `drop_last` drops the only batch or `cache` does not suit the data; also OutOfMemory where the limit of the CPU has
/// no room for what readers keep, and DeviceError with `decode: gpu` without nvJPEG.
OpenedData open_data(Runtime& runtime, DataOptions options, Device device, std::uint64_t seed);

/// Batches of `samples` as validation samples are delivered: in order, through the stages of evaluation, in its
/// batches, of which none is dropped. Whatever `cache` says, each sample is read when its batch is made, once: no set
/// lies in memory, but for what the reader keeps, which is charged as open_data does. `broken` as LoaderOptions. Throws
/// as open_data.
std::unique_ptr<BatchSource> open_evaluated(Runtime& runtime, std::shared_ptr<const SampleReader> samples,
                                            DataOptions options, Device device,
                                            std::shared_ptr<BrokenSamples> broken = nullptr);

/// Samples of an evaluation's batch.
std::int64_t evaluated_batch(const DataOptions& options);

}  // namespace bantam
