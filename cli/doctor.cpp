// `bantam doctor`: whether this machine trains as it should, and what would make it faster.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/memory/device/device.h"
#include "bantam/run/doctor/machine.h"
#include "bantam/run/doctor/self_test.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutDoctor =
    "Looks at devices, driver, libraries, memory and disk; runs the kernels that\n"
    "networks spend their time in, on each device, and compares them with plain\n"
    "loops in float64; and says what would make training faster here. Takes some\n"
    "seconds. Exit codes: 0 all is well, 1 something is wrong.\n"
    "Example: bantam doctor";

struct DoctorOptions {
  std::string device;
  bool json = false;
};

/// The self-test of one device.
struct Tested {
  Device device;
  std::vector<run::KernelCheck> checks;
  double seconds = 0;

  std::int64_t passed() const {
    return std::ranges::count_if(checks, [](const run::KernelCheck& check) { return check.passed(); });
  }
  bool is_sound() const { return passed() == std::ssize(checks); }
};

std::vector<Device> devices_of(const DoctorOptions& options) {
  if (!options.device.empty()) return {of_flag("--device", [&] { return parse_device(options.device); })};
  std::vector<Device> devices;
  for (const DeviceInfo& info : list_devices()) devices.push_back(info.device);
  return devices;
}

Tested test(Device device) {
  const auto start = std::chrono::steady_clock::now();
  Runtime runtime;
  Tested tested{.device = device, .checks = run::check_kernels(runtime, device)};
  tested.seconds = seconds_since(start);
  return tested;
}

std::string line_of(const std::string& what, const std::string& text) { return fmt::format("{:<14}{}\n", what, text); }

std::string failure_of(const run::KernelCheck& check) {
  if (!check.failure.empty()) return check.failure.substr(0, check.failure.find('\n'));
  return fmt::format("error {:.2g}, expected at most {:.2g}", check.error, check.tolerance);
}

std::string text_of(const Tested& tested) {
  std::string text =
      line_of("kernels", fmt::format("{}: {} of {} agree with the references ({})", to_string(tested.device),
                                     tested.passed(), tested.checks.size(), format_duration(tested.seconds)));
  for (const run::KernelCheck& check : tested.checks)
    if (!check.passed())
      text += line_of("", fmt::format("{}, {}: {}", check.kernel, to_string(check.dtype), failure_of(check)));
  return text;
}

std::string advice_of(const std::vector<run::Finding>& findings) {
  std::string text;
  for (const run::Finding& finding : findings)
    if (!finding.advice.empty()) text += "  " + finding.advice + "\n";
  return text.empty() ? "nothing was found that would make training faster here\n"
                      : "what would make training better here:\n" + text;
}

nlohmann::ordered_json json_of(const Tested& tested) {
  nlohmann::ordered_json json = {{"device", to_string(tested.device)},
                                 {"seconds", tested.seconds},
                                 {"passed", tested.passed()},
                                 {"kernels", nlohmann::ordered_json::array()}};
  for (const run::KernelCheck& check : tested.checks) {
    nlohmann::ordered_json one = {{"kernel", check.kernel},
                                  {"dtype", to_string(check.dtype)},
                                  {"passed", check.passed()},
                                  {"error", check.error},
                                  {"tolerance", check.tolerance}};
    if (!check.failure.empty()) one["failure"] = check.failure;
    json["kernels"].push_back(one);
  }
  return json;
}

nlohmann::ordered_json json_of(const run::Finding& finding) {
  return {{"what", finding.what}, {"text", finding.text}, {"wrong", finding.wrong}, {"advice", finding.advice}};
}

int run_doctor(const DoctorOptions& options) {
  const std::vector<run::Finding> findings = run::examine_machine();
  std::string text;
  nlohmann::ordered_json json;
  bool sound = std::ranges::none_of(findings, &run::Finding::wrong);
  for (const run::Finding& finding : findings) {
    text += line_of(finding.what, finding.text);
    json["findings"].push_back(json_of(finding));
  }
  for (const Device device : devices_of(options)) {
    const Tested tested = test(device);
    sound = sound && tested.is_sound();
    text += text_of(tested);
    json["devices"].push_back(json_of(tested));
  }
  text += "\n" + advice_of(findings) + (sound ? "all is well\n" : "something is wrong\n");
  json["sound"] = sound;
  write_text(options.json ? json_text(json) + "\n" : text);
  return sound ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("doctor", "Is this machine well, and what would be faster?");
  command->footer(kAboutDoctor);
  const auto options = std::make_shared<DoctorOptions>();
  command->add_option("--device", options->device, "Test this device's kernels; default: all devices");
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->callback([&action, options] { action = [options] { return run_doctor(*options); }; });
}

}  // namespace bantam::cli
