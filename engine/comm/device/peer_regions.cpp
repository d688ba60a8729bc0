// Pages of all ranks of a host: exported, sent as descriptors, mapped.
#include "bantam/engine/comm/device/peer_regions.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/device/descriptor_mail.h"
#include "bantam/memory/pages/shared_pages.h"

namespace bantam {
namespace {

constexpr double kMostSeconds = 60;

/// The facts about a rank's region that it sends to all others, so that they can map its memory.
struct Facts {
  std::array<char, 40> boot = {};   // of the running system: equal on one host
  std::array<char, 108> mail = {};  // DescriptorMail's name
  std::uint32_t mail_bytes = 0;
  std::int64_t process = 0;
  std::int32_t device = 0;  // as its process numbers them
  std::array<char, 32> bus = {};
  std::uint64_t address = 0;
  std::uint64_t page_bytes = 0, pages = 0, offset = 0;
  std::uint64_t run = 0;  // rank 0's counts
};

std::string boot_of_host() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  return text;
}

template <std::size_t kBytes>
void put(std::array<char, kBytes>& into, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), kBytes - 1), into.begin());
}

std::vector<Facts> facts_of_all(Communicator& ranks, const Facts& mine) {
  std::vector<Facts> all;
  for (const std::vector<std::byte>& bytes : all_gather(ranks, std::as_bytes(std::span(&mine, 1))))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Facts));
  return all;
}

/// The first rank's trouble, on every rank; empty where there is none.
std::string trouble_of_all(Communicator& ranks, const std::string& mine) {
  const std::vector<std::string> all = all_gather_texts(ranks, mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) return fmt::format("rank {}: {}", rank, all[rank]);
  return "";
}

/// Whether a rank is a thread of this process with the same device: its addresses are ours.
bool is_here(const Facts& other, const Facts& mine) {
  return other.process == mine.process && other.device == mine.device && other.boot == mine.boot;
}

}  // namespace

struct PeerRegions::Impl {
  Addresses addresses = {};
  std::vector<std::unique_ptr<ImportedPages>> imported;  // by rank; null: this process'
  bool take_turns = false;

  std::string map(Communicator& ranks, Device device, const PageRange& range, DescriptorMail& mail,
                  const std::vector<Facts>& all);
};

/// Sends this rank's pages to all others, and maps theirs. Returns what went wrong.
std::string PeerRegions::Impl::map(Communicator& ranks, Device device, const PageRange& range, DescriptorMail& mail,
                                   const std::vector<Facts>& all) {
  const auto own = static_cast<std::size_t>(ranks.rank());
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> sent(all.size());
  imported.resize(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!is_here(all[rank], all[own]))
      imported[rank] = std::make_unique<ImportedPages>(device, all[rank].page_bytes, all[rank].pages);
  std::vector<FileDescriptor> letter;
  std::uint64_t first = 0;  // of the letter's
  for (;;) {
    if (letter.empty() && first < range.pages) {
      for (std::uint64_t page = first; page < std::min(range.pages, first + DescriptorMail::kMost); ++page) {
        letter.emplace_back(export_page(device, range, page));
        if (!letter.back()) return "the driver does not share the memory of " + to_string(device);
      }
    }
    bool all_sent = true, all_here = true;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (!imported[rank]) continue;
      if (!letter.empty() && sent[rank] == first &&
          mail.send({all[rank].mail.data(), all[rank].mail_bytes}, static_cast<std::uint32_t>(own), all[0].run, letter))
        sent[rank] += letter.size();
      all_sent = all_sent && sent[rank] == first + letter.size();
      all_here = all_here && imported[rank]->complete();
    }
    if (all_sent) {
      first += letter.size();
      letter.clear();
      if (first == range.pages && all_here) return "";
    }
    for (auto came = mail.receive(all_here ? 0.001 : 0.01); came; came = mail.receive(0)) {
      if (came->run != all[0].run || came->from >= all.size() || !imported[came->from]) continue;
      for (const FileDescriptor& page : came->descriptors)
        if (!imported[came->from]->add(page.get()))
          return fmt::format("{} cannot map memory of rank {}", to_string(device), came->from);
    }
    if (seconds_since(start) > kMostSeconds) return "the descriptors of other ranks' memory did not come";
  }
}

PeerRegions::PeerRegions(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PeerRegions::~PeerRegions() = default;
const PeerRegions::Addresses& PeerRegions::addresses() const { return impl_->addresses; }
bool PeerRegions::take_turns() const { return impl_->take_turns; }

std::unique_ptr<PeerRegions> PeerRegions::connect(Communicator& ranks, Device device, void* region, std::uint64_t bytes,
                                                  std::string& why) {
  const PageRange range = pages_of(device, region, bytes);
  std::optional<DescriptorMail> mail;
  std::string trouble;
  Facts mine{.process = ::getpid(),
             .device = device.index,
             .address = reinterpret_cast<std::uintptr_t>(region),
             .page_bytes = range.page_bytes,
             .pages = range.pages,
             .offset = range.offset,
             .run = (static_cast<std::uint64_t>(std::random_device()()) << 32) | std::random_device()()};
  put(mine.boot, boot_of_host());
  put(mine.bus, pci_bus_of(device));
  try {
    mail.emplace();
    mine.mail_bytes = static_cast<std::uint32_t>(mail->name().size());
    std::copy_n(mail->name().begin(), std::min(mail->name().size(), mine.mail.size()), mine.mail.begin());
  } catch (const Error& error) {
    trouble = error.what();
  }
  const std::vector<Facts> all = facts_of_all(ranks, mine);
  auto impl = std::make_unique<Impl>();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Facts& facts = all[rank];
    if (facts.boot != mine.boot) trouble = fmt::format("rank {} is on another host", rank);
    if (facts.page_bytes == 0 && !is_here(facts, mine)) trouble = "its device's memory cannot be shared";
    for (std::size_t other = 0; other < rank; ++other)
      impl->take_turns = impl->take_turns || (facts.bus == all[other].bus && facts.boot == all[other].boot &&
                                              facts.process != all[other].process);
  }
  why = trouble_of_all(ranks, trouble);
  if (!why.empty()) return nullptr;
  try {
    trouble = impl->map(ranks, device, range, *mail, all);
    for (std::size_t rank = 0; rank < all.size() && trouble.empty(); ++rank) {
      if (impl->imported[rank] && !impl->imported[rank]->open())
        trouble = fmt::format("{} does not reach the memory of rank {}", to_string(device), rank);
      impl->addresses[rank] = impl->imported[rank] ? impl->imported[rank]->data() + all[rank].offset
                                                   : reinterpret_cast<std::byte*>(all[rank].address);
    }
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error& error) {
    trouble = error.what();
  }
  why = trouble_of_all(ranks, trouble);
  if (!why.empty()) return nullptr;
  return std::unique_ptr<PeerRegions>(new PeerRegions(std::move(impl)));
}

}  // namespace bantam
