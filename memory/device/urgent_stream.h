// UrgentStream: a CUDA stream whose kernels' blocks begin before waiting blocks of other streams.
#pragma once

#include "bantam/memory/device/device.h"

namespace bantam {

/// Owns the stream, which is non-blocking with respect to the legacy default stream.
class UrgentStream {
 public:
  /// Creates the stream on a CUDA device. Throws DeviceError.
  explicit UrgentStream(Device device);
  ~UrgentStream();
  UrgentStream(const UrgentStream&) = delete;
  UrgentStream& operator=(const UrgentStream&) = delete;
  Stream get() const { return stream_; }

 private:
  Stream stream_;
};

}  // namespace bantam
