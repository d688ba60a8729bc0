// Where each replica's sums lie, and when they are added.
#include "bantam/engine/step/replica_tree.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam {
namespace {

bool are_siblings(const ReplicaSum& left, const ReplicaSum& right) {
  const int width = 1 << right.level;
  return left.level == right.level && left.first + width == right.first && left.first % (2 * width) == 0;
}

ReplicaShare share_of(const ReplicaOptions& options) { return {.first = options.first(), .count = options.count()}; }

std::vector<ReplicaShare> shares_of(const ReplicaOptions& options) {
  std::vector<ReplicaShare> shares;
  int first = 0;
  for (const int count : options.dealt) {
    shares.push_back({.first = first, .count = count});
    first += count;
  }
  return shares;
}

}  // namespace

int ReplicaOptions::first() const {
  return std::accumulate(dealt.begin(), dealt.empty() ? dealt.end() : dealt.begin() + rank, 0);
}

void check_replicas(const ReplicaOptions& options) {
  const int replicas = options.replicas;
  if (replicas < 1 || replicas > ReplicaOptions::kMost || (replicas & (replicas - 1)) != 0)
    throw ConfigError(
        fmt::format("train.replicas: expected a power of two from 1 to {}, got {}", ReplicaOptions::kMost, replicas));
  if (options.gradients != DType::float32 && options.gradients != DType::float16)
    throw ConfigError(
        fmt::format("train.gradients: expected float32 or float16, got {}", to_string(options.gradients)));
  if (options.dealt.empty()) return;
  const auto ranks = static_cast<int>(options.dealt.size());
  if (options.rank < 0 || options.rank >= ranks)
    throw ConfigError(fmt::format("replicas: expected a rank from 0 to {}, got {}", ranks - 1, options.rank));
  if (std::ranges::any_of(options.dealt, [](int count) { return count < 1; }) ||
      std::accumulate(options.dealt.begin(), options.dealt.end(), 0) != replicas)
    throw ConfigError(fmt::format("replicas: expected {} dealt to ranks, at least one each, got {}", replicas,
                                  fmt::join(options.dealt, " + ")));
}

int places_of_tree(const ReplicaShare& share) {
  std::vector<ReplicaSum> waiting;
  std::size_t most = 0;
  for (int replica = share.first; replica < share.first + share.count - 1; ++replica) {
    ReplicaSum sum{.first = replica};
    for (; !waiting.empty() && are_siblings(waiting.back(), sum); waiting.pop_back())
      sum = {.first = waiting.back().first, .level = sum.level + 1};
    waiting.push_back(sum);
    most = std::max(most, waiting.size());
  }
  return static_cast<int>(most);
}

std::vector<int> places_of_sums(const ReplicaShare& share) {
  struct Node {
    ReplicaSum sum;
    int place = 0;
  };
  std::vector<Node> waiting;
  for (int replica = share.first; replica < share.first + share.count; ++replica) {
    const bool last = replica + 1 == share.first + share.count;
    Node node{.sum = {.first = replica}};
    if (!last && (waiting.empty() || !are_siblings(waiting.back().sum, node.sum)))
      for (node.place = 1; std::ranges::find(waiting, node.place, &Node::place) != waiting.end();) ++node.place;
    for (; !waiting.empty() && are_siblings(waiting.back().sum, node.sum); waiting.pop_back())
      node = {.sum = {.first = waiting.back().sum.first, .level = node.sum.level + 1}, .place = waiting.back().place};
    if (last) node.place = 0;
    waiting.push_back(node);
  }
  std::vector<int> places;
  for (const Node& node : waiting) places.push_back(node.place);
  return places;
}

