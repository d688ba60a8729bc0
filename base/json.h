// The JSON library, with a destructor that needs no memory, and JSON as it is printed. Every file includes this in the
// place of the library's own header: a destructor that one file did not know would be another one.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

// A value whose list could not be allocated is destroyed like others; the library's assertions would end the process.
#define JSON_ASSERT(expression) static_cast<void>(0)
#include <nlohmann/json.hpp>

namespace bantam {

/// On one line (or indented by `indent` columns), as `printable_json`. Names of files and tensors may be any bytes: a
/// text that is no UTF-8 is `printable`, and the object that holds it as KEY has its bytes as base64 in KEY_bytes: a
/// text; a list, with null where that item is UTF-8; or, where keys below KEY are no UTF-8, an object of theirs.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

namespace json_detail {

using Json = nlohmann::ordered_json;

inline Json& first_of(Json& json) {
  return json.is_array() ? json.get_ref<Json::array_t&>().front() : json.get_ref<Json::object_t&>().front().second;
}

inline Json take_last(Json& json) {
  Json last;
  if (json.is_array()) {
    last = std::move(json.get_ref<Json::array_t&>().back());
    json.get_ref<Json::array_t&>().pop_back();
  } else {
    last = std::move(json.get_ref<Json::object_t&>().back().second);
    json.get_ref<Json::object_t&>().pop_back();
  }
  return last;
}

/// Appends a value; one of an object has an empty key. After take_last it allocates nothing.
inline void put_last(Json& json, Json&& value) {
  if (json.is_array())
    json.get_ref<Json::array_t&>().push_back(std::move(value));
  else
    static_cast<Json::object_t::Container&>(json.get_ref<Json::object_t&>())
        .emplace_back(std::string(), std::move(value));
}

/// Empties the tree, however deep: neither a stack of calls nor one of memory grows. A child that has children moves to
/// its parent's place and the parent hangs where its first child was, which the parent gets: each such turn and the
/// one that leads back destroy a container, so there are no more of them than containers.
inline void dismantle(Json& root) {
  while (root.is_structured() && !root.empty()) {
    Json child = take_last(root);
    if (!child.is_structured() || child.empty()) continue;
    std::swap(root, child);
    if (child.empty()) continue;
    std::swap(first_of(root), child);
    put_last(first_of(root), std::move(child));
  }
}

}  // namespace json_detail
}  // namespace bantam

/// The library's own keeps what is still to be destroyed in a vector: where there is no memory for that, its destructor
/// throws, and the process ends.
template <>
inline void nlohmann::ordered_json::json_value::destroy(nlohmann::detail::value_t type) {
  const auto free = [](auto* value) {
    std::allocator<std::remove_pointer_t<decltype(value)>> memory;
    std::destroy_at(value);
    memory.deallocate(value, 1);
  };
  switch (type) {
    case nlohmann::detail::value_t::object:
      if (object == nullptr) return;  // the allocation has failed
      for (auto& [key, value] : *object) bantam::json_detail::dismantle(value);
      return free(object);
    case nlohmann::detail::value_t::array:
      if (array == nullptr) return;
      for (auto& value : *array) bantam::json_detail::dismantle(value);
      return free(array);
    case nlohmann::detail::value_t::string:
      if (string != nullptr) free(string);
      return;
    case nlohmann::detail::value_t::binary:
      if (binary != nullptr) free(binary);
      return;
    default:
      return;
  }
}
