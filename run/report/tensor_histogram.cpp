// Counts of values between edges, from tensors and from a run's log of them.
#include "bantam/run/report/tensor_histogram.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/json.h"
#include "bantam/run/log/histogram.h"
#include "bantam/run/train/json_fields.h"

namespace bantam::run {
namespace {

constexpr std::size_t kMostUpdates = 8;

ReportedHistogram parse_histogram(const nlohmann::ordered_json& line) {
  ReportedHistogram read{.tensor = field<std::string>(line, "tensor"),
                         .kind = field<std::string>(line, "kind"),
                         .update = field<std::int64_t>(line, "update"),
                         .minimum = field<double>(line, "minimum"),
                         .maximum = field<double>(line, "maximum"),
                         .mean = field<double>(line, "mean"),
                         .deviation = field<double>(line, "deviation"),
                         .edges = field<std::vector<double>>(line, "edges"),
                         .counts = field<std::vector<double>>(line, "counts")};
  if (read.edges.size() != read.counts.size() + 1 || !std::ranges::is_sorted(read.edges))
    throw DataError(fmt::format("expected ascending edges, one more than the {} counts", read.counts.size()));
  return read;
}

ReportedHistogram parsed(std::string_view text, const std::filesystem::path& path, std::size_t number) {
  try {
    return parse_histogram(parse_json(text));
  } catch (const DataError& wrong) {
    throw DataError(fmt::format("{}:{}: expected a histogram: {}", path.string(), number, wrong.what()));
  }
}

/// A line of the log, which may have hundreds of megabytes: few of its lines are read as more than this.
struct LoggedLine {
  std::uint64_t offset = 0;
  std::int64_t update = 0;
};

/// The number after "update": in a line; that of the whole object where it is not there.
std::int64_t update_of(std::string_view text, const std::filesystem::path& path, std::size_t number) {
  constexpr std::string_view kKey = "\"update\":";
  const std::size_t key = text.find(kKey);
  std::size_t at = key == std::string::npos ? text.size() : key + kKey.size();
  while (at < text.size() && text[at] == ' ') ++at;
  std::int64_t update = 0;
  const auto [end, wrong] = std::from_chars(text.data() + at, text.data() + text.size(), update);
  return wrong == std::errc() && end != text.data() + at ? update : parsed(text, path, number).update;
}

/// The whole lines of the file; none where it is not there.
std::vector<LoggedLine> lines_of(const std::filesystem::path& path, const std::function<void()>& on_line) {
  std::vector<LoggedLine> lines;
  (void)read_lines({.path = path}, 0, [&](const FileLine& line) {
    if (on_line) on_line();
    if (line.is_whole) lines.push_back({line.offset, update_of(line.text, path, line.number)});
    return true;
  });
  return lines;
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

ReportedHistogram histogram_of(const std::string& name, const HostTensor& tensor) {
  const HostTensor floats = tensor.dtype == DType::float32 ? HostTensor{} : to_float32(tensor);
  const Histogram found = histogram_of(float_values(tensor.dtype == DType::float32 ? tensor : floats));
  ReportedHistogram made{.tensor = name,
                         .kind = "weight",
                         .minimum = found.minimum,
                         .maximum = found.maximum,
                         .mean = found.mean,
                         .deviation = found.deviation};
  if (found.finite == 0) return made;
  made.edges.assign(found.edges.begin(), found.edges.end());
  made.counts.assign(found.counts.begin(), found.counts.end());
  return made;
}

std::vector<ReportedHistogram> histograms_of(const SafetensorsFile& file) {
  std::vector<ReportedHistogram> made;
  for (const auto& [name, tensor] : file.tensors) made.push_back(histogram_of(name, tensor));
  return made;
}

std::vector<ReportedHistogram> read_histograms(const std::filesystem::path& path, std::size_t most,
                                               const std::function<void()>& on_line) {
  if (most == 0) return {};
  const std::vector<LoggedLine> lines = lines_of(path, on_line);
  if (lines.empty()) return {};
  std::set<std::int64_t> updates;
  for (const LoggedLine& line : lines) updates.insert(line.update);
  const auto each = static_cast<std::size_t>(std::ranges::count(lines, lines.back().update, &LoggedLine::update));
  const std::set<std::int64_t> chosen = chosen_updates(updates, std::clamp<std::size_t>(most / each, 1, kMostUpdates));
  std::vector<ReportedHistogram> read;
  for (std::size_t l = 0; l < lines.size(); ++l)
    if (chosen.contains(lines[l].update))
      (void)read_lines({.path = path}, lines[l].offset, [&](const FileLine& line) {
        if (on_line) on_line();
        read.push_back(parsed(line.text, path, l + 1));
        return false;
      });
  return read;
}

}  // namespace bantam::run
