// Messages of a run's beginning.
#include "bantam/cli/train_printer.h"

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/text.h"
#include "bantam/run/ranks/rank_devices.h"

namespace bantam::cli {

void TrainPrinter::on_decided(const RunConfig& config, const DecisionLog& log) {
  config_ = config;
  for (const std::string& message : log.messages) progress_.message(message);
  for (const std::string& warning : log.warnings) progress_.warning(warning);
}

void TrainPrinter::on_read(std::string_view set, std::int64_t read, std::int64_t samples) {
  progress_.reading({set, read, samples});
}

void TrainPrinter::on_begin(const RunStart& run) {
  if (run.config.data) report_ignored(*run.config.data);
  shown.show_memory_of(run.runtime.allocator(run.config.device));
  shown.name_accuracy(run::accuracy_name(run.config));
  progress_.message(fmt::format("{} on {}, {}; run folder {}", run.config.model.name,
                                run::devices_text(run.config.device, run.config.assigned.size()),
                                to_string(run.config.precision), run.directory.path().string()));
  if (on_folder) on_folder(run.directory.path());
  progress_.message(fmt::format("planned: {} in use at the peak, {} reserved", format_byte_size(run.plan.peak_bytes),
                                format_byte_size(run.plan.pool_bytes)));
}

/// Files among the training data that are no samples.
void TrainPrinter::report_ignored(const DataOptions& data) {
  const IgnoredFiles ignored = data.source.train->ignored();
  if (ignored.count == 0) return;
  progress_.message(fmt::format("ignored: {} file{} among the training data: {}{}", format_count(ignored.count),
                                ignored.count == 1 ? "" : "s", bantam::shown(join(ignored.examples, ", ", ", "), 200),
                                ignored.count > std::ssize(ignored.examples) ? ", …" : ""));
}

}  // namespace bantam::cli
