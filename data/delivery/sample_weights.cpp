// Labels of all samples, or the weights that a reader has of its own.
#include "bantam/data/delivery/sample_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/base/printable.h"

namespace bantam {
namespace {

/// Among the targets; nothing where samples have no class number.
std::optional<std::size_t> label_field(const DatasetFacts& facts) {
  for (std::size_t t = 0; t < facts.targets.size(); ++t) {
    const SampleField& target = facts.targets[t];
    if (target.name == "labels" && target.shape.rank() == 0 && target.dtype == DType::int32) return t;
  }
  return std::nullopt;
}

std::vector<std::int32_t> read_labels(const SampleReader& reader, int threads) {
  constexpr std::int64_t kGrain = 64;
  const DatasetFacts facts = reader.facts();
  const std::size_t field = label_field(facts).value();
  std::vector<std::int32_t> labels(static_cast<std::size_t>(facts.size));
  parallel_ranges(facts.size, kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::vector<std::byte>> values;
    for (const SampleField& target : facts.targets)
      values.emplace_back(target.encoding == FieldEncoding::values ? target.bytes() : 0);
    const std::vector<std::span<std::byte>> buffers(values.begin(), values.end());
    for (std::int64_t i = begin; i < end; ++i) {
      reader.read_targets(i, buffers);
      std::memcpy(&labels[static_cast<std::size_t>(i)], values[field].data(), sizeof(std::int32_t));
    }
  });
  return labels;
}

}  // namespace

void check_sampling(const SampleReader& reader, const EpochSampling& sampling) {
  if (sampling.draw == EpochSampling::Draw::balanced && !label_field(reader.facts()))
    throw ConfigError("balanced sampling needs one class number a sample, the target 'labels'");
  if (sampling.draw == EpochSampling::Draw::weighted && reader.weights().empty())
    throw ConfigError("the data have no weights of samples; the format csv has them where `weight` names a column");
}

SampleWeights weights_of(const SampleReader& reader, const EpochSampling& sampling, int threads) {
  check_sampling(reader, sampling);
  if (sampling.draw == EpochSampling::Draw::each) return {};
  if (sampling.draw == EpochSampling::Draw::weighted) {
    SampleWeights weights{.weights = reader.weights(), .groups = {}};
    if (!std::ranges::all_of(weights.weights, [](float w) { return std::isfinite(w) && w >= 0; }) ||
        std::ranges::all_of(weights.weights, [](float w) { return w == 0; }))
      throw DataError("the weights of the training samples are all zero, or not finite, or negative");
    return weights;
  }
  std::vector<std::int32_t> labels = read_labels(reader, threads);
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] < 0)
      throw DataError(fmt::format("{}: the label {} is no class number, which balanced sampling needs",
                                  printable_line(reader.name_of(static_cast<std::int64_t>(i))), labels[i]));
  return balanced_weights(std::move(labels));
}

}  // namespace bantam
