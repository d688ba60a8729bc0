// Collectives as one exchange each: rank 0, or every rank, sends to all others directly.
#include "bantam/engine/comm/collectives.h"

#include <cstdint>
#include <cstring>

namespace bantam {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Sends `mine` to all others, and fills `all`, whose entry of this rank is a copy.
void gather(Communicator& ranks, std::span<const std::byte> mine, std::vector<std::span<std::byte>> all) {
  std::vector<OutgoingMessage> out;
  std::vector<IncomingMessage> in;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::span<std::byte> place = all[static_cast<std::size_t>(rank)];
    if (rank == ranks.rank()) {
      if (!mine.empty()) std::memcpy(place.data(), mine.data(), mine.size());
    } else {
      out.push_back({rank, mine});
      in.push_back({rank, place});
    }
  }
  ranks.exchange(out, in);
}

}  // namespace

void broadcast(Communicator& ranks, std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= ranks.size()) {
    throw Error("a broadcast comes from rank 0 to " + std::to_string(ranks.size() - 1) + ", not from rank " +
                std::to_string(root));
  }
  std::vector<OutgoingMessage> out;
  std::vector<IncomingMessage> in;
  if (ranks.rank() != root) {
    in.push_back({root, bytes});
  } else {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank != root) out.push_back({rank, bytes});
    }
  }
  ranks.exchange(out, in);
}

std::string broadcast_text(Communicator& ranks, const std::string& text, int root) {
  std::uint64_t size = text.size();
  broadcast(ranks, std::as_writable_bytes(std::span(&size, 1)), root);
  std::string result = ranks.rank() == root ? text : std::string(size, '\0');
  broadcast(ranks, std::as_writable_bytes(std::span(result)), root);
  return result;
}

std::vector<std::vector<std::byte>> all_gather(Communicator& ranks, std::span<const std::byte> mine) {
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(ranks.size()), std::vector<std::byte>(mine.size()));
  gather(ranks, mine, {all.begin(), all.end()});
  return all;
}

std::vector<std::string> all_gather_texts(Communicator& ranks, const std::string& mine) {
  const std::uint64_t size = mine.size();
  std::vector<std::string> texts;
  std::vector<std::span<std::byte>> places;
  for (const auto& bytes : all_gather(ranks, std::as_bytes(std::span(&size, 1)))) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    texts.emplace_back(length, '\0');
  }
  for (std::string& text : texts) places.push_back(std::as_writable_bytes(std::span(text)));
  gather(ranks, bytes_of(mine), places);
  return texts;
}

void barrier(Communicator& ranks) {
  const std::byte here{1};
  all_gather(ranks, std::span(&here, 1));
}

}  // namespace bantam
