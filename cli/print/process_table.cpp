// Overhead lines, the pool, and their sums.
#include "bantam/cli/print/process_table.h"

#include "bantam/base/byte_size.h"
#include "bantam/base/text.h"
#include "bantam/memory/limits/process_limit.h"

namespace bantam::cli {

std::string process_table(const PlanTarget& target, std::optional<std::uint64_t> pool_bytes) {
  if (!target.counts) return "";
  Table table({{"process on " + target.profile.title(), Align::left}, {"bytes"}});
  for (const OverheadLine& line : target.profile.overhead) table.add_row({line.name, format_byte_size(line.bytes)});
  if (pool_bytes) {
    table.add_row({"pool, in pages of 2 MiB", format_byte_size(pool_in_pages(*pool_bytes))});
    table.add_row({"the process", format_byte_size(process_bytes(target, *pool_bytes))});
  }
  table.add_row({"reserve", format_byte_size(kLateReserve)});
  if (pool_bytes)
    table.add_row({"least limit (--memory)", format_byte_size(limit_bytes_for(target, *pool_bytes))});
  else
    table.add_row({"besides the pool", format_byte_size(total_bytes(target.profile.overhead) + kLateReserve)});
  return "\n" + table.to_string();
}

}  // namespace bantam::cli
