// Counts of values between edges, from tensors and from a run's log of them.
#include "bantam/run/report/tensor_histogram.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/run/session/tensor_statistics.h"

namespace bantam::run {
namespace {

constexpr std::size_t kMostUpdates = 8;

TensorHistogram parse_histogram(const nlohmann::json& line) {
  TensorHistogram read{.tensor = line.at("tensor").get<std::string>(),
                       .kind = line.at("kind").get<std::string>(),
                       .update = line.at("update").get<std::int64_t>(),
                       .minimum = line.at("minimum").get<double>(),
                       .maximum = line.at("maximum").get<double>(),
                       .mean = line.at("mean").get<double>(),
                       .deviation = line.at("deviation").get<double>(),
                       .edges = line.at("edges").get<std::vector<double>>(),
                       .counts = line.at("counts").get<std::vector<double>>()};
  if (read.edges.size() != read.counts.size() + 1 || !std::ranges::is_sorted(read.edges))
    throw DataError(fmt::format("expected ascending edges, one more than the {} counts", read.counts.size()));
  return read;
}

/// At most `most` of them, evenly chosen, the first and the last among them.
std::set<std::int64_t> chosen_updates(const std::set<std::int64_t>& updates, std::size_t most) {
  if (updates.size() <= most) return updates;
  const std::vector<std::int64_t> all(updates.begin(), updates.end());
  std::set<std::int64_t> chosen = {all.back()};
  for (std::size_t i = 0; i + 1 < most; ++i) chosen.insert(all[i * (all.size() - 1) / (most - 1)]);
  return chosen;
}

}  // namespace

TensorHistogram histogram_of(const std::string& name, const HostTensor& tensor, std::size_t bins) {
  const TensorStatistics facts = statistics_of(tensor);
  TensorHistogram made{.tensor = name,
                       .kind = "weight",
                       .minimum = facts.min,
                       .maximum = facts.max,
                       .mean = facts.mean,
                       .deviation = facts.deviation};
  if (facts.finite == 0) return made;
  const double width = facts.max - facts.min;
  made.counts.assign(width > 0 ? bins : 1, 0);
  const auto count = static_cast<double>(made.counts.size());
  for (std::size_t e = 0; e <= made.counts.size(); ++e)
    made.edges.push_back(facts.min + width * (static_cast<double>(e) / count));
  const HostTensor floats = tensor.dtype == DType::float32 ? HostTensor{} : to_float32(tensor);
  for (const float value : float_values(tensor.dtype == DType::float32 ? tensor : floats)) {
    if (!std::isfinite(value)) continue;
    const double place = width > 0 ? (static_cast<double>(value) - facts.min) / width * count : 0;
    ++made.counts[static_cast<std::size_t>(std::clamp(place, 0.0, count - 1))];
  }
  return made;
}

std::vector<TensorHistogram> histograms_of(const SafetensorsFile& file) {
  std::vector<TensorHistogram> made;
  for (const auto& [name, tensor] : file.tensors) made.push_back(histogram_of(name, tensor));
  return made;
}

std::vector<TensorHistogram> read_histograms(const std::filesystem::path& path, std::size_t most) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  const std::string text = read_file(path);
  std::vector<TensorHistogram> all;
  std::set<std::int64_t> updates;
  std::size_t number = 1;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
    try {
      all.push_back(parse_histogram(nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                          text.begin() + static_cast<std::ptrdiff_t>(end))));
    } catch (const std::exception& wrong) {
      throw DataError(fmt::format("{}:{}: expected a histogram: {}", path.string(), number, wrong.what()));
    }
    updates.insert(all.back().update);
  }
  if (all.empty()) return all;
  const auto each = static_cast<std::size_t>(std::ranges::count(all, all.back().update, &TensorHistogram::update));
  const std::set<std::int64_t> chosen = chosen_updates(updates, std::clamp<std::size_t>(most / each, 1, kMostUpdates));
  std::erase_if(all, [&](const TensorHistogram& one) { return !chosen.contains(one.update); });
  return all;
}

}  // namespace bantam::run
