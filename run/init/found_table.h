// CSV files in a folder: which columns are images, labels, numbers to predict and features.
#pragma once

#include <filesystem>
#include <optional>

#include "bantam/run/init/found_data.h"

namespace bantam::run {

/// A table (.csv, .tsv), or those of a set's parts. Reads the first rows. Nothing where there is none; DataError where
/// there is one that no configuration suits, saying what its columns are.
std::optional<FoundData> find_table(const std::filesystem::path& at);

/// Likewise of tables that lie within the folders of the set's parts: train/_classes.csv, valid/_classes.csv.
std::optional<FoundData> find_part_tables(const std::filesystem::path& at);

}  // namespace bantam::run
