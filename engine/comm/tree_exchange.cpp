// TreeExchange: shards in pieces. While one piece's partial sums travel to its owner, the piece before, which is
// finished, travels to all.
#include "bantam/engine/comm/tree_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "bantam/engine/comm/span_shares.h"
#include "bantam/kernels/elementwise/elementwise.h"

namespace bantam {
namespace {

constexpr std::size_t kBlockBytes = 4096;      // of a tree that is added at once: operands stay in the L1 cache
constexpr std::uint64_t kWorkspace = 8 << 20;  // for the pieces of all partial sums
constexpr std::uint64_t kSmallestPiece = 64 << 10, kLargestPiece = 1 << 20;
constexpr std::int64_t kShardElements = 16;  // shards begin at whole cache lines of float32

std::uint64_t piece_bytes(std::span<const ReplicaShare> shares, const TreeExchangeOptions& options) {
  std::uint64_t bytes = options.piece_bytes;
  if (bytes == 0) {
    std::uint64_t sums = 0;
    for (const ReplicaShare& share : shares) sums += sums_of(share).size();
    bytes = std::clamp(kWorkspace / std::max<std::uint64_t>(sums, 1), kSmallestPiece, kLargestPiece);
  }
  return std::max<std::uint64_t>((bytes + 63) / 64 * 64, 64);
}

/// A node of the tree above the ranks' partial sums: one of these, or the sum of two nodes.
struct Node {
  int sum = -1;  ///< place among the partial sums of all ranks; -1: left + right
  int left = -1, right = -1;
};

/// Appends the node of 2^level replicas from `first` on, children first; returns its place. `sums`: by first replica.
int add_node(std::vector<Node>& nodes, const std::vector<ReplicaSum>& sums, int first, int level) {
  Node node;
  const auto at = std::ranges::find(sums, ReplicaSum{first, level});
  if (at != sums.end()) {
    node.sum = static_cast<int>(at - sums.begin());
  } else {
    node.left = add_node(nodes, sums, first, level - 1);
    node.right = add_node(nodes, sums, first + (1 << (level - 1)), level - 1);
  }
  nodes.push_back(node);
  return static_cast<int>(nodes.size()) - 1;
}

/// out = left + right. `out` may be one of both: the compiler does not know, so vectors are written out.
template <class T>
void add_arrays(const T* left, const T* right, T* out, std::size_t count) {
  typedef T Vector __attribute__((vector_size(32)));
  constexpr std::size_t kLanes = sizeof(Vector) / sizeof(T);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vector a, b;
    std::memcpy(&a, left + i, sizeof a);
    std::memcpy(&b, right + i, sizeof b);
    a += b;
    std::memcpy(out + i, &a, sizeof a);
  }
  for (; i < count; ++i) out[i] = left[i] + right[i];
}

void add_arrays(const Half* left, const Half* right, Half* out, std::size_t count) {
  kernels::cpu::add({}, static_cast<std::int64_t>(count), DType::float16, left, right, out);
}

/// The tree over one block of elements. `scratch`: blocks for the sums between leaves and root, one for each level.
template <class T>
struct BlockTree {
  std::span<const Node> nodes;
  std::span<const T* const> sums;
  std::size_t begin = 0, count = 0;  // the block's place in `sums`

  /// Where the node's values are; `scratch` receives them, but for partial sums.
  const T* values(const Node& node, T* scratch) const {
    if (node.sum >= 0) return sums[static_cast<std::size_t>(node.sum)] + begin;
    add(node, scratch, scratch);
    return scratch;
  }
  /// `out` may be one of the partial sums: a block is written when all its operands have been read.
  void add(const Node& node, T* out, T* scratch) const {
    const std::size_t block = kBlockBytes / sizeof(T);
    const T* left = values(nodes[static_cast<std::size_t>(node.left)], scratch);
    const T* right = values(nodes[static_cast<std::size_t>(node.right)], scratch + block);
    add_arrays(left, right, out, count);
  }
};

/// out = the tree's root over `elements` elements; the root is the last node.
template <class T>
void add_tree(std::span<const Node> nodes, std::span<const T* const> sums, T* out, std::size_t elements, T* scratch) {
  const std::size_t block = kBlockBytes / sizeof(T);
  BlockTree<T> tree{nodes, sums};
  for (std::size_t begin = 0; begin < elements; begin += block) {
    tree.begin = begin;
    tree.count = std::min(block, elements - begin);
    if (nodes.back().sum < 0) {
      tree.add(nodes.back(), out + begin, scratch);
    } else {
      std::memmove(out + begin, sums[0] + begin, tree.count * sizeof(T));
    }
  }
}

using Piece = SpanPart<std::int64_t>;  // of a rank's shard of a plane, in elements

const std::byte* at(const void* array, std::int64_t element, DType type) {
  return static_cast<const std::byte*>(array) + static_cast<std::size_t>(element) * size_of(type);
}
std::byte* at(void* array, std::int64_t element, DType type) {
  return static_cast<std::byte*>(array) + static_cast<std::size_t>(element) * size_of(type);
}

}  // namespace

