// What an error says, for tests of messages.
#pragma once

#include <functional>
#include <string>

#include "bantam/base/error.h"

namespace bantam::testing {

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace bantam::testing
