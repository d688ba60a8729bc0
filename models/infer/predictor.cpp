// Calls of a Predictor: cut into passes, each in a lane that is free.
#include "bantam/models/infer/predictor.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/models/infer/fold_batch_norm.h"
#include "bantam/models/infer/lane.h"

namespace bantam {
namespace {

void check_options(const Graph& graph, const PredictorOptions& options) {
  if (options.most_batch < 1 || options.lanes < 1)
    throw Error(fmt::format("predictor: most_batch and lanes must be at least 1, got {} and {}", options.most_batch,
                            options.lanes));
  if (const NodeId node = graph.first_without_meta(); node != 0)
    throw Error(
        fmt::format("predictor: {} does not support meta devices (Layer::supports_meta), so nothing can be "
                    "planned of it",
                    graph.describe(node)));
}

/// The most, and powers of two below, from the largest to 1.
std::vector<std::int64_t> pass_sizes(std::int64_t most) {
  std::vector<std::int64_t> sizes{most};
  std::int64_t power = 1;
  while (power * 2 < most) power *= 2;
  for (; power >= 1 && most > 1; power /= 2) sizes.push_back(power);
  return sizes;
}

/// The next pass of so many samples: the largest size that they fill, or, where passes may be filled up, the next
/// larger one if they are three quarters of it.
std::int64_t next_pass(const std::vector<std::int64_t>& sizes, std::int64_t samples, bool fills_up) {
  const auto full = std::ranges::find_if(sizes, [&](std::int64_t size) { return size <= samples; });
  if (fills_up && full != sizes.begin() && 4 * samples >= 3 * *(full - 1)) return *(full - 1);
  return *full;
}

/// While it lives, a device's libraries choose by timing, where that is asked for.
class TimedChoices {
 public:
  TimedChoices(Runtime& runtime, Device device, bool times)
      : choices_(device.is_cuda() && times ? kernels::algorithm_choices(runtime.exec(device).libraries) : nullptr) {
    if (choices_ == nullptr) return;
    before_ = choices_->timing();
    choices_->set_timing(true);
  }
  ~TimedChoices() {
    if (choices_ != nullptr) choices_->set_timing(before_);
  }
  TimedChoices(const TimedChoices&) = delete;
  TimedChoices& operator=(const TimedChoices&) = delete;

 private:
  kernels::AlgorithmChoices* choices_;
  bool before_ = false;
};

/// The graph and weights that a predictor runs.
InferenceGraph inference_graph(const Graph& graph, const SafetensorsFile& weights, const PredictorOptions& options) {
  if (options.fold_batch_norm) return fold_for_inference(graph, weights);
  return {.graph = graph, .weights = weights};
}

ModelOptions model_options(const PredictorOptions& options) {
  return {.precision = options.precision, .inference = true};
}

}  // namespace

struct Predictor::State {
  State(Runtime& runtime, Device device, InferenceGraph network, const PredictorOptions& options)
      : model(runtime, device, network.graph, model_options(options)),
        sizes(pass_sizes(options.most_batch)),
        plans(PassPlans::of(network.graph, model_options(options), device, sizes)) {
    if (!model.parameters().all().empty() || !model.buffers().all().empty())
      (void)load_weights(model, network.weights, network.weights.path.empty() ? "weights" : network.weights.path,
                         {.advises = false});
    model.prepare_inference();
    const TimedChoices timed(runtime, device, options.time_algorithms);
    for (int i = 0; i < options.lanes; ++i) {
      lanes.push_back(std::make_unique<Lane>(model, plans));
      free_lanes.push_back(lanes.back().get());
    }
    if (device.is_cuda()) runtime.note_overhead(device, "graphs");
  }

  /// Calls `body` with a lane that no other call has; waits for one.
  template <class Body>
  void with_lane(Body&& body) {
    std::unique_lock lock(guard);
    one_is_free.wait(lock, [&] { return !free_lanes.empty(); });
    Lane* const lane = free_lanes.back();
    free_lanes.pop_back();
    lock.unlock();
    const auto release = [&] {
      {
        const std::lock_guard again(guard);
        free_lanes.push_back(lane);
      }
      one_is_free.notify_one();
    };
    try {
      body(*lane);
    } catch (...) {
      release();
      throw;
    }
    release();
  }

  /// Calls body(lane, size, first, samples) for the passes of `batch` samples.
  template <class Body>
  void for_each_pass(std::int64_t batch, Body&& body) {
    if (batch == 0) return;
    with_lane([&](Lane& lane) {
      for (std::int64_t done = 0; done < batch;) {
        const std::int64_t size = next_pass(sizes, batch - done, model.device().is_cuda()),
                           samples = std::min(size, batch - done);
        body(lane, size, done, samples);
        done += samples;
      }
    });
  }

  Model model;
  std::vector<std::int64_t> sizes;  // from the largest to 1
  PassPlans plans;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::mutex guard;
  std::condition_variable one_is_free;
  std::vector<Lane*> free_lanes;
};

Predictor::Predictor(Runtime& runtime, Device device, const Graph& graph, const SafetensorsFile& weights,
                     PredictorOptions options) {
  check_options(graph, options);
  state_ = std::make_unique<State>(runtime, device, inference_graph(graph, weights, options), options);
}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;

void Predictor::predict(std::span<const float> inputs, std::span<float> outputs) {
  const std::int64_t in = input_shape().elements(), out = output_shape().elements();
  const auto given = static_cast<std::int64_t>(inputs.size()), wanted = static_cast<std::int64_t>(outputs.size());
  if (in == 0 || given % in != 0 || given / in * out != wanted)
    throw ShapeError(fmt::format("predict: expected samples {} and as many outputs {}, got {} and {} values",
                                 to_string(input_shape()), to_string(output_shape()), given, wanted));
  state_->for_each_pass(given / in, [&](Lane& lane, std::int64_t size, std::int64_t first, std::int64_t samples) {
    lane.run(size, samples, inputs.data() + first * in, outputs.data() + first * out);
  });
}

void Predictor::run_resident(std::int64_t batch) {
  state_->for_each_pass(batch,
                        [](Lane& lane, std::int64_t size, std::int64_t, std::int64_t) { lane.run_resident(size); });
}

const Shape& Predictor::input_shape() const { return state_->model.graph().input_shape(); }
const Shape& Predictor::output_shape() const { return state_->model.graph().output_shape(); }

std::uint64_t Predictor::planned_bytes() const {
  const auto bytes = [](const Tensor& tensor) { return tensor.defined() ? tensor.bytes() : 0; };
  const ParameterArena& parameters = state_->model.parameters();
  std::uint64_t total =
      bytes(parameters.master()) + bytes(parameters.compute()) + bytes(state_->model.buffers().current());
  for (const auto& lane : state_->lanes) total += lane->bytes();
  return total;
}

}  // namespace bantam
