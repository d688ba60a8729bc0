// SampleReader: one split of a data set, read sample by sample. Each format implements it; so can any program, which
// registers it where `data.format` is to name it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/config.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"

BANTAM_API_BEGIN
namespace bantam {

struct MaskReading;

/// Extents in pixels; 0: not known yet.
struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// A window of an image, resampled to `size`, then mirrored or not. Within the image, and not empty.
struct Sampling {
  std::int64_t top = 0, left = 0;
  ImageSize window;
  ImageSize size;
  bool mirrored = false;  ///< left and right
};

/// A colour that shows through transparent pixels: red, green, blue.
using Background = std::array<std::uint8_t, 3>;

/// How a format stores a field.
enum class FieldEncoding : std::uint8_t {
  values,  ///< as numbers of the field's shape and type
  image,   ///< as an image file (JPEG, PNG, …) of a size of its own
  mask     ///< as an image file whose pixels are class numbers (DatasetFacts::masks), of its image's size
};

/// One field of every sample.
struct SampleField {
  std::string name = {};  ///< of the batch's tensor
  Shape shape = {};       ///< of one sample, without the batch axis; rank 0: one value. Encoded: height and width are 0
  DType dtype = DType::int32;
  FieldEncoding encoding = FieldEncoding::values;

  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
  bool operator==(const SampleField&) const = default;
};

/// The facts about a split that are known before anything is read.
struct DatasetFacts {
  std::int64_t size = 0;  ///< samples, at most 2^31 - 1
  Shape image_shape;      ///< (height, width, channels) of the field "images"; (features) where samples are vectors;
                          ///< (0, 0, channels) of encoded images, whose sizes differ
  std::vector<std::string> class_names = {};  ///< of the numbers in "labels", where that is a target of class numbers,
                                              ///< or of the values of "targets", where each is the presence of a class
  /// All fields but the images, which batches get as they are stored: class numbers, vectors, masks, …
  std::vector<SampleField> targets = {{"labels", {}, DType::int32}};

  DType image_dtype = DType::uint8;                ///< or float32: of image files their values as stored
  std::optional<std::int32_t> ignored_label = {};  ///< of masks: a number that pixels of no class have
  /// Turns the stored values of masks into class numbers. Null: the numbers are stored.
  std::shared_ptr<const MaskReading> masks = nullptr;
  /// The colour that shows through transparent pixels of image files where images have no alpha channel; nothing: the
  /// one that such pixels are stored with.
  std::optional<Background> background = {};

  /// The images, then the targets.
  std::vector<SampleField> fields() const;
  /// Bytes of one sample's fields.
  std::uint64_t sample_bytes() const;
  /// Whether the only target is one int32 a sample, as the device's own gather of batches (`cache: device`) needs it.
  bool has_int32_target() const;
  /// Whether images are files to be decoded (the field "images" is FieldEncoding::image).
  bool has_encoded_images() const { return image_shape.rank() == 3 && image_shape[0] == 0; }
};

/// Throws ShapeError for images that are neither (height, width, channels) nor (features), DTypeError where they are
/// neither uint8 nor float32, and DataError for more samples than 32-bit numbers name, and for two fields of one name.
void check_facts(const DatasetFacts& facts);

/// Files among a split's that are no samples, because of their suffix.
struct IgnoredFiles {
  std::int64_t count = 0;
  std::vector<std::string> examples;  ///< the first few
  /// Counts those that are images, of types that are not read: class (or folder) → suffix → files.
  std::map<std::string, std::map<std::string, std::int64_t>> unsupported_images = {};