std::vector<std::vector<double>> blocks_of_all(const ReplicaOptions& options, std::vector<std::vector<double>> own) {
  if (options.ranks == nullptr || options.dealt.size() < 2) return own;
  const std::size_t numbers = own.front().size();
  const auto most = static_cast<std::size_t>(std::ranges::max(options.dealt));
  std::vector<double> mine;
  for (const std::vector<double>& block : own) mine.insert(mine.end(), block.begin(), block.end());
  mine.resize(most * numbers);  // messages of one size
  const std::vector<std::vector<std::byte>> all = all_gather(*options.ranks, std::as_bytes(std::span(mine)));
  std::vector<std::vector<double>> blocks;
  for (std::size_t rank = 0; rank < options.dealt.size(); ++rank) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(options.dealt[rank]); ++i) {
      std::memcpy(blocks.emplace_back(numbers).data(), all[rank].data() + i * numbers * sizeof(double),
                  numbers * sizeof(double));
    }
  }
  return blocks;
}

std::vector<double> tree_sum_of(std::vector<std::vector<double>> blocks) {
  for (std::size_t width = 1; width < blocks.size(); width *= 2)
    for (std::size_t first = 0; first + width < blocks.size(); first += 2 * width)
      for (std::size_t i = 0; i < blocks[first].size(); ++i) blocks[first][i] += blocks[first + width][i];
  return std::move(blocks.front());
}

ReplicaTree::ReplicaTree(Model& model, MetricRing& ring, const ReplicaOptions& options)
    : model_(model),
      ring_(ring),
      replicas_(options.replicas),
      narrow_(options.gradients == DType::float16),
      share_(share_of(options)),
      waiting_planes_(static_cast<std::size_t>(places_of_tree(share_))) {
  const std::vector<ReplicaShare> shares = shares_of(options);
  if (shares.size() > 1 && model_.device().kind != DeviceKind::cpu) {
    use_region(options, shares);
    return;
  }
  const Context training = model_.context(Pass::train);
  const auto allocate = [&](const char* name, std::int64_t elements, DType dtype, Category category) {
    Tensor plane = training.at(model_.runtime().intern(name)).allocate({elements}, dtype, category);
    zero_bytes(plane.data(), plane.bytes(), training.stream);  // padding stays so
    return plane;
  };
  for (Planes& planes : waiting_planes_) {
    planes.gradients =
        allocate("replicas/gradients", model_.parameters().trainable_elements(), DType::float32, Category::gradient);
    if (model_.buffers().elements() > 0)
      planes.statistics =
          allocate("replicas/statistics", model_.buffers().elements(), DType::float32, Category::gradient);
    planes.metrics = allocate("replicas/metrics", ring_.update_sums(), DType::float64, Category::other);
  }
  if (shares.size() > 1) {
    const auto bytes = static_cast<std::int64_t>(tree_exchange_workspace(shares, options.rank));
    workspace_ = allocate("replicas/exchange", bytes, DType::uint8, Category::other);
    for (std::size_t sum = 0; narrow_ && sum < sums_of(share_).size(); ++sum)
      travelling_.push_back(
          allocate("replicas/exchange", model_.parameters().trainable_elements(), DType::float16, Category::gradient));
    if (options.ranks != nullptr) exchange_ = std::make_unique<TreeExchange>(*options.ranks, options.replicas, shares);
  }
  home_metrics_ = allocate("replicas/metrics", ring_.update_sums(), DType::float64, Category::other);
}

/// The arenas' gradients and next statistics move into the region, as do all planes.
void ReplicaTree::use_region(const ReplicaOptions& options, const std::vector<ReplicaShare>& shares) {
  RegionLayout layout{.shares = shares};
  for (const ReplicaShare& share : shares) layout.sum_places.push_back(places_of_sums(share));
  ParameterArena& parameters = model_.parameters();
  BufferArena& buffers = model_.buffers();
  parameters.gradient_ = Tensor();
  buffers.next_ = Tensor();
  device_exchange_ = std::make_unique<RankExchange>(model_, options, std::move(layout),
                                                    1 + static_cast<int>(waiting_planes_.size()), ring_.update_sums());
  const ReplicaPlanes home = device_exchange_->planes(0);
  parameters.gradient_ = home.gradients;
  if (home.statistics.defined()) buffers.next_ = home.statistics;
  home_metrics_ = home.metrics;
  for (std::size_t i = 0; i < waiting_planes_.size(); ++i)
    waiting_planes_[i] = device_exchange_->planes(static_cast<int>(i) + 1);
  buffers.reset_next(context());
}

ReplicaTree::~ReplicaTree() { reset(); }

