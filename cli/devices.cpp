// `bantam devices`: the CPU and GPUs of this machine, the libraries in use, and a GPU's measured profile.
#include "bantam/run/devices.h"

#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/device/host_info.h"
#include "bantam/memory/device/known_gpus.h"
#include "bantam/memory/device/links.h"
#include "bantam/run/train/library_versions.h"

namespace bantam::cli {
namespace {

std::string capability(int code) { return fmt::format("{}.{}", code / 10, code % 10); }

nlohmann::ordered_json link_json(const GpuLink& link) {
  return {{"from", to_string(Device::cuda(link.from))},
          {"to", to_string(Device::cuda(link.to))},
          {"nvlinks", link.nvlinks},
          {"path", link.path},
          {"peer_access", link.peer_access},
          {"atomics", link.atomics}};
}

void print_json() {
  nlohmann::ordered_json json;
  json["devices"] = nlohmann::ordered_json::array();
  for (const DeviceInfo& info : list_devices()) {
    nlohmann::ordered_json device = {{"device", to_string(info.device)},
                                     {"name", info.name},
                                     {"total_bytes", info.total_bytes},
                                     {"free_bytes", info.free_bytes},
                                     {info.device.is_cpu() ? "processors" : "multiprocessors", info.multiprocessors}};
    if (info.device.is_cpu()) {
      const HostInfo host = read_host_info();
      device["processors"] = host.allowed_processors;
      device["threads"] = host.processors;
      if (host.processor_quota > 0) device["processor_quota"] = host.processor_quota;
    }
    if (info.device.is_cuda()) device["compute_capability"] = capability(info.compute_capability);
    json["devices"].push_back(device);
  }
  json["links"] = nlohmann::ordered_json::array();
  for (const GpuLink& link : gpu_links()) json["links"].push_back(link_json(link));
  json["built_with_cuda"] = built_with_cuda();
  json["cuda_unavailable_reason"] = cuda_unavailable_reason();
  for (const LibraryVersion& library : library_versions()) json["libraries"][library.name] = library.version;
  print_out("{}\n", json_text(json));
}

void print_processors() {
  const HostInfo host = read_host_info();
  print_out("        {} processors", host.allowed_processors);
  if (host.processors < host.allowed_processors)
    print_out(", of which {} allows the time of {:.3g}: {} thread{}", host.quota_file, host.processor_quota,
              host.processors, host.processors == 1 ? "" : "s");
}

void print_text() {
  for (const DeviceInfo& info : list_devices()) {
    print_out("{:<8}{}\n", to_string(info.device), info.name);
    if (info.device.is_cpu())
      print_processors();
    else
      print_out("        compute capability {}, {} multiprocessors", capability(info.compute_capability),
                info.multiprocessors);
    print_out(", memory {} free of {}\n", format_byte_size(info.free_bytes), format_byte_size(info.total_bytes));
  }
  if (cuda_device_count() == 0) print_out("no GPU  {}\n", cuda_unavailable_reason());
  const std::vector<GpuLink> links = gpu_links();
  if (!links.empty()) print_out("\nlinks\n");
  for (const GpuLink& link : links)
    print_out("  {} - {}   {}\n", to_string(Device::cuda(link.from)), to_string(Device::cuda(link.to)),
              to_string(link));
  print_out("\nlibraries\n");
  for (const LibraryVersion& library : library_versions()) print_out("  {:<14}{}\n", library.name, library.version);
}

void print_profiles(bool json) {
  if (json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const std::string& name : device_profile_names()) all.push_back(profile_json(*find_device_profile(name)));
    print_out("{}\n", json_text(all));
    return;
  }
  Table table({{"--device", Align::left}, {"sm"}, {"SMs"}, {"memory"}, {"GB/s"}, {"f16 TF/s"}, {"f32 TF/s"}});
  for (const KnownGpu& gpu : known_gpus())
    table.add_row({gpu.name, fmt::format("{}", gpu.compute_capability), fmt::format("{}", gpu.multiprocessors),
                   fmt::format("{} GB", gpu.nominal_gb), fmt::format("{:.0f}", gpu.sheet_gigabytes_per_s),
                   fmt::format("{:.1f}", gpu.sheet_float16_teraflops),
                   fmt::format("{:.1f}", gpu.sheet_float32_teraflops)});
  print_out(
      "{}Data sheets' figures: f16 with float32 sums. Plans take what the h200, which was\n"
      "measured, reached of its own; all others are estimates. Any spelling will do.\n",
      table.to_string());
}

struct DevicesOptions {
  bool json = false, measure = false, profiles = false;
  std::string device = "cuda:0", out;
};

int measure(const DevicesOptions& options) {
  const Device device = of_flag("--device", [&] { return parse_device(options.device); });
  const std::string text = profile_json(measure_profile(device)).dump(2) + "\n";
  if (options.out.empty())
    print_out("{}", text);
  else
    write_file_atomically(options.out, text);
  return 0;
}

int run_devices(const DevicesOptions& options) {
  if (options.measure) return measure(options);
  if (options.profiles)
    print_profiles(options.json);
  else if (options.json)
    print_json();
  else
    print_text();
  return 0;
}

}  // namespace

void add_devices(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("devices", "CPU and GPUs, their memory, library versions");
  command->footer(
      "Says why, where no GPU can be used, and how each pair of GPUs is joined:\n"
      "NVLinks or the PCIe path, and whether one can read the other's memory.\n"
      "--measure runs some seconds and prints a\n"
      "GPU's profile (JSON): `bantam plan --profile FILE` then plans for that GPU\n"
      "on any machine.\n"
      "Example: bantam devices");
  const auto options = std::make_shared<DevicesOptions>();
  command->add_flag("--json", options->json, "One JSON object");
  command->add_flag("--profiles", options->profiles, "The cards that plans know by name, for `plan --device`");
  auto* measured = command->add_flag("--measure", options->measure, "Measure a GPU's profile, and print it");
  command->add_option("--device", options->device, "With --measure: which GPU")->needs(measured)->capture_default_str();
  command->add_option("--out", options->out, "With --measure: a file instead of the terminal")->needs(measured);
  command->callback([&action, options] { action = [options] { return run_devices(*options); }; });
}

}  // namespace bantam::cli
