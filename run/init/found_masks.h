// Images and masks in a folder, and what the masks' values are: for a first configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bantam/data/formats/mask_values.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/run/init/found_data.h"

namespace bantam::run {

/// Folders of images and of masks that pair by their names, or one folder of both, and the file that names the classes;
/// reads no image.
std::optional<FoundData> find_masks(const std::filesystem::path& at);

/// DataError where folders are called as images and masks, and no names pair: as classes they would be nonsense.
void refuse_unpaired_masks(const std::filesystem::path& at);

/// The lines of such a file: CVAT's labelmap.txt ("car:128,0,0::"), CamVid's class_dict.csv and label_colors.txt,
/// Roboflow's _classes.csv, LabelMe's class_names.txt, or a name a line. Other lines are passed over.
std::vector<ListedClass> read_listed_classes(const std::string& text);

/// Values of masks, with their pixels.
struct MaskSurvey {
  std::map<MaskValue, std::int64_t> pixels;
  std::int64_t files = 0;
  bool is_lossy = false;           ///< some are JPEG files
  bool has_other_palette = false;  ///< some palette's entries are not in the order of `listed`
};

/// Reads masks of samples spread over the split, up to 64 MiB of them. Masks that cannot be read are left out.
MaskSurvey survey_masks(const SampleReader& reader, const std::vector<ListedClass>& listed);

/// The keys that a configuration needs for masks with these values.
struct MaskChoice {
  std::vector<std::string> classes;  ///< by number; empty: `values` has them
  std::int64_t count = 0;            ///< the number of classes by number, without names
  std::vector<std::pair<MaskValue, std::string>> values;
  std::optional<MaskValue> ignored;
  bool nearest = false;
};
MaskChoice choose_masks(const MaskSurvey& survey, const std::vector<ListedClass>& listed);

/// Keys of `data` for the choice; `place` are the keys of `masks` that say where they lie.
std::vector<std::string> mask_keys(const MaskChoice& choice, const std::vector<std::string>& place);

}  // namespace bantam::run
