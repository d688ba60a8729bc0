// Lines in the order of what is easiest to understand: the first difference is what an error names.
#include "bantam/run/ranks/data_lines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"

namespace bantam::run {
namespace {

constexpr std::int64_t kSamples = 32, kNames = 100'000;  // of a set, evenly spread

/// Calls `use` with at most `most` of the numbers below `size`.
template <class Use>
void for_spread(std::int64_t size, std::int64_t most, const Use& use) {
  const std::int64_t count = std::min(size, most);
  for (std::int64_t i = 0; i < count; ++i) use(i * (size - 1) / std::max<std::int64_t>(count - 1, 1));
}

/// The name of a sample without the folders that it lies in.
std::string own_name(const SampleReader& reader, std::int64_t index) {
  return std::filesystem::path(reader.name_of(index)).filename().string();
}

std::string digest_of(const SampleReader& reader, std::int64_t index, std::size_t fields) {
  std::vector<std::vector<std::byte>> stored(fields);
  try {
    reader.fetch(index, stored);
  } catch (const DataError&) {
    return "cannot be read";  // an error of the batch that it is in, or skipped there
  }
  Sha256 sum;
  for (const std::vector<std::byte>& field : stored) sum.update(field);
  return sum.finish();
}

void add_set(std::string& text, std::string_view set, const SampleReader& reader) {
  const DatasetFacts facts = reader.facts();
  for (std::size_t c = 0; c < facts.class_names.size(); ++c)
    text += fmt::format("{}, class {}: {}\n", set, c, shown(facts.class_names[c], 200));
  for (const auto& [key, value] : reader.decided_keys()) text += fmt::format("{}, {}: {}\n", set, key, value);
  text += fmt::format("{}, samples: {}\n", set, facts.size);
  std::string names;
  for_spread(facts.size, kNames, [&](std::int64_t index) { names += own_name(reader, index) + '\n'; });
  text += fmt::format("{}, SHA-256 of the samples' names: {}\n", set, sha256_of(names));
  for_spread(facts.size, kSamples, [&](std::int64_t index) {
    text += fmt::format("{}, sample {} ({}): SHA-256 {}\n", set, index, shown(own_name(reader, index)),
                        digest_of(reader, index, facts.fields().size()));
  });
}

}  // namespace

std::string data_lines(const DataOptions& data) {
  std::string text;
  if (data.source.train != nullptr) add_set(text, "training data", *data.source.train);
  if (data.source.validation != nullptr) add_set(text, "validation data", *data.source.validation);
  if (data.source.test != nullptr) add_set(text, "test data", *data.source.test);
  return text;
}

}  // namespace bantam::run
