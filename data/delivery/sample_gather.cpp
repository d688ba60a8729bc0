// Samples one by one, in parallel where the caller has threads to spare.
#include "bantam/data/delivery/sample_gather.h"

#include <vector>

#include "bantam/base/parallel.h"

namespace bantam {

void SampleGather::gather(std::span<const std::int32_t> samples, std::int64_t epoch,
                          std::span<std::byte* const> columns, int threads) const {
  constexpr std::int64_t kGrain = 4;
  const std::vector<SampleField>& fields = path_.fields();
  parallel_ranges(static_cast<std::int64_t>(samples.size()), kGrain, threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    std::vector<std::span<std::byte>> row(fields.size());
                    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                      for (std::size_t f = 0; f < fields.size(); ++f)
                        row[f] = {columns[f] + i * fields[f].bytes(), fields[f].bytes()};
                      path_.read(samples[i], epoch, row);
                    }
                  });
}

}  // namespace bantam
