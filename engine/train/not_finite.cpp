// Looking at tensors on the host, and saying what was found.
#include "bantam/engine/train/not_finite.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/engine/autograd/parameters.h"

namespace bantam {
namespace {

bool may_be_not_finite(DType dtype) { return dtype == DType::float32 || is_half(dtype); }

/// Rows, of `rows` that the values are of, in which some value is not finite.
std::vector<std::int64_t> bad_rows(const std::vector<float>& values, std::int64_t rows) {
  std::vector<std::int64_t> bad;
  const std::size_t width = values.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = values.begin() + row * static_cast<std::ptrdiff_t>(width);
    if (!std::all_of(begin, begin + static_cast<std::ptrdiff_t>(width), [](float v) { return std::isfinite(v); }))
      bad.push_back(row);
  }
  return bad;
}

/// "3, 17, 402", or the first of many and how many there are.
std::string listed(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t kMost = 8;
  if (numbers.size() <= kMost) return fmt::format("{}", fmt::join(numbers, ", "));
  return fmt::format("{}, … ({} in all)", fmt::join(numbers.begin(), numbers.begin() + kMost, ", "), numbers.size());
}

std::string samples_of(const NotFiniteUpdate& update) {
  std::vector<std::int64_t> places = update.places;
  if (places.empty()) {  // all of the update's
    places.resize(static_cast<std::size_t>(update.samples));
    std::iota(places.begin(), places.end(), 0);
  }
  const std::string_view plural = places.size() == 1 ? "" : "s";
  if (update.of_dataset.empty()) return fmt::format("place{} {} of the update's batch", plural, listed(places));
  for (std::int64_t& place : places) place = update.of_dataset[static_cast<std::size_t>(place)];
  return fmt::format("sample{} {} of the data set", plural, listed(places));
}

}  // namespace

StepHooks NotFiniteSearch::hooks() {
  return {.begin = [this](std::int64_t first_sample, const Batch& batch) { begin(first_sample, batch); },
          .output = [this](NodeId first, NodeId last,
                           const Tensor& y) { look("the output of " + operation_of(first, last), y, true); },
          .loss = [this](const Tensor& loss) { look("the loss", loss, false); },
          .gradient = [this](const char* path,
                             const Tensor& dy) { look("the gradient of the output of " + layer_of(path), dy, true); },
          .parameter =
              [this](const Parameter& parameter) {
                look(fmt::format("the gradient of weights '{}'", parameter.name()), parameter.gradient(), false);
              }};
}

void NotFiniteSearch::begin(std::int64_t first_sample, const Batch& batch) {
  first_sample_ = first_sample;
  samples_ = batch.size;
  for (const TensorMap::Entry& entry : batch.tensors)
    look(fmt::format("'{}' of the data", entry.name), entry.tensor, true);
  look_at_labels(batch);
  if (first_sample > 0) return;
  for (const Parameter& parameter : step_.model().parameters().all())
    look(fmt::format("weights '{}', before the update,", parameter.name()), parameter.master(), false);
}

/// The loss' own ignored label counts nothing, and is right.
void NotFiniteSearch::look_at_labels(const Batch& batch) {
  const std::optional<std::int32_t> ignored = step_.loss().loss->ignored_label();
  for (const TensorFacts& facts : targets_of(step_.loss(), step_.model().graph().output_shape())) {
    if (!what_.empty() || wrong_label_ || facts.classes == 0 || facts.dtype != DType::int32) continue;
    const auto labels =
        to_host<std::int32_t>(batch.at(facts.name), step_.model().runtime().stream(step_.model().device()));
    const auto wrong = std::ranges::find_if(
        labels, [&](std::int32_t label) { return label != ignored && (label < 0 || label >= facts.classes); });
    if (wrong == labels.end()) continue;
    wrong_label_ = {.tensor = facts.name, .value = *wrong, .classes = facts.classes};
    places_ = {first_sample_ + (wrong - labels.begin()) * samples_ / std::ssize(labels)};
  }
}

void NotFiniteSearch::look(const std::string& what, const Tensor& tensor, bool of_samples) {
  if (!what_.empty() || wrong_label_ || !may_be_not_finite(tensor.dtype()) || tensor.elements() == 0) return;
  Runtime& runtime = step_.model().runtime();
  const std::vector<float> values = to_host_floats(tensor, runtime.stream(step_.model().device()));
  const bool by_sample = of_samples && tensor.shape().rank() > 0 && tensor.shape()[0] == samples_;
  const std::vector<std::int64_t> bad = bad_rows(values, by_sample ? samples_ : 1);
  if (bad.empty()) return;
  what_ = what;
  if (!by_sample) return;
  for (const std::int64_t row : bad) places_.push_back(first_sample_ + row);
}

std::string NotFiniteSearch::operation_of(NodeId first, NodeId last) const {
  const Graph& graph = step_.model().graph();
  if (first == last) return graph.describe(first);
  return fmt::format("{} to {}, which run as one,", graph.describe(first), graph.describe(last));
}

std::string NotFiniteSearch::layer_of(std::string_view path) const {
  const Graph& graph = step_.model().graph();
  for (NodeId node = 1; node <= graph.output(); ++node)
    if (graph.node(node).name == path) return graph.describe(node);
  return fmt::format("'{}'", path);
}

std::string not_finite_message(const NotFiniteUpdate& update) {
  std::string text =
      update.skipped_in_a_row > 1
          ? fmt::format(
                "gradients were not finite in the last {} updates (loss scale {}), the last of them update {} of "
                "epoch {}",
                update.skipped_in_a_row, update.loss_scale, update.update + 1, update.epoch + 1)
          : fmt::format("the gradients of update {} of epoch {} are not finite", update.update + 1, update.epoch + 1);
  const std::string samples = samples_of(update);
  if (update.wrong_label)
    return text + fmt::format(": label {} of {} ('{}') is {}; weights are those before it; correct the data",
                              update.wrong_label->value, samples, update.wrong_label->tensor,
                              update.wrong_label->value < 0 ? "negative"
                                                            : fmt::format("not below {}", update.wrong_label->classes));
  if (update.what.empty())
    text += fmt::format("; of {}; the update was not looked into: {}", samples, update.reason);
  else if (update.places.empty())
    text += fmt::format(": first not finite is {} ({})", update.what, samples);
  else
    text += fmt::format(": first not finite is {} in {}", update.what, samples);
  return text + "; weights are those before it; lower the learning rate, or clip";
}

}  // namespace bantam