std::uint64_t tree_exchange_workspace(std::span<const ReplicaShare> shares, int rank, TreeExchangeOptions options) {
  std::uint64_t sums = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    if (static_cast<int>(r) != rank) sums += sums_of(shares[r]).size();
  }
  return sums * piece_bytes(shares, options);
}

struct TreeExchange::Impl {
  Communicator& ranks;
  std::vector<ReplicaShare> shares;
  TreeExchangeOptions options;
  std::uint64_t piece = 0;                    // bytes
  std::vector<std::vector<ReplicaSum>> sums;  // of each rank
  std::vector<Node> nodes;                    // children first, the root last
  std::vector<double> scratch;                // of BlockTree
  std::vector<OutgoingMessage> out;           // of the exchange that is made up
  std::vector<IncomingMessage> in;

  /// One round: piece number `round` of each rank's shard of a plane.
  struct Round {
    const TreePlane* plane = nullptr;
    int round = 0;
  };
  Piece piece_for(const Round& round, int rank) const {
    const auto elements = static_cast<std::int64_t>(piece / size_of(round.plane->type));
    return piece_of_share(share_of_span(round.plane->elements, kShardElements, rank, ranks.size()), elements,
                          std::int64_t{round.round});
  }
  int rounds_of(const TreePlane& plane) const;
  void check(const TreePlane& plane) const;
  void send_sums(const Round& round);
  std::vector<const void*> receive_sums(const Round& round, std::span<std::byte> workspace);
  void spread_root(const Round& round);
  void finish(const Round& round, const std::vector<const void*>& sums);
};

int TreeExchange::Impl::rounds_of(const TreePlane& plane) const {
  int rounds = 0;
  for (bool more = plane.elements > 0; more; rounds += more ? 1 : 0) {
    more = false;
    for (int rank = 0; rank < ranks.size(); ++rank) more = more || piece_for({&plane, rounds}, rank).size > 0;
  }
  return rounds;
}

void TreeExchange::Impl::check(const TreePlane& plane) const {
  const std::size_t mine = sums[static_cast<std::size_t>(ranks.rank())].size();
  if (plane.type != DType::float32 && plane.type != DType::float64 && plane.type != DType::float16)
    throw DTypeError("replicas' sums are float32, float64 or float16, not " + std::string(to_string(plane.type)));
  if (plane.sums.size() != mine) {
    throw Error("rank " + std::to_string(ranks.rank()) + " has " + std::to_string(mine) +
                " partial sums of its replicas, not " + std::to_string(plane.sums.size()));
  }
}

/// This rank's partial sums of the others' pieces.
void TreeExchange::Impl::send_sums(const Round& round) {
  const TreePlane& plane = *round.plane;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Piece part = piece_for(round, rank);
    if (rank == ranks.rank() || part.size == 0) continue;
    const std::size_t bytes = static_cast<std::size_t>(part.size) * size_of(plane.type);
    for (const void* sum : plane.sums) out.push_back({rank, {at(sum, part.begin, plane.type), bytes}});
  }
}

/// The others' partial sums of this rank's piece, into the workspace. Returns where those of all ranks then are.
std::vector<const void*> TreeExchange::Impl::receive_sums(const Round& round, std::span<std::byte> workspace) {
  const TreePlane& plane = *round.plane;
  const Piece part = piece_for(round, ranks.rank());
  const std::size_t bytes = static_cast<std::size_t>(part.size) * size_of(plane.type);
  std::vector<const void*> places;
  if (part.size == 0) return places;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto& theirs = sums[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      if (rank == ranks.rank()) {
        places.push_back(at(plane.sums[i], part.begin, plane.type));
        continue;
      }
      in.push_back({rank, workspace.first(bytes)});
      places.push_back(workspace.data());
      workspace = workspace.subspan(piece);
    }
  }
  return places;
}

