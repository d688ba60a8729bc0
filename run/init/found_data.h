// The search for a data set in a folder, and the keys of the section `data` that name its files in a configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/formats/mask_values.h"

namespace bantam::run {

/// Names of classes as labelling tools write them, with a value where the file says one.
struct ListedClass {
  std::string name;
  std::optional<MaskValue> value = {};
};

struct FoundData {
  std::string format;                            ///< the value of `data.format`
  std::vector<std::string> keys;                 ///< the section's further lines, in YAML: "path: data/flowers.csv"
  std::vector<std::string> mask_place = {};      ///< segmentation_folder: keys of `masks` that say where they lie
  std::vector<ListedClass> listed_classes = {};  ///< segmentation_folder: names in a file beside the data
  std::vector<std::string> notes = {};           ///< for the reader: "left out: name (text)"
  bool are_presences = false;                    ///< targets are zeros and ones: the presence of a class each
  std::int64_t pixel_classes = 0;                ///< arrays of masks: their classes; 0: there are none
  bool ignored = false;                          ///< arrays of masks: 255 counts for no class
  bool repeats_folders = false;                  ///< a table that names no images, or labels that are their folders
  /// Another reading of the same files, where these keys do not suit all of them; null: there is none.
  std::shared_ptr<const FoundData> otherwise = nullptr;
};

/// Looks at names, a CSV's first rows and arrays' labels; no sample is read. A folder that has one folder and no images
/// stands for that one. Throws DataError that says what was looked for, or what there is that is not read.
FoundData find_data(const std::filesystem::path& at);

/// Text as a value in YAML, in quotes where it needs them.
std::string yaml_text(std::string_view text);

}  // namespace bantam::run
