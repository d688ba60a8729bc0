// A predictor of random weights, called and timed.
#include "bantam/run/bench/measure_predict.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "bantam/base/clock.h"
#include "bantam/base/philox.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/model/frozen_norms.h"
#include "bantam/models/infer/predictor.h"
#include "bantam/run/train/algorithm_cache.h"

namespace bantam::run {
namespace {

constexpr int kWarmUpCalls = 5, kLeastCalls = 10;

HostTensor uniform_tensor(const Shape& shape, double low, double high, PhiloxSequence& random) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (float& value : values) value = random.uniform(static_cast<float>(low), static_cast<float>(high));
  return host_tensor(shape, values);
}

/// Weights whose layers keep their inputs' size about; statistics of values near 1.
SafetensorsFile random_weights(const Graph& graph, std::uint64_t seed) {
  ParameterArena parameters;
  BufferArena buffers;
  declare_tensors(graph, parameters, buffers);
  PhiloxSequence random(philox_key(seed, RandomPurpose::initializer));
  SafetensorsFile file;
  for (const Parameter& parameter : parameters.all()) {
    const Shape& shape = parameter.shape();
    const double fan = shape.rank() > 1 ? static_cast<double>(shape.elements()) / static_cast<double>(shape[0]) : 1.0;
    const double limit = shape.rank() > 1 ? std::sqrt(6.0 / fan) : 0.1;
    const double middle = parameter.name().ends_with("/scale") ? 1.0 : 0.0;
    file.tensors.emplace(parameter.name(), uniform_tensor(shape, middle - limit, middle + limit, random));
  }
  for (const Buffer& buffer : buffers.all()) {
    const double middle = buffer.name.ends_with("variance") ? 1.0 : 0.0;
    file.tensors.emplace(buffer.name, uniform_tensor(buffer.shape, middle - 0.1, middle + 0.1, random));
  }
  return file;
}

/// The seconds of calls, sorted.
template <class Call>
std::vector<double> timed(double seconds, Call&& call) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < kWarmUpCalls; ++i) call();
  std::vector<double> taken;
  const Clock::time_point start = Clock::now();
  while (taken.size() < kLeastCalls || seconds_since(start) < seconds) {
    const Clock::time_point begin = Clock::now();
    call();
    taken.push_back(seconds_since(begin));
  }
  std::ranges::sort(taken);
  return taken;
}

}  // namespace

PredictMeasurement measure_predict(const RunConfig& config, const PredictCase& options) {
  const Graph& graph = config.model.graph;
  const std::unique_ptr<Runtime> runtime = make_runtime(config, options.threads);
  Predictor predictor(*runtime, config.device, graph, random_weights(graph, config.seed),
                      {.precision = options.precision, .most_batch = options.batch});
  PhiloxSequence random(philox_key(config.seed, RandomPurpose::dataset));
  std::vector<float> inputs(static_cast<std::size_t>(options.batch * graph.input_shape().elements()));
  for (float& value : inputs) value = random.uniform(-1.0f, 1.0f);
  std::vector<float> outputs(static_cast<std::size_t>(options.batch * graph.output_shape().elements()));
  const std::vector<double> calls = timed(options.seconds, [&] { predictor.predict(inputs, outputs); });
  PredictMeasurement measured{.planned_bytes = predictor.planned_bytes()};
  // Returns the seconds within which such a share of the calls ends.
  const auto at = [](const std::vector<double>& sorted, double share) {
    return sorted[static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size()))) - 1];
  };
  measured.ms = 1e3 * at(calls, 0.5);
  measured.ms_99 = 1e3 * at(calls, 0.99);
  measured.images_per_s = 1e3 * static_cast<double>(options.batch) / measured.ms;
  measured.calls = static_cast<std::int64_t>(calls.size());
  if (config.device.is_cuda())
    measured.resident_ms = 1e3 * at(timed(options.seconds, [&] { predictor.run_resident(options.batch); }), 0.5);
  return measured;
}

}  // namespace bantam::run
