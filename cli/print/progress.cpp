// Lines of progress, and how often they are written.
#include "bantam/cli/print/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"

namespace bantam::cli {
namespace {

constexpr std::chrono::milliseconds kBarPause{100};
constexpr std::chrono::seconds kPlainPause{5};
constexpr int kLongestBar = 30, kShortestBar = 6;

std::string memory_text(const ProgressState& s) {
  std::string text = compact_bytes(s.memory_now) + "/" + compact_bytes(s.memory_peak);
  if (s.memory_limit > 0) text += "/" + compact_bytes(s.memory_limit);
  return text;
}

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string memory_cell(const ProgressState& s) {
  return fmt::format(" mem {:<{}}", memory_text(s), s.memory_limit > 0 ? 17 : 11);
}

/// "binary accuracy" of "binary_accuracy".
std::string long_title(std::string_view accuracy_name) {
  std::string title(accuracy_name);
  std::ranges::replace(title, '_', ' ');
  return title;
}
/// In lines that have to be short.
std::string_view short_title(std::string_view accuracy_name) { return accuracy_name == kAccuracy ? "acc" : "bin acc"; }

/// Nothing where no sample is right or wrong.
std::string accuracy_cell(std::string_view title, double accuracy, int digits) {
  return std::isnan(accuracy) ? "" : fmt::format(" {} {:.{}f}", title, accuracy, digits);
}

/// The text after a bar, which keeps its width while the numbers gain and lose digits: each has room for its widest.
std::string long_bar_state(const ProgressState& s) {
  return fmt::format(" {:>{}}/{}  {:>5.0f} images/s  ETA {:<6}  loss {:.4f} {} {}  data wait {:<4}", s.step,
                     std::to_string(s.steps).size(), s.steps, s.images_per_second, format_duration(s.eta_seconds),
                     s.loss, accuracy_cell(long_title(s.accuracy_name), s.accuracy, 4), memory_cell(s),
                     percent(s.data_wait_share));
}

std::string short_bar_state(const ProgressState& s) {
  return fmt::format(" {:>{}}/{} {:>5}/s ETA {:<6} loss {:.3f}{}", s.step, std::to_string(s.steps).size(), s.steps,
                     compact_rate(s.images_per_second), format_duration(s.eta_seconds), s.loss,
                     accuracy_cell(short_title(s.accuracy_name), s.accuracy, 3));
}
std::string wait_cell(const ProgressState& s) { return fmt::format(" wait {:<4}", percent(s.data_wait_share)); }

/// Makes the beginning that all lines of a log share: epoch, loss and accuracy.
std::string log_head(std::int64_t epoch, std::int64_t epochs, double loss, std::string_view accuracy_name,
                     double accuracy) {
  return fmt::format("epoch {}/{} loss {:.4f}", epoch, epochs, loss) +
         accuracy_cell(short_title(accuracy_name), accuracy, 4);
}

std::string bar(double share, int width) {
  const int inside = width - 2;
  const int done = static_cast<int>(std::clamp(share, 0.0, 1.0) * inside);
  return "[" + std::string(static_cast<std::size_t>(done), '=') +
         std::string(static_cast<std::size_t>(inside - done), ' ') + "]";
}

}  // namespace

ProgressMode parse_progress_mode(std::string_view text, std::FILE* out) {
  if (text == "auto") return isatty(fileno(out)) != 0 ? ProgressMode::bar : ProgressMode::plain;
  if (text == "bar") return ProgressMode::bar;
  if (text == "plain") return ProgressMode::plain;
  if (text == "json") return ProgressMode::json;
  if (text == "none") return ProgressMode::none;
  throw ConfigError(fmt::format("--progress: expected auto, bar, plain, json or none, got '{}'", text));
}

std::string bar_line(const ProgressState& s, int width) {
  const std::string long_head = fmt::format("epoch {}/{} ", s.epoch, s.epochs),
                    short_head = fmt::format("{}/{} ", s.epoch, s.epochs), tail = short_bar_state(s);
  const double share = s.steps > 0 ? static_cast<double>(s.step) / static_cast<double>(s.steps) : 0.0;
  // The lines go from the longest to the shortest: the first that has space for a bar is shown.
  const std::pair<std::string, std::string> lines[] = {{long_head, long_bar_state(s)},
                                                       {short_head, tail + memory_cell(s) + wait_cell(s)},
                                                       {short_head, tail + memory_cell(s)},
                                                       {short_head, tail}};
  for (const auto& [before, after] : lines) {
    const int room = width - static_cast<int>(display_width(before) + display_width(after));
    if (room >= kShortestBar) return before + bar(share, std::min(room, kLongestBar)) + after;
  }
  const std::string line = short_head + (tail + memory_cell(s) + wait_cell(s)).substr(1);
  return line.substr(0, static_cast<std::size_t>(std::max(width, 1)));
}

std::string plain_line(const ProgressState& s) {
  return log_head(s.epoch, s.epochs, s.loss, s.accuracy_name, s.accuracy) +
         fmt::format(" step {}/{} {}/s ETA {}", s.step, s.steps, compact_rate(s.images_per_second),
                     format_duration(s.eta_seconds));
}

std::string evaluation_line(const EvaluationState& s) {
  return fmt::format("epoch {}/{} evaluating: batch {}/{} ETA {}", s.epoch, s.epochs, s.batch, s.batches,
                     format_duration(s.eta_seconds));
}

std::string reading_line(const ReadingState& s) {
  return fmt::format("reading {}: {} of {} samples", s.set, format_count(s.read), format_count(s.samples));
}

std::string work_line(const WorkState& s) {
  const std::string line = fmt::format("{}: {} {} of {}", s.what, s.unit, format_count(s.done), format_count(s.all));
  return s.done > 0 ? line + " ETA " + format_duration(s.eta_seconds) : line;  // before, nobody knows
}

std::string epoch_line(const EpochSummary& e) {
  std::string line = e.trained ? log_head(e.epoch, e.epochs, e.loss, e.accuracy_name, e.accuracy)
                               : fmt::format("epoch {}/{}", e.epoch, e.epochs);
  if (e.validated)
    line += fmt::format(" val loss {:.4f}", e.validation_loss) +
            accuracy_cell(short_title(e.accuracy_name), e.validation_accuracy, 4);
  return line + " " + format_duration(e.seconds);
}

std::string evaluated_line(const EvaluatedSummary& e) {
  const std::string head =
      e.test ? "test" : fmt::format("epoch {}/{} step {}/{} val", e.epoch, e.epochs, e.step, e.steps);
  return fmt::format("{} loss {:.4f}{}", head, e.loss, accuracy_cell(short_title(e.accuracy_name), e.accuracy, 4));
}

std::string run_begin_line(const SweepRunState& s) { return fmt::format("run {}/{}: {}", s.run, s.runs, s.setting); }

std::string run_end_line(const SweepRunState& s) {
  std::string line = fmt::format("run {}/{}:", s.run, s.runs);
  for (const auto& [name, value] : s.values)
    line += fmt::format("{} {} {:.4f}", &name == &s.values.front().first ? "" : ",", name, value);
  line += " in " + format_duration(s.seconds);
  return s.run < s.runs ? line + ", ETA " + format_duration(s.eta_seconds) : line;
}

std::string json_line(const ProgressState& s) {
  nlohmann::ordered_json line = {{"event", "progress"},
                                 {"epoch", s.epoch},
                                 {"epochs", s.epochs},
                                 {"step", s.step},
                                 {"steps", s.steps},
                                 {"images_per_s", s.images_per_second},
                                 {"eta_seconds", s.eta_seconds},
                                 {"loss", s.loss},
                                 {std::string(s.accuracy_name), s.accuracy},
                                 {"memory_now_bytes", s.memory_now},
                                 {"memory_peak_bytes", s.memory_peak},
                                 {"memory_limit_bytes", s.memory_limit},
                                 {"data_wait_share", s.data_wait_share}};
  if (std::isnan(s.accuracy)) line.erase(std::string(s.accuracy_name));
  return json_text(line);
}

std::string json_line(const EvaluationState& s) {
  const nlohmann::ordered_json line = {{"event", "evaluation"}, {"epoch", s.epoch},     {"epochs", s.epochs},
                                       {"batch", s.batch},      {"batches", s.batches}, {"eta_seconds", s.eta_seconds}};
  return json_text(line);
}

std::string json_line(const ReadingState& s) {
  const nlohmann::ordered_json line = {{"event", "reading"}, {"set", s.set}, {"read", s.read}, {"samples", s.samples}};
  return json_text(line);
}

std::string json_line(const WorkState& s) {
  const nlohmann::ordered_json line = {
      {"event", s.what}, {"done", s.done}, {"all", s.all}, {"eta_seconds", s.eta_seconds}};
  return json_text(line);
}

std::string json_line(const EvaluatedSummary& e) {
  const std::string prefix = e.test ? "test_" : "validation_";
  nlohmann::ordered_json line = {{"event", e.test ? "test" : "evaluated"}, {"epoch", e.epoch}, {"epochs", e.epochs}};
  if (!e.test) {
    line["step"] = e.step;
    line["steps"] = e.steps;
  }
  line[prefix + "loss"] = e.loss;
  if (!std::isnan(e.accuracy)) line[prefix + std::string(e.accuracy_name)] = e.accuracy;
  for (const auto& [name, value] : e.values) line[prefix + name] = value;
  return json_text(line);
}

std::string json_line(const EpochSummary& e) {
  nlohmann::ordered_json line = {{"event", "epoch"}, {"epoch", e.epoch}, {"epochs", e.epochs}};
  if (e.trained) {
    line["loss"] = e.loss;
    if (!std::isnan(e.accuracy)) line[std::string(e.accuracy_name)] = e.accuracy;
    for (const auto& [name, value] : e.values) line[name] = value;
  }
  line["seconds"] = e.seconds;
  line["images_per_s"] = e.images_per_second;
  line["data_wait_share"] = e.data_wait_share;
  if (e.validated) {
    line["validation_loss"] = e.validation_loss;
    if (!std::isnan(e.validation_accuracy)) line["validation_" + std::string(e.accuracy_name)] = e.validation_accuracy;
    for (const auto& [name, value] : e.validation_values) line["validation_" + name] = value;
  }
  return json_text(line);
}

void Progress::write_line(const std::string& line) {
  write_text(line + "\n", out_);
  std::fflush(out_);
}

bool Progress::plain_is_due() {
  const Clock::time_point now = Clock::now();
  if (last_ == Clock::time_point{}) last_ = now;  // the first line comes when there is something to say
  if (now - last_ < kPlainPause) return false;
  last_ = now;
  return true;
}

void Progress::draw(const std::string& line) {
  draw_line(line, static_cast<std::size_t>(std::max(terminal_columns(out_) - 1, 1)), out_);
  line_open_ = true;
}

void Progress::draw_if_due(const std::string& line) {
  const Clock::time_point now = Clock::now();
  if (now - last_ < kBarPause) return;
  last_ = now;
  draw(line);
}

void Progress::update(const ProgressState& state) {
  if (mode_ == ProgressMode::none) return;
  if (mode_ == ProgressMode::json) return write_line(json_line(state));
  if (mode_ == ProgressMode::plain) {
    if (plain_is_due()) write_line(plain_line(state));
    return;
  }
  const Clock::time_point now = Clock::now();
  if (last_ != Clock::time_point{} && now - last_ < kBarPause && state.step != state.steps) return;
  last_ = now;
  // One column is left free: some terminals begin a new line when the last one is written.
  draw(bar_line(state, terminal_columns(out_) - 1));
}

void Progress::evaluation(const EvaluationState& state) {
  if (mode_ == ProgressMode::none) return;
  if (mode_ == ProgressMode::json) return write_line(json_line(state));
  if (mode_ == ProgressMode::plain) {
    if (plain_is_due()) write_line(evaluation_line(state));
    return;
  }
  draw_if_due(evaluation_line(state));
}

void Progress::reading(const ReadingState& state) {
  if (mode_ == ProgressMode::none) return;
  if (mode_ == ProgressMode::bar) return draw_if_due(reading_line(state));
  if (!plain_is_due()) return;
  write_line(mode_ == ProgressMode::json ? json_line(state) : reading_line(state));
}

void Progress::work(const WorkState& state) {
  if (mode_ == ProgressMode::none) return;
  if (mode_ == ProgressMode::json) return write_line(json_line(state));
  if (mode_ == ProgressMode::bar) return draw_if_due(work_line(state));
  if (plain_is_due()) write_line(work_line(state));
}

void Progress::epoch_end(const EpochSummary& epoch) {
  if (mode_ == ProgressMode::json)
    write_line(json_line(epoch));
  else
    message(epoch_line(epoch));
}

void Progress::evaluated(const EvaluatedSummary& evaluated) {
  if (mode_ == ProgressMode::json)
    write_line(json_line(evaluated));
  else
    message(evaluated_line(evaluated));
}

void Progress::run_begin(const SweepRunState& s) {
  if (mode_ != ProgressMode::json) return message(run_begin_line(s));
  write_line(json_text({{"event", "run_begin"}, {"run", s.run}, {"runs", s.runs}, {"setting", s.setting}}));
}

void Progress::run_end(const SweepRunState& s) {
  if (mode_ != ProgressMode::json) return message(run_end_line(s));
  nlohmann::ordered_json line = {{"event", "run_end"}, {"run", s.run}, {"runs", s.runs}, {"setting", s.setting}};
  for (const auto& [name, value] : s.values) line[name] = value;
  line["seconds"] = s.seconds;
  line["eta_seconds"] = s.eta_seconds;
  write_line(json_text(line));
}

void Progress::message(std::string_view text) {
  if (mode_ == ProgressMode::bar || mode_ == ProgressMode::plain) write_above_bar(text);
}

void Progress::warning(std::string_view text) {
  if (mode_ == ProgressMode::json)
    write_line(json_text(nlohmann::ordered_json({{"event", "warning"}, {"message", text}})));
  else
    write_above_bar(fmt::format("warning: {}", text));
}

void Progress::write_above_bar(std::string_view text) {
  if (line_open_) draw_line(text, std::string_view::npos, out_);
  write_line(line_open_ ? std::string() : std::string(text));
  line_open_ = false;
}

void Progress::close() {
  if (line_open_) write_line("");
  line_open_ = false;
}

}  // namespace bantam::cli
