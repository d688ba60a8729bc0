// A sample's images lie in two sets of buffers in turn: a region stage reads one and writes the other.
#include "bantam/data/delivery/sample_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/data/images/decode.h"
#include "bantam/data/images/resample.h"
#include "bantam/data/pipeline/stage_forms.h"

namespace bantam {
namespace {

/// Buffers that a thread keeps from one sample to the next, so that it need not allocate them for each.
struct SampleScratch {
  std::vector<std::vector<std::byte>> stored;  ///< fetched fields
  std::vector<Image> now, next;                ///< a field each; those of fields that do not move stay empty
  Image decoded;
  std::vector<std::span<std::byte>> spans;
  std::vector<SampleField> fields;
};

/// A scratch of the calling thread; another one for a reader that reads through a path itself.
class BorrowedScratch {
 public:
  BorrowedScratch() {
    if (free().empty()) free().push_back(std::make_unique<SampleScratch>());
    scratch_ = std::move(free().back());
    free().pop_back();
  }
  ~BorrowedScratch() { free().push_back(std::move(scratch_)); }
  BorrowedScratch(const BorrowedScratch&) = delete;
  BorrowedScratch& operator=(const BorrowedScratch&) = delete;
  SampleScratch& operator*() const { return *scratch_; }

 private:
  static std::vector<std::unique_ptr<SampleScratch>>& free() {
    thread_local std::vector<std::unique_ptr<SampleScratch>> scratches;
    return scratches;
  }
  std::unique_ptr<SampleScratch> scratch_;
};

/// Bytes of a pixel: what a pixel target has in all axes after the first two.
std::int64_t pixel_bytes(const SampleField& field) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(field.dtype));
  for (int axis = 2; axis < field.shape.rank(); ++axis) bytes *= field.shape[axis];
  return bytes;
}

/// Class numbers as the target's type.
void widen(Image& mask, const SampleField& field) {
  const std::size_t count = mask.pixels.size(), bytes = size_of(field.dtype);
  mask.channels = static_cast<std::int64_t>(bytes);
  mask.pixels.resize(count * bytes);
  // From the end: each number is read before it is written over.
  for (std::size_t i = count; i > 0; --i) {
    const std::uint8_t number = mask.pixels[i - 1];
    std::memset(&mask.pixels[(i - 1) * bytes], 0, bytes);
    mask.pixels[(i - 1) * bytes] = number;
  }
}

bool changes_nothing(const Sampling& sampling, ImageSize size) {
  return sampling.top == 0 && sampling.left == 0 && sampling.window == size && sampling.size == size &&
         !sampling.mirrored;
}

std::string text_of(ImageSize size) { return fmt::format("{}x{}", size.height, size.width); }

/// The call, whose errors name the sample.
template <class Call>
auto named_by(const SampleReader& reader, std::int64_t sample, const Call& call) {
  try {
    return call();
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", printable_line(reader.name_of(sample)), error.what()));
  }
}

/// Asks the stage for its region of an image of `size`. An image that does not suit it, or that would become too large,
/// is an error of the sample.
Sampling sampling_of(const Augmentation& stage, const SampleVisit& visit, PhiloxSequence random, ImageSize size) {
  Sampling sampling;
  try {
    sampling = stage.region_at(visit, size, random);
  } catch (const ShapeError& error) {
    throw DataError(error.what());
  }
  const ImageSize made = sampling.size;
  if (made.height < 1 || made.width < 1 ||
      static_cast<std::uint64_t>(made.height) > kMostPixels / static_cast<std::uint64_t>(made.width))
    throw DataError(fmt::format("{} makes {} of an image of {}, at most 2^28 pixels are supported", stage.name(),
                                text_of(made), text_of(size)));
  return sampling;
}

}  // namespace

struct SamplePath::Work {
  Place place;
  std::span<const std::span<std::byte>> out;
  SampleScratch& scratch;
  FetchedSample* fetched = nullptr;  ///< the sample, where it was fetched before
};

