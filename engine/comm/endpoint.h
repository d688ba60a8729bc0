// A host and a port as text: node1:29500, [::1]:29500.
#pragma once

#include <string>

namespace bantam {

struct Endpoint {
  std::string host;  ///< a name or a number, IPv6 without brackets
  int port = 0;
  bool operator==(const Endpoint&) const = default;
};

/// "host:port", IPv6 numbers in brackets.
std::string to_text(const Endpoint& endpoint);

/// The reverse. Throws ConfigError, which begins with `what`, for text that is none, and ports but 1 … 65535.
Endpoint parse_endpoint(const std::string& text, const std::string& what);

}  // namespace bantam
