// ImageList: the image files that predictions are asked for, as samples of a data set.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/delivery/data_config.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam::run {

struct ListedImage {
  std::filesystem::path path;
  std::string name;  ///< within the folder that was named; of a file that was named, its own without folders
};

struct ImageList {
  std::vector<ListedImage> images;
  IgnoredFiles ignored;  ///< of the folders: files of other suffixes
};

/// A file stands for itself, whatever its suffix and whether it is there; a folder for the image files
/// anywhere below it, sorted. Throws DataError for a folder without any, or one that cannot be listed.
ImageList list_images(std::span<const std::filesystem::path> paths);

/// Samples of these files, each with a label 0 beside its image: of files of any size, or, where `size` is not 0 × 0,
/// of images that are resized (bilinear) where theirs is another. Reading such an image adds 1 to `resized`, if there
/// is one, from any thread.
/// `values`: what else their files are decoded to.
std::shared_ptr<const SampleReader> samples_of(std::vector<ListedImage> images, std::int64_t channels, ImageSize size,
                                               std::shared_ptr<std::atomic<std::int64_t>> resized = nullptr,
                                               const ImageValues& values = {});

}  // namespace bantam::run
