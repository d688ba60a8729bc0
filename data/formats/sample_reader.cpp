// Sizes that follow from a split's fields, and readers of some of a split's samples.
#include "bantam/data/formats/sample_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

/// Some of another reader's samples, in an order of their own.
class SomeSamples : public WrappedReader {
 public:
  DatasetFacts facts() const override {
    DatasetFacts facts = inner().facts();
    facts.size = std::min(facts.size, samples_);
    return facts;
  }
  std::vector<float> weights() const override {
    const std::vector<float> all = inner().weights();
    std::vector<float> weights;
    if (all.empty()) return weights;
    for (std::int64_t i = 0, size = facts().size; i < size; ++i)
      weights.push_back(all[static_cast<std::size_t>(number(i))]);
    return weights;
  }
  std::vector<std::int32_t> groups() const override {
    const std::vector<std::int32_t> all = inner().groups();
    std::vector<std::int32_t> groups;
    if (all.empty()) return groups;
    for (std::int64_t i = 0, size = facts().size; i < size; ++i)
      groups.push_back(all[static_cast<std::size_t>(number(i))]);
    return groups;
  }

 protected:
  SomeSamples(std::shared_ptr<const SampleReader> all, std::int64_t samples)
      : WrappedReader(std::move(all)), samples_(samples) {}

 private:
  std::int64_t samples_;
};

class FirstSamples : public SomeSamples {
 public:
  FirstSamples(std::shared_ptr<const SampleReader> all, std::int64_t samples) : SomeSamples(std::move(all), samples) {}
};

class ChosenSamples : public SomeSamples {
 public:
  ChosenSamples(std::shared_ptr<const SampleReader> all, std::vector<std::int32_t> chosen)
      : SomeSamples(std::move(all), static_cast<std::int64_t>(chosen.size())), chosen_(std::move(chosen)) {}

 private:
  std::int64_t number(std::int64_t index) const override { return chosen_[static_cast<std::size_t>(index)]; }

  std::vector<std::int32_t> chosen_;
};

}  // namespace

void WrappedReader::fit_to(std::span<const std::int32_t> samples) const {
  std::vector<std::int32_t> inner_samples;
  inner_samples.reserve(samples.size());
  for (const std::int32_t sample : samples) inner_samples.push_back(static_cast<std::int32_t>(number(sample)));
  inner().fit_to(inner_samples);
}

std::vector<SampleField> DatasetFacts::fields() const {
  const FieldEncoding encoding = has_encoded_images() ? FieldEncoding::image : FieldEncoding::values;
  std::vector<SampleField> fields = {{"images", image_shape, image_dtype, encoding}};
  fields.insert(fields.end(), targets.begin(), targets.end());
  return fields;
}

void SampleReader::fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const {
  fetch_by_reading(index, fields);
}

void SampleReader::fetch_by_reading(std::int64_t index, std::span<std::vector<std::byte>> fields) const {
  const std::vector<SampleField> stored = this->fields();
  std::vector<std::span<std::byte>> buffers(stored.size());
  for (std::size_t f = 0; f < stored.size(); ++f) {
    fields[f].resize(stored[f].bytes());
    buffers[f] = fields[f];
  }
  read(index, buffers);
}

std::uint64_t SampleReader::total_encoded_bytes() const {
  std::uint64_t bytes = 0;
  for (std::int64_t i = 0, size = facts().size; i < size; ++i) bytes += encoded_bytes(i);
  return bytes;
}

std::string SampleReader::name_of(std::int64_t index) const { return fmt::format("sample {}", index); }

void SampleReader::read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const {
  targets_by_fetching(index, targets);
}

void SampleReader::targets_by_fetching(std::int64_t index, std::span<const std::span<std::byte>> targets) const {
  std::vector<std::vector<std::byte>> fields(targets.size() + 1);
  fetch(index, fields);
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (!targets[t].empty()) std::memcpy(targets[t].data(), fields[t + 1].data(), targets[t].size());
}

std::uint64_t DatasetFacts::sample_bytes() const {
  std::uint64_t bytes = 0;
  for (const SampleField& field : fields()) bytes += field.bytes();
  return bytes;
}

bool DatasetFacts::has_int32_target() const {
  return targets.size() == 1 && targets[0].shape.rank() == 0 && targets[0].dtype == DType::int32;
}

void check_facts(const DatasetFacts& facts) {
  if (facts.image_shape.rank() != 3 && facts.image_shape.rank() != 1)
    throw ShapeError(fmt::format("images must be (height, width, channels) or vectors of features, got {}",
                                 to_string(facts.image_shape)));
  if (facts.image_dtype != DType::uint8 && facts.image_dtype != DType::float32)
    throw DTypeError(fmt::format("images must be uint8 or float32, not {}", to_string(facts.image_dtype)));
  // Batches name samples by 32-bit numbers.
  if (facts.size < 0 || facts.size > std::numeric_limits<std::int32_t>::max())
    throw DataError(fmt::format("a data set holds at most 2,147,483,647 images, not {}", facts.size));
  std::set<std::string> names;
  for (const SampleField& field : facts.fields())
    if (!names.insert(field.name).second)
      throw DataError(fmt::format("a data set's fields need different names: '{}' comes twice", field.name));
}

std::shared_ptr<const SampleReader> first_samples(std::shared_ptr<const SampleReader> reader, std::int64_t samples) {
  return std::make_shared<FirstSamples>(std::move(reader), samples);
}

std::shared_ptr<const SampleReader> chosen_samples(std::shared_ptr<const SampleReader> reader,
                                                   std::vector<std::int32_t> chosen) {
  return std::make_shared<ChosenSamples>(std::move(reader), std::move(chosen));
}

}  // namespace bantam
