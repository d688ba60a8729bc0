// Paths to files, and files to samples.
#include "bantam/run/trained/image_list.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/data/images/decode.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

/// Samples without labels have the number 0 there: a batch has labels in any case.
void write_label(std::span<std::byte> field) { std::ranges::fill(field, std::byte{0}); }

class ImageListReader : public ImageFileReader {
 public:
  ImageListReader(std::vector<ListedImage> images, std::int64_t channels, const ImageValues& values)
      : images_(std::move(images)), channels_(channels), values_(values) {}

  DatasetFacts facts() const override {
    return values_.applied_to({.size = std::ssize(images_), .image_shape = {0, 0, channels_}});
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    read_whole_file(path(index), fields[0]);
    fields[1].assign(sizeof(std::int32_t), std::byte{0});
  }
  std::string name_of(std::int64_t index) const override { return path(index).string(); }
  void read_targets(std::int64_t, std::span<const std::span<std::byte>> targets) const override {
    write_label(targets[0]);
  }

 private:
  const fs::path& path(std::int64_t index) const { return images_[static_cast<std::size_t>(index)].path; }
  std::uint64_t stored_bytes(std::int64_t index) const override { return file_bytes(path(index)); }

  std::vector<ListedImage> images_;
  std::int64_t channels_;
  ImageValues values_;
};

class ResizedImages : public SampleReader {
 public:
  ResizedImages(std::vector<ListedImage> images, std::int64_t channels, ImageSize size,
                std::shared_ptr<std::atomic<std::int64_t>> resized, const ImageValues& values)
      : images_(std::move(images)), channels_(channels), size_(size), resized_(std::move(resized)), values_(values) {}

  DatasetFacts facts() const override {
    return values_.applied_to({.size = std::ssize(images_), .image_shape = {size_.height, size_.width, channels_}});
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    std::vector<std::byte> file;
    read_whole_file(images_[static_cast<std::size_t>(index)].path, file);
    Image scratch, image;
    try {
      const ImageSize stored = read_image_header(file).size;
      decode_sampled(file, PixelForm(facts()), {.window = stored, .size = size_}, scratch, image);
      if (resized_ != nullptr && stored != size_) ++*resized_;
    } catch (const DataError& error) {
      throw DataError(fmt::format("{}: {}", printable_line(name_of(index)), error.what()));
    }
    std::memcpy(fields[0].data(), image.pixels.data(), fields[0].size());
    write_label(fields[1]);
  }
  std::string name_of(std::int64_t index) const override {
    return images_[static_cast<std::size_t>(index)].path.string();
  }

 private:
  std::vector<ListedImage> images_;
  std::int64_t channels_;
  ImageSize size_;
  std::shared_ptr<std::atomic<std::int64_t>> resized_;
  ImageValues values_;
};

void add_folder(const fs::path& folder, ImageList& list) {
  ImageFiles files = list_image_files(folder);
  if (files.names.empty()) throw DataError(fmt::format("{}: {}", folder.string(), no_images_text(files.ignored)));
  for (std::string& name : files.names) list.images.push_back({folder / name, std::move(name)});
  list.ignored.add(files.ignored);
}

}  // namespace

ImageList list_images(std::span<const fs::path> paths) {
  ImageList list;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error))
      add_folder(path, list);
    else
      list.images.push_back({path, path.filename().string()});
  }
  return list;
}

std::shared_ptr<const SampleReader> samples_of(std::vector<ListedImage> images, std::int64_t channels, ImageSize size,
                                               std::shared_ptr<std::atomic<std::int64_t>> resized,
                                               const ImageValues& values) {
  if (size == ImageSize{}) return std::make_shared<ImageListReader>(std::move(images), channels, values);
  return std::make_shared<ResizedImages>(std::move(images), channels, size, std::move(resized), values);
}

}  // namespace bantam::run
