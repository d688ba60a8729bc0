// Brackets around IPv6 numbers tell their colons from the port's.
#include "bantam/engine/comm/endpoint.h"

#include <charconv>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {

std::string to_text(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(ipv6 ? "[{}]:{}" : "{}:{}"), endpoint.host, endpoint.port);
}

Endpoint parse_endpoint(const std::string& text, const std::string& what) {
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos && colon > 0) {
    Endpoint endpoint{text.substr(0, colon), 0};
    const bool brackets = endpoint.host.starts_with('[') && endpoint.host.ends_with(']');
    if (brackets) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + colon + 1, last, endpoint.port);
    const bool bare_ipv6 = !brackets && endpoint.host.find(':') != std::string::npos;
    const bool port = error == std::errc() && end == last && endpoint.port >= 1 && endpoint.port <= 65535;
    if (port && !bare_ipv6 && !endpoint.host.empty()) return endpoint;
  }
  throw ConfigError(
      fmt::format("{}: expected HOST:PORT or [IPv6]:PORT with a port from 1 to 65535, not \"{}\"", what, shown(text)));
}

}  // namespace bantam
