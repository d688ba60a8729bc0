// A first configuration for data that lie in a folder: measured, chosen, and commented.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bantam::run {

struct FirstConfigOptions {
  int threads = 0;                             ///< that read samples; 0: all processors
  bool for_gpu = false;                        ///< sizes and width for a GPU; else for a CPU
  std::string command;                         ///< that writes it, for its first line
  std::filesystem::path file = "config.yaml";  ///< that it will be: relative paths are looked for beside it, too
};

struct FirstConfig {
  std::string text;                        ///< the configuration, in YAML
  std::string summary;                     ///< what was found, in words: "image_folder: 47 images in 2 classes, …"
  std::vector<std::string> advice = {};    ///< "left out: name (text)", and what would help
  std::vector<std::string> warnings = {};  ///< of files among the data that are not read
};

/// A configuration that trains as it stands: the data's format, sizes, classes and normalisation are measured, and
/// network, loss, batch size and epochs fit them. `data`: a folder or file; empty: generated images. Reads up to 64 MiB
/// of samples. Throws DataError where there is no data set, none with labels or numbers to predict, one of which more
/// than a tenth cannot be read, and one whose configuration `train` would refuse.
FirstConfig first_config(const std::filesystem::path& data, const FirstConfigOptions& options);

}  // namespace bantam::run
