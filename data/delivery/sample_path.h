// Internal: SamplePath: one sample from its reader, decoded and through stages of region and host form, into buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bantam/data/augment/augmentation.h"
#include "bantam/data/delivery/broken_samples.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/images/gpu_decoder.h"

namespace bantam {

/// A sample on its way whose stored fields were fetched before, so that its image could be decoded together with
/// others.
struct FetchedSample {
  std::vector<std::vector<std::byte>> fields;
  bool is_fetched = false;  ///< else it could not be
  StoredRgb image;          ///< without pixels: to be decoded by the CPU
};

/// When a sample is read: the epoch, and how many times that has had the sample before.
struct SampleTime {
  std::int64_t epoch = 0;
  std::int64_t pass = 0;

  /// Keys the random numbers of stages, so that they are other ones each time; the epoch's own number the first time.
  std::int64_t random_key() const {
    constexpr int kPassBits = 32;  // above those of epochs
    return epoch + (pass << kPassBits);
  }
};

/// Reads samples through stages. Values depend on (reader, stages, seed, time, sample) only. Thread-safe; each thread
/// keeps the images it works on, so that no sample after the first few allocates memory.
class SamplePath {
 public:
  /// Stages that turn the reader's images into those of `shape`; `decoder` decodes JPEG files as far as it can, null:
  /// the CPU does.
  struct Stages {
    Augmentations stages;
    Shape shape;
    std::uint64_t seed = 0;
    std::shared_ptr<GpuDecoder> decoder = nullptr;
  };

  /// `broken`: a sample that throws DataError is counted there and the next one that can be read comes in its place;
  /// null: the error is thrown.
  SamplePath(std::shared_ptr<const SampleReader> reader, Stages stages, std::shared_ptr<BrokenSamples> broken);

  /// The fields that `read` writes: images of the final shape and pixel targets that follow them.
  const std::vector<SampleField>& fields() const { return fields_; }
  const DatasetFacts& facts() const { return facts_; }
  /// Whether a sample needs time enough for threads to share a batch of a few: it is decoded or resampled, or its
  /// stages change pixels.
  bool is_slow() const { return !straight_ || !stages_.stages.empty(); }
  /// Writes sample `index`, one buffer a field. Throws DataError, and what reader and stages throw.
  void read(std::int64_t index, SampleTime time, std::span<const std::span<std::byte>> fields) const;

  /// Returns the decoder that decodes several samples' images together; null: each is decoded as it is read.
  GpuDecoder* decoder() const { return fetches_ && decodes_ ? stages_.decoder.get() : nullptr; }
  /// Throws nothing for a sample that cannot be fetched: `read` does.
  void fetch(std::int64_t index, FetchedSample& sample) const;
  /// The same as `read` of a sample that was fetched, and perhaps decoded. False, with nothing promised of `fields`,
  /// where `read` is to find out what is wrong with it, or to replace it.
  bool read_fetched(std::int64_t index, SampleTime time, FetchedSample& sample,
                    std::span<const std::span<std::byte>> fields) const;

 private:
  struct Work;
  /// Random numbers are those of `index` where another sample is read in its place, so that they do not depend on
  /// whether a cache or this path has replaced it.
  struct Place {
    std::int64_t stored, index;
    SampleTime time;
  };
  void read_one(const Place& place, std::span<const std::span<std::byte>> fields, FetchedSample* fetched) const;
  void read_straight(const Place& place, std::span<const std::span<std::byte>> fields) const;
  std::size_t begin(Work& work) const;
  std::size_t decode(Work& work) const;
  std::size_t decode(Work& work, const StoredRgb& decoded) const;
  void read_values(Work& work) const;
  SampleVisit visit_of(const Place& place) const;
  PhiloxSequence random_of(const Augmentation& stage, const Place& place) const;
  void take_region(Work& work, const Augmentation& stage) const;
  void apply(Work& work, const Augmentation& stage) const;
  void finish(const Work& work) const;

  std::shared_ptr<const SampleReader> reader_;
  Stages stages_;
  std::shared_ptr<BrokenSamples> broken_;
  DatasetFacts facts_;
  std::vector<SampleField> stored_;  ///< as the reader has them
  std::vector<SampleField> fields_;
  std::vector<bool> moves_;  ///< a field: images and pixel targets
  bool fetches_ = false;     ///< some field is encoded
  bool decodes_ = false;     ///< the images are
  PixelForm form_{3};        ///< that they are decoded to
  bool straight_ = false;    ///< the reader writes into the buffers, which stages change in place
};

/// A reader whose samples are those of another after `stages` without chance, decoded: images of `shape`, all fields
/// as values.
std::shared_ptr<const SampleReader> read_through(std::shared_ptr<const SampleReader> reader, SamplePath::Stages stages,
                                                 std::shared_ptr<BrokenSamples> broken);

}  // namespace bantam
