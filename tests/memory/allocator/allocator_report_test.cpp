// What OutOfMemory says: numbers that agree with the statistics, the holders, and advice that fits the case.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "tests/memory/test_source.h"

namespace bantam::allocator_report_test {
namespace {

constexpr std::size_t kMiB = 1u << 20;

std::string refusal(BfcAllocator& allocator, std::size_t bytes) {
  const MemoryStats stats = allocator.stats();
  try {
    allocator.allocate(bytes, {}, {Category::activation, "big_layer"});
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.facts().requested_bytes, bytes);
    EXPECT_EQ(error.facts().in_use_bytes, stats.in_use_bytes);
    EXPECT_EQ(error.facts().limit_bytes, stats.limit_bytes);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in:\n" << text;
}

TEST(AllocatorReport, names_request_limits_and_the_five_largest_holders) {
  BfcAllocator allocator(make_fake_source(), Device::cpu(), {.name = "cuda:0", .limit_bytes = 16 * kMiB});
  static const char* const kOwners[] = {"one", "two", "three", "four", "five", "six"};
  for (std::size_t i = 0; i < 6; ++i) allocator.allocate((i + 1) * 100 * 1024, {}, {Category::parameter, kOwners[i]});
  const std::string text = refusal(allocator, 15 * kMiB);
  const MemoryStats stats = allocator.stats();
  expect_has(text, "cuda:0");
  expect_has(text, "'big_layer' (activation)");
  expect_has(text, fmt::format("({} B)", 15 * kMiB));
  expect_has(text, fmt::format("({} B)", 16 * kMiB));
  expect_has(text, fmt::format("({} B)", stats.in_use_bytes));
  expect_has(text, fmt::format("({} B)", stats.pool_bytes));
  expect_has(text, fmt::format("({} B)", stats.largest_free_bytes));
  expect_has(text, fmt::format("fragmentation {:.1f} %", 100 * stats.fragmentation()));
  expect_has(text, "six (parameter)");
  expect_has(text, "two (parameter)");
  EXPECT_EQ(text.find("one (parameter)"), std::string::npos) << "the sixth holder is left out";
  EXPECT_LT(text.find("six (parameter)"), text.find("five (parameter)"));
  expect_has(text, "Lower the batch size");
}

TEST(AllocatorReport, advice_fits_the_case) {
  BfcAllocator allocator(make_fake_source(), Device::cpu(), {.limit_bytes = 4 * kMiB, .growth = false});
  expect_has(refusal(allocator, 5 * kMiB), "larger than the limit");
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(kMiB, {}, {}));
  allocator.free(blocks[0], {});
  allocator.free(blocks[2], {});
  expect_has(refusal(allocator, 2 * kMiB), "fragmented");
  expect_has(refusal(allocator, 2 * kMiB), "fragmentation 50.0 %");
  expect_has(refusal(allocator, 2 * kMiB), "(no name) (other)");
  BfcAllocator small_source(make_fake_source(kMiB), Device::cpu(), {});
  const std::string text = refusal(small_source, 2 * kMiB);
  expect_has(text, "limit none");
  expect_has(text, "close other programs");
}

}  // namespace
}  // namespace bantam::allocator_report_test
