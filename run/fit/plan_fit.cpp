// From what was named, configuration and card to one number of bytes.
#include "bantam/run/fit/plan_fit.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::run {
namespace {

using Of = PlanFit::Of;

/// A limit, which a GPU's process must stay within and a CPU's pool, with all shares of the device.
PlanFit fit_limit(const MemoryConfig& memory, const PlanTarget& target, std::uint64_t bytes) {
  const std::uint64_t shares = bytes_of_shares(memory, target.device), rest = pool_bytes_under(target, bytes);
  return {.of = target.counts ? Of::process : Of::pool,
          .bytes = bytes,
          .asked_bytes = bytes,
          .shares = shares,
          .readers = target.readers_bytes,
          .pool = std::max<std::uint64_t>(1, rest - std::min(rest, shares))};
}

PlanFit as_named(const MemoryConfig& memory, const PlanTarget& target) {
  if (target.memory > 0) return fit_limit(memory, target, target.memory);
  const std::uint64_t pool = bytes_to_fit(memory, target);
  if (pool == 0) return {};
  const auto limit = memory.limits.find(to_string(target.device));
  if (limit == memory.limits.end() || pool == memory.budget)
    return {.of = Of::pool, .bytes = pool, .asked_bytes = pool, .pool = pool};
  return fit_limit(memory, target, limit->second);
}

}  // namespace

std::uint64_t PlanFit::needed_bytes(const PlanTarget& target, std::uint64_t pool_bytes) const {
  return shares + (of == Of::pool ? readers + pool_bytes : limit_bytes_for(target, pool_bytes));
}

std::string PlanFit::to_text(const PlanTarget& target) const {
  std::string size = format_byte_size(bytes);
  if (shares > 0) size += fmt::format(", {} of it its shares'", format_byte_size(shares));
  if (readers > 0) size += fmt::format(", {} of it the data's files'", format_byte_size(readers));
  switch (of) {
    case Of::pool:
    case Of::process:
      return fmt::format("to fit a {} of {}{}", to_string(of), size,
                         asked_bytes == bytes ? ""
                                              : fmt::format(": all of {}'s, not the {} asked for", target.profile.name,
                                                            format_byte_size(asked_bytes)));
    case Of::card:
      return fmt::format("to fit a process of {}: all of {}'s", size, target.profile.name);
    case Of::nothing:
      break;
  }
  return "";
}

std::string_view to_string(PlanFit::Of of) {
  switch (of) {
    case Of::pool:
      return "pool";
    case Of::process:
      return "process";
    case Of::card:
      return "card";
    case Of::nothing:
      break;
  }
  return "nothing";
}

PlanFit plan_fit(const MemoryConfig& memory, const PlanTarget& target) {
  const std::uint64_t limit = target.device.is_logical() ? 0 : target.memory;
  if (const auto refused = refused_shares(memory, target, limit)) throw *refused;
  PlanFit fit = as_named(memory, target);
  const std::uint64_t card = target.profile.total_bytes;
  if (!target.counts || card == 0) return fit;
  PlanFit whole = fit_limit(memory, target, card);
  if (fit.any() && fit.pool <= whole.pool) return fit;
  if (!fit.any()) {
    whole.of = Of::card;
    return whole;
  }
  whole.of = fit.of;
  whole.bytes = fit.of == Of::pool ? whole.pool : card;
  if (fit.of == Of::pool) whole.shares = 0;  // a budget is of the pool alone
  whole.asked_bytes = fit.asked_bytes;
  return whole;
}

}  // namespace bantam::run
