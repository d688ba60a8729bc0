// NCCL as a DeviceLink: it moves the bytes, by ncclSend and ncclRecv; the sums, and their order, are ours.
#pragma once

#include <memory>
#include <string>

#include "bantam/engine/comm/device/device_link.h"

namespace bantam {

/// Every rank calls it. `peer_trouble`: why memory is not shared, for the message where there is no NCCL, either.
/// Throws DeviceError, CommunicationError.
std::unique_ptr<DeviceLink> connect_nccl(Communicator& ranks, const kernels::Exec& exec,
                                         const DeviceLinkOptions& options, const std::string& peer_trouble);

}  // namespace bantam
