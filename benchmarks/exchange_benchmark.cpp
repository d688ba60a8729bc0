// Sums of several GPUs, one thread a GPU: microseconds of an exchange in a recorded graph, by size, transport and
// number of thread blocks (0: by copy engines). One JSON object a line, as benchmarks/peers/torch_ddp.py --allreduce
// prints them.
//
//   build/benchmarks/exchange_benchmark [GPUS [peer|nccl]]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/device/device_link.h"
#include "bantam/engine/comm/local_network.h"
#include "bantam/engine/comm/mesh.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/memory/device/captured_work.h"

namespace bantam {
namespace {

constexpr std::int64_t kSizes[] = {64, 4096, 65536, 695493, 11173962, 25557032};  // floats
constexpr int kInGraph = 20;

/// Seconds of an exchange: median of some rounds, of which each begins on all ranks at once.
double seconds_of(Communicator& ranks, const CapturedWork& graph, Stream stream, std::int64_t floats) {
  const int launches = floats > 1'000'000 ? 3 : 20;
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    barrier(ranks);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) graph.launch();
    synchronize(stream);
    rounds.push_back(seconds_since(start) / launches / kInGraph);
  }
  std::ranges::nth_element(rounds, rounds.begin() + 4);
  return rounds[4];
}

void run_rank(Mesh& ranks, Device device, const std::string& transport, int blocks) {
  const bool copies = blocks == 0 && transport == "peer";
  Runtime runtime({.threads = 1});
  const kernels::Exec exec = runtime.exec(device);
  const std::uint64_t most = static_cast<std::uint64_t>(kSizes[std::size(kSizes) - 1]) * 4;
  RegionLayout layout{.shares = even_shares(ranks.size(), ranks.size()),
                      .sum_places = std::vector<std::vector<int>>(static_cast<std::size_t>(ranks.size()), {0}),
                      .place_bytes = (most + 255) / 256 * 256,
                      .copy_bytes = (most / static_cast<std::uint64_t>(ranks.size()) + 511) / 256 * 256};
  const std::uint64_t bytes = layout.bytes(1);
  void* const region = runtime.allocator(device).allocate(bytes, exec.stream, {Category::other, "exchange"});
  zero_bytes(region, bytes, exec.stream);
  const auto link = connect_devices(ranks, exec,
                                    {.layout = layout,
                                     .region = region,
                                     .region_bytes = bytes,
                                     .largest_span = most,
                                     .blocks = std::max(blocks, 1),
                                     .transport = transport});
  for (const std::int64_t floats : kSizes) {
    const std::array spans = {kernels::SumSpan{.elements = floats}};
    link->exchange(exec, spans, copies);
    synchronize(exec.stream);
    const CapturedWork graph(exec.stream, [&] {
      for (int i = 0; i < kInGraph; ++i) link->exchange(exec, spans, copies);
    });
    graph.launch();
    synchronize(exec.stream);
    const double seconds = seconds_of(ranks, graph, exec.stream, floats);
    if (ranks.rank() != 0) continue;
    const double bus = static_cast<double>(floats) * 4 * 2 * (ranks.size() - 1) / ranks.size() / seconds / 1e9;
    fmt::print(
        "{{\"allreduce_bytes\": {}, \"gpus\": {}, \"transport\": \"{}\", \"blocks\": {}, \"us\": {:.2f}, \"bus_gb_s\": "
        "{:.1f}}}\n",
        floats * 4, ranks.size(), link->name(), blocks, seconds * 1e6, bus);
    std::fflush(stdout);
  }
  barrier(ranks);
  runtime.allocator(device).free(region, exec.stream);
}

}  // namespace
}  // namespace bantam

int main(int count, char** arguments) {
  using namespace bantam;
  (void)::setenv("NCCL_GRAPH_REGISTER", "0", 0);  // as cli/main.cpp does
  const int gpus = count > 1 ? std::atoi(arguments[1]) : cuda_device_count();
  if (gpus < 2 || gpus > cuda_device_count()) {
    fmt::print(stderr, "exchange_benchmark: {} GPUs of {}\n", gpus, cuda_device_count());
    return 1;
  }
  struct Case {
    const char* transport;
    int blocks;
  };
  for (const Case& one : {Case{"peer", 8}, Case{"peer", 16}, Case{"peer", 32}, Case{"peer", 64}, Case{"peer", 128},
                          Case{"peer", 0}, Case{"nccl", 0}}) {
    if (count > 2 && one.transport != std::string(arguments[2])) continue;
    std::vector<std::unique_ptr<Network>> networks = local_networks(gpus);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < gpus; ++rank)
      threads.emplace_back([&, rank] {
        Mesh mesh(std::move(networks[static_cast<std::size_t>(rank)]));
        try {
          run_rank(mesh, Device::cuda(rank), one.transport, one.blocks);
        } catch (const std::exception& error) {
          fmt::print(stderr, "rank {}: {}\n", rank, error.what());
          mesh.fail(error.what());
        }
      });
  }
}
