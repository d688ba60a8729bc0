// Small exchanges in order of the model's stream.
#include "bantam/engine/model/norm_exchange.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/kernels/norm/sync_norm.h"

namespace bantam {
namespace {

constexpr TreeExchangeOptions kSmallPieces{.piece_bytes = std::uint64_t{64} << 10};

/// Bytes of the longest message, that of the norm with most channels: each buffer is a vector of a norm's channels.
std::uint64_t message_bytes(const Model& model) {
  std::int64_t channels = 0;
  for (const Buffer& buffer : model.buffers().all()) channels = std::max(channels, buffer.shape.elements());
  return static_cast<std::uint64_t>(kernels::norm_message_elements(channels)) * sizeof(double);
}

}  // namespace

void require_rank_each(int replicas, int ranks) {
  if (replicas == ranks) return;
  const bool possible = std::has_single_bit(static_cast<unsigned>(ranks));
  throw ConfigError(
      fmt::format("train.sync_batch_norm: batch norms of replicas exchange sums while these run side by side, each on "
                  "a rank of its "
                  "own: train.replicas is {0}, but there {1}; start {0} ranks (--gpus {0} or --ranks {0}){2}",
                  replicas, ranks == 1 ? "is 1 rank" : fmt::format("are {} ranks", ranks),
                  possible ? fmt::format(", or set train.replicas={}", ranks) : ""));
}

NormExchange::NormExchange(Model& model, Communicator* ranks, int replicas, std::size_t dealt, int rank)
    : ranks_(ranks) {
  require_rank_each(replicas, static_cast<int>(dealt));
  const std::vector<ReplicaShare> shares = even_shares(replicas, replicas);
  const Context context = model.context(Pass::train).at(model.runtime().intern("replicas/exchange/norms"));
  if (context.device.kind != DeviceKind::cpu) {
    layout_ = {.shares = shares,
               .sum_places = std::vector<std::vector<int>>(dealt, {0}),
               .place_bytes = (message_bytes(model) + 255) / 256 * 256};
    connect(context);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(tree_exchange_workspace(shares, rank, kSmallPieces));
  workspace_ = context.allocate({bytes}, DType::uint8, Category::other);
  if (ranks_ != nullptr) tree_ = std::make_unique<TreeExchange>(*ranks_, replicas, shares, kSmallPieces);
}

NormExchange::~NormExchange() = default;

void NormExchange::connect(const Context& context) {
  (void)layout_.tree();  // throws where there are too many ranks
  region_ = context.allocate({static_cast<std::int64_t>(layout_.bytes(1))}, DType::uint8, Category::other);
  zero_bytes(region_.data(), region_.bytes(), context.stream);
  if (context.device.meta || ranks_ == nullptr || layout_.shares.size() < 2) return;
  const char* const transport = std::getenv("BANTAM_TRANSPORT");
  link_ = connect_devices(*ranks_, context.exec,
                          {.layout = layout_,
                           .region = region_.data(),
                           .region_bytes = region_.bytes(),
                           .largest_span = layout_.place_bytes,
                           .transport = transport == nullptr ? "" : transport});
  // Kernels and connections are there before anything is recorded.
  link_->exchange(context.exec, std::array{kernels::SumSpan{.dtype = DType::float64, .elements = 2}});
  link_->exchange(context.exec, std::array{kernels::SumSpan{.elements = 2}});
  synchronize(context.stream);
}

void NormExchange::sum(const Context& context, const Tensor& values) {
  if (skips_) return;
  const kernels::SumSpan span{.dtype = values.dtype(), .elements = values.shape().elements()};
  if (context.device.meta) {
    if (context.device.kind != DeviceKind::cpu)
      BANTAM_KERNEL(context.exec, exchange_sums, layout_.tree(), kernels::RankRegions{}, std::array{span}, 1);
    return;
  }
  if (!link_ && !tree_)
    throw Error("training step: replicas of other ranks, and no ReplicaOptions::ranks to reach them");
  if (tree_) {
    const TreePlane plane{
        .type = span.dtype, .elements = span.elements, .sums = {values.data()}, .root = values.data()};
    return tree_->run({&plane, 1}, {workspace_.as<std::byte>(), workspace_.bytes()});
  }
  std::byte* const home = region_.as<std::byte>() + layout_.place_offset(0);
  copy_bytes(home, values.data(), values.bytes(), context.stream);
  link_->exchange(context.exec, std::array{span});
  copy_bytes(values.data(), home, values.bytes(), context.stream);
}

}  // namespace bantam
