// Test support: a source that logs its calls, checks the pool against the limit as it is asked, and fails when told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/memory/pages/region_source.h"

namespace bantam::testing {

struct SourceCall {
  std::size_t bytes = 0;
  std::uintptr_t address = 0;  ///< acquire: 0 where it failed
  bool release = false;
};

/// Shared between a test and the source that the allocator owns.
struct SourceLog {
  std::vector<SourceCall> calls;
  std::uint64_t reserved = 0;
  std::uint64_t most_reserved = 0;
  std::uint64_t acquires = 0;
  std::function<bool(std::uint64_t call, std::size_t bytes)> fails = [](std::uint64_t, std::size_t) { return false; };
};

class TestSource final : public RegionSource {
 public:
  TestSource(std::shared_ptr<SourceLog> log, std::size_t capacity)
      : log_(std::move(log)), inner_(make_fake_source(capacity)) {}
  ~TestSource() override { EXPECT_EQ(log_->reserved, 0u) << "regions were not released"; }

  void* acquire(std::size_t bytes) override {
    void* address = log_->fails(log_->acquires++, bytes) ? nullptr : inner_->acquire(bytes);
    log_->calls.push_back({bytes, reinterpret_cast<std::uintptr_t>(address), false});
    if (address != nullptr) log_->reserved += bytes;
    log_->most_reserved = std::max(log_->most_reserved, log_->reserved);
    return address;
  }
  void release(void* address, std::size_t bytes) noexcept override {
    log_->calls.push_back({bytes, reinterpret_cast<std::uintptr_t>(address), true});
    log_->reserved -= bytes;
    inner_->release(address, bytes);
  }
  const char* name() const override { return "test"; }

 private:
  std::shared_ptr<SourceLog> log_;
  std::unique_ptr<RegionSource> inner_;
};

}  // namespace bantam::testing