Context ReplicaTree::context() const { return model_.context(Pass::train).at(model_.runtime().intern("replicas")); }

int ReplicaTree::place_for(const ReplicaSum& leaf) const {
  const bool sibling_waits = !waiting_.empty() && are_siblings(waiting_.back().sum, leaf);
  return sibling_waits || is_last() ? kHome : free_place();
}

/// There is one: so many were made.
int ReplicaTree::free_place() const {
  int place = 0;
  while (std::ranges::find(waiting_, place, &Waiting::place) != waiting_.end()) ++place;
  return place;
}

/// The arenas get the memory of the replica's place, or their own again.
void ReplicaTree::exchange() {
  if (place_ == kHome) return;
  Planes& planes = waiting_planes_[static_cast<std::size_t>(place_)];
  std::swap(model_.parameters().gradient_, planes.gradients);
  std::swap(model_.buffers().next_, planes.statistics);
}

void ReplicaTree::begin() {
  if (is_last())
    throw Error(fmt::format("training step: begin_replica() after the last of {} replicas: update() is to follow",
                            share_.count));
  if (running_) end_replica();
  ++begun_;
  place_ = place_for(leaf());
  running_ = first_batch_ = true;
  exchange();
  restart();
}

void ReplicaTree::restart() const {
  const Tensor& sums = metrics_at(place_);
  model_.parameters().begin_accumulation();
  model_.buffers().reset_next(context());
  zero_bytes(sums.data(), sums.bytes(), context().stream);
}

void ReplicaTree::end_replica() {
  model_.parameters().end_accumulation(context());
  exchange();
  running_ = false;
  merge({.sum = leaf(), .place = std::exchange(place_, kHome)});
}

/// The places, as a RankExchange counts them, of the last replica's sum and of those that it completes.
std::vector<int> ReplicaTree::chain_of(const ReplicaSum& leaf) const {
  std::vector<int> chain = {0};
  ReplicaSum node = leaf;
  for (auto waiting = waiting_.rbegin(); waiting != waiting_.rend() && are_siblings(waiting->sum, node); ++waiting) {
    chain.push_back(waiting->place + 1);
    node = {.first = waiting->sum.first, .level = node.level + 1};
  }
  return chain;
}

void ReplicaTree::expect_last() {
  if (!device_exchange_ || !running_ || !is_last()) return;
  watches_ = true;
  device_exchange_->watch(chain_of(leaf()));
}

void ReplicaTree::finish_among_devices(bool exchanges) {
  model_.parameters().end_accumulation(context());
  running_ = false;
  device_exchange_->skip_once(!exchanges);
  device_exchange_->finish(chain_of(leaf()));
}

/// Adds all sums that the replica completes, in one pass.
void ReplicaTree::merge(Waiting node) {
  std::vector<int> terms = {node.place};
  while (!waiting_.empty() && are_siblings(waiting_.back().sum, node.sum)) {
    node = {.sum = {.first = waiting_.back().sum.first, .level = node.sum.level + 1}, .place = waiting_.back().place};
    terms.push_back(node.place);
    waiting_.pop_back();
  }
  if (is_last()) node.place = kHome;
  if (terms.size() > 1) add(terms, node.place, 1 << node.sum.level == replicas_);
  waiting_.push_back(node);
}

void ReplicaTree::add(const std::vector<int>& terms, int out, bool root) const {
  const Context context = this->context();
  const auto add_plane = [&](DType dtype, std::int64_t elements, double factor, auto&& data) {
    kernels::TreeTerms arrays;
    for (const int place : terms) arrays.add(data(place));
    BANTAM_KERNEL(context.exec, tree_sum, dtype, elements, arrays, factor, data(out));
  };
  const BufferArena& buffers = model_.buffers();
  const std::int64_t elements = model_.parameters().trainable_elements();
  const auto gradients = [&](int place) { return gradients_at(place).data(); };
  if (narrow_)
    BANTAM_KERNEL(context.exec, narrow_tree_sum, elements, terms_of(terms), DType::float32, gradients(out));
  else
    add_plane(DType::float32, elements, 1.0, gradients);
  if (buffers.elements() > 0)
    add_plane(DType::float32, buffers.elements(), root ? 1.0 / replicas_ : 1.0,
              [&](int place) { return place == kHome ? buffers.next_.data() : planes(place).statistics.data(); });
  add_plane(DType::float64, ring_.update_sums(), 1.0, [&](int place) { return metrics_at(place).data(); });
}

