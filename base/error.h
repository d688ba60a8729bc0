// Every exception Bantam throws. Library code never prints, exits or aborts: it throws one of these.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// Base of all errors. `what()` is one complete message for a person: what was expected, what came, where.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Shapes that do not fit an op or a layer.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// An element type an op or a file does not support.
class DTypeError : public Error {
 public:
  using Error::Error;
};

/// A device that does not exist, cannot be used, or is not the one expected.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A CUDA, cuBLASLt or cuDNN call that failed; the message names the call.
class CudaError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// A configuration that cannot be used. The message begins with `file:line:column: error: ` where a position is known.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A data set, weights or checkpoint file that is missing, damaged or of another format (names file and offset).
class DataError : public Error {
 public:
  using Error::Error;
};

/// Loss or weights that are no longer finite.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

/// An allocation that does not fit. Sizes in bytes.
class OutOfMemory : public Error {
 public:
  /// The allocation that failed and the memory that there was, in bytes.
  struct Facts {
    std::uint64_t requested_bytes = 0;
    std::uint64_t in_use_bytes = 0;
    std::uint64_t pool_bytes = 0;   ///< reserved from the device: in use or cached
    std::uint64_t limit_bytes = 0;  ///< 0: no limit was set
    std::uint64_t largest_free_bytes = 0;
  };
  OutOfMemory(const std::string& message, Facts facts) : Error(message), facts_(facts) {}
  const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

}  // namespace bantam
BANTAM_API_END
