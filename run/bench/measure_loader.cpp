// A loop over batches, timed by the clock and by the process' CPU time.
#include "bantam/run/bench/measure_loader.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <sys/resource.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/data/delivery/loader.h"
#include "bantam/data/images/gpu_decoder.h"

namespace bantam::run {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Batches one after the other, over epochs' ends.
class EndlessBatches {
 public:
  EndlessBatches(BatchSource& source, const Context& context) : source_(source), context_(context) {
    source_.start(epoch_);
  }
  /// Samples of the next batch.
  std::int64_t next() {
    while (!source_.next(context_, batch_)) {
      waited_ += source_.waited_seconds();
      source_.start(++epoch_);
    }
    return batch_.size;
  }
  double waited_seconds() const { return waited_ + source_.waited_seconds(); }

 private:
  BatchSource& source_;
  const Context& context_;
  Batch batch_;
  std::int64_t epoch_ = 0;
  double waited_ = 0;
};

/// Samples spread over the split, for at most half a second.
void measure_fetches(const SampleReader& reader, LoaderMeasurement& measured) {
  constexpr std::int64_t kMost = 256;
  constexpr double kMostSeconds = 0.5;
  const DatasetFacts facts = reader.facts();
  const std::int64_t count = std::min(kMost, facts.size);
  std::vector<std::vector<std::byte>> fields(facts.targets.size() + 1);
  double bytes = 0;
  std::int64_t done = 0;
  const Clock::time_point begin = Clock::now();
  for (; done < count && seconds_since(begin) < kMostSeconds; ++done) {
    reader.fetch(done * facts.size / count, fields);
    for (const std::vector<std::byte>& field : fields) bytes += static_cast<double>(field.size());
  }
  measured.fetch_us = 1e6 * seconds_since(begin) / static_cast<double>(std::max<std::int64_t>(done, 1));
  measured.stored_bytes = bytes / static_cast<double>(std::max<std::int64_t>(done, 1));
}

void note_decoder(const OpenedData& data, LoaderMeasurement& measured) {
  measured.decoder = data.decoder;
  if (data.gpu_decoder == nullptr) return;
  const GpuDecoder& decoder = *data.gpu_decoder;
  const DecoderCounts files = decoder.counts();
  measured.gpu = {files.gpu,
                  files.cpu,
                  decoder.device_bytes(),
                  decoder.host_bytes(),
                  decoder.peak_device_bytes(),
                  decoder.peak_host_bytes()};
}

}  // namespace

LoaderMeasurement measure_loader(const RunConfig& config, int threads, double seconds) {
  if (!config.data) throw ConfigError("the configuration has no data");
  LoaderMeasurement measured;
  const auto runtime = make_runtime(config, threads);
  const OpenedData data = open_data(*runtime, *config.data, config.device, config.seed);
  measure_fetches(*open_splits(*config.data, config.seed).train, measured);
  const Context context = Context::make(*runtime, config.device, config.precision);
  EndlessBatches batches(*data.train, context);
  const Clock::time_point warm = Clock::now();
  do (void)batches.next();
  while (seconds_since(warm) < std::min(1.0, seconds / 2));
  const Clock::time_point begin = Clock::now();
  const double cpu = cpu_seconds(), waited = batches.waited_seconds();
  do {
    measured.images += batches.next();
    ++measured.batches;
  } while (seconds_since(begin) < seconds);
  synchronize(context.stream);
  measured.seconds = seconds_since(begin);
  measured.cpu_seconds = cpu_seconds() - cpu;
  measured.waited_seconds = batches.waited_seconds() - waited;
  note_decoder(data, measured);
  measured.batch_size = data.train->batch_size();
  if (const auto* source = dynamic_cast<const ImageBatchSource*>(data.train.get())) {
    measured.workers = source->workers();
    measured.depth = source->depth();
  }
  return measured;
}

}  // namespace bantam::run