  void add(std::string file) {
    constexpr std::size_t kExamples = 3;
    ++count;
    if (examples.size() < kExamples) examples.push_back(std::move(file));
  }
  /// `place`: the class or folder that images among them are of; empty: as `more` says.
  void add(const IgnoredFiles& more, const std::string& place = {}) {
    const std::int64_t together = count + more.count;
    for (const std::string& file : more.examples) add(file);
    count = together;
    for (const auto& [where, suffixes] : more.unsupported_images)
      for (const auto& [suffix, files] : suffixes) unsupported_images[place.empty() ? where : place][suffix] += files;
  }
};

/// One split of a data set. `check` and `read` may be called from any thread, several at once.
class SampleReader {
 public:
  virtual ~SampleReader() = default;
  /// Size, fields and class names. Reads no sample: it may list folders and read headers, once.
  virtual DatasetFacts facts() const = 0;
  /// Called before the first `read`, and not for plans: checks that files are there and have the right size; with
  /// `verify` also their contents, where checksums are published. Throws DataError.
  virtual void check(bool verify, int threads) const {
    (void)verify;
    (void)threads;
  }
  /// Writes sample `index` of [0, size) into the caller's buffers, one a field in the order of `facts().fields()`, each
  /// of exactly that field's bytes: an image as rows of pixels of interleaved channels. May be slow (decoding); returns
  /// the same bytes at every call. Throws DataError that names file and sample.
  /// Not called where images are encoded: then `fetch` is.
  virtual void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const = 0;
  /// Sample `index` as it is stored, a field each: files of encoded fields, values of others. By default what `read`
  /// writes. Throws DataError.
  virtual void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const;
  /// Bytes that `fetch` returns of sample `index`'s encoded fields together, without reading them: caches and plans
  /// reserve so much. 0 where no field is encoded.
  virtual std::uint64_t encoded_bytes(std::int64_t index) const {
    (void)index;
    return 0;
  }
  /// Those of all samples together.
  std::uint64_t total_encoded_bytes() const;
  /// Bytes of host memory of the reader's own that it occupies from its first `read` on (decompressed files), for
  /// plans.
  virtual std::uint64_t resident_bytes() const { return 0; }
  /// Names sample `index` in messages: its file, or its number.
  virtual std::string name_of(std::int64_t index) const;
  /// Paths of the files that sample `index` is read from, so that `cache: disk` notices when one of them has changed;
  /// by default what `name_of` says. Paths of no file are passed over.
  virtual std::vector<std::string> files_of(std::int64_t index) const { return {name_of(index)}; }
  /// The targets alone, in the order of `facts().targets` (values only: masks get an empty buffer), without decoding.
  /// By default by `fetch`.
  virtual void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const;
  /// How often each sample is drawn beside others where `sampling: {weights: true}` asks for it; finite, not negative,
  /// not all zero. Empty: the data have none.
  virtual std::vector<float> weights() const { return {}; }
  /// Whether samples stand class after class, so that the first ones are of the first class alone: `data.limit` then
  /// keeps samples that are evenly spread.
  virtual bool sorted_by_class() const { return false; }
  /// Lists files that lie among the samples' and are not read: their number, and a few of them.
  virtual IgnoredFiles ignored() const { return {}; }
  /// Sentences that a user should read before training on these samples: what was guessed, what was left out, what
  /// looks wrong. May read the samples.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Numbers of groups of samples that are not to be separated where a share is held out (a patient's photographs), one
  /// a sample. Empty: each sample stands for itself.
  virtual std::vector<std::int32_t> groups() const { return {}; }
  /// Only `samples` of these remain for training: what the reader computes of training samples (csv: means) it computes
  /// of them from now on. Called before samples are read, not beside reads. By default there is nothing to compute.
  virtual void fit_to(std::span<const std::int32_t> samples) const { (void)samples; }
  /// Keys of the format whose values the training samples decide, with those values in YAML's flow style (of csv
  /// "features", "[a, b]"): a new run's configuration gets them, so that other samples are read as these are. Asked of
  /// training samples; may read them.
  virtual std::vector<std::pair<std::string, std::string>> decided_keys() const { return {}; }
  /// Another data set's samples, read as these training samples are (csv: the same features in the same order, less the
  /// same means); by default `other` itself. Throws ConfigError where the keys of `other` say otherwise.
  virtual std::shared_ptr<const SampleReader> read_alike(std::shared_ptr<const SampleReader> other) const {
    return other;
  }

