// Data that are known and not read: what they are, and what to do.
#pragma once

#include <filesystem>
#include <string>

namespace bantam::run {

// Each looks three folders deep, at a limited number of files, and returns an empty text where it finds nothing.

/// Names files of labelling tools: "pets/annotations/instances.json: boxes around objects, as COCO has them; …".
std::string name_labels_of_tools(const std::filesystem::path& at);

/// A file of another format: archives, tables and arrays of other programs.
std::string name_unread_file(const std::filesystem::path& at);

/// Images that nothing says the classes of.
std::string name_images_alone(const std::filesystem::path& at);

}  // namespace bantam::run
