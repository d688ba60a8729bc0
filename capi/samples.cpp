// The caller's arrays, row by row, and its callback, sample by sample.
#include "bantam/capi/samples.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/capi/status.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::capi {
namespace {

/// Samples that the caller lends: their callback makes one, and the end of the last owner calls the caller's `release`.
class Lent {
 public:
  explicit Lent(const bantam_samples& samples) : read_(samples.read), release_(samples.release), user_(samples.user) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (release_ != nullptr) release_(user_);
  }

  bool makes_samples() const { return read_ != nullptr; }
  void make(std::int64_t index, std::span<void* const> buffers) const {
    if (const std::int32_t status = read_(user_, index, buffers.data()); status != 0)
      throw DataError(fmt::format("sample {}: {}", index,
                                  callback_error(fmt::format("the program's read callback returned {}", status))));
  }

 private:
  std::int32_t (*read_)(void*, std::int64_t, void* const*);
  void (*release_)(void*);
  void* user_;
};

class ProgramReader : public SampleReader {
 public:
  ProgramReader(std::shared_ptr<const Lent> lent, std::vector<HostArray> arrays, DatasetFacts facts)
      : lent_(std::move(lent)), arrays_(std::move(arrays)), facts_(std::move(facts)) {}

  DatasetFacts facts() const override { return facts_; }
  std::string name_of(std::int64_t index) const override { return fmt::format("sample {} of the program", index); }
  std::vector<std::string> files_of(std::int64_t) const override { return {}; }

  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    if (lent_ != nullptr && lent_->makes_samples()) {
      std::vector<void*> buffers;
      for (const std::span<std::byte> field : fields) buffers.push_back(field.data());
      lent_->make(index, buffers);
    } else {
      for (std::size_t i = 0; i < arrays_.size(); ++i)
        std::memcpy(fields[i].data(), arrays_[i].data + static_cast<std::size_t>(index) * fields[i].size(),
                    fields[i].size());
    }
    for (std::size_t i = 1; i < fields.size(); ++i) check_label(index, facts_.targets[i - 1], fields[i]);
  }

 private:
  /// A label is a class; of masks another number may stand for none.
  void check_label(std::int64_t index, const SampleField& field, std::span<const std::byte> values) const {
    if (field.name != kLabels || field.shape.rank() != 0 || facts_.class_names.empty()) return;
    std::int32_t label = 0;
    std::memcpy(&label, values.data(), sizeof label);
    if (label < 0 || static_cast<std::size_t>(label) >= facts_.class_names.size())
      throw DataError(fmt::format("sample {} has the label {}; expected one of {} classes, 0 to {}", index, label,
                                  facts_.class_names.size(), facts_.class_names.size() - 1));
  }

  std::shared_ptr<const Lent> lent_;
  std::vector<HostArray> arrays_;  // the images, then the targets
  DatasetFacts facts_;
};

/// (n, height, width, channels), (n, height, width) or (n, features).
Shape image_shape(const HostArray& images) {
  if (images.dtype != DType::uint8 && images.dtype != DType::float32)
    throw BadArgument(fmt::format("{}: expected uint8 or float32", to_string(images)));
  const Shape sample = images.shape.without_first();
  if (sample.rank() == 2) return {sample[0], sample[1], 1};
  if (sample.rank() != 1 && sample.rank() != 3)
    throw BadArgument(
        fmt::format("{}: expected (samples, height, width, channels), (samples, height, width) or "
                    "(samples, features)",
                    to_string(images)));
  return sample;
}

SampleField target_field(const HostArray& target) {
  const bool labels = target.name == kLabels;
  const DType expected = labels ? DType::int32 : DType::float32;
  if (target.dtype != expected)
    throw BadArgument(fmt::format("{}: expected {}", to_string(target), bantam::to_string(expected)));
  Shape shape = target.shape.without_first();
  if (!labels && shape.rank() == 0) shape = {1};
  return {target.name, shape, expected};
}

/// Numbers up to the greatest label of arrays; of masks, and of labels that a callback makes, classes have to be named.
std::vector<std::string> classes_of(const HostArray& labels) {
  if (labels.data == nullptr || labels.shape.rank() != 1)
    throw BadArgument(fmt::format("{}: name the classes (class_names): they cannot be counted", to_string(labels)));
  constexpr std::int32_t kMostClasses = 1 << 20;
  std::int32_t greatest = 0;
  for (std::int64_t i = 0; i < labels.samples(); ++i) {
    std::int32_t label = 0;
    std::memcpy(&label, labels.data + static_cast<std::size_t>(i) * sizeof label, sizeof label);
    if (label < 0 || label >= kMostClasses)
      throw DataError(
          fmt::format("sample {} has the label {}; expected class numbers from 0 to {}", i, label, kMostClasses - 1));
    greatest = std::max(greatest, label);
  }
  return numbered_classes(std::int64_t{greatest} + 1);
}

std::vector<std::string> class_names(const bantam_samples& samples, const std::vector<HostArray>& arrays,
                                     const SampleReader* training) {
  if (training != nullptr) return training->facts().class_names;
  std::vector<std::string> names = texts(samples.class_names, samples.class_count, "samples.class_names");
  if (!names.empty()) return names;
  for (const HostArray& array : arrays)
    if (array.name == kLabels) return classes_of(array);
  return {};
}

}  // namespace

std::shared_ptr<const SampleReader> samples_reader(const bantam_samples& given, const SampleReader* training) {
  const bantam_samples samples = read_struct(&given, "samples");
  const auto lent = std::make_shared<const Lent>(samples);
  std::vector<HostArray> arrays = read_arrays(samples.arrays, samples.array_count, !lent->makes_samples());
  const auto images = std::ranges::find(arrays, kImages, &HostArray::name);
  if (images == arrays.end())
    throw BadArgument(fmt::format("no array is named 'images'; the first is {}", to_string(arrays[0])));
  std::rotate(arrays.begin(), images, images + 1);
  DatasetFacts facts{.size = arrays[0].samples(), .image_shape = image_shape(arrays[0]), .targets = {}};
  facts.image_dtype = arrays[0].dtype;
  for (std::size_t i = 1; i < arrays.size(); ++i) facts.targets.push_back(target_field(arrays[i]));
  facts.class_names = class_names(samples, arrays, training);
  return std::make_shared<ProgramReader>(lent, std::move(arrays), std::move(facts));
}

std::shared_ptr<const SampleReader> images_reader(const HostArray& images, std::int64_t classes) {
  class Unlabelled : public ProgramReader {
   public:
    using ProgramReader::ProgramReader;
    void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
      ProgramReader::read(index, fields.first(1));
      std::ranges::fill(fields[1], std::byte{0});
    }
  };
  DatasetFacts facts{
      .size = images.samples(), .image_shape = image_shape(images), .class_names = numbered_classes(classes)};
  facts.image_dtype = images.dtype;
  return std::make_shared<Unlabelled>(nullptr, std::vector{images}, std::move(facts));
}

}  // namespace bantam::capi
