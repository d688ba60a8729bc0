// `bantam bench allocator`: time and fragmentation of our allocator beside the driver's and the system's.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/bench/allocator_subjects.h"
#include "bantam/run/bench/buffer_trace.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutBenchAllocator =
    "Time an allocation and its free, and see how much more than the live bytes is\n"
    "reserved, on the same requests: one size; many sizes; a training step of\n"
    "ResNet-50; or a file of lifetimes (--trace, as of `bantam plan --trace`). Memory\n"
    "is not touched. live: most requested bytes alive at one time. reserved: most\n"
    "bytes from the system after a fresh start (cudaMalloc: by how much the card's\n"
    "free bytes fell); ratio: reserved over live. Without a GPU its rows say why they\n"
    "are empty; --device cpu omits them.\n"
    "Example: bantam bench allocator --device cpu";

struct Options {
  std::string trace, device = "auto";
  double seconds = 0.3;
  bool json = false;
};

std::vector<AllocatorWorkload> workloads(const Options& options) {
  if (options.trace.empty()) return {pair_workload(), mixed_workload(), step_workload()};
  const BufferTrace trace = read_buffer_trace(options.trace);
  AllocatorWorkload workload = trace_workload(options.trace, trace.buffers);
  if (workload.allocations == 0) throw DataError(options.trace + ": error: the trace holds no buffer of any size");
  return {std::move(workload)};
}

double reserved_over_live(const AllocatorRow& row, const AllocatorWorkload& workload) {
  return static_cast<double>(row.peak_reserved_bytes) / static_cast<double>(workload.peak_live_bytes);
}

void print_json(const AllocatorRow& row, const AllocatorWorkload& workload) {
  nlohmann::ordered_json json = {{"workload", workload.name},
                                 {"allocator", row.allocator},
                                 {"device", to_string(row.device)},
                                 {"allocations", workload.allocations},
                                 {"peak_live_bytes", workload.peak_live_bytes}};
  if (row.error.empty()) {
    json["ns_per_pair"] = row.ns_per_pair;
    json["windows"] = row.windows;
    json["peak_held_bytes"] = row.peak_reserved_bytes;
    json["held_over_live"] = reserved_over_live(row, workload);
  } else {
    json["error"] = row.error;
  }
  print_out("{}\n", json_text(json));
}

/// The end of a long name, which tells files apart.
std::string shortened(const std::string& name, std::size_t width) {
  return name.size() <= width ? name : "..." + name.substr(name.size() - (width - 3));
}

void print_words(const AllocatorRow& row, const AllocatorWorkload& workload) {
  constexpr std::size_t kErrorWidth = 30;
  const std::string cells =
      fmt::format("{:16}  {:15}  {:7}  ", shortened(workload.name, 16), row.allocator, to_string(row.device));
  if (row.error.empty())
    print_out("{}{:>10.0f}  {:>5}  {:>8}  {:>6.3f}\n", cells, row.ns_per_pair, compact_bytes(workload.peak_live_bytes),
              compact_bytes(row.peak_reserved_bytes), reserved_over_live(row, workload));
  else
    print_out("{}{:>10}  {}\n", cells, "-", row.error.size() <= kErrorWidth ? row.error : "absent (see below)");
}

int bench_allocator(const Options& options) {
  const Device device =
      options.device == "auto" ? Device::cuda(0) : of_flag("--device", [&] { return parse_device(options.device); });
  const bool gpu = device.is_cuda();
  const std::vector<AllocatorWorkload> requests = workloads(options);
  if (!options.json)
    print_out("{:16}  {:15}  {:7}  {:>10}  {:>5}  {:>8}  {:>6}\n", "requests", "allocator", "device", "ns a pair",
              "live", "reserved", "ratio");
  bool any = false;
  std::string reason;
  for (const AllocatorWorkload& workload : requests) {
    std::vector<AllocatorRow> rows = measure_host(workload, options.seconds);
    if (gpu)
      for (AllocatorRow& row : measure_cuda(workload, device, options.seconds)) rows.push_back(std::move(row));
    for (const AllocatorRow& row : rows) {
      any = any || row.error.empty();
      if (!row.error.empty()) reason = row.error;
      if (options.json)
        print_json(row, workload);
      else
        print_words(row, workload);
    }
    std::fflush(stdout);
  }
  if (!options.json && !reason.empty()) print_out("empty rows: {}\n", reason);
  return any ? 0 : 4;
}

}  // namespace

void add_bench_allocator(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("allocator", "Allocators on equal requests: time, bytes reserved");
  command->footer(kAboutBenchAllocator);
  const auto options = std::make_shared<Options>();
  command->add_option("--trace", options->trace, "CSV of lifetimes (id,lower,upper,size)\ninstead of the workloads");
  command->add_option("--device", options->device, "auto (default: the CPU and cuda:0), cpu or cuda:N");
  command->add_option("--seconds", options->seconds, "Measuring time a row")
      ->check(positive_seconds())
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a row, bytes exact");
  command->callback([&action, options] { action = [options] { return bench_allocator(*options); }; });
}

}  // namespace bantam::cli
