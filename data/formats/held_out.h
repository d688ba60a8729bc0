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

/// Samples of which some are held out.
struct SamplesToSplit {
  std::int64_t samples = 0;
  std::span<const std::int32_t> labels = {};  ///< one a sample; empty: there are none
  std::span<const std::int32_t> groups = {};  ///< one a sample, not to be separated; empty: each stands for itself
  std::uint64_t seed = 0;
};

/// Holds `share` of the samples out, at least one and not all. Where there are `labels`: of each class that share,
/// rounded, but not all of it, so that a class of one sample stays in training; of classes whose shares round to
/// nothing, that share of them all. Where there are `groups`: whole groups, chosen so that each class' share comes near
/// that. The choice depends on the arguments alone. Throws DataError for fewer than two samples, or groups.
Parts hold_out(const SamplesToSplit& split, double share);

/// The same with `wanted` samples held out of those without groups, in any case: each class' share of them, rounded, so
/// that their sum is right.
Parts hold_out_exactly(const SamplesToSplit& split, std::int64_t wanted);

/// The class numbers of all samples, the target 'labels'; empty where they have none.
std::vector<std::int32_t> class_numbers(const SampleReader& reader);

/// A reader that is made when it is first asked for anything.
std::shared_ptr<const SampleReader> reader_made_by(std::function<std::shared_ptr<const SampleReader>()> make);

/// Both parts of a set; by classes where samples have one. Reads nothing before one of them is used.
SampleSplits split_off(std::shared_ptr<const SampleReader> all, double share);

/// Where a set of files has its parts, as a configuration says it; empty: it does not.
struct PartNames {
  std::string train, validation, test;
  std::optional<double> split;  ///< the share of training samples for validation, where there is no other part

  static constexpr double kSplit = 0.1;
  double share() const { return split.value_or(kSplit); }
};

/// The keys train, validation (where it is text), test and split; `what` is what the names are of: "Folder".
PartNames read_part_names(ConfigMap& data, std::string_view what);

/// Readers of a set's parts by their paths, of which the last two may be empty: then a share is split off.
SampleSplits splits_of_parts(std::shared_ptr<const SampleReader> train, std::shared_ptr<const SampleReader> validation,
                             std::shared_ptr<const SampleReader> test, const PartNames& names);

}  // namespace bantam
