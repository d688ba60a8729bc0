// Tickets, marks and the change from one party to several.
#include "bantam/memory/allocator/stream_frees.h"

namespace bantam {

StreamFrees::StreamFrees(BfcStructure& structure, std::unique_ptr<StreamOracle> oracle)
    : structure_(structure), oracle_(std::move(oracle)), slots_(1) {}

// Records that `state` uses the allocator. Streams are tracked one by one from the second state on.
void StreamFrees::notice(FreeState state) {
  if (sole_ == kUnknown) sole_ = state;
  if (state != sole_) become_several();
}

FreeState StreamFrees::state_of(const Stream& stream) {
  last_ = kUnknown;  // until all went well
  last_stream_ = stream;
  if (!oracle_->asynchronous(stream)) return kIdle;
  for (FreeState state = 1; state < slots_.size(); ++state)
    if (slots_[state].used && same_stream(slots_[state].stream, stream)) return state;
  return new_slot(stream);
}

// Programs that make and destroy many streams get the slots of streams whose frees are all done.
FreeState StreamFrees::new_slot(const Stream& stream) {
  constexpr std::size_t kKeep = 8;
  FreeState state = 1;
  for (; state < slots_.size(); ++state)
    if (!slots_[state].used || (slots_.size() > kKeep && state != sole_ && !structure_.has_deferred(state))) break;
  structure_.reserve_states(state + 1);
  if (state == slots_.size()) slots_.emplace_back();
  clear_marks(slots_[state]);
  slots_[state] = {.stream = stream, .used = true};
  return state;
}

void StreamFrees::become_several() {
  const bool any_freed = slots_[kIdle].freed > 0;  // else what is free was never used
  if (sole_ != kIdle && any_freed) structure_.unsettle(sole_, ticket(sole_));
  several_ = true;
}

void StreamFrees::cover(Slot& slot, std::uint64_t ticket) {
  slot.marks[(slot.first + slot.open) % kMostMarks] = {ticket, oracle_->record(slot.stream)};
  ++slot.open;
  slot.covered = ticket;
}

// Covers the next free by a mark, where there can be one more.
void StreamFrees::cover_next(FreeState state) {
  Slot& slot = slots_[state];
  if (slot.open == kMostMarks) drop_done(state);
  if (slot.open < kMostMarks) cover(slot, slot.freed + 1);
}

// Forgets marks that are done, and makes idle what they cover.
void StreamFrees::drop_done(FreeState state) {
  Slot& slot = slots_[state];
  std::uint64_t done = 0;
  while (slot.open > 0 && oracle_->done(slot.marks[slot.first].mark)) {
    done = slot.marks[slot.first].ticket;
    oracle_->recycle(slot.marks[slot.first].mark);
    slot.first = (slot.first + 1) % kMostMarks;
    --slot.open;
  }
  structure_.settle(state, done);
}

void StreamFrees::poll() {
  for (FreeState state = 1; state < slots_.size(); ++state) {
    if (!structure_.has_deferred(state)) continue;
    drop_done(state);
    Slot& slot = slots_[state];
    if (slot.covered == slot.freed || slot.open == kMostMarks || !structure_.has_deferred(state)) continue;
    cover(slot, slot.freed);
    drop_done(state);
  }
}

bool StreamFrees::sole_party_done() {
  if (several_ || sole_ == kUnknown || sole_ == kIdle) return true;
  const StreamOracle::Mark mark = oracle_->record(slots_[sole_].stream);
  bool done = false;
  try {
    done = oracle_->done(mark);
  } catch (...) {
    oracle_->recycle(mark);
    throw;
  }
  oracle_->recycle(mark);
  return done;
}

// The oldest open mark that covers `ticket`; where marks ran out before it, the newest is replaced by one that does.
const StreamFrees::Covered& StreamFrees::mark_for(FreeState state, std::uint64_t ticket) {
  Slot& slot = slots_[state];
  if (ticket > slot.covered) {
    if (slot.open == kMostMarks) {
      const Covered later{slot.freed, oracle_->record(slot.stream)};
      Covered& newest = slot.marks[(slot.first + slot.open - 1) % kMostMarks];
      oracle_->recycle(newest.mark);
      newest = later;
      slot.covered = slot.freed;
    } else {
      cover(slot, slot.freed);
    }
  }
  std::size_t at = slot.first;
  while (slot.marks[at].ticket < ticket) at = (at + 1) % kMostMarks;
  return slot.marks[at];
}

void StreamFrees::wait_for_all() {
  if (!several_ && sole_ != kUnknown && sole_ != kIdle) {
    const StreamOracle::Mark mark = oracle_->record(slots_[sole_].stream);
    try {
      oracle_->synchronize(mark);
    } catch (...) {
      oracle_->recycle(mark);
      throw;
    }
    oracle_->recycle(mark);
    return;
  }
  for (FreeState state = 1; state < slots_.size(); ++state) {
    if (!structure_.has_deferred(state)) continue;
    oracle_->synchronize(mark_for(state, slots_[state].freed).mark);
    structure_.settle(state, slots_[state].freed);
    clear_marks(slots_[state]);
  }
}

void StreamFrees::clear_marks(Slot& slot) {
  for (; slot.open > 0; --slot.open) {
    oracle_->recycle(slot.marks[slot.first].mark);
    slot.first = (slot.first + 1) % kMostMarks;
  }
}

void StreamFrees::forget() {
  for (FreeState state = 1; state < slots_.size(); ++state) {
    clear_marks(slots_[state]);
    slots_[state].used = false;
  }
  slots_[kIdle].freed = 0;
  last_ = sole_ = kUnknown;
  several_ = false;
}

void StreamFrees::make_wait(const BfcStructure::Run& run, FreeState state) {
  for (ChunkId id = run.first;; id = structure_.chunk(id).next) {
    const Chunk& chunk = structure_.chunk(id);
    if (chunk.state != kIdle && chunk.state != state)
      oracle_->make_wait(mark_for(chunk.state, structure_.ticket(id)).mark, slots_[state].stream);
    if (id == run.last) return;
  }
}

void StreamFrees::order(Stream earlier, Stream later) {
  if (same_stream(earlier, later) || !oracle_->asynchronous(earlier)) return;
  const StreamOracle::Mark mark = oracle_->record(earlier);
  try {
    if (oracle_->asynchronous(later))
      oracle_->make_wait(mark, later);
    else
      oracle_->synchronize(mark);
  } catch (...) {
    oracle_->recycle(mark);
    throw;
  }
  oracle_->recycle(mark);
}

}  // namespace bantam