SamplePath::SamplePath(std::shared_ptr<const SampleReader> reader, Stages stages, std::shared_ptr<BrokenSamples> broken)
    : reader_(std::move(reader)), stages_(std::move(stages)), broken_(std::move(broken)) {
  const DatasetFacts stored = reader_->facts();
  stored_ = stored.fields();
  facts_ = with_image_shape(stored, stages_.shape);
  fields_ = facts_.fields();
  moves_.push_back(stored.image_shape.rank() == 3);
  for (const SampleField& target : stored.targets) moves_.push_back(is_pixel_target(target, stored.image_shape));
  fetches_ = std::ranges::any_of(stored_, [](const SampleField& f) { return f.encoding != FieldEncoding::values; });
  decodes_ = stored_[0].encoding == FieldEncoding::image;
  if (decodes_) form_ = PixelForm(stored);
  straight_ = !fetches_ && std::ranges::none_of(stages_.stages, [](const auto& s) { return s->has_region_form(); });
  for (std::size_t f = 0; f < stored_.size(); ++f) {
    const bool one_byte = stored_[f].dtype == DType::uint8 || stored_[f].dtype == DType::int32;
    if (stored_[f].encoding == FieldEncoding::mask && !one_byte)
      throw DTypeError(
          fmt::format("'{}' is {}: masks are uint8 or int32", stored_[f].name, to_string(stored_[f].dtype)));
  }
}

void SamplePath::read(std::int64_t index, SampleTime time, std::span<const std::span<std::byte>> fields) const {
  if (broken_ == nullptr) return read_one({index, index, time}, fields, nullptr);
  std::string first;
  for (std::int64_t tried = 0; tried < facts_.size; ++tried) {
    const std::int64_t stored = (index + tried) % facts_.size;
    try {
      return read_one({stored, index, time}, fields, nullptr);
    } catch (const DataError& error) {
      broken_->add(reader_.get(), stored, {reader_->name_of(stored), error.what()});
      if (broken_->place() == BrokenSamples::Place::zeros) {
        for (const std::span<std::byte> field : fields) std::ranges::fill(field, std::byte{0});
        return;
      }
      if (first.empty()) first = error.what();
    }
  }
  throw DataError(fmt::format("none of {} can be read; the first: {}", counted(facts_.size, "sample"), first));
}

void SamplePath::fetch(std::int64_t index, FetchedSample& sample) const {
  sample.image = {};
  sample.fields.resize(stored_.size());
  sample.is_fetched = true;
  try {
    reader_->fetch(index, sample.fields);
  } catch (const DataError&) {
    sample.is_fetched = false;
  }
}

bool SamplePath::read_fetched(std::int64_t index, SampleTime time, FetchedSample& sample,
                              std::span<const std::span<std::byte>> fields) const {
  if (!sample.is_fetched) return false;
  try {
    read_one({index, index, time}, fields, &sample);
  } catch (const DataError&) {
    return false;
  }
  return true;
}

void SamplePath::read_one(const Place& place, std::span<const std::span<std::byte>> fields,
                          FetchedSample* fetched) const {
  if (straight_) return read_straight(place, fields);
  const BorrowedScratch scratch;
  Work work{place, fields, *scratch, fetched};
  (*scratch).now.resize(stored_.size());
  (*scratch).next.resize(stored_.size());
  for (std::size_t i = begin(work); i < stages_.stages.size(); ++i) {
    const Augmentation& stage = *stages_.stages[i];
    if (stage.has_region_form())
      take_region(work, stage);
    else
      apply(work, stage);
  }
  finish(work);
}

void SamplePath::read_straight(const Place& place, std::span<const std::span<std::byte>> fields) const {
  reader_->read(place.stored, fields);
  AugmentedSample sample{.fields = fields_, .buffers = fields, .index = place.index, .epoch = place.time.epoch};
  for (const auto& stage : stages_.stages) {
    PhiloxSequence random = random_of(*stage, place);
    stage->apply(sample, random);
  }
}

