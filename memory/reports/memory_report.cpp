// A snapshot of an allocator as a report, in words and as JSON.
#include "bantam/memory/reports/memory_report.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

// The widest names for which lines stay within 80 columns.
constexpr std::size_t kOwnerWidth = 36, kOverheadWidth = 24;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string exact(std::uint64_t bytes) { return format_count(static_cast<std::int64_t>(bytes)); }

/// Keeps the end of a long layer path, which tells layers apart.
std::string shortened(const std::string& owner) {
  if (owner.empty()) return "(no name)";
  return owner.size() <= kOwnerWidth ? owner : "..." + owner.substr(owner.size() - (kOwnerWidth - 3));
}

std::string accounts(const MemoryReport& report) {
  const MemoryStats& stats = report.stats;
  Table table({{report.device, Align::left}, {"bytes"}, {""}, {"what it is", Align::left}});
  const auto line = [&](const std::string& name, std::uint64_t bytes, const std::string& what) {
    table.add_row({name, exact(bytes), format_byte_size(bytes), what});
  };
  for (const OverheadLine& overhead : report.overhead)
    line(overhead.name.substr(0, kOverheadWidth), overhead.bytes, "not the allocator's");
  line("reserved", report.reserved_bytes(), "from the device");
  line("  in use", stats.in_use_bytes, fmt::format("{} live allocations", stats.live_allocations));
  line("    requested", stats.requested_bytes, "what was asked for");
  line("    rounding", report.rounding_bytes(), "up to multiples of 256 B");
  if (report.stats.arena_bytes > 0) line("  set aside", report.set_aside_bytes(), "for planned steps, idle now");
  line("  cached", report.cached_bytes(), "free, kept for later");
  line("    largest free", stats.largest_free_bytes,
       fmt::format("fragmentation {:.1f} %", 100 * stats.fragmentation()));
  line("  trim() releases", report.trimmable_bytes, "of what is reserved");
  line("peak in use", stats.peak_bytes, "the most at one time");
  if (stats.limit_bytes != 0) line("limit", stats.limit_bytes, "reserved never passes it");
  if (!report.overhead.empty()) {
    table.add_rule();
    line("total", report.total_bytes(), "reserved and the rest");
  }
  return table.to_string();
}

std::string categories(const MemoryStats& stats) {
  Table table({{"in use, by category", Align::left}, {"bytes"}, {""}, {"share"}});
  for (std::size_t i = 0; i < kCategories; ++i) {
    const std::uint64_t bytes = stats.by_category.bytes[i];
    if (bytes == 0) continue;
    table.add_row({std::string(to_string(static_cast<Category>(i))), exact(bytes), format_byte_size(bytes),
                   fmt::format("{:.1f} %", share(bytes, stats.in_use_bytes))});
  }
  return table.to_string();
}

std::string layers(const MemoryReport& report, std::size_t shown) {
  Table table({{"in use, by layer", Align::left}, {"category", Align::left}, {"bytes"}, {"share"}});
  shown = std::min(shown, report.holders.size());
  std::uint64_t rest = report.stats.in_use_bytes;
  for (const Holder& holder : std::span(report.holders).first(shown)) {
    rest -= holder.bytes;
    table.add_row({shortened(holder.owner), std::string(to_string(holder.category)), exact(holder.bytes),
                   fmt::format("{:.1f} %", share(holder.bytes, report.stats.in_use_bytes))});
  }
  if (shown < report.holders.size())
    table.add_row({counted(report.holders.size() - shown, "other"), "", exact(rest),
                   fmt::format("{:.1f} %", share(rest, report.stats.in_use_bytes))});
  return table.to_string();
}

nlohmann::ordered_json category_object(const CategoryBytes& bytes) {
  nlohmann::ordered_json object;
  for (std::size_t i = 0; i < kCategories; ++i) object[to_string(static_cast<Category>(i))] = bytes.bytes[i];
  return object;
}

}  // namespace

std::uint64_t MemoryReport::overhead_bytes() const {
  std::uint64_t sum = 0;
  for (const OverheadLine& line : overhead) sum += line.bytes;
  return sum;
}

MemoryReport memory_report(const BfcAllocator& allocator, std::span<const OverheadLine> overhead) {
  AllocatorSnapshot now = allocator.snapshot();
  return {.device = allocator.name(),
          .stats = now.stats,
          .holders = std::move(now.holders),
          .trimmable_bytes = now.trimmable_bytes,
          .overhead = {overhead.begin(), overhead.end()}};
}

std::string to_text(const MemoryReport& report, std::size_t holders) {
  std::string text = accounts(report);
  if (report.stats.in_use_bytes != 0) text += "\n" + categories(report.stats) + "\n" + layers(report, holders);
  return text;
}

std::string to_json(const MemoryReport& report) {
  const MemoryStats& stats = report.stats;
  nlohmann::ordered_json json = {{"device", report.device},
                                 {"total_bytes", report.total_bytes()},
                                 {"overhead", nlohmann::ordered_json::array()},
                                 {"held_bytes", report.reserved_bytes()},
                                 {"in_use_bytes", stats.in_use_bytes},
                                 {"requested_bytes", stats.requested_bytes},
                                 {"rounding_bytes", report.rounding_bytes()},
                                 {"set_aside_bytes", report.set_aside_bytes()},
                                 {"cached_bytes", report.cached_bytes()},
                                 {"largest_free_bytes", stats.largest_free_bytes},
                                 {"fragmentation", stats.fragmentation()},
                                 {"trimmable_bytes", report.trimmable_bytes},
                                 {"peak_bytes", stats.peak_bytes},
                                 {"peak_held_bytes", stats.peak_pool_bytes},
                                 {"limit_bytes", stats.limit_bytes},
                                 {"live_allocations", stats.live_allocations},
                                 {"by_category", category_object(stats.by_category)},
                                 {"by_category_at_peak", category_object(stats.by_category_at_peak)},
                                 {"holders", nlohmann::ordered_json::array()}};
  for (const OverheadLine& line : report.overhead)
    json["overhead"].push_back({{"name", line.name}, {"bytes", line.bytes}});
  for (const Holder& holder : report.holders)
    json["holders"].push_back({{"layer", holder.owner},
                               {"category", to_string(holder.category)},
                               {"bytes", holder.bytes},
                               {"allocations", holder.allocations}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // names may be of any bytes
}

}  // namespace bantam
