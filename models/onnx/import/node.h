// Helpers with which converters read a node's attributes by type and throw errors that name the node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

/// "node 'layer1/conv2' (Conv)"; by its output where it has no name.
std::string describe(const Node& node);

/// Throws DataError: the node, then `what` is not supported about it.
[[noreturn]] void fail(const Node& node, std::string_view what);

bool has_attribute(const Node& node, const std::string& name);
/// The attribute's value, or `otherwise` where the node does not have it. Throws DataError for one of another kind.
std::int64_t integer(const Node& node, const std::string& name, std::int64_t otherwise);
float number(const Node& node, const std::string& name, float otherwise);
std::string text(const Node& node, const std::string& name, std::string otherwise);
std::vector<std::int64_t> integers(const Node& node, const std::string& name, std::vector<std::int64_t> otherwise = {});

/// `axis` of `rank` axes, counted from 0; negative ones count from the end. Throws DataError outside.
std::size_t checked_axis(const Node& node, std::int64_t axis, std::size_t rank);

}  // namespace bantam::onnx
