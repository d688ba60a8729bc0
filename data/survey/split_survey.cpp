// Ranges of samples in parallel, each with sums of its own, which are added in order.
#include "bantam/data/survey/split_survey.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/data/images/decode.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {
namespace {

constexpr std::int64_t kGrain = 32;

/// Sums of one channel.
struct Sums {
  double values = 0, squares = 0;
  double least = std::numeric_limits<double>::infinity(), most = -least;

  void add(const Sums& other) {
    values += other.values;
    squares += other.squares;
    least = std::min(least, other.least);
    most = std::max(most, other.most);
  }
};

/// The results for one range of samples, which are added up to the survey.
struct Part {
  std::vector<std::int64_t> counts;
  std::vector<ImageSize> sizes;
  std::map<std::int64_t, std::int64_t> stored_channels;
  std::map<std::string, std::int64_t> types;
  std::int64_t turned = 0, wide = 0;
  float wide_most = 0;
  std::vector<Sums> channels;
  double pixels = 0;
  std::vector<BrokenSample> broken;
};

void count(std::vector<std::int64_t>& counts, std::int64_t label) {
  constexpr std::int64_t kMostClasses = 1 << 20;  // beyond: no class numbers
  if (label < 0 || label >= kMostClasses) return;
  if (static_cast<std::size_t>(label) >= counts.size()) counts.resize(static_cast<std::size_t>(label) + 1);
  ++counts[static_cast<std::size_t>(label)];
}

template <class T>
T at(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// The target that classes are counted of: class numbers, or several labels a sample, one value a class.
int class_target(const DatasetFacts& facts) {
  for (std::size_t t = 0; t < facts.targets.size(); ++t) {
    const SampleField& field = facts.targets[t];
    if (field.encoding == FieldEncoding::mask || field.dtype == DType::int32) return static_cast<int>(t);
    const auto classes = static_cast<std::int64_t>(facts.class_names.size());
    if (field.dtype == DType::float32 && classes > 0 && field.shape == Shape{classes}) return static_cast<int>(t);
  }
  return -1;
}

void count_target(const SampleField& field, std::span<const std::byte> bytes, std::vector<std::int64_t>& counts) {
  const auto values = static_cast<std::size_t>(field.shape.elements());
  for (std::size_t i = 0; i < values; ++i) {
    if (field.dtype == DType::int32)
      count(counts, at<std::int32_t>(bytes, i));
    else if (at<float>(bytes, i) > 0.5f)
      count(counts, static_cast<std::int64_t>(i));
  }
}

template <class T>
void add_pixels(std::span<const T> pixels, std::vector<Sums>& channels) {
  const std::size_t count = channels.size();
  for (std::size_t c = 0; c < count; ++c) {
    Sums sums;
    for (std::size_t i = c; i < pixels.size(); i += count) {
      const double value = pixels[i];
      sums.values += value;
      sums.squares += value * value;
      sums.least = std::min(sums.least, value);
      sums.most = std::max(sums.most, value);
    }
    channels[c].add(sums);
  }
}

/// Reads samples one after the other into buffers of its own.
class Reading {
 public:
  Reading(const SampleReader& reader, const DatasetFacts& facts)
      : reader_(reader),
        facts_(facts),
        fields_(facts.fields()),
        class_target_(class_target(facts)),
        stored_(fields_.size()) {}

  void count_targets(std::int64_t index, Part& part) {
    if (class_target_ < 0 || facts_.targets[static_cast<std::size_t>(class_target_)].encoding == FieldEncoding::mask)
      return;
    const auto target = static_cast<std::size_t>(class_target_);
    std::vector<std::vector<std::byte>> values(facts_.targets.size());
    std::vector<std::span<std::byte>> buffers(values.size());
    values[target].resize(facts_.targets[target].bytes());
    for (std::size_t t = 0; t < values.size(); ++t)
      if (facts_.targets[t].encoding == FieldEncoding::values) {
        values[t].resize(facts_.targets[t].bytes());
        buffers[t] = values[t];
      }
    reader_.read_targets(index, buffers);
    count_target(facts_.targets[target], values[target], part.counts);
  }

  void read_image(std::int64_t index, Part& part) {
    reader_.fetch(index, stored_);
    const std::int64_t channels = facts_.image_shape[facts_.image_shape.rank() - 1];
    part.channels.resize(static_cast<std::size_t>(channels));
    if (facts_.has_encoded_images()) {
      const ImageHeader header = read_image_header(stored_[0]);
      decode_image(stored_[0], PixelForm(facts_), image_);
      add_masks(part);
      ++part.stored_channels[header.channels];
      ++part.types[std::string(to_string(header.type))];
      part.turned += header.orientation != 1 ? 1 : 0;
      if (header.bits == 16) add_wide(part);
      if (facts_.image_dtype == DType::float32)
        add(values_of(image_), image_.size, part);
      else
        add(std::span<const std::uint8_t>(image_.pixels), image_.size, part);
      return;
    }
    const bool rows = facts_.image_shape.rank() == 3;
    const ImageSize size = rows ? ImageSize{facts_.image_shape[0], facts_.image_shape[1]} : ImageSize{1, 1};
    const std::vector<std::byte>& bytes = stored_[0];
    if (facts_.image_dtype == DType::float32)
      add(std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)), size, part);
    else
      add(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), size, part);
  }

 private:
  static std::span<const float> values_of(const Image& image) {
    return {reinterpret_cast<const float*>(image.pixels.data()), image.pixels.size() / sizeof(float)};
  }
  /// The greatest value of a colour; alpha is full wherever nothing is transparent.
  void add_wide(Part& part) {
    PixelForm form(3);
    form.as_stored = true;
    decode_image(stored_[0], form, wide_);
    for (const float value : values_of(wide_)) part.wide_most = std::max(part.wide_most, value);
    ++part.wide;
  }
  template <class T>
  void add(std::span<const T> pixels, ImageSize size, Part& part) {
    add_pixels(pixels, part.channels);
    part.pixels += static_cast<double>(size.height) * static_cast<double>(size.width);
    part.sizes.push_back(size);
  }

  void add_masks(Part& part) {
    for (std::size_t t = 0; t < facts_.targets.size(); ++t) {
      if (facts_.targets[t].encoding != FieldEncoding::mask) continue;
      decode_mask(stored_[t + 1], facts_, facts_.targets[t].name, mask_);
      fit_mask(mask_, image_.size, facts_, facts_.targets[t].name);
      if (static_cast<int>(t) != class_target_) continue;
      for (const std::uint8_t label : mask_.pixels)
        if (facts_.ignored_label != static_cast<std::int32_t>(label)) count(part.counts, label);
    }
  }

  const SampleReader& reader_;
  const DatasetFacts& facts_;
  const std::vector<SampleField> fields_;
  const int class_target_;
  std::vector<std::vector<std::byte>> stored_;
  Image image_, mask_, wide_;
};

