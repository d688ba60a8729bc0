// A step's profile in words: its largest part, its gaps, and the changes that would make it faster.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cxxabi.h>
#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/text.h"
#include "bantam/run/profile/step_profile.h"

namespace bantam::run {
namespace {

constexpr double kWorthNaming = 0.02;  // of a step

double percent(double share) { return 100 * share; }

/// "stage1_block2/conv1" → "stage1"; "" of a name that is in no block.
std::string stage_of(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return "";
  const std::string block = name.substr(0, slash);
  const std::size_t at = block.rfind("_block");
  const bool numbered = at != std::string::npos && at > 0 && at + 6 < block.size() &&
                        std::all_of(block.begin() + static_cast<std::ptrdiff_t>(at) + 6, block.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  return numbered ? block.substr(0, at) : block;
}

std::string group_words(const ProfiledGroup& group) {
  std::string text = group.stage.empty() ? group.runs : group.runs + " in " + group.stage;
  if (group.operations > 1) text += fmt::format(" ({} operations)", group.operations);
  return text;
}

/// ", which moves data at 71 % of the device's copying speed"; the device's rates are those of its memory.
std::string reached_words(const StepProfile& profile, const ProfiledGroup& group) {
  if (!profile.rates || group.work.seconds <= 0) return "";
  const double floor = group.work.floor_seconds(*profile.rates);
  const bool bytes =
      group.work.bytes / profile.rates->copy_bytes_per_s >= group.work.flops / profile.rates->flops_per_s;
  if (floor > group.work.seconds) return ", whose data are in a cache";
  return fmt::format(", which {} {:.0f} % of the device's {}", bytes ? "moves data at" : "computes at",
                     percent(floor / group.work.seconds), bytes ? "copying speed" : "speed in large matrix products");
}

std::string gap_words(const StepProfile& profile) {
  const double share = profile.gap_seconds / profile.step_seconds;
  if (share < kWorthNaming) return "";
  const std::string text = fmt::format("{:.0f} % of a step", percent(share));
  return profile.device.is_cuda() ? " For " + text + " the GPU is idle." : " " + text + " lies between kernels.";
}

std::string thread_words(const StepProfile& profile) {
  if (profile.threads.size() < 2) return "";
  double sum = 0;
  for (const ProfiledThread& thread : profile.threads) sum += thread.busy_share;
  return fmt::format(" The {} threads are busy {:.0f} % of the time.", profile.threads.size(),
                     percent(sum / static_cast<double>(profile.threads.size())));
}

/// The cost model is fitted to a GPU: on a CPU its figures are no advice, and the changes are named without them.
std::string untried_words(const StepProfile& profile) {
  std::vector<std::string> names;
  for (const StepChange& change : profile.changes)
    if (change.fits) names.push_back(change.words);
  return names.empty() ? "" : fmt::format(" --try measures {}.", join(names, ", ", " and "));
}

/// " With precision: mixed_float16 a sample would need 40 % less time (predicted; peak 2.10 GiB), with …"
std::string change_words(const StepProfile& profile) {
  if (!profile.device.is_cuda() && profile.options.try_seconds == 0) return untried_words(profile);
  std::string text;
  for (const StepChange& change : profile.changes) {
    if (!change.fits || change.share() > 1 - kWorthNaming) continue;
    const char* verb = change.measured_share ? "needed" : "would need";
    text += fmt::format("{} {} {} {:.0f} % less time ({}; peak {})", text.empty() ? " With" : ", with", change.words,
                        text.empty() ? fmt::format("a sample {}", verb) : verb, percent(1 - change.share()),
                        change.measured_share ? "measured" : "predicted", format_byte_size(change.peak_bytes));
  }
  if (!text.empty()) return text + ".";
  return fmt::format(" No setting is {} to save {:.0f} % of it.",
                     profile.options.try_seconds > 0 ? "measured" : "predicted", percent(kWorthNaming));
}

/// The text up to the '(' of the parameters, which is the first one in no <…> that opens no "(anonymous namespace)".
std::string without_parameters(const std::string& text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (depth == 0 && text[i] == '(' && text.compare(i, 21, "(anonymous namespace)") != 0) return text.substr(0, i);
  }
  return text;
}

/// Without what comes before the last "::" or " " that is in no <…>: namespaces, and a return type.
std::string last_name(const std::string& text) {
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(') ++depth;
    if (text[i] == '>' || text[i] == ')') --depth;
    if (depth == 0 && (text[i] == ' ' || text[i] == ':')) begin = i + 1;
  }
  return text.substr(begin);
}

}  // namespace

ProfiledGroup StepProfile::largest_group() const {
  std::map<std::pair<std::string, std::string>, ProfiledGroup> groups;
  for (const ProfiledNode& node : nodes) {
    ProfiledGroup& group = groups[{node.runs.empty() ? node.name : node.runs, stage_of(node.name)}];
    group.runs = node.runs.empty() ? node.name : node.runs;
    group.stage = stage_of(node.name);
    group.operations += 1;
    group.work.add(node.total());
  }
  ProfiledGroup largest;
  for (const auto& [key, group] : groups)
    if (group.work.seconds > largest.work.seconds) largest = group;
  return largest;
}

std::string step_headline(const StepProfile& profile) {
  const ProfiledGroup group = profile.largest_group();
  return fmt::format("{:.0f} % of a step is {}{}.{}{}{}", percent(group.work.seconds / profile.step_seconds),
                     group_words(group), reached_words(profile, group), gap_words(profile), thread_words(profile),
                     change_words(profile));
}

std::string readable_kernel(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                     std::free);
  return last_name(without_parameters(status == 0 && plain ? plain.get() : name));
}

}  // namespace bantam::run
