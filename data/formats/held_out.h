// Internal: samples held out of a set that has none of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// Numbers of the samples of each part, in the order of the set.
struct Parts {
  std::vector<std::int32_t> train, held_out;
};

/// Holds `share` of the samples out, at least one and not all. Where there are `labels` (one a sample): of each class
/// that share, rounded, but not all of it, so that a class of one sample stays in training; of classes whose shares
/// round to nothing, that share of them all. The choice depends on the arguments alone. Throws DataError for fewer than
/// two samples.
Parts hold_out(std::int64_t samples, std::span<const std::int32_t> labels, double share);

/// A reader that is made when it is first asked for anything.
std::shared_ptr<const SampleReader> reader_made_by(std::function<std::shared_ptr<const SampleReader>()> make);

/// Both parts of a set; by classes where its only target is an int32. Reads nothing before one of them is used.
SampleSplits split_off(std::shared_ptr<const SampleReader> all, double share);

/// Where a set of files has its parts, as a configuration says it; empty: it does not.
struct PartNames {
  std::string train, validation, test;
  std::optional<double> split;  ///< of the training samples, where no part is held out

  static constexpr double kSplit = 0.1;
  double share() const { return split.value_or(kSplit); }
};

/// The keys train, validation (where it is text), test and split; `what` is what the names are of: "Folder".
PartNames read_part_names(ConfigMap& data, std::string_view what);

/// Readers of a set's parts by their paths, of which the last two may be empty: then a share is split off.
SampleSplits splits_of_parts(std::shared_ptr<const SampleReader> train, std::shared_ptr<const SampleReader> validation,
                             std::shared_ptr<const SampleReader> test, const PartNames& names);

}  // namespace bantam
