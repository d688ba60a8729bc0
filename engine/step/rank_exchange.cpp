// Buckets, and the stream that exchanges them.
#include "bantam/engine/step/rank_exchange.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam {
namespace {

// A bucket's exchange begins with waiting for the others, about 10 us; at the 250 GB/s of an H200's links 8 MiB take
// three times as long. What backward writes last is exchanged when nothing else is left to do: it is small.
constexpr std::int64_t kBucketElements = (std::int64_t{8} << 20) / 4, kLastElements = (std::int64_t{512} << 10) / 4;
// Larger buckets, of one large parameter, are not copied: their copies would take too much memory.
// Small ones are not, either: 2.8 MB took 38 us by copies and 18 by a kernel (two H200).
constexpr std::uint64_t kLeastCopied = std::uint64_t{4} << 20, kMostCopied = std::uint64_t{64} << 20;

std::uint64_t align(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

RankExchange::RankExchange(Model& model, const ReplicaOptions& options, RegionLayout layout, int places,
                           std::int64_t metric_sums)
    : model_(model),
      ranks_(options.ranks),
      layout_(std::move(layout)),
      rank_(options.rank),
      travels_(options.gradients),
      statistics_factor_(1.0 / options.replicas),
      metric_sums_(metric_sums),
      statistics_elements_(model.buffers().elements()),
      before_(model.device()),
      after_(model.device()) {
  const std::uint64_t gradients = static_cast<std::uint64_t>(model.parameters().trainable_elements()) * sizeof(float);
  statistics_offset_ = align(gradients);
  metrics_offset_ = statistics_offset_ + align(static_cast<std::uint64_t>(statistics_elements_) * sizeof(float));
  layout_.place_bytes = metrics_offset_ + align(static_cast<std::uint64_t>(metric_sums_) * sizeof(double));
  if (travels_ != DType::float32) {
    travel_offset_ = layout_.place_bytes;
    layout_.place_bytes += align(gradients / sizeof(float) * size_of(travels_));
  }
  cut_buckets();
  layout_.copy_bytes = copy_bytes();
  (void)layout_.tree();  // throws where there are too many sums
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("replicas/exchange"));
  region_ = context.allocate({static_cast<std::int64_t>(layout_.bytes(places))}, DType::uint8, Category::gradient);
  zero_bytes(region_.data(), region_.bytes(), context.stream);
  expected_.resize(model_.parameters().spans().size());
  counted_ = expected_;
  if (context.device.meta) return;
  stream_ = std::make_unique<UrgentStream>(context.device);
  if (ranks_ == nullptr) return;
  std::uint64_t largest = static_cast<std::uint64_t>(std::max(statistics_elements_, 2 * metric_sums_)) * sizeof(float);
  for (const Bucket& bucket : buckets_) largest = std::max(largest, bytes_of(bucket));
  const char* const transport = std::getenv("BANTAM_TRANSPORT");
  link_ = connect_devices(*ranks_, context.exec,
                          {.layout = layout_,
                           .region = region_.data(),
                           .region_bytes = region_.bytes(),
                           .largest_span = largest,
                           .transport = transport == nullptr ? "" : transport});
  if (link_->take_turns() && !buckets_.empty())
    buckets_ = {{.elements = model.parameters().trainable_elements(), .end = model.parameters().spans().size()}};
  model_.runtime().note_overhead(context.device, link_->workspace_bytes() > 0 ? "NCCL" : "peer memory");
  (void)time(1);  // kernels and connections are there before anything is recorded
}

RankExchange::~RankExchange() {
  if (!stream_) return;
  try {
    synchronize(stream_->get());
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
}

Context RankExchange::context() const { return model_.context(Pass::train).at(model_.runtime().intern("replicas")); }

/// Whole parameters, in the arena's order.
void RankExchange::cut_buckets() {
  const std::vector<Parameter*>& spans = model_.parameters().spans();
  const std::int64_t all = model_.parameters().trainable_elements();
  const auto end_of = [&](std::size_t i) { return i + 1 < spans.size() ? spans[i + 1]->offset() : all; };
  Bucket bucket;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    bucket.end = i + 1;
    bucket.elements = end_of(i) - bucket.begin;
    const std::int64_t left = all - end_of(i), next = i + 1 < spans.size() ? end_of(i + 1) - end_of(i) : 0;
    const bool before_last = left <= kLastElements && left + next + bucket.elements > 2 * kLastElements &&
                             all - spans[i]->offset() > kLastElements;
    if (left > 0 && bucket.elements < kBucketElements && !before_last) continue;
    buckets_.push_back(bucket);
    bucket = {.begin = end_of(i), .first = i + 1};
  }
}

/// The bytes of a rank's share of the largest bucket that copy engines move: any but the last. 0: they move none.
std::uint64_t RankExchange::copy_bytes() const {
  std::uint64_t most = 0;
  for (std::size_t i = 0; i + 1 < buckets_.size(); ++i) {
    const std::uint64_t bytes = bytes_of(buckets_[i]);
    if (bytes >= kLeastCopied && bytes <= kMostCopied) most = std::max(most, bytes);
  }
  return most == 0 ? 0 : align(most / layout_.shares.size() + 256);
}

ReplicaPlanes RankExchange::planes(int index) const {
  const std::uint64_t at = layout_.place_offset(index);
  ReplicaPlanes planes;
  planes.gradients = region_.reinterpret(at, {model_.parameters().trainable_elements()}, DType::float32);
  if (statistics_elements_ > 0)
    planes.statistics = region_.reinterpret(at + statistics_offset_, {statistics_elements_}, DType::float32);
  planes.metrics = region_.reinterpret(at + metrics_offset_, {metric_sums_}, DType::float64);
  return planes;
}

void RankExchange::watch(std::vector<int> chain) {
  chain_ = std::move(chain);
  std::ranges::fill(counted_, 0);
  watching_ = true;
}

void RankExchange::written(const Parameter& parameter) {
  if (!watching_) return;
  const std::vector<Parameter*>& spans = model_.parameters().spans();
  const auto at = static_cast<std::size_t>(std::ranges::lower_bound(spans, parameter.offset(), {}, &Parameter::offset) -
                                           spans.begin());
  ++counted_[at];
  if (sent_ > 0 && at < buckets_[sent_ - 1].end)
    throw Error(fmt::format("the gradient of '{}' was written after it was sent to other ranks", parameter.name()));
  if (learned_) send_ready();
}

bool RankExchange::knows(const Bucket& bucket) const {
  return std::all_of(expected_.begin() + static_cast<std::ptrdiff_t>(bucket.first),
                     expected_.begin() + static_cast<std::ptrdiff_t>(bucket.end), [](int count) { return count > 0; });
}

bool RankExchange::is_whole(const Bucket& bucket) const {
  if (!knows(bucket)) return false;  // it has gradients that are made at the end
  for (std::size_t i = bucket.first; i < bucket.end; ++i)
    if (counted_[i] < expected_[i]) return false;
  return true;
}

/// In the buckets' order, which is the same on every rank.
void RankExchange::send_ready() {
  if (sent_ == buckets_.size() || !is_whole(buckets_[sent_])) return;
  fork();
  if (!small_sent_) send_small();
  while (sent_ < buckets_.size() && is_whole(buckets_[sent_])) send_bucket(buckets_[sent_++]);
}

void RankExchange::finish(const std::vector<int>& chain) {
  chain_ = chain;
  if (watching_) {
    expected_ = counted_;
    learned_ = true;
  }
  if (marks_) (void)marks_->mark();
  fork();
  send_rest();
  if (marks_) (void)marks_->mark();
  watching_ = false;
}

void RankExchange::time_waits(bool times) {
  marks_ = times && stream_ ? std::make_unique<StreamClock>(context().stream) : nullptr;
}

std::vector<double> RankExchange::waits() const {
  std::vector<double> seconds;
  for (std::int64_t i = 0; marks_ && i + 1 < marks_->marks(); i += 2)
    if (const auto wait = marks_->seconds_between(i, i + 1)) seconds.push_back(*wait);
  return seconds;
}

void RankExchange::send_rest() {
  if (!small_sent_) send_small();
  while (sent_ < buckets_.size()) send_bucket(buckets_[sent_++]);
  if (!stream_) return;
  after_.record(stream_->get());
  after_.make_wait(context().stream);
}

void RankExchange::reset() {
  watching_ = small_sent_ = skips_once_ = false;
  sent_ = 0;
}

/// The exchange's stream goes on after what the model's stream has so far.
void RankExchange::fork() {
  if (!stream_) return;
  before_.record(context().stream);
  before_.make_wait(stream_->get());
}

/// Home's part of a plane, with its siblings' added.
void RankExchange::add_siblings(DType dtype, std::int64_t elements, std::uint64_t offset) const {
  if (chain_.size() < 2 || elements == 0) return;
  kernels::Exec exec = context().exec;
  if (stream_) exec.stream = stream_->get();
  kernels::TreeTerms terms;
  for (const int place : chain_) terms.add(region_.as<std::byte>() + layout_.place_offset(place) + offset);
  BANTAM_KERNEL(exec, tree_sum, dtype, elements, terms, 1.0,
                region_.as<std::byte>() + layout_.place_offset(0) + offset);
}

void RankExchange::send_bucket(const Bucket& bucket) {
  const bool last = &bucket == &buckets_.back();  // which nothing runs beside
  const bool copied = !last && bytes_of(bucket) >= kLeastCopied;
  const std::uint64_t offset = static_cast<std::uint64_t>(bucket.begin) * sizeof(float);
  if (travels_ == DType::float32) {
    add_siblings(DType::float32, bucket.elements, offset);
    return exchange(std::array{kernels::SumSpan{.offset = offset, .elements = bucket.elements}}, copied);
  }
  narrow_sums(bucket);
  const std::uint64_t travel = travel_offset_ + static_cast<std::uint64_t>(bucket.begin) * size_of(travels_);
  exchange(std::array{kernels::SumSpan{.dtype = travels_, .offset = travel, .elements = bucket.elements}}, copied);
  kernels::Exec exec = context().exec;
  if (stream_) exec.stream = stream_->get();
  std::byte* const home = region_.as<std::byte>() + layout_.place_offset(0);
  BANTAM_KERNEL(exec, cast, bucket.elements, travels_, home + travel, DType::float32, home + offset);
}

/// A bucket's part of this rank's partial sums, as it travels: home's, with its siblings' added, and those that wait.
void RankExchange::narrow_sums(const Bucket& bucket) const {
  kernels::Exec exec = context().exec;
  if (stream_) exec.stream = stream_->get();
  for (const int sum : layout_.sum_places[static_cast<std::size_t>(rank_)]) {
    std::byte* const place = region_.as<std::byte>() + layout_.place_offset(sum);
    kernels::TreeTerms terms;
    for (const int term : sum == 0 && !chain_.empty() ? chain_ : std::vector<int>{sum})
      terms.add(region_.as<std::byte>() + layout_.place_offset(term) +
                static_cast<std::uint64_t>(bucket.begin) * sizeof(float));
    BANTAM_KERNEL(exec, narrow_tree_sum, bucket.elements, terms, travels_,
                  place + travel_offset_ + static_cast<std::uint64_t>(bucket.begin) * size_of(travels_));
  }
}

std::uint64_t RankExchange::bytes_of(const Bucket& bucket) const {
  return static_cast<std::uint64_t>(bucket.elements) * size_of(travels_);
}

void RankExchange::send_small() {
  add_siblings(DType::float32, statistics_elements_, statistics_offset_);
  add_siblings(DType::float64, metric_sums_, metrics_offset_);
  exchange(std::array{kernels::SumSpan{
                          .offset = statistics_offset_, .elements = statistics_elements_, .factor = statistics_factor_},
                      kernels::SumSpan{.dtype = DType::float64, .offset = metrics_offset_, .elements = metric_sums_}},
           false);
  small_sent_ = true;
}

void RankExchange::exchange(std::span<const kernels::SumSpan> spans, bool beside_work) {
  if (skips_ || skips_once_) return;
  kernels::Exec exec = context().exec;
  if (!stream_) {  // on a meta device: its work is noted
    BANTAM_KERNEL(exec, exchange_sums, layout_.tree(), kernels::RankRegions{}, spans, 1);
    return;
  }
  if (!link_) throw Error("training step: replicas of other ranks, and no ReplicaOptions::ranks to reach them");
  exec.stream = stream_->get();
  link_->exchange(exec, spans, beside_work);
}

double RankExchange::time(int times) {
  if (!link_) return 0;
  chain_.clear();
  synchronize(context().stream);
  barrier(*ranks_);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    reset();
    send_rest();
  }
  synchronize(context().stream);
  reset();
  return seconds_since(start) / times;
}

}  // namespace bantam
