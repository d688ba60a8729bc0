// Messages of failed calls, a thread each, and the statuses of exceptions.
#include "bantam/capi/status.h"

#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/run/train/training_run.h"

namespace bantam::capi {
namespace {

/// Text of the calling thread. A message that there is no memory for is replaced by one that says so.
struct ThreadMessages {
  std::string last;
  std::string from_callback;
  bool lost = false;
};

ThreadMessages& messages() {
  thread_local ThreadMessages of_thread;
  return of_thread;
}

bantam_status failed(bantam_status status, std::string_view message) noexcept {
  set_last_error(message);
  return status;
}

bantam_status failed(bantam_status status, const std::exception& error) noexcept {
  try {
    return failed(status, plain_words(error));
  } catch (...) {
    messages().lost = true;
    return status;
  }
}

}  // namespace

void set_last_error(std::string_view message) noexcept {
  try {
    messages().last = printable(message);
    messages().lost = false;
  } catch (...) {
    messages().lost = true;
  }
}

std::string callback_error(std::string_view otherwise) {
  std::string said = std::exchange(messages().from_callback, {});
  return said.empty() ? std::string(otherwise) : said;
}

bantam_status status_of_current() noexcept {
  try {
    throw;
  } catch (const BadArgument& error) {
    return failed(BANTAM_BAD_ARGUMENT, error.what());
  } catch (const run::StoppedBeforeTraining& error) {
    return failed(BANTAM_STOPPED, error.what());
  } catch (const ConfigError& error) {
    return failed(BANTAM_CONFIG_ERROR, error.what());
  } catch (const DataError& error) {
    return failed(BANTAM_DATA_ERROR, error.what());
  } catch (const ShapeError& error) {
    return failed(BANTAM_SHAPE_ERROR, error.what());
  } catch (const DTypeError& error) {
    return failed(BANTAM_DTYPE_ERROR, error.what());
  } catch (const CudaError& error) {
    return failed(BANTAM_CUDA_ERROR, error.what());
  } catch (const DeviceError& error) {
    return failed(BANTAM_DEVICE_ERROR, error.what());
  } catch (const OutOfMemory& error) {
    return failed(BANTAM_OUT_OF_MEMORY, error.what());
  } catch (const NotFiniteError& error) {
    return failed(BANTAM_NOT_FINITE, error.what());
  } catch (const std::bad_alloc&) {
    return failed(BANTAM_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return failed(BANTAM_ERROR, error);
  } catch (...) {
    return failed(BANTAM_ERROR, "an exception of an unknown type");
  }
}

std::vector<std::string> texts(const char* const* list, std::size_t count, const char* name) {
  const char* const* given = required_list(list, count, name);
  std::vector<std::string> read;
  for (std::size_t i = 0; i < count; ++i) read.emplace_back(&required(given[i], name));
  return read;
}

char* copied_text(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

void return_text(char** to, const char* name, std::string_view text) {
  char*& place = required(to, name);
  place = copied_text(text);
}

void copy_text(char* to, std::size_t room, std::string_view text) {
  const std::size_t count = std::min(room - 1, text.size());
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

}  // namespace bantam::capi

using namespace bantam::capi;

const char* bantam_last_error(void) { return messages().lost ? "out of host memory" : messages().last.c_str(); }

void bantam_set_error(const char* message) {
  try {
    messages().from_callback = message != nullptr ? message : "";
  } catch (...) {
    messages().from_callback.clear();
  }
}

const char* bantam_status_name(bantam_status status) {
  static constexpr const char* kNames[] = {
      "BANTAM_OK",         "BANTAM_ERROR",         "BANTAM_BAD_ARGUMENT", "BANTAM_CONFIG_ERROR",
      "BANTAM_DATA_ERROR", "BANTAM_SHAPE_ERROR",   "BANTAM_DTYPE_ERROR",  "BANTAM_DEVICE_ERROR",
      "BANTAM_CUDA_ERROR", "BANTAM_OUT_OF_MEMORY", "BANTAM_NOT_FINITE",   "BANTAM_STOPPED"};
  return status >= BANTAM_OK && status <= BANTAM_STOPPED ? kNames[status] : "an unknown status";
}

void bantam_free(char* text) { std::free(text); }
