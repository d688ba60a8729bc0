// HttpRequest: the request line and header fields of HTTP/1 (RFC 9112), parsed from bytes that anybody may have sent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace bantam::cli {

inline constexpr std::size_t kMostRequestBytes = 16 << 10;  ///< the request line and all header fields together
inline constexpr std::size_t kMostRequestFields = 64;       ///< header fields; browsers send about 15

/// A GET or HEAD without a body. The target is kept as it was sent: nothing is percent-decoded.
struct HttpRequest {
  bool head = false;                  ///< HEAD: the answer has header fields alone
  std::string path = {}, query = {};  ///< before and after the first "?"
  std::string host = {};
  /// Origin, Sec-Fetch-Site, Sec-Fetch-Dest; null: absent.
  std::optional<std::string> origin = {}, fetch_site = {}, fetch_dest = {};
};

struct ParsedHttpRequest {
  int status = 0;  ///< 0: more bytes are needed; 200: `request` is complete; else the status to refuse it with
  HttpRequest request;
};

/// Parses the first request in `bytes`, the beginning of a connection's input; what follows it is not looked at. A pure
/// function: the same bytes return the same, and once a status is not 0, further bytes do not change it.
///
/// 405: another method than GET and HEAD. 413: Content-Length above 0 or any Transfer-Encoding, as no body is accepted.
/// 414 and 431: more than kMostRequestBytes without an end, in the request line or after it; 431 also for more than
/// kMostRequestFields. 505: another version than 1.x. 400: everything else that RFC 9112 does not allow, and of what it
/// allows: lines that end in LF alone, a target that is no path, bytes above 126 in the target, and no or two of a
/// field that is used here.
ParsedHttpRequest parse_http_request(std::string_view bytes);

/// Whether the page of a server at `port` of this machine, or a program other than a browser, may have sent the
/// request. Host is 127.0.0.1 or localhost with that port: a name of another site that points at this machine (DNS
/// rebinding) is refused. Origin, where it is sent, is the same, and Sec-Fetch-Site says "same-origin" or "none". Other
/// sites may link to the page, which a browser then opens as a document of its own (`is_page`), and may do nothing
/// else.
bool is_own_request(const HttpRequest& request, bool is_page, int port);

}  // namespace bantam::cli
