// Internal: the border of the C interface: exceptions become statuses with a message, and structs of any size are read.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/bantam_c.h"
#include "bantam/base/error.h"

namespace bantam::capi {

/// An argument that this interface cannot use.
class BadArgument : public Error {
 public:
  using Error::Error;
};

/// The message that bantam_last_error returns in this thread.
void set_last_error(std::string_view message) noexcept;
/// Returns the message that a callback of the program set with bantam_set_error, and forgets it; `otherwise` where it
/// set none.
std::string callback_error(std::string_view otherwise);

/// The status of the exception that is being handled; its message becomes the thread's.
bantam_status status_of_current() noexcept;

/// Runs `work`; whatever it throws becomes a status.
template <class Work>
bantam_status guarded(const Work& work) noexcept {
  try {
    work();
    return BANTAM_OK;
  } catch (...) {
    return status_of_current();
  }
}

/// Throws BadArgument, naming the argument, where a pointer is null.
template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw BadArgument(std::string(name) + " is null");
  return *pointer;
}

/// A list of `count` entries; null where it has none.
template <class T>
T* required_list(T* list, std::size_t count, const char* name) {
  return count == 0 ? nullptr : &required(list, name);
}

/// Texts of a list. Throws BadArgument where the list or one of them is null.
std::vector<std::string> texts(const char* const* list, std::size_t count, const char* name);

/// Throws BadArgument where a struct has no size; null has none to have. Structs for results are checked before the
/// work, so that no result is lost.
template <class Struct>
void check_struct(const Struct* given, const char* name) {
  if (given != nullptr && given->struct_size < sizeof(given->struct_size))
    throw BadArgument(std::string(name) + ".struct_size is not set: use BANTAM_INIT");
}

/// Copies a caller's struct, whose size may be that of another version: members it does not have are zero. Null: all
/// are.
template <class Struct>
Struct read_struct(const Struct* given, const char* name) {
  Struct read{};
  check_struct(given, name);
  if (given != nullptr) std::memcpy(&read, given, std::min(given->struct_size, sizeof read));
  read.struct_size = sizeof read;
  return read;
}

/// Writes those members that the caller's struct has; its size stays.
template <class Struct>
void write_struct(Struct* given, const Struct& values, const char* name) {
  if (given == nullptr) return;
  check_struct(given, name);
  const std::size_t size = given->struct_size;
  std::memcpy(given, &values, std::min(size, sizeof values));
  given->struct_size = size;
}

/// A copy for bantam_free. Throws bad_alloc.
char* copied_text(std::string_view text);
/// The same into *to, the argument `name`. Throws BadArgument where it is null, and nothing is copied then.
void return_text(char** to, const char* name, std::string_view text);
/// Into an array of `room` characters, cut where it is longer.
void copy_text(char* to, std::size_t room, std::string_view text);

}  // namespace bantam::capi