/// Chooses samples that are spread evenly: the order in which they are stored, by class often, does not matter then.
std::vector<std::int64_t> spread(std::int64_t size, std::int64_t wanted) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < wanted; ++i) chosen.push_back(i * size / wanted);
  return chosen;
}

std::int64_t images_to_read(const SplitSurvey& survey, const SurveyOptions& options) {
  constexpr std::int64_t kLeast = 100;
  const std::int64_t size = survey.facts.size;
  if (options.most_bytes == 0 || size == 0) return size;
  const std::uint64_t each = std::max<std::uint64_t>(survey.stored_bytes / static_cast<std::uint64_t>(size), 1);
  return std::min(size, std::max(kLeast, static_cast<std::int64_t>(options.most_bytes / each)));
}

void add_counts(const std::vector<std::int64_t>& more, std::vector<std::int64_t>& counts) {
  if (counts.size() < more.size()) counts.resize(more.size());
  for (std::size_t c = 0; c < more.size(); ++c) counts[c] += more[c];
}

/// Calls `work(reading, i, part)` for all of `samples`; what cannot be read is noted in the part. The first part has
/// the counts of all, since each would have one for every class.
template <class Work>
std::vector<Part> in_parts(const SampleReader& reader, const DatasetFacts& facts, std::int64_t samples, int threads,
                           const Work& work) {
  std::vector<Part> parts(static_cast<std::size_t>((samples + kGrain - 1) / kGrain));
  std::mutex mutex;
  std::vector<std::int64_t> counts;
  parallel_ranges(samples, kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    Part& part = parts[static_cast<std::size_t>(begin / kGrain)];
    Reading reading(reader, facts);
    for (std::int64_t i = begin; i < end; ++i) work(reading, i, part);
    const std::lock_guard lock(mutex);
    add_counts(std::exchange(part.counts, {}), counts);
  });
  if (!parts.empty()) parts.front().counts = std::move(counts);
  return parts;
}

template <class Read>
void note_broken(const SampleReader& reader, std::int64_t index, Part& part, const Read& read) {
  try {
    read();
  } catch (const DataError& error) {
    part.broken.push_back({index, reader.name_of(index), error.what()});
  }
}

void add_part(const Part& part, SplitSurvey& survey, std::vector<ImageSize>& sizes) {
  add_counts(part.counts, survey.class_counts);
  for (const auto& [channels, files] : part.stored_channels) survey.stored_channels[channels] += files;
  for (const auto& [type, files] : part.types) survey.types[type] += files;
  survey.turned += part.turned;
  survey.wide += part.wide;
  survey.wide_most = std::max(survey.wide_most, static_cast<int>(part.wide_most));
  sizes.insert(sizes.end(), part.sizes.begin(), part.sizes.end());
  survey.broken.insert(survey.broken.end(), part.broken.begin(), part.broken.end());
}