/// This rank's finished piece to all others, and theirs to this one.
void TreeExchange::Impl::spread_root(const Round& round) {
  const TreePlane& plane = *round.plane;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) continue;
    const Piece mine = piece_for(round, ranks.rank()), theirs = piece_for(round, rank);
    const std::size_t size = size_of(plane.type);
    if (mine.size > 0)
      out.push_back({rank, {at(plane.root, mine.begin, plane.type), static_cast<std::size_t>(mine.size) * size}});
    if (theirs.size > 0)
      in.push_back({rank, {at(plane.root, theirs.begin, plane.type), static_cast<std::size_t>(theirs.size) * size}});
  }
}

void TreeExchange::Impl::finish(const Round& round, const std::vector<const void*>& places) {
  const TreePlane& plane = *round.plane;
  const Piece part = piece_for(round, ranks.rank());
  if (part.size == 0) return;
  const auto add = [&]<class T>(T) {
    std::vector<const T*> sums;
    for (const void* place : places) sums.push_back(static_cast<const T*>(place));
    add_tree<T>(nodes, sums, static_cast<T*>(plane.root) + part.begin, static_cast<std::size_t>(part.size),
                reinterpret_cast<T*>(scratch.data()));
  };
  switch (plane.type) {
    case DType::float32:
      return add(float{});
    case DType::float16:
      return add(Half{});
    default:
      return add(double{});
  }
}

TreeExchange::TreeExchange(Communicator& ranks, int replicas, std::vector<ReplicaShare> shares,
                           TreeExchangeOptions options)
    : impl_(new Impl{ranks, std::move(shares), options}) {
  even_shares(replicas, ranks.size());  // throws where they do not fit
  int next = 0;
  std::vector<ReplicaSum> all;
  for (const ReplicaShare& share : impl_->shares) {
    if (share.first != next || share.count < 1) break;
    next += share.count;
    impl_->sums.push_back(sums_of(share));
    all.insert(all.end(), impl_->sums.back().begin(), impl_->sums.back().end());
  }
  if (impl_->sums.size() != static_cast<std::size_t>(ranks.size()) || next != replicas) {
    throw ConfigError("the shares of " + std::to_string(ranks.size()) + " ranks must be replicas 0 to " +
                      std::to_string(replicas - 1) + ", in the ranks' order");
  }
  const int levels = std::countr_zero(static_cast<unsigned>(replicas));
  add_node(impl_->nodes, all, 0, levels);
  impl_->piece = piece_bytes(impl_->shares, options);
  impl_->scratch.resize(kBlockBytes / sizeof(double) * static_cast<std::size_t>(levels + 2));
}

TreeExchange::~TreeExchange() = default;

std::uint64_t TreeExchange::workspace_bytes() const {
  return tree_exchange_workspace(impl_->shares, impl_->ranks.rank(), impl_->options);
}

void TreeExchange::run(std::span<const TreePlane> planes, std::span<std::byte> workspace) {
  if (workspace.size() < workspace_bytes()) {
    throw Error("the exchange of replicas' sums needs " + std::to_string(workspace_bytes()) +
                " bytes of workspace, not " + std::to_string(workspace.size()));
  }
  std::vector<Impl::Round> rounds;
  for (const TreePlane& plane : planes) {
    impl_->check(plane);
    const int count = impl_->rounds_of(plane);
    for (int round = 0; round < count; ++round) rounds.push_back({&plane, round});
  }
  // One exchange more than rounds: in number i travel the partial sums of round i and the results of round i - 1.
  for (std::size_t i = 0; i < rounds.size() + (rounds.empty() ? 0 : 1); ++i) {
    impl_->out.clear();
    impl_->in.clear();
    std::vector<const void*> places;
    if (i < rounds.size()) {
      impl_->send_sums(rounds[i]);
      places = impl_->receive_sums(rounds[i], workspace);
    }
    if (i > 0) impl_->spread_root(rounds[i - 1]);
    if (impl_->ranks.size() > 1) impl_->ranks.exchange(impl_->out, impl_->in);
    if (i < rounds.size()) impl_->finish(rounds[i], places);
  }
}

}  // namespace bantam