void ReplicaTree::end(const std::int32_t* slot, bool exchanges) {
  if (ended_) return;
  if (!running_ || !is_last())
    throw Error(fmt::format("training step: an update after {} of {} replicas; begin_replica() begins the next", begun_,
                            share_.count));
  if (device_exchange_) {
    finish_among_devices(exchanges);
  } else {
    end_replica();
    if (workspace_.defined() && exchanges) finish_among_ranks();
  }
  ring_.store(context(), home_metrics_.as<double>(), slot);
  ParameterArena& parameters = model_.parameters();  // all of it was written
  parameters.any_written_ = true;
  for (Parameter& parameter : parameters.parameters_) parameter.gradient_written_ = !parameter.frozen();
  ended_ = true;
}

const Tensor& ReplicaTree::gradients_at(int place) const {
  return place == kHome ? model_.parameters().gradient_ : planes(place).gradients;
}

kernels::TreeTerms ReplicaTree::terms_of(const std::vector<int>& places) const {
  kernels::TreeTerms terms;
  for (const int place : places) terms.add(gradients_at(place).data());
  return terms;
}

/// Partial sum number `sum` of this rank, as it travels.
const void* ReplicaTree::narrowed(int place, std::size_t sum) const {
  const Tensor& to = travelling_[sum];
  BANTAM_KERNEL(context().exec, narrow_tree_sum, to.shape().elements(), terms_of({place}), DType::float16, to.data());
  return to.data();
}

/// The sums that this rank has are in waiting_, the last of them in the arenas, which get the root.
void ReplicaTree::finish_among_ranks() {
  const Context context = this->context();
  const BufferArena& buffers = model_.buffers();
  if (!context.device.meta) {
    if (!exchange_) throw Error("training step: replicas of other ranks, and no ReplicaOptions::ranks to reach them");
    TreePlane gradients{.type = narrow_ ? DType::float16 : DType::float32,
                        .elements = model_.parameters().trainable_elements(),
                        .root = narrow_ ? travelling_.back().data() : gradients_at(kHome).data()};
    TreePlane statistics{.type = DType::float32, .elements = buffers.elements()};
    if (statistics.elements > 0) statistics.root = buffers.next_.data();
    TreePlane metrics{.type = DType::float64, .elements = ring_.update_sums(), .root = home_metrics_.data()};
    for (const Waiting& sum : waiting_) {
      const bool home = sum.place == kHome;
      gradients.sums.push_back(narrow_ ? narrowed(sum.place, gradients.sums.size()) : gradients_at(sum.place).data());
      if (statistics.elements > 0)
        statistics.sums.push_back(home ? statistics.root : planes(sum.place).statistics.data());
      metrics.sums.push_back(metrics_at(sum.place).data());
    }
    std::vector<TreePlane> all = {std::move(gradients), std::move(metrics)};
    if (statistics.elements > 0) all.push_back(std::move(statistics));
    exchange_->run(all, {workspace_.as<std::byte>(), workspace_.bytes()});
  }
  if (narrow_)
    BANTAM_KERNEL(context.exec, cast, model_.parameters().trainable_elements(), DType::float16,
                  travelling_.back().data(), DType::float32, gradients_at(kHome).data());
  if (buffers.elements() == 0) return;
  kernels::TreeTerms root;
  root.add(buffers.next_.data());
  BANTAM_KERNEL(context.exec, tree_sum, DType::float32, buffers.elements(), root, 1.0 / replicas_,
                buffers.next_.data());
}

void ReplicaTree::reset() {
  if (running_) exchange();
  waiting_.clear();
  begun_ = 0;
  place_ = kHome;
  running_ = first_batch_ = ended_ = watches_ = false;
  if (device_exchange_) device_exchange_->reset();
}

}  // namespace bantam
