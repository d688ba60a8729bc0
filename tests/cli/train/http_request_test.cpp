// Requests as browsers, programs and attackers send them.
#include "bantam/cli/train/http_request.h"

#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bantam::cli::http_request_test {
namespace {

using namespace std::string_literals;

std::string get(const std::string& target, const std::string& fields = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: localhost:8080\r\n" + fields + "\r\n";
}
int status_of(const std::string& bytes) { return parse_http_request(bytes).status; }

TEST(HttpRequest, WhatABrowserSendsIsRead) {
  const ParsedHttpRequest parsed = parse_http_request(
      "GET /data.json?seen=1-2.3 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: M\xc3\xb6zilla/5.0\r\n"
      "origin:http://127.0.0.1:8080\t\r\nSec-Fetch-Site:   same-origin \r\nsec-fetch-dest: empty\r\nX:\r\n\r\n"
      "what follows is not looked at \0\1"s);
  ASSERT_EQ(parsed.status, 200);
  EXPECT_FALSE(parsed.request.head);
  EXPECT_EQ(parsed.request.path, "/data.json");
  EXPECT_EQ(parsed.request.query, "seen=1-2.3");
  EXPECT_EQ(parsed.request.host, "127.0.0.1:8080");
  EXPECT_EQ(parsed.request.origin, "http://127.0.0.1:8080");
  EXPECT_EQ(parsed.request.fetch_site, "same-origin");
  EXPECT_EQ(parsed.request.fetch_dest, "empty");
  const ParsedHttpRequest head = parse_http_request("HEAD / HTTP/1.0\r\nHost: a\r\nContent-Length: 00\r\n\r\n");
  ASSERT_EQ(head.status, 200);
  EXPECT_TRUE(head.request.head);
  EXPECT_EQ(head.request.origin, std::nullopt);
}

TEST(HttpRequest, TargetsAreKeptAsTheyWereSent) {
  for (const char* target : {"/", "/..", "/%2e%2e/etc/passwd", "/%00", "//host/", "/a%", "/\\..\\x", "/a;b=c:d@e"})
    EXPECT_EQ(parse_http_request(get(target)).request.path, target);
  EXPECT_EQ(parse_http_request(get("/a?b?c=%41")).request.query, "b?c=%41");
}

TEST(HttpRequest, EverythingElseIsRefusedWithItsStatus) {
  const std::string host = "Host: a\r\n";
  const std::string line = "GET / HTTP/1.1\r\n";
  const struct {
    int status;
    std::string bytes;
  } cases[] = {
      {405, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1500000000\r\n\r\n"},
      {405, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
      {405, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"},
      {405, "get / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {505, "PRI * HTTP/2.0\r\n\r\n"},
      {505, "GET / HTTP/0.9\r\n\r\n"},
      {400, "GET /\r\n\r\n"},
      {400, "GET  HTTP/1.1\r\n\r\n"},
      {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
      {400, "GET / http/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET / HTTP/1.10\r\nHost: a\r\n\r\n"},
      {400, "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"s},
      {400, "GET /\x1b[2J HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {400, "\r\n\r\n"},
      {400, line + "\r\n"},                                   // no Host
      {400, line + host + host + "\r\n"},                     // two
      {400, line + host + "Origin: a\r\nORIGIN: a\r\n\r\n"},  // two
      {400, line + host + " folded: a\r\n\r\n"},              // RFC 9112, section 5.2
      {400, line + host + "A : b\r\n\r\n"},                   // section 5.1
      {400, line + host + ": b\r\n\r\n"},                     // no name
      {400, line + host + "no field\r\n\r\n"},                //
      {400, line + "Host: a\n\r\n\r\n"},                      // LF alone
      {400, line + "Host: a\r \r\n\r\n"},                     // CR alone
      {400, line + "Host: a\r\r\n\r\n"},
      {400, line + "Host: a\0b\r\n\r\n"s},                  //
      {400, line + host + "Content-Length: -1\r\n\r\n"},    //
      {400, line + host + "Content-Length: 0, 0\r\n\r\n"},  //
      {400, line + host + "Content-Length:\r\n\r\n"},       //
      {413, line + host + "Content-Length: 1\r\n\r\n"},     //
      {413, line + host + "content-length: 99999999999999999999999999\r\n\r\n"},
      {413, line + host + "Transfer-Encoding: chunked\r\n\r\n"},   //
      {413, line + host + "TRANSFER-ENCODING: identity\r\n\r\n"},  //
      {400, "\x16\x03\x01"},                                       // TLS, before its end
      {400, "GET / HTTP/1.1\n"},                                   // before its end
  };
  for (const auto& one : cases) EXPECT_EQ(status_of(one.bytes), one.status) << one.bytes;
}

TEST(HttpRequest, LinesAndFieldsHaveLimits) {
  const std::string whole = get("/", "A: \r\n");
  const std::string filler(kMostRequestBytes - whole.size(), 'x');
  const auto with_value = [](const std::string& value) { return get("/", "A: " + value + "\r\n"); };
  EXPECT_EQ(status_of(with_value(filler)), 200) << "just as large as a request may be";
  EXPECT_EQ(status_of(with_value(filler + "x")), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nA: " + std::string(kMostRequestBytes, 'x')), 431) << "no end";
  EXPECT_EQ(status_of("GET /" + std::string(kMostRequestBytes, 'x')), 414);
  EXPECT_EQ(status_of("GET /" + std::string(kMostRequestBytes, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  EXPECT_EQ(status_of("GET /" + std::string(kMostRequestBytes / 2, 'x')), 0);
  std::string fields;
  for (std::size_t f = 1; f < kMostRequestFields; ++f) fields += fmt::format("A{}: b\r\n", f);
  EXPECT_EQ(status_of(get("/", fields)), 200) << "with Host as many as there may be";
  EXPECT_EQ(status_of(get("/", fields + "B: c\r\n")), 431);
}

TEST(HttpRequest, AStatusComesOnceAndStays) {
  const std::string requests[] = {get("/data.json?seen=1", "Origin: a\r\n"), "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
                                  "GET / HTTP/1.1\r\nHost: a\n\r\n\r\n", get("/", std::string(70 * 5, ' ') + "\r\n")};
  for (const std::string& bytes : requests) {
    int first = 0;
    for (std::size_t count = 0; count <= bytes.size(); ++count) {
      const int status = status_of(bytes.substr(0, count));
      if (first == 0) first = status;
      EXPECT_EQ(status, first) << bytes.substr(0, count);
    }
    EXPECT_NE(first, 0);
    EXPECT_EQ(status_of(bytes + bytes), first) << "a second request does not matter";
  }
}

TEST(HttpRequest, MutatedRequestsAreReadOrRefused) {
  const std::string alphabet = "\r\n\t\0 :/?%#\x7f\x80\xffGETHOST1.0"s;
  std::mt19937 random(7);
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  std::size_t read = 0, refused = 0;
  for (int trial = 0; trial < 50'000; ++trial) {
    std::string bytes = get("/data.json?seen=1", "Origin: http://localhost:8080\r\nContent-Length: 0\r\n");
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          bytes.erase(at, 1 + below(8));
          break;
        default:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(12)));
      }
    }
    const ParsedHttpRequest parsed = parse_http_request(bytes);
    if (parsed.status != 200) {
      refused += parsed.status != 0 ? 1 : 0;
      continue;
    }
    ++read;
    const HttpRequest& request = parsed.request;
    for (const std::string* text : {&request.path, &request.query, &request.host})
      EXPECT_EQ(text->find_first_of("\r\n\0\x7f"s), std::string::npos) << *text;
    EXPECT_TRUE(request.path.starts_with('/')) << bytes;
  }
  EXPECT_GT(read, 1000u);
  EXPECT_GT(refused, 1000u);
}

TEST(HttpRequest, OnlyThePageItselfMayAsk) {
  const auto is_own = [](HttpRequest request, bool is_page = false, int port = 8080) {
    if (request.host.empty()) request.host = "localhost:8080";
    return is_own_request(request, is_page, port);
  };
  for (const char* host : {"localhost:8080", "127.0.0.1:8080"}) {
    EXPECT_TRUE(is_own({.host = host}));
    EXPECT_TRUE(is_own({.host = host, .origin = std::string("http://") + host, .fetch_site = "same-origin"}));
  }
  for (const char* host :
       {"example.org:8080", "localhost", "localhost:80800", "localhost:8080.example.org", "127.0.0.1.example.org:8080",
        "127.0.0.2:8080", "0.0.0.0:8080", "[::1]:8080", "x@localhost:8080"})
    EXPECT_FALSE(is_own({.host = host}, true)) << host;
  EXPECT_TRUE(is_own({.host = "localhost"}, false, 80)) << "browsers leave the scheme's port out";
  for (const char* origin : {"null", "", "http://example.org", "http://localhost:9090", "https://localhost:8080",
                             "http://127.0.0.1:8080", "http://localhost:8080.example.org"})
    EXPECT_FALSE(is_own({.origin = origin}, true)) << origin;
  for (const char* site : {"cross-site", "same-site", "anything"}) {
    EXPECT_FALSE(is_own({.fetch_site = site, .fetch_dest = "document"})) << "the data";
    EXPECT_FALSE(is_own({.fetch_site = site}, true));
    for (const char* into : {"empty", "iframe", "script", "image"})
      EXPECT_FALSE(is_own({.fetch_site = site, .fetch_dest = into}, true)) << into;
    EXPECT_TRUE(is_own({.fetch_site = site, .fetch_dest = "document"}, true)) << "a link to the page";
  }
  EXPECT_TRUE(is_own({.fetch_site = "none", .fetch_dest = "document"})) << "typed by the user";
}

}  // namespace
}  // namespace bantam::cli::http_request_test
