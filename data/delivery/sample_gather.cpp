// Samples one by one, in parallel where the caller has threads to spare.
#include "bantam/data/delivery/sample_gather.h"

#include <vector>

#include "bantam/base/parallel.h"

namespace bantam {

void SampleGather::gather(const EpochPlaces& places, std::span<std::byte* const> columns, int threads) const {
  constexpr std::int64_t kGrain = 4;
  constexpr int kPassBits = 32;  // above those of epochs
  const std::vector<SampleField>& fields = path_.fields();
  parallel_ranges(std::ssize(places.samples), kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::span<std::byte>> row(fields.size());
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      for (std::size_t f = 0; f < fields.size(); ++f) row[f] = {columns[f] + i * fields[f].bytes(), fields[f].bytes()};
      const std::int64_t pass = places.passes.empty() ? 0 : places.passes[i];
      path_.read(places.samples[i], places.epoch + (pass << kPassBits), row);
    }
  });
}

}  // namespace bantam
