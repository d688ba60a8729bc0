// Ranks of a test: threads that talk through memory.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bantam/engine/comm/local_network.h"
#include "bantam/engine/comm/mesh.h"

namespace bantam::testing {

/// Runs body(mesh, rank) on a thread for each rank. Returns what each of them threw: the message of a
/// CommunicationError after "N: " with N the rank where it began, of another error alone, "" where it returned.
inline std::vector<std::string> on_ranks(int ranks, const std::function<void(Mesh&, int)>& body,
                                         MeshOptions options = {}, std::size_t buffer_bytes = 256 << 10) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(ranks, buffer_bytes);
  std::vector<std::string> thrown(networks.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < networks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Mesh mesh(std::move(networks[rank]), options);
      try {
        body(mesh, static_cast<int>(rank));
      } catch (const CommunicationError& error) {
        thrown[rank] = std::to_string(error.failure().rank) + ": " + error.what();
      } catch (const Error& error) {
        thrown[rank] = error.what();
        mesh.fail(error.what());
      }
    });
  }
  threads.clear();
  return thrown;
}

inline std::vector<std::string> nothing_thrown(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

}  // namespace bantam::testing
