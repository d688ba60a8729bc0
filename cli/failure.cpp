// From exceptions to messages and exit codes.
#include "bantam/cli/failure.h"

#include <cstdio>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/train/disk_room.h"

namespace bantam::cli {
namespace {

struct Failure {
  std::string message;
  int code = kFailed;
};

/// Returns the message and the exit code of the exception that is being handled.
Failure current_failure() {
  try {
    throw;
  } catch (const ConfigError& error) {
    return {error.what(), kUsage};
  } catch (const DataError& error) {
    return {error.what(), kData};
  } catch (const OutOfMemory& error) {
    return {error.what(), kDoesNotFit};
  } catch (const run::NoRoomOnDisk& error) {
    return {error.what(), kDoesNotFit};
  } catch (const std::bad_alloc& error) {
    return {plain_words(error), kDoesNotFit};
  } catch (const NotFiniteError& error) {
    return {error.what(), kNotFinite};
  } catch (const CudaError& error) {
    return {error.what(), kFailed};
  } catch (const DeviceError& error) {
    return {error.what(), kUsage};
  } catch (const std::exception& error) {
    return {plain_words(error), kFailed};
  }
}

}  // namespace

std::string error_line(std::string_view message, const std::string& who) {
  // Errors with a position begin with it, as compilers' do.
  const bool has_position = message.find(": error: ") < message.find('\n');
  return fmt::format("{}{}{}\n", who, has_position ? "" : "bantam: error: ", shown_message(message));
}

int report_error(std::string_view message, int code, const std::string& who) {
  write_text(error_line(message, who), stderr);  // where it cannot be written, the exit code still tells
  return code;
}

void write_at_once(std::string_view text) noexcept {
  pollfd descriptor{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&descriptor, 1, 0) != 1 || (descriptor.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

int code_of_exception() { return current_failure().code; }

int report_exception(const std::string& who) {
  const Failure failure = current_failure();
  return report_error(failure.message, failure.code, who);
}

}  // namespace bantam::cli
