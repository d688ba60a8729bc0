// Candidates at even distances, then in turn one of each class.
#include "bantam/data/survey/spread_samples.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostRead = 4096;

/// The middles of `count` equal parts of [0, size).
std::vector<std::int64_t> middles(std::int64_t size, std::int64_t count) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back((2 * i + 1) * size / (2 * count));
  return places;
}

/// The target that is one class a sample.
std::optional<std::size_t> one_class_target(const DatasetFacts& facts) {
  for (std::size_t t = 0; t < facts.targets.size(); ++t) {
    const SampleField& field = facts.targets[t];
    if (field.encoding == FieldEncoding::values && field.dtype == DType::int32 && field.shape.elements() == 1) return t;
  }
  return std::nullopt;
}

/// Nothing where the sample cannot be read.
std::optional<std::int32_t> class_of(const SampleReader& reader, const DatasetFacts& facts, std::size_t target,
                                     std::int64_t index) {
  std::vector<std::vector<std::byte>> values(facts.targets.size());
  std::vector<std::span<std::byte>> buffers(values.size());
  for (std::size_t t = 0; t < values.size(); ++t) {
    if (facts.targets[t].encoding != FieldEncoding::values) continue;
    values[t].resize(facts.targets[t].bytes());
    buffers[t] = values[t];
  }
  try {
    reader.read_targets(index, buffers);
  } catch (const DataError&) {
    return std::nullopt;
  }
  std::int32_t label = 0;
  std::memcpy(&label, values[target].data(), sizeof label);
  return label;
}

using Classes = std::map<std::int32_t, std::vector<std::int64_t>>;

/// How many of each class: one after the other gets one more.
std::vector<std::size_t> shares_of(const Classes& classes, std::int64_t count) {
  std::vector<std::size_t> shares(classes.size(), 0);
  for (bool more = true; more && count > 0;) {
    more = false;
    std::size_t c = 0;
    for (const auto& [label, samples] : classes) {
      if (count > 0 && shares[c] < samples.size()) {
        ++shares[c];
        --count;
        more = true;
      }
      ++c;
    }
  }
  return shares;
}

}  // namespace

std::vector<std::int32_t> spread_samples(const SampleReader& reader, std::int64_t count,
                                         std::span<const std::int64_t> without) {
  const DatasetFacts facts = reader.facts();
  const std::optional<std::size_t> target = one_class_target(facts);
  const std::int64_t wanted = std::min(count, facts.size), most = std::max(kMostRead, wanted);
  Classes classes;
  for (const std::int64_t index : middles(facts.size, target ? std::min(most, facts.size) : wanted)) {
    if (std::ranges::find(without, index) != without.end()) continue;
    const std::optional<std::int32_t> label = target ? class_of(reader, facts, *target, index) : 0;
    if (label) classes[*label].push_back(index);
  }
  const std::vector<std::size_t> shares = shares_of(classes, wanted);
  std::vector<std::int32_t> chosen;
  std::size_t c = 0;
  for (const auto& [label, samples] : classes) {
    for (const std::int64_t i : middles(std::ssize(samples), static_cast<std::int64_t>(shares[c])))
      chosen.push_back(static_cast<std::int32_t>(samples[static_cast<std::size_t>(i)]));
    ++c;
  }
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace bantam
