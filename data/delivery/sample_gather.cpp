// Samples one by one, in parallel where the caller has threads to spare.
#include "bantam/data/delivery/sample_gather.h"

#include <utility>

#include "bantam/base/parallel.h"

namespace bantam {

SampleGather::SampleGather(std::shared_ptr<const SampleReader> reader, Augmentations augmentations, std::uint64_t seed)
    : reader_(std::move(reader)),
      augmentations_(std::move(augmentations)),
      seed_(seed),
      fields_(reader_->facts().fields()) {}

void SampleGather::gather(std::span<const std::int32_t> samples, std::int64_t epoch,
                          std::span<std::byte* const> columns, int threads) const {
  constexpr std::int64_t kGrain = 4;
  parallel_ranges(static_cast<std::int64_t>(samples.size()), kGrain, threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    std::vector<std::span<std::byte>> row(fields_.size());
                    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                      for (std::size_t f = 0; f < fields_.size(); ++f)
                        row[f] = {columns[f] + i * fields_[f].bytes(), fields_[f].bytes()};
                      reader_->read(samples[i], row);
                      AugmentedSample sample{.fields = fields_, .buffers = row, .index = samples[i], .epoch = epoch};
                      apply_on_host(augmentations_, seed_, sample);
                    }
                  });
}

}  // namespace bantam
