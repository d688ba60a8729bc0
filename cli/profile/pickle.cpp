// Opcodes of pickle protocol 4, as Python's pickletools lists them.
#include "bantam/cli/profile/pickle.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "bantam/base/error.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

namespace op {
constexpr char kProtocol = '\x80', kStop = '.', kNone = 'N', kTrue = '\x88', kFalse = '\x89';
constexpr char kByte = 'K', kUint16 = 'M', kInt32 = 'J', kLong = '\x8a', kFloat = 'G';
constexpr char kShortText = '\x8c', kText = 'X', kRemember = '\x94', kRecall = 'h', kLongRecall = 'j';
constexpr char kEmptyList = ']', kAppend = 'a', kEmptyDictionary = '}', kSetItem = 's';
}  // namespace op

class Writer {
 public:
  std::string write(const Json& value) {
    bytes_ = {op::kProtocol, 4};
    any(value);
    bytes_ += op::kStop;
    return std::move(bytes_);
  }

 private:
  void any(const Json& value) {
    switch (value.type()) {
      case Json::value_t::object:
        return dictionary(value);
      case Json::value_t::array:
        return list(value);
      case Json::value_t::string:
        return text(value.get_ref<const std::string&>());
      case Json::value_t::boolean:
        bytes_ += value.get<bool>() ? op::kTrue : op::kFalse;
        return;
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
        return integer(value);
      case Json::value_t::number_float:
        return real(value.get<double>());
      default:
        bytes_ += op::kNone;
    }
  }

  void dictionary(const Json& entries) {
    bytes_ += op::kEmptyDictionary;
    for (const auto& [key, value] : entries.items()) {
      text(key);
      any(value);
      bytes_ += op::kSetItem;
    }
  }

  void list(const Json& items) {
    bytes_ += op::kEmptyList;
    for (const Json& item : items) {
      any(item);
      bytes_ += op::kAppend;
    }
  }

  void text(const std::string& value) {
    const auto [known, fresh] = memo_.try_emplace(value, static_cast<std::uint32_t>(memo_.size()));
    if (!fresh) {
      const bool is_short = known->second < 256;
      bytes_ += is_short ? op::kRecall : op::kLongRecall;
      return little_endian(known->second, is_short ? 1 : 4);
    }
    if (value.size() > std::numeric_limits<std::uint32_t>::max()) throw Error("pickle: a string of 4 GiB or more");
    bytes_ += value.size() < 256 ? op::kShortText : op::kText;
    little_endian(value.size(), value.size() < 256 ? 1 : 4);
    bytes_ += value;
    bytes_ += op::kRemember;
  }

  void integer(const Json& value) {
    const bool is_unsigned = value.is_number_unsigned();
    const auto bits = is_unsigned ? value.get<std::uint64_t>() : static_cast<std::uint64_t>(value.get<std::int64_t>());
    const bool negative = !is_unsigned && value.get<std::int64_t>() < 0;
    if (!negative && bits < 1u << 16) {
      bytes_ += bits < 256 ? op::kByte : op::kUint16;
      return little_endian(bits, bits < 256 ? 1 : 2);
    }
    if (!negative && bits < 1u << 31) {
      bytes_ += op::kInt32;
      return little_endian(bits, 4);
    }
    // Two's complement; one byte more where the top bit of a positive number would read as a sign.
    const int size = !negative && (bits >> 63) != 0 ? 9 : 8;
    bytes_ += op::kLong;
    bytes_ += static_cast<char>(size);
    little_endian(bits, 8);
    if (size == 9) bytes_ += '\0';
  }

  void real(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    bytes_ += op::kFloat;
    for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift & 0xff);  // big-endian
  }

  void little_endian(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string bytes_;
  std::unordered_map<std::string, std::uint32_t> memo_;
};

}  // namespace

std::string pickle(const Json& value) { return Writer().write(value); }

}  // namespace bantam::cli
