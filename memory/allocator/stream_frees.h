// Internal: which frees of which streams are done: slots for streams, tickets for frees, marks that cover tickets.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "bantam/memory/allocator/bfc_structure.h"
#include "bantam/memory/allocator/stream_oracle.h"
#include "bantam/memory/device/same_stream.h"

namespace bantam {

/// Decides who may use freed memory. Streams that are synchronous (the CPU, meta devices) share one party, kIdle; each
/// asynchronous stream is a party of its own, in a slot.
///
/// While there is only one party, all its free chunks are idle and nothing is recorded: in its own order it may use
/// them at once. When a second party appears, all free chunks are marked as the first one's, once; from then on each
/// free records a mark (at most kMostMarks are open for a stream; later frees are covered on demand).
class StreamFrees {
 public:
  StreamFrees(BfcStructure& structure, std::unique_ptr<StreamOracle> oracle);

  /// The state whose chunks `stream` may use besides idle ones. Registers new streams.
  FreeState enter(const Stream& stream) {
    if (last_ == kUnknown || !same_stream(last_stream_, stream)) [[unlikely]]
      last_ = state_of(stream);
    if (!several_ && last_ != sole_) [[unlikely]]
      notice(last_);
    return several_ ? last_ : kIdle;
  }
  /// The ticket of a free in `state`, just now. Throws what the oracle throws, having changed nothing.
  std::uint64_t ticket(FreeState state) {
    if (state != kIdle) [[unlikely]]
      cover_next(state);
    return ++slots_[state].freed;
  }
  /// A new ticket in `state`: for chunks that become free in it without a free.
  std::uint64_t fresh_ticket(FreeState state) { return ++slots_[state].freed; }

  /// Whether `poll` can find idle chunks: there is more than one party.
  bool several() const { return several_; }
  /// Whether work of any party may go on after its call.
  bool asynchronous() const { return several_ || (sole_ != kUnknown && sole_ != kIdle); }
  /// Makes chunks idle whose streams' work is done by now.
  void poll();
  /// Whether the only party's work is done, so that idle chunks are idle for the device too; true with several.
  bool sole_party_done();
  /// Blocks the host until all frees so far are done, and makes them idle.
  void wait_for_all();
  /// After `wait_for_all`: no stream is known any more.
  void forget();
  /// Makes the work to come in `state` wait (on the device) for the frees of all chunks in `run`.
  void make_wait(const BfcStructure::Run& run, FreeState state);
  /// Makes the work to come of `later` wait for that of `earlier` so far. Nothing for a synchronous `earlier`, whose
  /// work is done.
  void order(Stream earlier, Stream later);

 private:
  static constexpr std::size_t kMostMarks = 16;
  static constexpr FreeState kUnknown = ~FreeState{0};

  struct Covered {
    std::uint64_t ticket = 0;
    StreamOracle::Mark mark = 0;
  };
  struct Slot {
    Stream stream;
    bool used = false;
    std::uint64_t freed = 0;                ///< last ticket given
    std::uint64_t covered = 0;              ///< last ticket that a mark covers
    std::array<Covered, kMostMarks> marks;  ///< open ones, a ring in order of tickets
    std::size_t first = 0, open = 0;
  };

  FreeState state_of(const Stream& stream);
  void notice(FreeState state);
  FreeState new_slot(const Stream& stream);
  void become_several();
  void cover_next(FreeState state);
  void cover(Slot& slot, std::uint64_t ticket);
  void drop_done(FreeState state);
  const Covered& mark_for(FreeState state, std::uint64_t ticket);
  void clear_marks(Slot& slot);

  BfcStructure& structure_;
  std::unique_ptr<StreamOracle> oracle_;
  std::vector<Slot> slots_;    // by state; slot 0 is kIdle's and stands for all synchronous streams
  FreeState last_ = kUnknown;  // the last call's, which most calls repeat
  Stream last_stream_;
  FreeState sole_ = kUnknown;
  bool several_ = false;
};

}  // namespace bantam