 protected:
  /// `facts().fields()`, asked for each sample that `fetch_by_reading` reads. Readers whose facts are costly, for they
  /// have the names of all classes, return it without them.
  virtual std::vector<SampleField> fields() const { return facts().fields(); }
  /// These are the defaults: `fetch` by a call of `read`, and `read_targets` by a call of `fetch`.
  void fetch_by_reading(std::int64_t index, std::span<std::vector<std::byte>> fields) const;
  void targets_by_fetching(std::int64_t index, std::span<const std::span<std::byte>> targets) const;
};

/// A reader of another's samples: every call goes on to it, but for those that a derived class overrides.
class WrappedReader : public SampleReader {
 public:
  explicit WrappedReader(std::shared_ptr<const SampleReader> inner) : inner_(std::move(inner)) {}

  DatasetFacts facts() const override { return inner().facts(); }
  void check(bool verify, int threads) const override { inner().check(verify, threads); }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    inner().read(number(index), fields);
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    inner().fetch(number(index), fields);
  }
  std::uint64_t encoded_bytes(std::int64_t index) const override { return inner().encoded_bytes(number(index)); }
  std::uint64_t resident_bytes() const override { return inner().resident_bytes(); }
  std::string name_of(std::int64_t index) const override { return inner().name_of(number(index)); }
  std::vector<std::string> files_of(std::int64_t index) const override { return inner().files_of(number(index)); }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    inner().read_targets(number(index), targets);
  }
  std::vector<float> weights() const override { return inner().weights(); }
  bool sorted_by_class() const override { return inner().sorted_by_class(); }
  IgnoredFiles ignored() const override { return inner().ignored(); }
  std::vector<std::string> notes() const override { return inner().notes(); }
  std::vector<std::int32_t> groups() const override { return inner().groups(); }
  void fit_to(std::span<const std::int32_t> samples) const override;
  std::vector<std::pair<std::string, std::string>> decided_keys() const override { return inner().decided_keys(); }
  std::shared_ptr<const SampleReader> read_alike(std::shared_ptr<const SampleReader> other) const override {
    return inner().read_alike(std::move(other));
  }

 protected:
  WrappedReader() = default;
  /// The other reader; a class that has none from the beginning overrides it.
  virtual const SampleReader& inner() const { return *inner_; }
  /// The other reader's number of sample `index`.
  virtual std::int64_t number(std::int64_t index) const { return index; }

 private:
  std::shared_ptr<const SampleReader> inner_;
};

/// The splits of a data set.
struct SampleSplits {
  std::shared_ptr<const SampleReader> train = nullptr;
  /// Held-out samples; the test samples, too, where `test` is null.
  std::shared_ptr<const SampleReader> validation = nullptr;
  std::shared_ptr<const SampleReader> test = nullptr;
  /// Whether the key `data.validation` is the format's own where it is text (a folder's or a file's name).
  bool names_validation = false;
  std::shared_ptr<const SampleReader> whole = nullptr;  ///< all samples, where a share of them was split off
};

/// The first `samples` of a reader (all, where it has no more).
std::shared_ptr<const SampleReader> first_samples(std::shared_ptr<const SampleReader> reader, std::int64_t samples);

/// Samples `chosen` of a reader, in that order; sample i of the result is sample chosen[i].
std::shared_ptr<const SampleReader> chosen_samples(std::shared_ptr<const SampleReader> reader,
                                                   std::vector<std::int32_t> chosen);

/// Reads a format's own keys of `data:` and returns readers of both splits; opens no file. Keys of all formats
/// (`limit`, `verify`, `pipeline`) are read by the caller, who also refuses the keys that nobody asked for.
using SampleFormat = std::function<SampleSplits(ConfigMap& data)>;

/// The table. The built-in formats are those that data/CMakeLists.txt lists. A program adds one before it reads a
/// configuration that names it:
///
///     sample_formats().add("my_format", [](ConfigMap& data) { return open_mine(data.text("path")); });
Registry<SampleFormat>& sample_formats();

}  // namespace bantam
BANTAM_API_END
