// `bantam devices`: what this machine has to compute with, and the libraries behind it.
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bantam/base/byte_size.h"
#include "bantam/cli/library_versions.h"
#include "bantam/cli/options.h"
#include "bantam/memory/device.h"

namespace bantam::cli {
namespace {

std::string capability(int code) { return fmt::format("{}.{}", code / 10, code % 10); }

void print_json() {
  nlohmann::ordered_json json;
  json["devices"] = nlohmann::ordered_json::array();
  for (const DeviceInfo& info : list_devices()) {
    nlohmann::ordered_json device = {{"device", to_string(info.device)},
                                     {"name", info.name},
                                     {"total_bytes", info.total_bytes},
                                     {"free_bytes", info.free_bytes},
                                     {info.device.is_cpu() ? "processors" : "multiprocessors", info.multiprocessors}};
    if (info.device.is_cuda()) device["compute_capability"] = capability(info.compute_capability);
    json["devices"].push_back(device);
  }
  json["built_with_cuda"] = built_with_cuda();
  json["cuda_unavailable_reason"] = cuda_unavailable_reason();
  for (const LibraryVersion& library : library_versions()) json["libraries"][library.name] = library.version;
  fmt::print("{}\n", json.dump());
}

void print_text() {
  for (const DeviceInfo& info : list_devices()) {
    fmt::print("{:<8}{}\n", to_string(info.device), info.name);
    if (info.device.is_cpu())
      fmt::print("        {} processors", info.multiprocessors);
    else
      fmt::print("        compute capability {}, {} multiprocessors", capability(info.compute_capability),
                 info.multiprocessors);
    fmt::print(", memory {} free of {}\n", format_byte_size(info.free_bytes), format_byte_size(info.total_bytes));
  }
  if (cuda_device_count() == 0) fmt::print("no GPU  {}\n", cuda_unavailable_reason());
  fmt::print("\nlibraries\n");
  for (const LibraryVersion& library : library_versions()) fmt::print("  {:<14}{}\n", library.name, library.version);
}

}  // namespace

void add_devices(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("devices", "CPU and GPUs, their memory, library versions");
  command->footer("Says why, where no GPU can be used.");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object");
  command->callback([&action, json] {
    action = [json] {
      if (*json)
        print_json();
      else
        print_text();
      return 0;
    };
  });
}

}  // namespace bantam::cli
