// The loader where something fails on the way: no batch is lost, none takes another's place, and what threw can be
// tried again.
#include <atomic>
#include <stdexcept>

#include "bantam/base/error.h"
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::loader_failures_test {
namespace {

using testing::HostBatch;
using testing::whole_epoch;

/// An epoch tried to its end, however often `next` throws.
struct TriedEpoch {
  std::vector<HostBatch> batches;
  std::vector<std::string> failures;
};

TriedEpoch tried_epoch(ImageBatchSource& source, const Context& context) {
  TriedEpoch tried;
  source.start(0);
  for (;;) {
    try {
      Batch batch;
      if (!source.next(context, batch)) return tried;
      tried.batches.push_back(testing::copy_batch(batch, context.stream));
    } catch (const std::runtime_error& error) {
      tried.failures.emplace_back(error.what());
    }
  }
}

// Wherever handing out work fails, no batch is lost and none takes another's place.
class LoaderFailuresTest : public LoaderTest {};

TEST_P(LoaderFailuresTest, FailuresAheadLeaveBatchesAsTheyAre) {
  const auto reference = whole_epoch(*source(full()), context(), 0);
  for (const bool staged : {false, true}) {
    for (const LoaderEvent event : {LoaderEvent::grow, LoaderEvent::submit}) {
      for (const int at : {0, 1, 2, 4, 6}) {
        int seen = 0;
        LoaderOptions options{
            .pipeline = with_workers(full(), 2, 3), .device = GetParam(), .seed = 1, .staged_on_cpu = staged};
        options.probe = [&](LoaderEvent now) {  // of the source's own thread: the workers' event returns at once
          if (now == event && seen++ == at) throw std::runtime_error("nothing left");
        };
        ImageBatchSource one(*runtime_, dataset(), options);
        const TriedEpoch tried = tried_epoch(one, context());
        EXPECT_GT(seen, at);
        EXPECT_LE(tried.failures.size(), event == LoaderEvent::grow ? 0u : 1u);
        EXPECT_EQ(tried.batches, reference) << "staged " << staged << ", failure " << at;
      }
    }
  }
}

TEST_P(LoaderFailuresTest, WithoutThreadsNextMakesTheBatches) {
  const auto reference = whole_epoch(*source(full()), context(), 0);
  LoaderOptions options{.pipeline = with_workers(full(), 2, 3), .device = GetParam(), .seed = 1};
  std::atomic<int> worked{0};
  options.probe = [&](LoaderEvent now) {
    if (now == LoaderEvent::grow) throw std::runtime_error("no more threads");
    if (now == LoaderEvent::work) ++worked;
  };
  ImageBatchSource one(*runtime_, dataset(), options);
  EXPECT_EQ(whole_epoch(one, context(), 0), reference);
  EXPECT_EQ(worked, 0);
}

TEST_P(LoaderFailuresTest, AWorkersFailureComesOutOfNextWhichGoesOn) {
  const auto reference = whole_epoch(*source(full()), context(), 0);
  for (const bool staged : {false, true}) {
    for (const int at : {0, 3, 6}) {
      std::atomic<int> seen{0};
      LoaderOptions options{
          .pipeline = with_workers(full(), 2, 3), .device = GetParam(), .seed = 1, .staged_on_cpu = staged};
      options.probe = [&](LoaderEvent now) {
        if (now == LoaderEvent::work && seen++ == at) throw std::runtime_error("broken image");
      };
      ImageBatchSource one(*runtime_, dataset(), options);
      const TriedEpoch tried = tried_epoch(one, context());
      EXPECT_EQ(tried.failures, std::vector<std::string>{"broken image"});
      EXPECT_EQ(tried.batches, reference) << "staged " << staged << ", failure " << at;
    }
  }
}

/// Takes all memory that an allocator holds or may still get, until the end of the scope.
class NoMemoryLeft {
 public:
  NoMemoryLeft(BfcAllocator& allocator, Stream stream) : allocator_(allocator), stream_(stream) {
    allocator.trim();
    allocator.set_limit(allocator.stats().pool_bytes);
    for (std::size_t bytes = 1u << 24; bytes >= BfcAllocator::kAllocationUnit; bytes /= 2) {
      try {
        for (;;) taken_.push_back(allocator.allocate(bytes, stream, {Category::other, "test"}));
      } catch (const OutOfMemory&) {
      }
    }
  }
  ~NoMemoryLeft() {
    for (void* address : taken_) allocator_.free(address, stream_);
    allocator_.set_limit(0);
  }

 private:
  BfcAllocator& allocator_;
  Stream stream_;
  std::vector<void*> taken_;
};

// When memory runs out in `next`, the source does not move on.
TEST_P(LoaderFailuresTest, OutOfMemoryCanBeTriedAgain) {
  for (const std::int64_t workers : {0, 2}) {
    auto one = source(with_workers(full(), workers, 2));
    const auto reference = whole_epoch(*one, context(), 0);
    one->start(0);
    std::vector<Batch> kept;  // their memory does not come back, so that later batches need more
    auto none_left = std::make_unique<NoMemoryLeft>(runtime_->allocator(GetParam()), context().stream);
    int failures = 0;
    for (;;) {
      try {
        Batch batch;
        if (!one->next(context(), batch)) break;
        kept.push_back(batch);
      } catch (const OutOfMemory&) {
        ++failures;
        none_left.reset();
      }
    }
    EXPECT_EQ(failures, 1);
    ASSERT_EQ(kept.size(), reference.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_EQ(testing::copy_batch(kept[i], context().stream), reference[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LoaderFailuresTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

}  // namespace
}  // namespace bantam::loader_failures_test