void finish_sizes(std::vector<ImageSize> sizes, SplitSurvey& survey) {
  survey.read = static_cast<std::int64_t>(sizes.size());
  if (sizes.empty()) return;
  const auto key = [](ImageSize size) { return std::pair(size.height * size.width, size.height); };
  std::ranges::sort(sizes, {}, key);
  survey.smallest = sizes.front();
  survey.median = sizes[sizes.size() / 2];
  survey.largest = sizes.back();
}

void finish_channels(const std::vector<Part>& parts, SplitSurvey& survey) {
  std::vector<Sums> sums;
  double pixels = 0;
  for (const Part& part : parts) {
    sums.resize(std::max(sums.size(), part.channels.size()));
    for (std::size_t c = 0; c < part.channels.size(); ++c) sums[c].add(part.channels[c]);
    pixels += part.pixels;
  }
  if (pixels == 0) return;
  for (const Sums& sum : sums) {
    const double mean = sum.values / pixels;
    survey.channels.push_back(
        {mean, std::sqrt(std::max(sum.squares / pixels - mean * mean, 0.0)), sum.least, sum.most});
  }
}

void sort_broken(std::vector<BrokenSample>& broken) {
  std::ranges::stable_sort(broken, {}, &BrokenSample::index);
  const auto is_same = [](const BrokenSample& a, const BrokenSample& b) { return a.index == b.index; };
  broken.erase(std::unique(broken.begin(), broken.end(), is_same), broken.end());  // its targets and its image
}

}  // namespace

std::int64_t SplitSurvey::with_alpha() const {
  std::int64_t files = 0;
  for (const auto& [channels, count] : stored_channels) files += channels == 2 || channels == 4 ? count : 0;
  return files;
}

int SplitSurvey::wide_bits() const {
  return wide == 0 ? 0 : std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(wide_most))));
}

double SplitSurvey::imbalance() const {
  std::int64_t most = 0, least = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t count : class_counts) {
    most = std::max(most, count);
    if (count > 0) least = std::min(least, count);
  }
  return most > 0 ? static_cast<double>(most) / static_cast<double>(least) : 0;
}

std::vector<ChannelStatistics> channels_to_normalize(const SplitSurvey& survey) {
  const std::vector<ChannelStatistics>& channels = survey.channels;
  const bool by_channel = survey.facts.image_shape.rank() != 1 && std::ssize(channels) <= kernels::kMostScaledChannels;
  if (by_channel || channels.empty()) return channels;
  ChannelStatistics all = {.least = channels[0].least, .most = channels[0].most};
  double squares = 0;
  const auto count = static_cast<double>(channels.size());  // of as many values each
  for (const ChannelStatistics& channel : channels) {
    all.mean += channel.mean / count;
    squares += (channel.deviation * channel.deviation + channel.mean * channel.mean) / count;
    all.least = std::min(all.least, channel.least);
    all.most = std::max(all.most, channel.most);
  }
  all.deviation = std::sqrt(std::max(squares - all.mean * all.mean, 0.0));
  return {all};
}

SplitSurvey survey_split(const SampleReader& reader, const SurveyOptions& options) {
  SplitSurvey survey{.facts = reader.facts(), .ignored = reader.ignored(), .notes = reader.notes()};
  const std::int64_t size = survey.facts.size;
  survey.stored_bytes = static_cast<std::uint64_t>(size) * survey.facts.sample_bytes() + reader.total_encoded_bytes();
  survey.class_counts.resize(class_target(survey.facts) >= 0 ? survey.facts.class_names.size() : 0);
  std::vector<ImageSize> sizes;
  const auto counted =
      in_parts(reader, survey.facts, size, options.threads, [&](Reading& reading, std::int64_t i, Part& part) {
        note_broken(reader, i, part, [&] { reading.count_targets(i, part); });
      });
  const std::vector<std::int64_t> chosen = spread(size, images_to_read(survey, options));
  const auto read = in_parts(reader, survey.facts, static_cast<std::int64_t>(chosen.size()), options.threads,
                             [&](Reading& reading, std::int64_t i, Part& part) {
                               const std::int64_t index = chosen[static_cast<std::size_t>(i)];
                               note_broken(reader, index, part, [&] { reading.read_image(index, part); });
                             });
  for (const auto* parts : {&counted, &read})
    for (const Part& part : *parts) add_part(part, survey, sizes);
  sort_broken(survey.broken);
  finish_channels(read, survey);
  finish_sizes(std::move(sizes), survey);
  return survey;
}

}  // namespace bantam
