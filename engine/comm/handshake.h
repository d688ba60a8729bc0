// The messages by which ranks introduce themselves, as JSON, with a proof that the sender knows the run's secret.
#pragma once

#include <optional>
#include <string>

#include "bantam/base/json.h"
#include "bantam/engine/comm/communicator.h"

namespace bantam::handshake {

using Json = nlohmann::ordered_json;

/// Changes with what ranks say to each other. Frames up to the proofs' check are alike in all versions.
constexpr int kProtocol = 1;

/// 32 random bytes as hexadecimal digits, which nobody can guess. Throws Error where the system has none.
std::string random_number();

/// HMAC-SHA-256 of context and message with the secret, before the message. The context says what the message is for
/// and holds a random number of the receiver's, so that none can be said a second time.
std::string sealed(const std::string& secret, const std::string& context, const Json& message);
/// The message of a frame; none where its proof is wrong. The comparison's time does not depend on the bytes.
std::optional<Json> unsealed(const std::string& secret, const std::string& context, const std::string& frame);

/// Text without a proof; null where it is no JSON object.
Json parse(const std::string& frame);
std::string to_text(const Json& message);

/// Values of a message from elsewhere: empty, or -1, where there is none of that name and type.
std::string text_at(const Json& message, const char* name);
int number_at(const Json& message, const char* name);

/// {"failed": {"rank", "host", "reason"}}.
Json message_of(const RankFailure& failure);
/// None where the message says something else.
std::optional<RankFailure> failure_in(const Json& message);

}  // namespace bantam::handshake
