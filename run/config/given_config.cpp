// The keys that a configuration lacks where a program brings the samples.
#include "bantam/run/config/given_config.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::run {
namespace {

/// Whether the document has the key, or keys below it.
bool has_key(const ConfigDocument& document, const std::string& path) {
  return std::ranges::any_of(
      document.values(), [&](const auto& value) { return value.first == path || value.first.starts_with(path + "."); });
}

std::string default_pipeline(const DatasetFacts& facts, std::int64_t batch_size) {
  constexpr std::int64_t kUsual = 32;
  const char* scaled = facts.image_dtype == DType::uint8 ? "{normalize: {scale: 0.00392156862745098}}, " : "";
  return fmt::format("[shuffle, {}{{batch: {{size: {}}}}}, prefetch]", scaled, batch_size > 0 ? batch_size : kUsual);
}

/// One pipeline scales the pixels of both splits: bytes to [0, 1] is nothing for floats that are there already.
void require_one_type(const SampleSplits& samples) {
  if (samples.validation == nullptr) return;
  const DType train = samples.train->facts().image_dtype, validation = samples.validation->facts().image_dtype;
  if (train != validation)
    throw DataError(fmt::format("the validation images are {}, the training images {}: expected one type",
                                to_string(validation), to_string(train)));
}

}  // namespace

RunConfig parse_run_config(std::string_view text, const std::filesystem::path& path,
                           std::span<const std::string> overrides, const GivenData& given) {
  require_one_type(given.samples);
  ConfigDocument document = ConfigDocument::parse(text, path.string(), with_one_length(text, overrides));
  SampleSplits samples = given.samples;
  if (!has_key(document, "data.pipeline"))
    document = document.with_value("data.pipeline", default_pipeline(samples.train->facts(), given.batch_size));
  else if (given.batch_size > 0)
    document = document.with_value("data.pipeline.batch.size", fmt::format("{}", given.batch_size));
  if (samples.validation == nullptr && !has_key(document, "data.validation")) {
    // There is nothing to evaluate; the one sample stands for a split that every data set has.
    document = document.with_value("train.evaluate", "false");
    samples.validation = first_samples(samples.train, 1);
  }
  return read_document(std::move(document), path.stem().string(), samples);
}

}  // namespace bantam::run
