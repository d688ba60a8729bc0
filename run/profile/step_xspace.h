// A step's profile for TensorBoard: XSpace, the message that its profile plugin (XProf) reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "bantam/run/profile/step_profile.h"

namespace bantam::run {

/// Where and when steps were recorded.
struct XSpaceOrigin {
  std::string host;           ///< the machine's name
  std::int64_t begin_ns = 0;  ///< of the first recorded update, since 1970
};

/// An XSpace of all recorded updates, with the plugin's names for what it looks for.
///
///     plane /device:GPU:N   a GPU: a line with every kernel, copy and memset, whose update (group_id), operation and
///                           call (tf_op: "layer:conv2d_forward"), phase, flops and bytes are its stats
///     plane /host:CPU       a line of the updates (events `step`, roots with their step_num); on the CPU with phases
///                           and kernels within them ("layer:conv2d_forward"), and a line a thread of the pool
///
/// Fields as in xplane.proto of OpenXLA's profiler.
std::string step_xspace(const StepProfile& profile, const XSpaceOrigin& origin);

/// Writes the XSpace to FOLDER/plugins/profile/YEAR_MONTH_DAY_HOUR_MINUTE_SECOND/HOST.xplane.pb, where the plugin looks
/// for profiles, with the time of the call (UTC). Makes folders. Returns the file. Throws DataError where it cannot be
/// written.
std::filesystem::path write_step_xspace(const StepProfile& profile, const std::filesystem::path& folder);

}  // namespace bantam::run
