// Maps the names that Keras, PyTorch and their users have for things to ours: for advice on unknown names.
#pragma once

#include <optional>
#include <string_view>

namespace bantam {

/// Our name of a layer, loss, option or type that others call `word`, in either letter case, with or without '_', '-'
/// and a "2d" at the end: "global_average_pool" of "GlobalAvgPool2d". Nothing for words that are not known; whether
/// what it names is valid at a place is for the caller.
std::optional<std::string_view> our_name(std::string_view word);

}  // namespace bantam
