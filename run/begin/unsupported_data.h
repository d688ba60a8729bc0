// Data that are known and not read: what they are, and what to do.
#pragma once

#include <filesystem>
#include <string>

namespace bantam::run {

/// "pets: annotations/instances.json are boxes of COCO: …"; empty where nothing known is found. Looks three folders
/// deep, at a limited number of files.
std::string name_unsupported(const std::filesystem::path& at);

}  // namespace bantam::run
