// Surveys a split: its classes, sizes and values, and samples that cannot be read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

struct SurveyOptions {
  int threads = 1;
  /// Images are read and decoded up to so many stored bytes, spread evenly over the split, at least 100 of them; 0:
  /// all. Classes are counted over all samples.
  std::uint64_t most_bytes = std::uint64_t{256} << 20;
};

/// Statistics of a channel's stored values (bytes, or float32) over all pixels that were read; of vectors, a feature's.
struct ChannelStatistics {
  double mean = 0, deviation = 0, least = 0, most = 0;
};

/// A sample that could not be read or decoded.
struct BrokenSample {
  std::int64_t index = 0;
  std::string name, reason;
};

struct SplitSurvey {
  DatasetFacts facts;
  /// Samples a class (of several labels a sample: those that have it; of a class a pixel: pixels); empty where no
  /// target is of classes. Masks are counted as far as they were read.
  std::vector<std::int64_t> class_counts;
  std::int64_t read = 0;                                 ///< images that were read
  ImageSize smallest, median, largest;                   ///< sizes of the images that were read, by pixels
  std::map<std::int64_t, std::int64_t> stored_channels;  ///< channels of image files → files
  std::map<std::string, std::int64_t> types;             ///< "JPEG", "PNG", … → files of those that were read
  std::int64_t turned = 0;                               ///< files that EXIF or XMP turn
  std::int64_t wide = 0;                                 ///< files of 16 bits a channel
  int wide_most = 0;                                     ///< the greatest value in these files
  std::vector<ChannelStatistics> channels;
  IgnoredFiles ignored;
  std::vector<std::string> notes;    ///< SampleReader::notes
  std::uint64_t stored_bytes = 0;    ///< bytes of all samples as stored
  std::vector<BrokenSample> broken;  ///< in order

  /// Files with an alpha channel, or a transparent colour.
  std::int64_t with_alpha() const;
  /// Bits that the greatest value of files of 16 bits needs; 0 without such files.
  int wide_bits() const;
  /// Samples of the most frequent class over those of the least frequent one that has any; 0 without classes.
  double imbalance() const;
};

/// The channels that a `normalize` stage of the survey's samples has a mean and a deviation for: `survey.channels`; of
/// vectors, and of images of more channels than the stage scales one by one, one for all values, pooled.
std::vector<ChannelStatistics> channels_to_normalize(const SplitSurvey& survey);

/// Reads targets of all samples, and images as `options` say. A sample that cannot be read is noted, and no error.
SplitSurvey survey_split(const SampleReader& reader, const SurveyOptions& options);

}  // namespace bantam
