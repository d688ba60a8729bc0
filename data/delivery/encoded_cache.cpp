// Fields one after the other in each sample's share of the block; a table says how long they are.
#include "bantam/data/delivery/encoded_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/base/printable.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam {
namespace {

class EncodedCache : public WrappedReader {
 public:
  EncodedCache(Runtime& runtime, std::shared_ptr<const SampleReader> reader, Device cpu)
      : WrappedReader(std::move(reader)), facts_(inner().facts()), fields_(facts_.fields().size()) {
    std::size_t values = 0;
    for (const SampleField& field : facts_.fields())
      if (field.encoding == FieldEncoding::values) values += field.bytes();
    const auto size = static_cast<std::size_t>(facts_.size);
    const std::size_t block = static_cast<std::size_t>(inner().total_encoded_bytes()) + size * values;
    const auto allocate = [&](std::size_t bytes) {
      const AllocationTag tag{Category::input, "data set"};
      return Tensor(std::make_shared<Storage>(runtime.allocator(cpu), bytes, runtime.stream(cpu), tag),
                    Shape{static_cast<std::int64_t>(bytes)}, DType::uint8);
    };
    block_ = allocate(block);
    starts_ = allocate((size + 1) * sizeof(std::uint64_t));
    lengths_ = allocate(size * fields_ * sizeof(std::uint64_t));
    if (cpu.meta) return;
    auto* starts = starts_.as<std::uint64_t>();
    starts[0] = 0;
    for (std::size_t i = 0; i < size; ++i)
      starts[i + 1] = starts[i] + inner().encoded_bytes(static_cast<std::int64_t>(i)) + values;
  }

  /// Sample `index` into the block.
  void fill(std::int64_t index, std::vector<std::vector<std::byte>>& fields) {
    const auto i = static_cast<std::size_t>(index);
    std::uint64_t* lengths = lengths_.as<std::uint64_t>() + i * fields_;
    inner().fetch(index, fields);
    const std::uint64_t room = starts_.as<std::uint64_t>()[i + 1] - starts_.as<std::uint64_t>()[i];
    std::uint64_t bytes = 0;
    for (const auto& field : fields) bytes += field.size();
    if (bytes > room)
      throw DataError(fmt::format("{}: {} bytes now, but {} when the data set was listed",
                                  printable_line(inner().name_of(index)), bytes, room));
    std::byte* to = block_.as<std::byte>() + starts_.as<std::uint64_t>()[i];
    for (std::size_t f = 0; f < fields_; ++f) {
      lengths[f] = fields[f].size();
      if (!fields[f].empty()) std::memcpy(to, fields[f].data(), fields[f].size());
      to += fields[f].size();
    }
  }

  DatasetFacts facts() const override { return facts_; }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    const auto i = static_cast<std::size_t>(index);
    const std::byte* from = block_.as<std::byte>() + starts_.as<std::uint64_t>()[i];
    const std::uint64_t* lengths = lengths_.as<std::uint64_t>() + i * fields_;
    for (std::size_t f = 0; f < fields_; ++f) {
      fields[f].assign(from, from + lengths[f]);
      from += lengths[f];
    }
  }
  /// From the block.
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    targets_by_fetching(index, targets);
  }

 private:
  DatasetFacts facts_;
  std::size_t fields_;
  Tensor block_;
  Tensor starts_;   // of samples in the block: one more than there are, uint64
  Tensor lengths_;  // of their fields, uint64
};

class FetchedOrEmpty : public WrappedReader {
 public:
  using WrappedReader::WrappedReader;

  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    try {
      WrappedReader::fetch(index, fields);
    } catch (const DataError&) {
      for (std::vector<std::byte>& field : fields) field.clear();
    }
  }
};

}  // namespace

std::shared_ptr<const SampleReader> encoded_in_ram(Runtime& runtime, std::shared_ptr<const SampleReader> reader,
                                                   Device device) {
  if (device.meta && device.kind != DeviceKind::cpu) return reader;
  // A share's stand-in has the data set in the whole device's pool, as Dataset's.
  auto cache = std::make_shared<EncodedCache>(runtime, std::move(reader), device.meta ? device.whole() : Device::cpu());
  if (device.meta) return cache;
  constexpr std::int64_t kGrain = 16;
  const DatasetFacts facts = cache->facts();
  parallel_ranges(facts.size, kGrain, runtime.threads(), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::vector<std::byte>> fields(facts.fields().size());
    for (std::int64_t i = begin; i < end; ++i) cache->fill(i, fields);
  });
  return cache;
}

std::shared_ptr<const SampleReader> fetched_or_empty(std::shared_ptr<const SampleReader> reader) {
  return std::make_shared<FetchedOrEmpty>(std::move(reader));
}

}  // namespace bantam
