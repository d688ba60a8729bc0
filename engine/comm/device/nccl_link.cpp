// Pieces of a span: while one piece's partial sums travel to the rank that adds them up, the piece before travels to
// all, as in TreeExchange.
#include "bantam/engine/comm/device/nccl_link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/span_shares.h"
#include "bantam/memory/pages/region_source.h"

namespace bantam {
namespace {

// NCCL's interface as far as it is used (nccl.h of 2.28; these calls have not changed since 2.7).
struct NcclId {
  std::array<char, 128> bytes;
};
using NcclComm = struct NcclCommHandle*;
constexpr int kNcclSuccess = 0, kNcclBytes = 1;  // ncclUint8

/// The library, which is looked for when it is first needed.
struct Nccl {
  int (*version)(int*) = nullptr;
  int (*unique_id)(NcclId*) = nullptr;
  int (*init)(NcclComm*, int, NcclId, int) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int, int, NcclComm, void*) = nullptr;
  int (*receive)(void*, std::size_t, int, int, NcclComm, void*) = nullptr;
  const char* (*error_text)(int) = nullptr;

  /// All null where it is not installed.
  static const Nccl& instance() {
    static const Nccl library = load();
    return library;
  }
  static Nccl load() {
    Nccl all;
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return all;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool complete = bind(all.version, "ncclGetVersion") && bind(all.unique_id, "ncclGetUniqueId") &&
                          bind(all.init, "ncclCommInitRank") && bind(all.destroy, "ncclCommDestroy") &&
                          bind(all.abort, "ncclCommAbort") && bind(all.group_start, "ncclGroupStart") &&
                          bind(all.group_end, "ncclGroupEnd") && bind(all.send, "ncclSend") &&
                          bind(all.receive, "ncclRecv") && bind(all.error_text, "ncclGetErrorString");
    return complete ? all : Nccl{};
  }
  void check(int status, const char* call) const {
    if (status != kNcclSuccess) throw CudaError(fmt::format("{} failed: {}", call, error_text(status)));
  }
};

/// The communicator of NCCL, which a failure aborts from another thread.
class NcclRanks {
 public:
  NcclRanks(NcclId id, int rank, int size) {
    const Nccl& nccl = Nccl::instance();
    nccl.check(nccl.init(&comm_, size, id, rank), "ncclCommInitRank");
  }
  ~NcclRanks() {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) (void)Nccl::instance().destroy(comm_);
  }
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  void abort() {
    const std::lock_guard lock(mutex_);
    if (NcclComm comm = std::exchange(comm_, nullptr); comm != nullptr) (void)Nccl::instance().abort(comm);
  }
  /// Calls `work` with the communicator; throws Error where it was aborted.
  template <class Work>
  void use(Work work) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw Error("another rank has failed");
    work(comm_);
  }

 private:
  std::mutex mutex_;
  NcclComm comm_ = nullptr;
};

using Part = SpanPart<std::uint64_t>;  // of a span, in bytes

