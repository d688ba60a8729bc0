// Python's pickle format (protocol 4), as much of it as plain data need: dictionaries, lists, strings, numbers.
#pragma once

#include <string>

#include "bantam/base/json.h"

namespace bantam::cli {

/// The bytes that `pickle.load` reads as the same value: objects as dict, arrays as list, whole numbers as int, null as
/// None. Equal strings are written once. Only opcodes that PyTorch's memory_viz knows are used. Throws Error for
/// strings of 4 GiB or more.
std::string pickle(const nlohmann::ordered_json& value);

}  // namespace bantam::cli
