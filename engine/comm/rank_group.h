// The ranks of a run as this process is one of them: one call connects them and watches over them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/launch_environment.h"

namespace bantam {

struct RankGroupOptions {
  LaunchEnvironment launched;    ///< read_launch_environment(): which rank this is, and where rank 0 is
  std::string version;           ///< the program's version; ranks of another one are an error
  double connect_seconds = 120;  ///< in which all ranks have to be there
  double beat_seconds = 1;       ///< how often each rank says that it lives
  double silence_seconds = 30;   ///< a rank of which nothing was heard for so long has failed
  std::function<bool()> stop;    ///< asked some ten times a second, while ranks are being connected; may be empty
  /// Called once, on a thread of the group's, when another rank's failure becomes known, also between calls of the
  /// communicator. It must not call the group. May be empty.
  std::function<void(const RankFailure&)> on_failure;
};

/// Ends with what this process says last: that it has done its part, or, where an exception ends it, that it failed.
struct RankGroup {
  /// Its fail() tells all other processes why this one ends, whatever they do just now.
  std::unique_ptr<Communicator> ranks;
  std::vector<std::string> hosts;  ///< the hosts of all ranks, by rank
};

/// Connects this process to all others over TCP; one rank needs no connection, and gets a communicator that sends
/// nothing. Throws CommunicationError, which names addresses, and the ranks that are missing.
RankGroup connect_ranks(const RankGroupOptions& options);

/// A listener on this host's loopback interface at a free port, for ranks that a program starts itself: rank 0
/// inherits `descriptor` (BANTAM_LISTENER), all are told `port` (BANTAM_ADDRESS 127.0.0.1:PORT). Whoever opens it
/// closes it. Throws Error.
struct LocalListener {
  int descriptor = -1;
  int port = 0;
};
LocalListener listen_for_local_ranks();

}  // namespace bantam
