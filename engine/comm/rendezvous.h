// How the processes of a run find each other over TCP: all come to rank 0, then each connects to every other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bantam/engine/comm/endpoint.h"
#include "bantam/engine/comm/frame_stream.h"

namespace bantam {

struct RendezvousOptions {
  int rank = 0, size = 1;
  Endpoint address;        ///< where rank 0 listens
  bool all_local = false;  ///< all ranks run on this host: nothing listens but on its loopback interface
  int listener = -1;       ///< rank 0: a descriptor that listens already; it is closed at the end
  std::string run;         ///< ranks of another run are turned away
  std::string secret;      ///< so is who does not know it
  std::string version;     ///< the program's version: all ranks' must be alike
  std::string host;        ///< this one's name for messages; empty: what the system says
  double timeout_seconds = 120;
  std::function<bool()> stop;  ///< asked some ten times a second whether to stop waiting; may be empty
};

/// Sockets without delay, non-blocking, to every other rank.
struct RankConnections {
  std::vector<std::string> hosts;    ///< the hosts of all ranks, by rank
  std::vector<FileDescriptor> data;  ///< by rank; none to this one
  std::vector<FrameStream> control;  ///< rank 0: by rank, none to itself; others: one, to rank 0
};

/// Returns on all ranks, or throws CommunicationError on all that have come. Others than rank 0 may be started before
/// it. Errors name addresses, the ranks that are missing, and both sides of what does not agree. A visitor who does
/// not know the secret is refused, is told no more than that, and does not disturb the others.
RankConnections rendezvous(const RendezvousOptions& options);

/// "rank 2", "ranks 2 and 3", "ranks 1, 2 and 5", at most ten by number.
std::string names_of_ranks(const std::vector<int>& ranks);

}  // namespace bantam
