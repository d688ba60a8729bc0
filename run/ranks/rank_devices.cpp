// Dealing GPUs, and what is said where they do not suffice.
#include "bantam/run/ranks/rank_devices.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/comm/collectives.h"

namespace bantam::run {
namespace {

constexpr int kMostGpus = 1024;

std::string count_of_gpus(int count) { return count == 1 ? "1 GPU" : fmt::format("{} GPUs", count); }

[[noreturn]] void refuse(std::string_view text) {
  throw ConfigError(fmt::format(
      "--gpus: expected how many, as 4, or a list of their numbers, as 0,1 (0,0: two ranks on one), got \"{}\"",
      shown(text)));
}

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::vector<Device> parse_gpus(std::string_view text) {
  std::vector<Device> devices;
  if (text.find_first_of(",/") == std::string_view::npos) {
    const std::optional<int> count = number_of(text);
    if (!count || *count < 1 || *count > kMostGpus) refuse(text);
    for (int i = 0; i < *count; ++i) devices.push_back(Device::cuda(i));
    return devices;
  }
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at), whole = item.substr(0, item.find('/'));
    const std::optional<int> index = number_of(whole);
    if (!index) refuse(text);
    Device device = Device::cuda(*index);
    if (whole.size() < item.size()) {
      const std::optional<int> share = number_of(item.substr(whole.size() + 1));
      if (!share) refuse(text);
      device = device.logical(*share);
    }
    devices.push_back(device);
    at = comma + 1;
  }
  return devices;
}

std::string gpus_text(const std::vector<Device>& devices) {
  std::string text;
  bool counts = true;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    counts = counts && devices[i] == Device::cuda(static_cast<int>(i));
    text += fmt::format("{}{}", i == 0 ? "" : ",", devices[i].index);
    if (devices[i].is_logical()) text += fmt::format("/{}", devices[i].share);
  }
  return counts ? std::to_string(devices.size()) : text;
}

std::string devices_text(Device device, std::size_t ranks) {
  if (ranks <= 1) return to_string(device);
  return fmt::format("{} ranks on {}", ranks, device.kind == DeviceKind::cuda ? "GPUs" : to_string(device));
}

void require_gpus(const std::vector<Device>& devices, int count, const std::string& reason) {
  for (const Device& device : devices) {
    if (device.index < count) continue;
    if (count == 0) throw ConfigError(fmt::format("--gpus: this machine has no GPU that can be used: {}", reason));
    throw ConfigError(fmt::format("--gpus: there is no GPU {}: this machine has {}, which {} (`bantam devices`)",
                                  device.index, count_of_gpus(count),
                                  count == 1 ? "is number 0" : fmt::format("are numbers 0 to {}", count - 1)));
  }
}

Device device_of_rank(Device device, const RunRanks& ranks, int gpus) {
  if (device.kind != DeviceKind::cuda || !ranks.several()) return device;
  const int local = ranks.local_rank, of = ranks.local_size;
  if (!ranks.devices.empty()) {
    if (static_cast<int>(ranks.devices.size()) != of)
      throw ConfigError(fmt::format("--gpus: {} for the {} rank{} on this host: name one for each",
                                    count_of_gpus(static_cast<int>(ranks.devices.size())), of, of == 1 ? "" : "s"));
    return ranks.devices[static_cast<std::size_t>(local)];
  }
  if (of == 1) return device;
  if (device != Device::cuda(0))
    throw ConfigError(fmt::format(
        "device: {} is one, but {} ranks of this host need a GPU each: say device: cuda, or --gpus with the "
        "number of each rank's",
        to_string(device), of > 0 ? std::to_string(of) : "several"));
  if (gpus == 1) return device;  // launchers may show each process its own; if they do not, require_own_gpus says so
  if (local >= gpus || of > gpus)
    throw ConfigError(fmt::format(
        "{} ranks on this host, which has {}: start as many ranks as GPUs, or have ranks share them: --gpus "
        "with a number for each, as 0,0",
        std::max(of, local + 1), gpus == 0 ? "no GPU" : count_of_gpus(gpus)));
  return Device::cuda(local);
}

void require_own_gpus(const RunRanks& ranks, const std::string& identity) {
  if (!ranks.several()) return;
  const std::vector<std::string> all = all_gather_texts(*ranks.link, ranks.devices.empty() ? identity : "");
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const auto [first, fresh] = owners.try_emplace(all[rank], rank);
    if (!fresh)
      throw ConfigError(
          fmt::format("ranks {} and {} have one GPU ({}): start one rank a GPU, or have them share it: --gpus with a "
                      "number for each rank of a host, as 0,0",
                      first->second, rank, all[rank]));
  }
}

}  // namespace bantam::run
