// The profile's sentence first, then its tables from the longest down.
#include "bantam/cli/profile/step_profile_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/cli/print/fitted_text.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;
using kernels::KernelPhase;
using run::TimedWork;

constexpr std::size_t kLeastName = 12;

std::string shortened(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

std::string microseconds(double seconds) { return fmt::format("{:.1f}", 1e6 * seconds); }
std::string percent(double part, double whole) { return fmt::format("{:.1f}", whole > 0 ? 100 * part / whole : 0); }

std::string operation_name(const std::string& name) { return name.empty() ? "(no operation)" : printable_line(name); }

/// Words in lines of less than `columns`.
std::string filled(const std::string& text, std::size_t columns) {
  std::string lines;
  std::size_t column = 0, begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > 0 && column + 1 + display_width(word) >= columns) {
      lines += '\n';
      column = 0;
    }
    lines += (column > 0 ? " " : "") + word;
    column += display_width(word) + (column > 0 ? 1 : 0);
    begin = end + 1;
  }
  return lines + '\n';
}

/// How much of the time the floor is, and which rate sets it: "71 bytes"; "" where nothing is known.
std::string reached(const TimedWork& work, double floor, const run::StepProfile& profile) {
  if (!profile.rates || work.seconds <= 0 || floor <= 0) return "";
  const bool bytes = work.bytes * profile.rates->flops_per_s >= work.flops * profile.rates->copy_bytes_per_s;
  return fmt::format("{:.0f} {}", 100 * floor / work.seconds, bytes ? "bytes" : "flops");
}

/// Time of forward, and of the phases of backward.
double forward_of(const run::ProfiledNode& node) {
  return node.by_phase[static_cast<std::size_t>(KernelPhase::forward)].seconds;
}
double backward_of(const run::ProfiledNode& node) {
  double sum = 0;
  for (const KernelPhase phase : {KernelPhase::backward, KernelPhase::recompute, KernelPhase::rebuild})
    sum += node.by_phase[static_cast<std::size_t>(phase)].seconds;
  return sum;
}

double floor_of(const run::ProfiledNode& node, const run::StepProfile& profile) {
  double sum = 0;
  if (profile.rates)
    for (const TimedWork& work : node.by_phase) sum += work.floor_seconds(*profile.rates);
  return sum;
}

std::size_t shown_rows(std::size_t count, std::size_t rows) { return rows == 0 ? count : std::min(count, rows); }

void add_gap_rows(Table& table, const run::StepProfile& profile) {
  double inside = 0, between = 0;
  for (const run::ProfiledGap& gap : profile.gaps) (gap.between_updates() ? between : inside) += gap.seconds;
  if (profile.device.is_cuda() && profile.recording.method == run::RecordingMethod::driver_trace)
    table.add_row({"(between kernels)", "", microseconds(inside), percent(inside, profile.step_seconds)});
  table.add_row({"(between steps)", "", microseconds(between), percent(between, profile.step_seconds)});
}

std::string operations_text(const run::StepProfile& profile, std::size_t rows, std::size_t most) {
  std::vector<const run::ProfiledNode*> nodes;
  for (const run::ProfiledNode& node : profile.nodes)
    if (node.total().seconds > 0) nodes.push_back(&node);
  std::ranges::stable_sort(nodes, std::greater<>(), [](const auto* node) { return node->total().seconds; });
  Table table(
      {{"operation", Align::left}, {"runs", Align::left}, {"us"}, {"%"}, {"forward"}, {"backward"}, {"floor %"}});
  const std::size_t shown = shown_rows(nodes.size(), rows);
  double others = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const run::ProfiledNode& node = *nodes[i];
    const TimedWork total = node.total();
    if (i >= shown) {
      others += total.seconds;
      continue;
    }
    table.add_row({bantam::shown(operation_name(node.name), most), bantam::shown(node.runs, most),
                   microseconds(total.seconds), percent(total.seconds, profile.step_seconds),
                   microseconds(forward_of(node)), microseconds(backward_of(node)),
                   reached(total, floor_of(node, profile), profile)});
  }
  if (shown < nodes.size())
    table.add_row({fmt::format("({})", counted(nodes.size() - shown, "other")), "", microseconds(others),
                   percent(others, profile.step_seconds)});
  add_gap_rows(table, profile);
  table.add_rule();
  table.add_row({"one step", "", microseconds(profile.step_seconds), "100.0", "", "",
                 profile.rates ? fmt::format("{:.0f}", 100 * profile.floor_seconds() / profile.step_seconds) : ""});
  return table.to_string();
}

/// Kernels of one name, of all operations.
struct KernelRow {
  std::string name;
  TimedWork work;
  double floor = 0;
};