/// Images and pixel targets into `now`, other fields to where they go; returns how many stages that included.
std::size_t SamplePath::begin(Work& work) const {
  if (!fetches_) {
    read_values(work);
    return 0;
  }
  std::vector<std::vector<std::byte>>& stored = work.scratch.stored;
  if (work.fetched != nullptr) {
    stored.swap(work.fetched->fields);  // what it gets is fetched into for a later sample
  } else {
    stored.resize(stored_.size());
    reader_->fetch(work.place.stored, stored);
  }
  if (std::ranges::all_of(stored, &std::vector<std::byte>::empty))  // fetched_or_empty's
    throw DataError(fmt::format("{}: could not be read when the cache was filled",
                                printable_line(reader_->name_of(work.place.stored))));
  for (std::size_t f = 0; f < stored_.size(); ++f) {
    if (stored_[f].encoding != FieldEncoding::values) continue;
    std::uint8_t* to = reinterpret_cast<std::uint8_t*>(work.out[f].data());
    if (moves_[f]) {
      Image& image = work.scratch.now[f];
      image.reshape({stored_[f].shape[0], stored_[f].shape[1]}, pixel_bytes(stored_[f]));
      to = image.pixels.data();
    }
    if (stored[f].size() != stored_[f].bytes())
      throw DataError(fmt::format("{}: '{}' has {} bytes, expected {}",
                                  printable_line(reader_->name_of(work.place.stored)), stored_[f].name,
                                  stored[f].size(), stored_[f].bytes()));
    if (!stored[f].empty()) std::memcpy(to, stored[f].data(), stored[f].size());
  }
  return named_by(*reader_, work.place.stored, [&] { return decode(work); });
}

/// All fields as the reader has them, which are values.
void SamplePath::read_values(Work& work) const {
  std::vector<std::span<std::byte>>& row = work.scratch.spans;
  row.assign(work.out.begin(), work.out.end());
  for (std::size_t f = 0; f < stored_.size(); ++f) {
    if (!moves_[f]) continue;
    Image& image = work.scratch.now[f];
    image.reshape({stored_[f].shape[0], stored_[f].shape[1]}, pixel_bytes(stored_[f]));
    row[f] = std::as_writable_bytes(std::span(image.pixels));
  }
  reader_->read(work.place.stored, row);
}

/// Files into `now`, the image by the GPU where it can.
std::size_t SamplePath::decode(Work& work) const {
  if (work.fetched != nullptr || decoder() == nullptr)
    return decode(work, work.fetched != nullptr ? work.fetched->image : StoredRgb());
  GpuDecoder::Batch batch(*decoder());
  const std::span<const std::byte> file = work.scratch.stored[0];
  return decode(work, batch.decode({&file, 1})[0]);
}

/// `decoded`: the image's pixels, where it has some. The first stage's window, where it has one, is decoded alone.
std::size_t SamplePath::decode(Work& work, const StoredRgb& decoded) const {
  SampleScratch& s = work.scratch;
  const bool encoded = decodes_, by_gpu = decoded.pixels != nullptr;
  const ImageSize size = by_gpu    ? decoded.upright_size()
                         : encoded ? read_image_header(s.stored[0]).size
                                   : s.now[0].size;
  const Augmentation* first = encoded && !stages_.stages.empty() ? stages_.stages[0].get() : nullptr;
  Sampling whole{.window = size, .size = size};
  const bool window = first != nullptr && first->has_region_form();
  if (window) {
    whole = sampling_of(*first, visit_of(work.place), random_of(*first, work.place), size);
    if (by_gpu)
      decode_sampled(decoded, form_, whole, s.decoded, s.now[0]);
    else
      decode_sampled(s.stored[0], form_, whole, s.decoded, s.now[0]);
  } else if (by_gpu) {
    decode_image(decoded, form_, s.now[0]);
  } else if (encoded) {
    decode_image(s.stored[0], form_, s.now[0]);
  }
  for (std::size_t f = 1; f < stored_.size(); ++f) {
    if (stored_[f].encoding == FieldEncoding::mask) {
      decode_mask(s.stored[f], facts_, stored_[f].name, s.decoded);
      fit_mask(s.decoded, size, facts_, stored_[f].name);
      resample(s.decoded, whole, Interpolation::nearest, s.now[f]);
      widen(s.now[f], stored_[f]);
    } else if (window && moves_[f]) {
      resample(s.now[f], whole, Interpolation::nearest, s.next[f]);
      std::swap(s.now[f], s.next[f]);
    }
  }
  return window ? 1 : 0;
}

