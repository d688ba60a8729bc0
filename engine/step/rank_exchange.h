// RankExchange: what the replicas of a step come to, exchanged among GPUs, bucket by bucket while backward still runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bantam/engine/comm/device/device_link.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/memory/device/stream_clock.h"
#include "bantam/memory/device/urgent_stream.h"

namespace bantam {

/// Memory for what replicas come to: gradients, running statistics (undefined where there are none), metric sums.
struct ReplicaPlanes {
  Tensor gradients, statistics, metrics;
};

/// One region of device memory has all places that this rank's sums lie in. A *bucket* is a contiguous part of the
/// gradients, in the order in which backward writes them: once the last replica has written all of a bucket, it is
/// added to its siblings and exchanged, on a stream of its own. Statistics and metrics are exchanged with the first
/// bucket, since forward has made them. Which gradients a step writes, and how often, is learned from a step that
/// exchanges everything at its end. On meta devices only memory and the kernels' work are noted. Used by one thread.
class RankExchange {
 public:
  /// `places`: of this rank's region. Every rank makes it, in the order of all else that ranks exchange. Throws
  /// ConfigError, DeviceError, OutOfMemory, CommunicationError.
  RankExchange(Model& model, const ReplicaOptions& options, RegionLayout layout, int places, std::int64_t metric_sums);
  ~RankExchange();
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  /// Place `index` of the region; 0 is home. All of it was zeroed.
  ReplicaPlanes planes(int index) const;

  /// The last replica begins its last micro-batch. `chain`: the places of the sums that it completes, home first, then
  /// its siblings, from the last one made on.
  void watch(std::vector<int> chain);
  /// Backward has written a parameter's gradient. Exchanges the buckets that are whole.
  void written(const Parameter& parameter);
  /// Every gradient of the last replica is there. Exchanges what is left, and makes the model's stream wait for it.
  /// `chain` as in watch().
  void finish(const std::vector<int>& chain);
  /// Nothing is under way any more.
  void reset();

  /// Seconds of one exchange of everything, alone, of `times`. Every rank calls it. Overwrites what lies in home.
  double time(int times);
  /// While true, the model's stream is marked where it comes to wait for the exchange, and where it goes on: for
  /// measurements. Marks are made anew at each call.
  void time_waits(bool times);
  /// Seconds of the waits since, one of each finish(), in order; of a recorded one those of the last replay, and
  /// nothing of one that was not replayed. Waits for the stream.
  std::vector<double> waits() const;
  /// While true, sums of other ranks are left out: for measurements.
  void skip(bool skips) { skips_ = skips; }
  /// The same until reset(): for warm-ups, in which ranks need not take part together.
  void skip_once(bool skips) { skips_once_ = skips; }
  /// DeviceLink::name; empty on meta devices.
  std::string transport() const { return link_ ? link_->name() : ""; }

 private:
  struct Bucket {
    std::int64_t begin = 0, elements = 0;
    std::size_t first = 0, end = 0;  // parameters, by their places in ParameterArena::spans
  };
  void cut_buckets();
  bool knows(const Bucket& bucket) const;
  bool is_whole(const Bucket& bucket) const;
  void send_ready();
  void send_rest();
  void send_small();
  void send_bucket(const Bucket& bucket);
  void narrow_sums(const Bucket& bucket) const;
  std::uint64_t bytes_of(const Bucket& bucket) const;
  void add_siblings(DType dtype, std::int64_t elements, std::uint64_t offset) const;
  void exchange(std::span<const kernels::SumSpan> spans, bool beside_work);
  std::uint64_t copy_bytes() const;
  void fork();
  Context context() const;

  Model& model_;
  Communicator* ranks_;
  RegionLayout layout_;
  int rank_;
  DType travels_;  // gradients, in a plane of their own where it is not float32
  double statistics_factor_;
  std::int64_t metric_sums_, statistics_elements_;
  std::uint64_t statistics_offset_ = 0, metrics_offset_ = 0, travel_offset_ = 0;
  Tensor region_;
  std::unique_ptr<UrgentStream> stream_;  // null on meta devices
  std::unique_ptr<DeviceLink> link_;      // null on meta devices, or where there is nobody to reach
  Event before_, after_;
  std::unique_ptr<StreamClock> marks_;  // null while waits are not timed
  std::vector<Bucket> buckets_;
  std::vector<int> expected_, counted_;  // writes of each parameter's gradient: in a step that was watched, so far
  std::vector<int> chain_;
  std::size_t sent_ = 0;  // buckets
  bool watching_ = false, learned_ = false, small_sent_ = false, skips_ = false, skips_once_ = false;
};

}  // namespace bantam