std::vector<KernelRow> kernel_rows(const run::StepProfile& profile) {
  std::vector<KernelRow> rows;
  for (const run::ProfiledKernel& kernel : profile.kernels) {
    const std::string name = kernel.device_kernel.empty() || kernel.kernel.empty()
                                 ? kernel.kernel + kernel.device_kernel
                                 : kernel.kernel + ": " + kernel.device_kernel;
    auto row = std::ranges::find(rows, name, &KernelRow::name);
    if (row == rows.end()) row = rows.insert(rows.end(), {name, {}});
    row->work.add(kernel.work);
    if (profile.rates) row->floor += kernel.work.floor_seconds(*profile.rates);
  }
  std::ranges::stable_sort(rows, std::greater<>(), [](const KernelRow& row) { return row.work.seconds; });
  return rows;
}

std::string kernels_text(const run::StepProfile& profile, std::size_t rows, std::size_t most) {
  const std::vector<KernelRow> all = kernel_rows(profile);
  Table table({{"kernel", Align::left}, {"calls"}, {"us"}, {"%"}, {"floor %"}});
  for (std::size_t i = 0; i < shown_rows(all.size(), rows); ++i)
    table.add_row({shortened(all[i].name, most), fmt::format("{:.0f}", all[i].work.calls),
                   microseconds(all[i].work.seconds), percent(all[i].work.seconds, profile.step_seconds),
                   reached(all[i].work, all[i].floor, profile)});
  return table.to_string();
}

std::string gaps_text(const run::StepProfile& profile, std::size_t rows, std::size_t most) {
  constexpr double kWorthARow = 1e-3;  // of a step
  Table table({{"gap after", Align::left}, {"before", Align::left}, {"us"}, {"%"}});
  std::size_t shown = 0;
  for (const run::ProfiledGap& gap : profile.gaps) {
    if (gap.seconds < kWorthARow * profile.step_seconds || (rows > 0 && shown == rows)) break;
    ++shown;
    table.add_row({gap.after.empty() ? "(the step before)" : bantam::shown(gap.after, most),
                   gap.before.empty() ? "(the next step)" : bantam::shown(gap.before, most), microseconds(gap.seconds),
                   percent(gap.seconds, profile.step_seconds)});
  }
  return shown > 0 ? "\n" + table.to_string() : "";
}

std::string threads_text(const run::StepProfile& profile) {
  if (profile.threads.empty()) return "";
  std::string text;
  for (const run::ProfiledThread& thread : profile.threads)
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ",
                        thread.thread == 0 ? "main" : fmt::format("worker {}", thread.thread), 100 * thread.busy_share);
  return fmt::format("\nthreads at work: {}\n", text);
}

std::string steps_words(const run::StepProfileOptions& options) {
  return options.first_step == options.last_step ? fmt::format("step {}", options.first_step)
                                                 : fmt::format("steps {} to {}", options.first_step, options.last_step);
}

std::string changes_text(const run::StepProfile& profile) {
  const bool measured = profile.options.try_seconds > 0;
  std::vector<Table::Column> columns = {{"change", Align::left}, {"time a sample, predicted"}, {"peak"}};
  if (measured) columns.insert(columns.end() - 1, {"measured"});
  Table table(std::move(columns));
  for (const run::StepChange& change : profile.changes) {
    std::vector<std::string> row = {change.words, predicted_percent(change.predicted_share - 1, change.estimate)};
    if (measured)
      row.push_back(change.measured_share ? fmt::format("{:+.1f} %", 100 * (*change.measured_share - 1)) : "");
    row.push_back(format_byte_size(change.peak_bytes) + (change.fits ? "" : ", too much"));
    table.add_row(std::move(row));
  }
  return "\n" + table.to_string() +
         (measured ? "" : "Predictions are fitted to an H200; --try measures each change.\n");
}

Json kernel_json(const run::ProfiledKernel& kernel, const run::StepProfile& profile) {
  Json json = {{"operation", kernel.operation}, {"phase", to_string(kernel.phase)}, {"kernel", kernel.kernel}};
  if (!kernel.device_kernel.empty()) json["device_kernel"] = kernel.device_kernel;
  json["calls"] = kernel.work.calls;
  json["us"] = 1e6 * kernel.work.seconds;
  json["bytes"] = kernel.work.bytes;
  json["flops"] = kernel.work.flops;
  if (profile.rates) json["floor_us"] = 1e6 * kernel.work.floor_seconds(*profile.rates);
  return json;
}

Json node_json(const run::ProfiledNode& node, const run::StepProfile& profile) {
  const TimedWork total = node.total();
  Json json = {{"name", node.name}, {"runs", node.runs}, {"us", 1e6 * total.seconds}};
  Json phases = Json::object();
  for (std::size_t i = 0; i < node.by_phase.size(); ++i)
    if (node.by_phase[i].calls > 0)
      phases[std::string(to_string(static_cast<KernelPhase>(i)))] = 1e6 * node.by_phase[i].seconds;
  json["phases_us"] = std::move(phases);
  json["calls"] = total.calls;
  json["bytes"] = total.bytes;
  json["flops"] = total.flops;
  if (profile.rates) json["floor_us"] = 1e6 * floor_of(node, profile);
  json["predicted_us"] = 1e6 * node.predicted_seconds;
  return json;
}

