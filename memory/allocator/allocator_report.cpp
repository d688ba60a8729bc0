// The messages of OutOfMemory.
#include "bantam/memory/allocator/allocator_report.h"

#include <algorithm>

#include <fmt/core.h>

#include "bantam/base/byte_size.h"

namespace bantam {
namespace {

std::string owner_text(const char* owner) { return owner == nullptr || *owner == '\0' ? "(no name)" : owner; }

std::string advice(const RefusedRequest& request, const MemoryStats& stats) {
  if (stats.limit_bytes != 0 && request.bytes > stats.limit_bytes)
    return "This one request is larger than the limit: raise the limit (memory: limits, or Runtime::set_limit), or "
           "lower the batch size.";
  if (stats.limit_bytes != 0 && stats.limit_bytes < request.page_bytes)
    return fmt::format(
        "Memory comes in pages of {}, and the limit is less than one: raise it (memory: limits, or "
        "Runtime::set_limit).",
        format_byte_size(request.page_bytes));
  if (request.source_refused)
    return "The device has no more memory below the limit: close other programs that use it, or lower the batch size.";
  if (request.bytes <= stats.free_bytes())
    return "Enough memory is free, but it is fragmented: raise the limit (memory: limits, or Runtime::set_limit), or "
           "lower the batch size.";
  return "Lower the batch size, turn on recompute, or raise the limit (memory: limits, or Runtime::set_limit).";
}

OutOfMemory::Facts facts_of(std::uint64_t requested_bytes, const MemoryStats& stats) {
  return {.requested_bytes = requested_bytes,
          .in_use_bytes = stats.in_use_bytes,
          .pool_bytes = stats.pool_bytes,
          .limit_bytes = stats.limit_bytes,
          .largest_free_bytes = stats.largest_free_bytes};
}

}  // namespace

std::string size_text(std::uint64_t bytes) { return fmt::format("{} ({} B)", format_byte_size(bytes), bytes); }

std::string holders_text(std::span<const Holder> holders) {
  std::string text = holders.empty() ? "" : "  largest holders:\n";
  for (const Holder& holder : holders.first(std::min<std::size_t>(5, holders.size())))
    text += fmt::format("    {} ({}): {} in {} allocation{}\n", owner_text(holder.owner.c_str()),
                        to_string(holder.category), size_text(holder.bytes), holder.allocations,
                        holder.allocations == 1 ? "" : "s");
  return text;
}

OutOfMemory out_of_memory(const std::string& allocator, const RefusedRequest& request, const MemoryStats& stats,
                          std::span<const Holder> holders) {
  std::string text =
      fmt::format("out of memory on {}: {} for '{}' ({}) do not fit\n", allocator, size_text(request.bytes),
                  owner_text(request.tag.owner), to_string(request.tag.category));
  text +=
      fmt::format("  limit {}, in use {}, pool {}\n", stats.limit_bytes == 0 ? "none" : size_text(stats.limit_bytes),
                  size_text(stats.in_use_bytes), size_text(stats.pool_bytes));
  if (stats.arena_bytes > 0)
    text += fmt::format("  {} of the pool are set aside for the planned step, {} of them idle\n",
                        size_text(stats.arena_bytes), size_text(stats.arena_idle_bytes()));
  text += fmt::format("  largest free {}, fragmentation {:.1f} %\n", size_text(stats.largest_free_bytes),
                      100.0 * stats.fragmentation());
  text += holders_text(holders) + "  " + advice(request, stats);
  return OutOfMemory(text, facts_of(request.bytes, stats));
}

OutOfMemory limit_too_low(const std::string& allocator, std::uint64_t limit_bytes, std::uint64_t reserved_bytes,
                          const MemoryStats& stats) {
  return OutOfMemory(fmt::format("the limit of {} cannot be set to {}: {} lie under live memory ({} in use)", allocator,
                                 size_text(limit_bytes), size_text(reserved_bytes), size_text(stats.in_use_bytes)),
                     facts_of(0, stats));
}

}  // namespace bantam
