// ReplicaTree: what the replicas of a step come to, added in a binary tree over their numbers while they run.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bantam/engine/comm/replica_shares.h"
#include "bantam/engine/comm/tree_exchange.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/step/metric_ring.h"
#include "bantam/engine/step/rank_exchange.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam {

/// Three planes: gradients (float32, the arena's), running statistics (the buffers' next values) and metric sums
/// (float64). A sum that waits for its sibling lies in memory of the tree's own, log2 of the replicas of each plane at
/// most; the last replica's, and the root, lie in the arenas. Gradients that travel in float16 lie as float32, too.
/// Where a replica's sum has to wait, the arenas have the tree's memory while it runs, so that nothing is copied; each
/// sum is then written over its left operand. All work is in order of the model's stream, and can be recorded: an
/// update ends with each tensor where it was. Of several ranks, each adds up what its own replicas complete, and they
/// finish the tree together: CPUs by messages, GPUs by a RankExchange, in whose region all planes then lie. Used by one
/// thread.
class ReplicaTree {
 public:
  /// Several replicas, which were checked. Of several ranks on GPUs, all make it at the same time. Throws what
  /// RankExchange throws, OutOfMemory.
  ReplicaTree(Model& model, MetricRing& ring, const ReplicaOptions& options);
  ~ReplicaTree();
  ReplicaTree(const ReplicaTree&) = delete;
  ReplicaTree& operator=(const ReplicaTree&) = delete;

  /// Ends the replica under way, where there is one; the next one begins, with gradients to be overwritten, current
  /// statistics and metrics of zero. Throws Error where there is no next one, and what end_accumulation throws.
  void begin();
  /// Ends the last replica. The arenas have the root then, and the update whose slot lies at `slot` (device memory) its
  /// metrics. Without `exchanges`, for warm-ups, sums of other ranks are left out, and nothing is sent. Throws Error
  /// where replicas are missing, CommunicationError.
  void end(const std::int32_t* slot, bool exchanges);
  /// The next micro-batch is this rank's last: with several GPUs, gradients are exchanged as it writes them.
  void expect_last();
  /// To be told by the micro-batch under way; null where nobody wants to know.
  RankExchange* watcher() const { return watches_ ? device_exchange_.get() : nullptr; }
  /// Null with one rank, and with CPUs.
  RankExchange* device_exchange() const { return device_exchange_.get(); }
  /// All is as before the first replica. Enqueues nothing: gradients and statistics are the caller's to begin anew.
  void reset();
  /// Undoes the micro-batches of the replica under way.
  void restart() const;

  /// Whether a replica is under way.
  bool running() const { return running_; }
  bool ended() const { return ended_; }
  /// Whether the next micro-batch is the replica's first; false from then on.
  bool take_first() { return std::exchange(first_batch_, false); }
  /// The metric sums of the replica under way: the loss's, then the metrics'.
  double* metrics() const { return metrics_at(place_).as<double>(); }

 private:
  static constexpr int kHome = -1;  // the arenas' own memory

  using Planes = ReplicaPlanes;
  /// A sum that waits: where it lies.
  struct Waiting {
    ReplicaSum sum;
    int place = kHome;
  };
  const Planes& planes(int place) const { return waiting_planes_[static_cast<std::size_t>(place)]; }
  const Tensor& metrics_at(int place) const { return place == kHome ? home_metrics_ : planes(place).metrics; }
  ReplicaSum leaf() const { return {.first = share_.first + begun_ - 1}; }
  bool is_last() const { return begun_ == share_.count; }
  int place_for(const ReplicaSum& leaf) const;
  int free_place() const;
  void exchange();
  void end_replica();
  void merge(Waiting node);
  std::vector<int> chain_of(const ReplicaSum& leaf) const;
  void finish_among_devices(bool exchanges);
  void use_region(const ReplicaOptions& options, const std::vector<ReplicaShare>& shares);
  const Tensor& gradients_at(int place) const;
  kernels::TreeTerms terms_of(const std::vector<int>& places) const;
  const void* narrowed(int place, std::size_t sum) const;
  void add(const std::vector<int>& terms, int out, bool root) const;
  void finish_among_ranks();
  Context context() const;

  Model& model_;
  MetricRing& ring_;
  int replicas_;
  bool narrow_;  // gradients are added in float16
  ReplicaShare share_;
  std::vector<Planes> waiting_planes_;
  Tensor home_metrics_;
  Tensor workspace_;                        // of the exchange, with several ranks
  std::vector<Tensor> travelling_;          // of CPUs: float16 gradients of each partial sum; the last gets the root
  std::unique_ptr<TreeExchange> exchange_;  // null: one rank, or none to talk to
  std::vector<Waiting> waiting_;            // by first
  int begun_ = 0;                           // replicas
  int place_ = kHome;                       // of the replica under way
  bool running_ = false, first_batch_ = false, ended_ = false;
  std::unique_ptr<RankExchange> device_exchange_;  // of several GPUs
  bool watches_ = false;
};

/// Places of the tree's own that a rank needs: the most sums that wait at one time.
int places_of_tree(const ReplicaShare& share);
/// Where the sums of a share lie in the end, in order of sums_of(share): 0 is the arenas' own memory, others count from
/// 1 on.
std::vector<int> places_of_sums(const ReplicaShare& share);

/// Blocks of numbers of all replicas, from those of a rank's own: where there are several ranks, every rank calls it.
/// Throws CommunicationError.
std::vector<std::vector<double>> blocks_of_all(const ReplicaOptions& options, std::vector<std::vector<double>> own);

/// The root of blocks of numbers, one a replica, which are a power of two and of equal sizes: on the host.
std::vector<double> tree_sum_of(std::vector<std::vector<double>> blocks);

}  // namespace bantam