Json change_json(const run::StepChange& change) {
  Json json = {{"change", change.words}, {"predicted_share", change.predicted_share}};
  if (change.estimate) json["estimate"] = true;
  if (change.measured_share) json["measured_share"] = *change.measured_share;
  json["peak_bytes"] = change.peak_bytes;
  json["fits"] = change.fits;
  return json;
}

Json step_json(const run::StepProfile& profile) {
  Json json = {{"model", profile.model},
               {"device", to_string(profile.device)},
               {"batch", profile.step.batch},
               {"precision", to_string(profile.step.precision)},
               {"recompute", to_string(profile.step.recompute)},
               {"mode", to_string(profile.step.mode)},
               {"accumulate", profile.accumulate},
               {"method", to_string(profile.recording.method)},
               {"updates_a_launch", profile.recording.updates_a_launch},
               {"first_step", profile.options.first_step},
               {"last_step", profile.options.last_step},
               {"step_us", 1e6 * profile.step_seconds},
               {"unprofiled_us", 1e6 * profile.recording.plain_seconds},
               {"gap_us", 1e6 * profile.gap_seconds}};
  if (profile.recording.method == run::RecordingMethod::driver_trace)
    json["trace_cost_us"] = 1e6 * profile.recording.trace_cost_seconds;
  if (!profile.recording.why_not_traced.empty()) json["why_not_traced"] = profile.recording.why_not_traced;
  if (profile.rates) {
    json["floor_us"] = 1e6 * profile.floor_seconds();
    json["rates"] = {{"copy_bytes_per_s", profile.rates->copy_bytes_per_s},
                     {"flops_per_s", profile.rates->flops_per_s}};
  }
  json["headline"] = profile.headline;
  return json;
}

}  // namespace

std::string method_words(run::RecordingMethod method, const std::string& why_not_traced) {
  switch (method) {
    case run::RecordingMethod::driver_trace:
      return "the driver's trace of captured steps";
    case run::RecordingMethod::device_events:
      return fmt::format("events between the kernel calls of steps that are not captured ({})", why_not_traced);
    case run::RecordingMethod::host_clock:
      break;
  }
  return "the host's clock between kernel calls";
}

std::string text_of(const run::StepProfile& profile, std::size_t rows, TextColumns columns) {
  const auto fitted = [&](auto* table_text) {
    return fitted_text(columns.table, kLeastName, [&](std::size_t most) { return table_text(profile, rows, most); });
  };

  const double plain = profile.recording.plain_seconds;
  std::string text =
      fmt::format("{} on {}, {}, batch {}, recompute {}\n\n{}\n", printable_line(profile.model),
                  to_string(profile.device), to_string(profile.step.precision), profile.step.batch,
                  shortened(to_string(profile.step.recompute), 40), filled(profile.headline, columns.text));
  text += fitted(operations_text) + "\n" + fitted(kernels_text) + fitted(gaps_text) + threads_text(profile) +
          changes_text(profile) + "\n";
  text += filled(
      fmt::format("Measured: {}, by {}; an unprofiled step lasts {} us ({:+.1f} %).", steps_words(profile.options),
                  method_words(profile.recording.method, profile.recording.why_not_traced), microseconds(plain),
                  plain > 0 ? 100 * (plain / profile.step_seconds - 1) : 0),
      columns.text);
  if (profile.recording.trace_cost_seconds > 0)
    text += filled(fmt::format("Tracing made a step {} us longer, which is taken off: an equal share from each kernel.",
                               microseconds(profile.recording.trace_cost_seconds)),
                   columns.text);
  if (profile.rates)
    text += filled(
        fmt::format(
            "floor %: the least time by the device's rates ({:.0f} GB/s copied, {:.0f} GFLOP/s multiplied, measured in "
            "this call) over the time; above 100: a cache had the data.",
            1e-9 * profile.rates->copy_bytes_per_s, 1e-9 * profile.rates->flops_per_s),
        columns.text);
  return text;
}

nlohmann::ordered_json json_of(const run::StepProfile& profile) {
  Json json = step_json(profile);
  for (const char* list : {"operations", "kernels", "gaps", "threads", "changes"}) json[list] = Json::array();
  for (const run::ProfiledNode& node : profile.nodes) json["operations"].push_back(node_json(node, profile));
  for (const run::ProfiledKernel& kernel : profile.kernels) json["kernels"].push_back(kernel_json(kernel, profile));
  for (const run::ProfiledGap& gap : profile.gaps)
    json["gaps"].push_back({{"after", gap.after}, {"before", gap.before}, {"us", 1e6 * gap.seconds}});
  for (const run::ProfiledThread& thread : profile.threads)
    json["threads"].push_back({{"thread", thread.thread}, {"busy_share", thread.busy_share}});
  for (const run::StepChange& change : profile.changes) json["changes"].push_back(change_json(change));
  return json;
}

}  // namespace bantam::cli
