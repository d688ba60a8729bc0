// Engines, devices and what memory they hold.
#include <string>
#include <vector>

#include "bantam/base/json.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/status.h"
#include "bantam/run/run.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

RuntimeOptions runtime_options(const bantam_engine_options& options) {
  RuntimeOptions made{.threads = options.threads};
  if (options.threads < 0) throw BadArgument("options.threads is negative");
  const std::vector<std::string> devices = texts(options.limit_devices, options.limit_count, "options.limit_devices");
  const std::uint64_t* limits = required_list(options.limits, options.limit_count, "options.limits");
  for (std::size_t i = 0; i < options.limit_count; ++i) made.limits[to_string(parse_device(devices[i]))] = limits[i];
  if (options.log != nullptr)
    made.log = [log = options.log, user = options.user](std::string_view message) {
      log(user, std::string(message).c_str());
    };
  return made;
}

std::string devices_json() {
  nlohmann::ordered_json json = {{"devices", nlohmann::ordered_json::array()}};
  for (const DeviceInfo& info : list_devices()) {
    nlohmann::ordered_json device = {{"device", to_string(info.device)},
                                     {"name", info.name},
                                     {"total_bytes", info.total_bytes},
                                     {"free_bytes", info.free_bytes},
                                     {info.device.is_cpu() ? "processors" : "multiprocessors", info.multiprocessors}};
    if (info.device.is_cuda()) device["compute_capability"] = info.compute_capability;
    json["devices"].push_back(device);
  }
  json["built_with_cuda"] = built_with_cuda();
  json["cuda_unavailable_reason"] = cuda_unavailable_reason();
  return json_text(json);
}

}  // namespace

const char* bantam_version(void) { return BANTAM_VERSION; }
int32_t bantam_c_version(void) { return BANTAM_C_VERSION; }

bantam_status bantam_devices(char** json) {
  return guarded([&] { return_text(json, "json", devices_json()); });
}

bantam_status bantam_config_schema(char** json) {
  return guarded([&] { return_text(json, "json", run::config_schema()); });
}

bantam_status bantam_engine_create(const bantam_engine_options* options, bantam_engine** engine) {
  return guarded([&] {
    required(engine, "engine") = nullptr;
    auto made = std::make_unique<bantam_engine>();
    made->runtime = std::make_shared<Runtime>(runtime_options(read_struct(options, "options")));
    *engine = made.release();
  });
}

void bantam_engine_destroy(bantam_engine* engine) {
  destroy(engine, "bantam_engine_destroy: this is no handle of the program's");
}

bantam_status bantam_engine_set_limit(bantam_engine* engine, const char* device, uint64_t bytes) {
  return guarded([&] { required(engine, "engine").runtime->set_limit(device_named(device), bytes); });
}

bantam_status bantam_engine_trim(bantam_engine* engine, const char* device, uint64_t* released) {
  return guarded([&] {
    const std::uint64_t bytes = required(engine, "engine").runtime->allocator(device_named(device)).trim();
    if (released != nullptr) *released = bytes;
  });
}

bantam_status bantam_engine_memory_report(bantam_engine* engine, const char* device, char** json) {
  return guarded([&] {
    Runtime& runtime = *required(engine, "engine").runtime;
    return_text(json, "json", to_json(runtime.memory_report(device_named(device))));
  });
}