class NcclLink final : public DeviceLink {
 public:
  NcclLink(Communicator& ranks, NcclId id, const kernels::Exec& exec, const DeviceLinkOptions& options)
      : tree_(options.layout.tree()),
        rank_(ranks.rank()),
        region_(static_cast<std::byte*>(options.region)),
        home_(options.layout.place_offset(0)),
        ranks_(std::make_shared<NcclRanks>(id, ranks.rank(), ranks.size())),
        source_(make_cuda_source(exec.device)) {
    ranks.on_failure([nccl = ranks_] { nccl->abort(); });
    for (int i = 0; i < tree_.sums; ++i) foreign_ += owner(i) != rank_ ? 1 : 0;
    const std::uint64_t share = options.largest_span / static_cast<std::uint64_t>(tree_.ranks) + kLine;
    piece_ = std::max(std::min(share, kMostWorkspace / foreign_), kernels::RankRegion::kSlotBytes) / kLine * kLine;
    workspace_ = static_cast<std::byte*>(source_->acquire(workspace_bytes()));
    if (workspace_ == nullptr)
      throw DeviceError(
          fmt::format("{} bytes on {} for sums that NCCL receives", workspace_bytes(), to_string(exec.device)));
    int version = 0;
    (void)Nccl::instance().version(&version);
    name_ = fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
  ~NcclLink() override { source_->release(workspace_, workspace_bytes()); }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  std::string name() const override { return name_; }
  std::uint64_t workspace_bytes() const override { return piece_ * foreign_; }
  void exchange(const kernels::Exec& exec, std::span<const kernels::SumSpan> spans, bool beside_work) override;

 private:
  static constexpr std::uint64_t kLine = 256, kMostWorkspace = std::uint64_t{32} << 20;

  int owner(int sum) const { return tree_.owners[static_cast<std::size_t>(sum)]; }
  std::uint64_t place(int sum) const { return tree_.places[static_cast<std::size_t>(sum)]; }
  /// Piece number `round` of the share of `rank`; of no size where the share ends before.
  Part part_of(std::uint64_t bytes, int rank, std::uint64_t round) const {
    return piece_of_share(share_of_span(bytes, kLine, rank, tree_.ranks), piece_, round);
  }
  void send_all(const kernels::Exec& exec, const kernels::SumSpan& span);
  void divide(const kernels::Exec& exec, const kernels::SumSpan& span);
  void add(const kernels::Exec& exec, const kernels::SumSpan& span, const Part& part) const;
  /// Calls `transfers(send, receive)` as one group.
  template <class Transfers>
  void group(const kernels::Exec& exec, Transfers transfers);

  kernels::SumTree tree_;
  int rank_;
  std::byte* region_;
  std::uint64_t home_;
  std::uint64_t foreign_ = 0, piece_ = 0;  // partial sums of others; bytes of each that have room
  std::shared_ptr<NcclRanks> ranks_;
  std::unique_ptr<RegionSource> source_;
  std::byte* workspace_ = nullptr;
  std::string name_;
};

std::uint64_t rounded(const kernels::SumSpan& span) { return kernels::bytes_of({&span, 1}); }

template <class Transfers>
void NcclLink::group(const kernels::Exec& exec, Transfers transfers) {
  const Nccl& nccl = Nccl::instance();
  const DeviceScope scope(exec.device);
  ranks_->use([&](NcclComm comm) {
    nccl.check(nccl.group_start(), "ncclGroupStart");
    transfers([&](const std::byte* from, std::uint64_t bytes,
                  int to) { nccl.check(nccl.send(from, bytes, kNcclBytes, to, comm, exec.stream.handle), "ncclSend"); },
              [&](std::byte* to, std::uint64_t bytes, int from) {
                nccl.check(nccl.receive(to, bytes, kNcclBytes, from, comm, exec.stream.handle), "ncclRecv");
              });
    nccl.check(nccl.group_end(), "ncclGroupEnd");
  });
}

/// The root over bytes `part` of a span, in home: other ranks' sums lie in the workspace.
void NcclLink::add(const kernels::Exec& exec, const kernels::SumSpan& span, const Part& part) const {
  std::array<const void*, kernels::SumTree::kMostSums> sums = {};
  std::byte* received = workspace_;
  for (int i = 0; i < tree_.sums; ++i) {
    const bool own = owner(i) == rank_;
    sums[static_cast<std::size_t>(i)] = own ? region_ + place(i) + span.offset + part.begin : received;
    if (!own) received += piece_;
  }
  const auto elements = static_cast<std::int64_t>(part.size / size_of(span.dtype));
  BANTAM_KERNEL(exec, add_rank_sums, tree_, span.dtype, elements,
                std::span(sums.data(), static_cast<std::size_t>(tree_.sums)), span.factor,
                region_ + home_ + span.offset + part.begin);
}

void NcclLink::exchange(const kernels::Exec& exec, std::span<const kernels::SumSpan> spans, bool) {
  kernels::check_exchange(tree_, spans);
  for (const kernels::SumSpan& span : spans) {
    if (span.elements == 0) continue;
    if (rounded(span) * static_cast<std::uint64_t>(tree_.ranks) <= 2 * kernels::RankRegion::kSlotBytes)
      send_all(exec, span);  // one group of messages less, of more bytes the more ranks there are
    else
      divide(exec, span);
  }
}

void NcclLink::send_all(const kernels::Exec& exec, const kernels::SumSpan& span) {
  const Part whole{.size = rounded(span)};
  group(exec, [&](auto send, auto receive) {
    std::byte* into = workspace_;
    for (int i = 0; i < tree_.sums; ++i) {
      if (owner(i) != rank_) {
        receive(into, whole.size, owner(i));
        into += piece_;
        continue;
      }
      for (int rank = 0; rank < tree_.ranks; ++rank)
        if (rank != rank_) send(region_ + place(i) + span.offset, whole.size, rank);
    }
  });
  add(exec, span, whole);
}

void NcclLink::divide(const kernels::Exec& exec, const kernels::SumSpan& span) {
  const std::uint64_t bytes = rounded(span);
  const auto any = [&](std::uint64_t round) {
    for (int rank = 0; rank < tree_.ranks; ++rank)
      if (part_of(bytes, rank, round).size > 0) return true;
    return false;
  };
  std::byte* const home = region_ + home_ + span.offset;
  for (std::uint64_t round = 0; round == 0 || any(round - 1); ++round) {
    group(exec, [&](auto send, auto receive) {
      std::byte* into = workspace_;
      const Part mine = part_of(bytes, rank_, round);
      for (int i = 0; i < tree_.sums; ++i) {
        if (owner(i) != rank_) {
          if (mine.size > 0) receive(into, mine.size, owner(i));
          into += piece_;
          continue;
        }
        for (int rank = 0; rank < tree_.ranks; ++rank) {
          const Part theirs = part_of(bytes, rank, round);
          if (rank != rank_ && theirs.size > 0)
            send(region_ + place(i) + span.offset + theirs.begin, theirs.size, rank);
        }
      }
      if (round == 0) return;
      const Part finished = part_of(bytes, rank_, round - 1);
      for (int rank = 0; rank < tree_.ranks; ++rank) {
        const Part theirs = part_of(bytes, rank, round - 1);
        if (rank == rank_) continue;
        if (finished.size > 0) send(home + finished.begin, finished.size, rank);
        if (theirs.size > 0) receive(home + theirs.begin, theirs.size, rank);
      }
    });
    if (const Part mine = part_of(bytes, rank_, round); mine.size > 0) add(exec, span, mine);
  }
}

}  // namespace

std::unique_ptr<DeviceLink> connect_nccl(Communicator& ranks, const kernels::Exec& exec,
                                         const DeviceLinkOptions& options, const std::string& peer_trouble) {
  const Nccl& nccl = Nccl::instance();
  const std::string missing = nccl.init == nullptr ? "libnccl.so.2 is not installed" : "";
  for (const std::string& text : all_gather_texts(ranks, missing))
    if (!text.empty())
      throw DeviceError(fmt::format("GPUs of several ranks need shared memory or NCCL: {}{}{}", peer_trouble,
                                    peer_trouble.empty() ? "" : "; ", text));
  NcclId id{};
  if (ranks.rank() == 0) nccl.check(nccl.unique_id(&id), "ncclGetUniqueId");
  broadcast(ranks, std::as_writable_bytes(std::span(id.bytes)));
  const DeviceScope scope(exec.device);
  return std::make_unique<NcclLink>(ranks, id, exec, options);
}

}  // namespace bantam
