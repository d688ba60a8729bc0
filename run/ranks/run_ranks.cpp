// Small collectives of a run, its state in all ranks, and whether that is the same.
#include "bantam/run/ranks/run_ranks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/engine/comm/collectives.h"

namespace bantam::run {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{4} << 20;  // of a tensor that passes through host memory

/// Calls `pass` with the place of each chunk of a tensor, in order.
void for_each_chunk(const Tensor& tensor, const std::function<void(std::byte* data, std::size_t bytes)>& pass) {
  auto* const data = static_cast<std::byte*>(tensor.data());
  const std::size_t all = tensor.bytes();
  for (std::size_t at = 0; at < all; at += kChunkBytes) pass(data + at, std::min(kChunkBytes, all - at));
}

/// Lists the entries of a registry, without their values: ranks compare them as text.
std::string entries_of(const StateRegistry& state) {
  std::string text;
  for (const StateEntry& entry : state.tensors())
    text += fmt::format("{} {} {}\n", entry.name, to_string(entry.tensor.dtype()), to_string(entry.tensor.shape()));
  for (const auto& counter : state.counters()) text += counter.name + "\n";
  for (const auto& numbers : state.numbers()) text += numbers.name + "\n";
  return text;
}

/// The first line of each that the other does not have there.
std::pair<std::string_view, std::string_view> first_difference(std::string_view a, std::string_view b) {
  const auto cut = [](std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
  };
  for (;;) {
    const std::string_view of_a = cut(a), of_b = cut(b);
    if (of_a != of_b || (a.empty() && b.empty())) return {of_a, of_b};
  }
}

template <class Value>
void append(std::string& bytes, const Value* values, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(Value));
}

/// Reads values from a text that `append` has made, which moves on.
template <class Value>
std::vector<Value> take(std::string_view& bytes, std::size_t count) {
  std::vector<Value> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(Value));
  bytes.remove_prefix(count * sizeof(Value));
  return values;
}

std::string host_values(const StateRegistry& state) {
  std::string bytes;
  for (const auto& counter : state.counters()) {
    const std::int64_t value = counter.get();
    append(bytes, &value, 1);
  }
  for (const auto& numbers : state.numbers()) {
    const std::vector<double> values = numbers.get();
    const std::uint64_t count = values.size();
    append(bytes, &count, 1);
    append(bytes, values.data(), values.size());
  }
  return bytes;
}

void set_host_values(const StateRegistry& state, std::string_view bytes) {
  for (const auto& counter : state.counters()) counter.set(take<std::int64_t>(bytes, 1).front());
  for (const auto& numbers : state.numbers()) {
    const std::uint64_t count = take<std::uint64_t>(bytes, 1).front();
    numbers.set(take<double>(bytes, count));
  }
}

}  // namespace

std::string text_of_first(const RunRanks& ranks, const std::string& text) {
  return ranks.several() ? broadcast_text(*ranks.link, text) : text;
}

bool any_rank(const RunRanks& ranks, bool mine) { return first_number(ranks, mine ? 1 : 0) != 0; }

int first_number(const RunRanks& ranks, int mine) {
  if (!ranks.several()) return mine;
  for (const std::vector<std::byte>& bytes : all_gather(*ranks.link, std::as_bytes(std::span(&mine, 1)))) {
    int number = 0;
    std::memcpy(&number, bytes.data(), sizeof(number));
    if (number != 0) return number;
  }
  return 0;
}

void require_same(const RunRanks& ranks, const std::string& what, const std::string& mine) {
  if (!ranks.several()) return;
  const std::vector<std::string> all = all_gather_texts(*ranks.link, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto [first, other] = first_difference(all[0], all[rank]);
    throw DataError(
        fmt::format("rank {} has {} unlike rank 0's:\n  rank 0: {}\n  rank {}: {}", rank, what, first, rank, other));
  }
}

void broadcast_state(const RunRanks& ranks, const StateRegistry& state, Stream stream) {
  if (!ranks.several()) return;
  require_same(ranks, "a state", sha256_of(entries_of(state)));
  std::vector<std::byte> buffer(kChunkBytes);
  synchronize(stream);
  for (const StateEntry& entry : state.tensors())
    for_each_chunk(entry.tensor, [&](std::byte* data, std::size_t bytes) {
      if (ranks.writes()) copy_bytes(buffer.data(), data, bytes, stream);
      synchronize(stream);
      broadcast(*ranks.link, std::span(buffer).first(bytes));
      if (!ranks.writes()) copy_bytes(data, buffer.data(), bytes, stream);
      synchronize(stream);
    });
  const std::string values = broadcast_text(*ranks.link, ranks.writes() ? host_values(state) : std::string());
  if (ranks.writes()) return;
  set_host_values(state, values);
  state.loaded();
  synchronize(stream);
}

std::string state_digest(const StateRegistry& state, Stream stream) {
  Sha256 sum;
  const auto add = [&sum](const void* data, std::size_t bytes) {
    sum.update({static_cast<const std::uint8_t*>(data), bytes});
  };
  std::vector<std::byte> buffer(kChunkBytes);
  for (const StateEntry& entry : state.tensors()) {
    add(entry.name.data(), entry.name.size());
    for_each_chunk(entry.tensor, [&](const std::byte* data, std::size_t bytes) {
      copy_bytes(buffer.data(), data, bytes, stream);
      synchronize(stream);
      add(buffer.data(), bytes);
    });
  }
  return sum.finish();
}

std::vector<int> odd_ranks(std::span<const std::string> digests) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& digest : digests) ++counts[digest];
  std::string usual = digests.front();
  for (const auto& [digest, count] : counts)
    if (2 * count > digests.size()) usual = digest;
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < digests.size(); ++rank)
    if (digests[rank] != usual) odd.push_back(static_cast<int>(rank));
  return odd;
}

bool StateComparison::is_due(const EpochEvent& event) const {
  if (seconds_ <= 0 || event.last) return true;
  return text_of_first(ranks_, seconds_since(last_) >= seconds_ ? "due" : "") == "due";
}

void StateComparison::on_epoch_end(const EpochEvent& event) {
  if (!ranks_.several() || !is_due(event)) return;
  last_ = std::chrono::steady_clock::now();
  const std::vector<int> odd = odd_ranks(all_gather_texts(*ranks_.link, state_digest(state_, stream_)));
  if (odd.empty()) return;
  throw StateMismatch(
      fmt::format("the state of rank{} {} differs from the other ranks' after epoch {}: a processor or memory that "
                  "computes wrongly, or unlike libraries or instruction sets; go on from a checkpoint before it",
                  odd.size() == 1 ? "" : "s", fmt::join(odd, ", "), event.epoch + 1));
}

}  // namespace bantam::run
