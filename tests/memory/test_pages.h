// Test support: pages that log what is asked of them, refuse wrong calls, and fail when told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/memory/pages/paged_source.h"

namespace bantam::testing {

struct MapCall {
  AddressRange pages;
  bool done = false;
};

/// Shared between a test and the source that the allocator owns.
struct PageLog {
  std::vector<MapCall> maps;
  std::uint64_t unmaps = 0;
  std::uint64_t reserved = 0, most_reserved = 0;
  std::vector<bool> mapped;  ///< by page
  std::function<bool(std::uint64_t call, std::size_t bytes)> fails = [](std::uint64_t, std::size_t) { return false; };
  std::function<void(AddressRange)> on_unmap = [](AddressRange) {};
};

class TestPages final : public PagedSource {
 public:
  TestPages(std::shared_ptr<PageLog> log, const FakePages& pages)
      : log_(std::move(log)), inner_(make_paged_fake_source(pages)) {
    log_->mapped.resize(inner_->addresses().bytes / page_bytes());
  }
  ~TestPages() override { EXPECT_EQ(log_->reserved, 0u) << "pages were not released"; }

  std::size_t page_bytes() const override { return inner_->page_bytes(); }
  std::size_t growth_bytes() const override { return inner_->growth_bytes(); }
  AddressRange addresses() const override { return inner_->addresses(); }
  bool map(std::uintptr_t address, std::size_t bytes) override {
    expect_all({address, bytes}, false);
    const bool done = !log_->fails(log_->maps.size(), bytes) && inner_->map(address, bytes);
    log_->maps.push_back({{address, bytes}, done});
    if (!done) return false;
    set_all({address, bytes}, true);
    log_->reserved += bytes;
    log_->most_reserved = std::max(log_->most_reserved, log_->reserved);
    return true;
  }
  void unmap(std::uintptr_t address, std::size_t bytes) noexcept override {
    expect_all({address, bytes}, true);
    log_->on_unmap({address, bytes});
    ++log_->unmaps;
    set_all({address, bytes}, false);
    log_->reserved -= bytes;
    inner_->unmap(address, bytes);
  }
  const char* name() const override { return "test pages"; }

 private:
  void expect_all(AddressRange range, bool mapped) const {
    const AddressRange all = addresses();
    ASSERT_GT(range.bytes, 0u);
    ASSERT_EQ(range.begin % page_bytes(), 0u);
    ASSERT_EQ(range.bytes % page_bytes(), 0u);
    ASSERT_GE(range.begin, all.begin);
    ASSERT_LE(range.bytes, all.end() - range.begin);
    for (std::size_t at = 0; at < range.bytes; at += page_bytes())
      ASSERT_EQ(log_->mapped[(range.begin - all.begin + at) / page_bytes()], mapped) << "page at +" << at;
  }
  void set_all(AddressRange range, bool mapped) {
    for (std::size_t at = 0; at < range.bytes; at += page_bytes())
      log_->mapped[(range.begin - addresses().begin + at) / page_bytes()] = mapped;
  }

  std::shared_ptr<PageLog> log_;
  std::unique_ptr<PagedSource> inner_;
};

}  // namespace bantam::testing
