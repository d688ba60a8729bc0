// The message of the ConfigError that a call throws.
#pragma once

#include <string>

#include "bantam/base/error.h"

namespace bantam::testing {

template <class Call>
std::string config_error_of(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace bantam::testing
