// NormExchange: sums of synchronised batch norms, exchanged among ranks that have one replica each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bantam/engine/autograd/norm_sync.h"
#include "bantam/engine/comm/device/device_link.h"
#include "bantam/engine/comm/tree_exchange.h"
#include "bantam/engine/model/model.h"

namespace bantam {

/// CPUs send messages; GPUs have a region and a link of their own beside RankExchange's, since a norm's sums travel on
/// the model's stream while gradients travel on another. On meta devices only memory and the kernels' work are noted.
class NormExchange final : public NormSync {
 public:
  /// `ranks`: null to plan; `replicas`: of all ranks, dealt to so many; `rank`: this one. Every rank makes it, in the
  /// order of all else that they exchange. Throws ConfigError where a rank has several replicas, and what
  /// connect_devices throws.
  NormExchange(Model& model, Communicator* ranks, int replicas, std::size_t dealt, int rank);
  ~NormExchange() override;
  NormExchange(const NormExchange&) = delete;
  NormExchange& operator=(const NormExchange&) = delete;

  void sum(const Context& context, const Tensor& values) override;
  /// While true, other ranks' sums are left out, and nothing is sent: for warm-ups and measurements.
  void skip(bool skips) { skips_ = skips; }

 private:
  void connect(const Context& context);

  Communicator* ranks_;
  RegionLayout layout_;
  Tensor region_, workspace_;
  std::unique_ptr<TreeExchange> tree_;  // of CPUs; null: none to talk to
  std::unique_ptr<DeviceLink> link_;    // of GPUs; null on meta devices, or where there is nobody to reach
  bool skips_ = false;
};

/// Throws ConfigError, saying what to set, where synchronised norms do not have a rank for each replica.
void require_rank_each(int replicas, int ranks);

}  // namespace bantam