SampleVisit SamplePath::visit_of(const Place& place) const {
  return {.seed = stages_.seed, .epoch = place.time.epoch, .sample = place.index};
}

PhiloxSequence SamplePath::random_of(const Augmentation& stage, const Place& place) const {
  return stage_random(stage, stages_.seed, place.time.random_key(), place.index);
}

void SamplePath::take_region(Work& work, const Augmentation& stage) const {
  SampleScratch& s = work.scratch;
  const Sampling sampling = named_by(*reader_, work.place.stored, [&] {
    return sampling_of(stage, visit_of(work.place), random_of(stage, work.place), s.now[0].size);
  });
  if (changes_nothing(sampling, s.now[0].size)) return;
  for (std::size_t f = 0; f < stored_.size(); ++f) {
    if (!moves_[f]) continue;
    if (f == 0 && stored_[0].dtype == DType::float32)
      resample_values(s.now[f], sampling, s.next[f]);
    else
      resample(s.now[f], sampling, f == 0 ? Interpolation::bilinear : Interpolation::nearest, s.next[f]);
    std::swap(s.now[f], s.next[f]);
  }
}

/// The host form, of fields of the sizes they have by now.
void SamplePath::apply(Work& work, const Augmentation& stage) const {
  SampleScratch& s = work.scratch;
  s.fields = fields_;
  s.spans.assign(work.out.begin(), work.out.end());
  for (std::size_t f = 0; f < stored_.size(); ++f) {
    if (!moves_[f]) continue;
    s.fields[f].shape = s.fields[f].shape.with(0, s.now[f].size.height).with(1, s.now[f].size.width);
    s.spans[f] = std::as_writable_bytes(std::span(s.now[f].pixels));
  }
  AugmentedSample sample{
      .fields = s.fields, .buffers = s.spans, .index = work.place.index, .epoch = work.place.time.epoch};
  PhiloxSequence random = random_of(stage, work.place);
  stage.apply(sample, random);
}

void SamplePath::finish(const Work& work) const {
  for (std::size_t f = 0; f < stored_.size(); ++f) {
    if (!moves_[f]) continue;
    const Image& image = work.scratch.now[f];
    if (image.pixels.size() != work.out[f].size() || image.size.height != fields_[f].shape[0])
      throw DataError(fmt::format("{}: '{}' is {} after the pipeline's stages, expected {}",
                                  printable_line(reader_->name_of(work.place.stored)), fields_[f].name,
                                  text_of(image.size), to_string(fields_[f].shape)));
    std::memcpy(work.out[f].data(), image.pixels.data(), image.pixels.size());
  }
}

namespace {

/// Samples are values, whatever the other reader has stored.
class ReadThrough : public WrappedReader {
 public:
  ReadThrough(const std::shared_ptr<const SampleReader>& reader, SamplePath::Stages stages,
              std::shared_ptr<BrokenSamples> broken)
      : WrappedReader(reader),
        path_(reader, std::move(stages), std::move(broken)),
        has_stored_targets_(path_.facts().targets == reader->facts().targets) {}

  DatasetFacts facts() const override { return path_.facts(); }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    path_.read(index, {}, fields);
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    fetch_by_reading(index, fields);
  }
  std::uint64_t encoded_bytes(std::int64_t) const override { return 0; }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    if (has_stored_targets_)
      WrappedReader::read_targets(index, targets);
    else
      targets_by_fetching(index, targets);
  }

 private:
  SamplePath path_;
  bool has_stored_targets_;
};

}  // namespace

std::shared_ptr<const SampleReader> read_through(std::shared_ptr<const SampleReader> reader, SamplePath::Stages stages,
                                                 std::shared_ptr<BrokenSamples> broken) {
  return std::make_shared<ReadThrough>(reader, std::move(stages), std::move(broken));
}

}  // namespace bantam
