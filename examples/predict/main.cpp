// Inference in a thread pool: one Predictor, whose weights lie in memory once, answers requests of several threads.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

/// A request: a few images, and where the answer goes.
struct Request {
  std::vector<float> images;  // (samples, height, width, channels), normalised as in training
  std::vector<float> logits;  // (samples, classes)
};

std::vector<Request> make_requests(const Predictor& predictor, std::int64_t count) {
  std::vector<Request> requests(static_cast<std::size_t>(count));
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t samples = 1 + static_cast<std::int64_t>(i % 5);
    requests[i].images.resize(static_cast<std::size_t>(samples * predictor.input_shape().elements()));
    requests[i].logits.resize(static_cast<std::size_t>(samples * predictor.output_shape().elements()));
    for (float& value : requests[i].images) value = random.uniform(-1.0f, 1.0f);
  }
  return requests;
}

/// Every thread answers the next request until none is left.
void answer(Predictor& predictor, std::vector<Request>& requests, int threads) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> pool;
  for (int i = 0; i < threads; ++i)
    pool.emplace_back([&] {
      for (std::size_t mine = next++; mine < requests.size(); mine = next++)
        predictor.predict(requests[mine].images, requests[mine].logits);
    });
}

/// Stands for a training run: a network and its weights in a file.
Graph trained_network(Runtime& runtime, const std::filesystem::path& weights) {
  Graph graph = models::resnet20({.input = {32, 32, 3}, .classes = 10});
  Model model(runtime, Device::cpu(), graph, {.seed = 7});
  save_weights(model, weights);
  return graph;
}

int answer_all() {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "bantam_predict_example.safetensors";
  Runtime runtime;
  const Graph network = trained_network(runtime, file);
  Predictor predictor(runtime, Device::cpu(), network, read_safetensors(file), {.most_batch = 4, .lanes = 2});
  std::filesystem::remove(file);

  std::vector<Request> requests = make_requests(predictor, 40), again = requests;
  answer(predictor, requests, 4);
  answer(predictor, again, 1);
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].logits != again[i].logits) {
      std::fprintf(stderr, "request %zu: four threads computed something else than one\n", i);
      return 1;
    }
  std::printf("40 requests, the same bits on 4 threads as on 1; %.1f MB of weights and arenas\n",
              static_cast<double>(predictor.planned_bytes()) / 1e6);
  return 0;
}

}  // namespace

int main() {
  try {
    return answer_all();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
