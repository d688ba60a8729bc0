// Collective calls of all ranks, built from messages: broadcast, gather, barrier.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/comm/communicator.h"

namespace bantam {

// Every rank calls the same functions in the same order. With one rank nothing is sent. All throw CommunicationError.

/// Rank `root`'s bytes, of a size that all know, in the place of every rank's.
void broadcast(Communicator& ranks, std::span<std::byte> bytes, int root = 0);
/// Rank `root`'s text, whatever its length.
std::string broadcast_text(Communicator& ranks, const std::string& text, int root = 0);
/// `mine` of every rank, in their order, on every rank; all of one size.
std::vector<std::vector<std::byte>> all_gather(Communicator& ranks, std::span<const std::byte> mine);
/// Every rank's text, in their order, on every rank.
std::vector<std::string> all_gather_texts(Communicator& ranks, const std::string& mine);
/// Returns when every rank has called it.
void barrier(Communicator& ranks);

}  // namespace bantam
