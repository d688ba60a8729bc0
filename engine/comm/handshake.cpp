// Proofs are written before what they prove, as 64 hexadecimal digits.
#include "bantam/engine/comm/handshake.h"

#include <cerrno>
#include <limits>

#include <fmt/format.h>
#include <sys/random.h>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"

namespace bantam::handshake {
namespace {

constexpr std::size_t kProofDigits = 64;

template <typename Bytes>
std::string hexadecimal(const Bytes& bytes) {
  std::string digits;
  for (const unsigned char byte : bytes) digits += fmt::format("{:02x}", byte);
  return digits;
}

/// A byte that no text has ends the context.
std::string proof(const std::string& secret, const std::string& context, const std::string& text) {
  return hexadecimal(hmac_sha256(secret, context + '\0' + text));
}

}  // namespace

std::string random_number() {
  std::array<unsigned char, 32> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const auto n = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (n < 0 && errno != EINTR) throw Error("the system has no random numbers (getrandom failed)");
    if (n > 0) filled += static_cast<std::size_t>(n);
  }
  return hexadecimal(bytes);
}

std::string sealed(const std::string& secret, const std::string& context, const Json& message) {
  const std::string text = to_text(message);
  return proof(secret, context, text) + text;
}

std::optional<Json> unsealed(const std::string& secret, const std::string& context, const std::string& frame) {
  if (frame.size() < kProofDigits) return std::nullopt;
  const std::string text = frame.substr(kProofDigits);
  const std::string expected = proof(secret, context, text);
  unsigned difference = 0;
  for (std::size_t i = 0; i < kProofDigits; ++i) difference |= static_cast<unsigned char>(frame[i] ^ expected[i]);
  if (difference != 0) return std::nullopt;
  Json message = parse(text);
  if (!message.is_object()) return std::nullopt;
  return message;
}

Json parse(const std::string& frame) {
  Json message = Json::parse(frame, nullptr, false);
  return message.is_object() ? message : Json();
}

std::string to_text(const Json& message) { return message.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string text_at(const Json& message, const char* name) {
  const auto at = message.find(name);
  return at != message.end() && at->is_string() ? at->get<std::string>() : std::string();
}

int number_at(const Json& message, const char* name) {
  const auto at = message.find(name);
  if (at == message.end() || !at->is_number_integer()) return -1;
  const auto number = at->get<std::int64_t>();
  return number < 0 || number > std::numeric_limits<int>::max() ? -1 : static_cast<int>(number);
}

Json message_of(const RankFailure& failure) {
  return {{"failed", {{"rank", failure.rank}, {"host", failure.host}, {"reason", failure.reason}}}};
}

std::optional<RankFailure> failure_in(const Json& message) {
  const auto at = message.find("failed");
  if (at == message.end() || !at->is_object()) return std::nullopt;
  return RankFailure{number_at(*at, "rank"), text_at(*at, "host"), text_at(*at, "reason")};
}

}  // namespace bantam::handshake
