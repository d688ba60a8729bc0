// Samples one by one, in parallel where the caller has threads to spare; as many together as a GPU decodes at once.
#include "bantam/data/delivery/sample_gather.h"

#include <algorithm>
#include <vector>

#include "bantam/base/parallel.h"

namespace bantam {

namespace {

/// Rows [begin, end) of a batch: where each goes, and how its sample is numbered.
struct Rows {
  const EpochPlaces& places;
  std::span<std::byte* const> columns;
  const std::vector<SampleField>& fields;
  std::vector<std::span<std::byte>> row = std::vector<std::span<std::byte>>(fields.size());

  std::span<const std::span<std::byte>> at(std::size_t i) {
    for (std::size_t f = 0; f < fields.size(); ++f) row[f] = {columns[f] + i * fields[f].bytes(), fields[f].bytes()};
    return row;
  }
  std::int64_t sample(std::size_t i) const { return places.samples[i]; }
  SampleTime time(std::size_t i) const {
    return {.epoch = places.epoch, .pass = places.passes.empty() ? 0 : places.passes[i]};
  }
};

/// As many rows from `begin` on as the GPU decodes together, at most up to `end`: returns the next row.
std::size_t gather_decoded(const SamplePath& path, Rows& rows, std::size_t begin, std::size_t end) {
  thread_local std::vector<FetchedSample> fetched;
  fetched.resize(static_cast<std::size_t>(GpuDecoder::kMostFiles));
  const std::size_t count = std::min(fetched.size(), end - begin);
  std::vector<std::span<const std::byte>> files;
  for (std::size_t k = 0; k < count; ++k) {
    path.fetch(rows.sample(begin + k), fetched[k]);
    files.emplace_back();
    if (fetched[k].is_fetched) files.back() = fetched[k].fields[0];
  }
  std::vector<std::size_t> broken;
  {
    GpuDecoder::Batch batch(*path.decoder());
    for (std::size_t done = 0; done < count;) {
      for (const StoredRgb& image : batch.decode(std::span(files).subspan(done))) {
        fetched[done].image = image;
        const std::size_t i = begin + done;
        if (!path.read_fetched(rows.sample(i), rows.time(i), fetched[done], rows.at(i))) broken.push_back(i);
        ++done;
      }
    }
  }
  // Another sample in its place, which needs a batch of its own, or the error.
  for (const std::size_t i : broken) path.read(rows.sample(i), rows.time(i), rows.at(i));
  return begin + count;
}

}  // namespace

void SampleGather::gather(const EpochPlaces& places, std::span<std::byte* const> columns, int threads) const {
  const bool together = path_.decoder() != nullptr;
  const std::int64_t grain = together ? GpuDecoder::kMostFiles : 4;
  parallel_ranges(std::ssize(places.samples), grain, threads, [&](std::int64_t begin, std::int64_t end) {
    Rows rows{places, columns, path_.fields()};
    const auto last = static_cast<std::size_t>(end);
    for (auto i = static_cast<std::size_t>(begin); i < last;) {
      if (together) {
        i = gather_decoded(path_, rows, i, last);
      } else {
        path_.read(rows.sample(i), rows.time(i), rows.at(i));
        ++i;
      }
    }
  });
}

}  // namespace bantam
