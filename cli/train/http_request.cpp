// A parser that reads one line after another, and the rules of who may ask.
#include "bantam/cli/train/http_request.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bantam::cli {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_control(char c) { return (c >= 0 && c < ' ') || c == 127; }
/// A character of a method or of a field's name (RFC 9110, section 5.6.2).
bool is_token_character(char c) {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_character); }
bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view next_line(std::string_view& rest) {
  const std::size_t end = rest.find(kLineEnd);
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + kLineEnd.size());
  return line;
}

/// Bytes that no request line or header field has, wherever they stand: NUL and other controls, CR and LF apart.
bool has_foreign_byte(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '\t' || !is_control(c)) continue;
    const bool ends_line =
        (c == '\r' && (i + 1 == bytes.size() || bytes[i + 1] == '\n')) || (c == '\n' && i > 0 && bytes[i - 1] == '\r');
    if (!ends_line) return true;
  }
  return false;
}

int parse_request_line(std::string_view line, HttpRequest& request) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return 400;
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method) || version.size() != 8 || !version.starts_with("HTTP/") || !is_digit(version[5]) ||
      version[6] != '.' || !is_digit(version[7]))
    return 400;
  if (version[5] != '1') return 505;
  if (method != "GET" && method != "HEAD") return 405;
  const auto is_allowed = [](char c) { return c > ' ' && c < 127 && c != '#'; };
  if (!target.starts_with('/') || !std::ranges::all_of(target, is_allowed)) return 400;
  request.head = method == "HEAD";
  const std::size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  return 200;
}

/// The fields that are used, each at most once.
struct UsedFields {
  std::optional<std::string> host, content_length, origin, fetch_site, fetch_dest;
  bool has_coding = false;

  /// False where the line is no field, or one of these for the second time.
  bool read(std::string_view line) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return false;
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    value = value.substr(0, value.find_last_not_of(" \t") + 1);
    has_coding = has_coding || equals_ignoring_case(name, "Transfer-Encoding");
    const std::array<std::pair<std::string_view, std::optional<std::string>*>, 5> used = {
        {{"Host", &host},
         {"Content-Length", &content_length},
         {"Origin", &origin},
         {"Sec-Fetch-Site", &fetch_site},
         {"Sec-Fetch-Dest", &fetch_dest}}};
    for (const auto& [known, place] : used) {
      if (!equals_ignoring_case(name, known)) continue;
      if (place->has_value()) return false;
      place->emplace(value);
    }
    return true;
  }
};

int parse_fields(std::string_view rest, HttpRequest& request) {
  UsedFields fields;
  std::size_t count = 0;
  while (!rest.empty()) {
    if (++count > kMostRequestFields) return 431;
    if (!fields.read(next_line(rest))) return 400;
  }
  if (!fields.host) return 400;
  const std::string length = fields.content_length.value_or("0");
  if (length.empty() || !std::ranges::all_of(length, is_digit)) return 400;
  if (fields.has_coding || length.find_first_not_of('0') != std::string::npos) return 413;
  request.host = std::move(*fields.host);
  request.origin = std::move(fields.origin);
  request.fetch_site = std::move(fields.fetch_site);
  request.fetch_dest = std::move(fields.fetch_dest);
  return 200;
}

}  // namespace

ParsedHttpRequest parse_http_request(std::string_view bytes) {
  ParsedHttpRequest parsed;
  const std::string_view most = bytes.substr(0, kMostRequestBytes);
  const std::size_t end = most.find("\r\n\r\n");
  const bool is_whole = end != std::string_view::npos;
  std::string_view rest = is_whole ? most.substr(0, end + kLineEnd.size()) : most;
  if (has_foreign_byte(rest)) {
    parsed.status = 400;
  } else if (is_whole) {
    parsed.status = parse_request_line(next_line(rest), parsed.request);
    if (parsed.status == 200) parsed.status = parse_fields(rest, parsed.request);
  } else if (bytes.size() >= kMostRequestBytes) {
    parsed.status = most.find(kLineEnd) == std::string_view::npos ? 414 : 431;
  }
  return parsed;
}

bool is_own_request(const HttpRequest& request, bool is_page, int port) {
  const auto is_own = [&](const std::string& name) {
    return request.host == name + ":" + std::to_string(port) || (port == 80 && request.host == name);
  };
  if (!is_own("127.0.0.1") && !is_own("localhost")) return false;
  if (request.origin && *request.origin != "http://" + request.host) return false;
  const std::string site = request.fetch_site.value_or("none");
  return site == "none" || site == "same-origin" || (is_page && request.fetch_dest == "document");
}

}  // namespace bantam::cli
