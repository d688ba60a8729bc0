// Memory of a split, how it is filled, and reads from it.
#include "bantam/data/formats/dataset.h"

#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"

namespace bantam {
namespace {

/// A tensor a field, on the CPU or its stand-in.
std::vector<Tensor> host_fields(Runtime& runtime, Device cpu, const DatasetFacts& facts) {
  const AllocationTag tag{Category::input, "data set"};
  std::vector<Tensor> tensors;
  for (const SampleField& field : facts.fields()) {
    const std::size_t bytes = static_cast<std::size_t>(facts.size) * field.bytes();
    tensors.emplace_back(std::make_shared<Storage>(runtime.allocator(cpu), bytes, runtime.stream(cpu), tag),
                         field.shape.prepend(facts.size), field.dtype);
  }
  return tensors;
}

class DatasetReader : public SampleReader {
 public:
  explicit DatasetReader(std::shared_ptr<const Dataset> dataset)
      : dataset_(std::move(dataset)), fields_(dataset_->facts().fields()) {}

  DatasetFacts facts() const override { return dataset_->facts(); }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      const std::size_t bytes = fields_[f].bytes();
      std::memcpy(fields[f].data(), dataset_->field(f).data() + static_cast<std::size_t>(index) * bytes, bytes);
    }
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::vector<SampleField> fields_;
};

}  // namespace

Dataset::Dataset(Runtime& runtime, DatasetFacts facts) : Dataset(std::move(facts)) {
  fields_ = host_fields(runtime, Device::cpu(), facts_);
}

std::shared_ptr<const Dataset> Dataset::stand_in(Runtime& runtime, DatasetFacts facts, Device device) {
  auto set = std::make_shared<Dataset>(std::move(facts));
  if (device.kind != DeviceKind::cpu) return set;
  set->reserved_ = host_fields(runtime, device.whole(), set->facts_);  // also where a share of it is trained on
  return set;
}

Dataset::Dataset(DatasetFacts facts) : facts_(std::move(facts)) { check_facts(facts_); }

std::span<const std::byte> Dataset::field(std::size_t field) const {
  if (!has_data()) return {};
  return {fields_[field].as<std::byte>(), fields_[field].bytes()};
}

std::span<const std::uint8_t> Dataset::images() const {
  if (facts_.image_dtype != DType::uint8) throw DTypeError("the data set's images are no bytes (uint8)");
  if (!has_data()) return {};
  return {fields_[0].as<std::uint8_t>(), fields_[0].bytes()};
}

std::span<const std::int32_t> Dataset::labels() const {
  if (facts_.targets.empty() || facts_.targets[0].dtype != DType::int32)
    throw DTypeError("the data set's first target is no class number (int32)");
  if (!has_data()) return {};
  return {fields_[1].as<std::int32_t>(), static_cast<std::size_t>(fields_[1].elements())};
}

std::span<std::byte> Dataset::field_out(std::size_t field) {
  return {fields_[field].as<std::byte>(), fields_[field].bytes()};
}

std::span<std::uint8_t> Dataset::images_out() {
  const std::span<const std::uint8_t> images = this->images();
  return {fields_[0].as<std::uint8_t>(), images.size()};
}

std::span<std::int32_t> Dataset::labels_out() {
  const std::span<const std::int32_t> labels = this->labels();
  return {fields_[1].as<std::int32_t>(), labels.size()};
}

std::shared_ptr<const Dataset> read_dataset(Runtime& runtime, const SampleReader& reader,
                                            const OnSamplesRead& on_read) {
  auto set = std::make_shared<Dataset>(runtime, reader.facts());
  const std::vector<SampleField> fields = set->facts().fields();
  constexpr std::int64_t kGrain = 64;
  std::mutex telling;
  std::int64_t read = 0;
  parallel_ranges(set->size(), kGrain, runtime.threads(), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::span<std::byte>> sample(fields.size());
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::size_t f = 0; f < fields.size(); ++f)
        sample[f] = set->field_out(f).subspan(static_cast<std::size_t>(i) * fields[f].bytes(), fields[f].bytes());
      reader.read(i, sample);
    }
    const std::scoped_lock lock(telling);
    read += end - begin;
    if (on_read) on_read(read, set->size());
  });
  return set;
}

std::shared_ptr<const SampleReader> reader_of(std::shared_ptr<const Dataset> dataset) {
  return std::make_shared<DatasetReader>(std::move(dataset));
}

}  // namespace bantam
