// Views of batches of images, one forward a view; and the choice of samples that have them.
#include "bantam/engine/step/evaluation_views.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/input/image_views.h"
#include "bantam/kernels/metric/view_outputs.h"

namespace bantam {
namespace {

/// View `number` of an image, from 1: 0 is the image itself.
kernels::ImageViewShape shape_of(const EvaluationViews& views, const Shape& images, std::int64_t number) {
  kernels::ImageViewShape shape{
      .count = images[0],
      .height = images[1],
      .width = images[2],
      .channels = images[3],
      .pad_mode = views.reflect ? kernels::PadMode::reflect : kernels::PadMode::zero,
      .flip = views.flip && number % 2 == 1,
  };
  const std::int64_t crop = (views.flip ? number / 2 : number) - 1;
  if (crop < 0) return shape;
  shape.top = static_cast<std::int32_t>(views.crops[static_cast<std::size_t>(crop)].top - views.padding);
  shape.left = static_cast<std::int32_t>(views.crops[static_cast<std::size_t>(crop)].left - views.padding);
  return shape;
}

/// The first `count` images of a buffer.
Tensor first_of(const Tensor& buffer, std::int64_t count) {
  return buffer.slice(0, buffer.shape().without_first().prepend(count));
}

}  // namespace

std::int64_t EvaluationViews::samples_of(std::int64_t samples) const {
  constexpr double kRounding = 1e-6;  // 0.29 * 100 is 28.999…
  const auto share_of = static_cast<std::int64_t>(std::floor(share * static_cast<double>(samples) + kRounding));
  return std::clamp<std::int64_t>(share_of, 1, std::max<std::int64_t>(samples, 1));
}

void check_views(const EvaluationViews& views, const Loss& loss, int replicas) {
  if (views.count() < 2)
    throw ConfigError("train.evaluate.views: there is no view beside the image itself: expected flip or crops");
  if (!(views.share > 0.0 && views.share <= 1.0))
    throw ConfigError(fmt::format("train.evaluate.views: share must be above 0 and at most 1, got {}", views.share));
  for (const EvaluationViews::Crop& crop : views.crops)
    if (crop.top < 0 || crop.left < 0 || crop.top > 2 * views.padding || crop.left > 2 * views.padding)
      throw ConfigError(
          fmt::format("train.evaluate.views: a crop at [{}, {}]: expected places from 0 to {}, twice the padding",
                      crop.top, crop.left, 2 * views.padding));
  if (views.share < 1.0 && loss.output_kind() != OutputKind::softmax)
    throw ConfigError(
        fmt::format("train.evaluate.views: a share of {} needs a loss that makes a softmax of the output, to tell the "
                    "least certain "
                    "samples; '{}' makes none: share 1 has views of all samples",
                    views.share, loss.kind()));
  if (views.share < 1.0 && replicas > 1)
    throw ConfigError(fmt::format(
        "train.evaluate.views: a share of {} is chosen among all samples, which {} replicas do not have in one place: "
        "share 1 has views of all samples",
        views.share, replicas));
}

void check_views(const EvaluationViews&, const Graph& graph) {
  if (graph.input_shape().rank() != 3)
    throw ShapeError(
        fmt::format("train.evaluate.views: expected a model of images (height, width, channels), it reads {}",
                    to_string(graph.input_shape())));
  if (graph.output_shape().rank() != 1)
    throw ShapeError(fmt::format(
        "train.evaluate.views: expected an output of one axis, of which a mean over views can be taken, got {}",
        to_string(graph.output_shape())));
}

std::vector<std::int64_t> viewed_batches(const EvaluationViews& views, std::int64_t samples, std::int64_t batch) {
  if (views.share >= 1.0 || samples < 1 || batch < 1) return {};
  const std::int64_t chosen = views.samples_of(samples);
  std::vector<std::int64_t> sizes;
  if (chosen >= batch) sizes.push_back(batch);
  if (chosen % batch > 0) sizes.push_back(chosen % batch);
  return sizes;
}

int evaluation_passes(const TrainingStep& step) { return step.loss().views && step.loss().views->share < 1.0 ? 2 : 1; }

const EvaluationViews& ViewedBatches::views() const { return *step_.loss().views; }

Context ViewedBatches::context() const {
  Model& model = step_.model();
  return model.context(Pass::evaluate).at(model.runtime().intern("views"));
}

ViewedBatches::ViewedBatches(TrainingStep& step, std::int64_t samples, std::int64_t batch, bool may_halve)
    : step_(step), may_halve_(may_halve), samples_(samples), batch_(std::min(batch, samples)) {
  const Graph& graph = step_.model().graph();
  const Context at = context();
  if (views().share < 1.0) chosen_samples_ = views().samples_of(samples_);
  const std::int64_t viewed = of_share() ? std::min(chosen_samples_, batch_) : batch_;
  const DType compute = at.precision.compute();
  view_ = at.allocate(graph.input_shape().prepend(viewed), compute, Category::input);
  outputs_ = at.allocate(graph.output_shape().prepend(of_share() ? samples_ : batch_), DType::float32, Category::input);
  if (!of_share()) return;
  staged_ = at.allocate(view_.shape(), compute, Category::input);
  chosen_ = at.allocate({chosen_samples_}, DType::int32, Category::input);
  for (const TensorFacts& facts : targets_of(step_.loss(), graph.output_shape()))
    if (facts.name != kImages)
      targets_.set(facts.name,
                   at.allocate(facts.shape.prepend(samples_), facts.dtype.value_or(compute), Category::input));
}

/// Adds the outputs of a view of some samples, whose rows of `sums` are `places`, or the first ones. The last view
/// makes a mean of the sum.
void ViewedBatches::run(const Tensor& images, const std::int32_t* places, float* sums, std::int64_t view) {
  const std::int64_t size = images.shape()[0], outputs = step_.model().graph().output_shape().elements();
  const bool ends = view + 1 == views().count();
  for (std::int64_t done = 0; done < size;) {
    const std::int64_t count = most_ == 0 ? size - done : std::min(most_, size - done);
    try {
      Batch part{.size = size};
      part.tensors.set(kImages, images);
      if (count < size) part = slice(context(), part, done, count);
      step_.evaluate_outputs(part.at(kImages), {.sums = places != nullptr ? sums : sums + done * outputs,
                                                .places = places != nullptr ? places + done : nullptr,
                                                .adds = view > 0,
                                                .divisor = ends ? static_cast<float>(views().count()) : 1.0f});
      done += count;
    } catch (const OutOfMemory&) {
      if (!may_halve_ || count <= 1) throw;
      most_ = (count + 1) / 2;
      step_.model().runtime().allocator(step_.model().device()).trim();
    }
  }
}

void ViewedBatches::add_views(const Tensor& images, const std::int32_t* places, float* sums) {
  const Context at = context();
  const Tensor view = first_of(view_, images.shape()[0]);
  for (std::int64_t number = 1; number < views().count(); ++number) {
    BANTAM_KERNEL(at.exec, image_views, shape_of(views(), images.shape(), number), images.dtype(), images.data(),
                  nullptr, view.data());
    run(view, places, sums, number);
  }
}

void ViewedBatches::store_targets(const Batch& batch, std::int64_t first) const {
  const Stream stream = step_.model().runtime().stream(step_.model().device());
  for (const auto& [name, all] : targets_) {
    const Tensor& of_batch = batch.at(name);
    const std::size_t row_bytes = of_batch.bytes() / static_cast<std::size_t>(batch.size);
    copy_bytes(all.as<std::byte>() + static_cast<std::size_t>(first) * row_bytes, of_batch.data(), of_batch.bytes(),
               stream);
  }
}

/// The number of the batch's first sample. An evaluation that stands for another may have more batches in all.
std::int64_t ViewedBatches::next_samples(const Batch& batch) {
  const std::int64_t first = std::min(seen_, samples_ - batch.size);
  seen_ += batch.size;
  return first;
}

void ViewedBatches::first(const Batch& batch) {
  const Tensor& images = batch.at(kImages);
  if (!of_share()) {
    run(images, nullptr, outputs_.as<float>(), 0);
    add_views(images, nullptr, outputs_.as<float>());
    return step_.evaluate_measures(batch, first_of(outputs_, batch.size));
  }
  const std::int64_t begin = next_samples(batch);
  run(images, nullptr, outputs_.as<float>() + begin * outputs_.shape()[1], 0);
  store_targets(batch, begin);
}

void ViewedBatches::choose() {
  if (!of_share()) return;
  const Context at = context();
  const kernels::LeastCertainShape shape{.rows = samples_, .classes = outputs_.shape()[1], .count = chosen_samples_};
  {
    const Scratch scratch = at.scratch(kernels::least_certain_workspace(shape));
    BANTAM_KERNEL(at.exec, least_certain, shape, outputs_.as<float>(), chosen_.as<std::int32_t>(), scratch.get());
  }
  seen_ = 0;
  if (at.device.meta) return;  // which has no numbers
  chosen_here_.resize(static_cast<std::size_t>(chosen_samples_));
  copy_bytes(chosen_here_.data(), chosen_.data(), chosen_.bytes(), at.stream);
  synchronize(at.stream);
}

/// On a meta device, where nobody knows which samples are chosen: what a batch needs at most.
void ViewedBatches::second(const Batch& batch) {
  if (!of_share()) return;
  const Context at = context();
  const Tensor& images = batch.at(kImages);
  const std::int64_t begin = next_samples(batch), room = staged_.shape()[0];
  const std::size_t image_bytes = images.bytes() / static_cast<std::size_t>(batch.size);
  const auto known = static_cast<std::int64_t>(chosen_here_.size());
  std::int64_t next = viewed_ + staged_samples_, end = next;
  while (end < known && chosen_here_[static_cast<std::size_t>(end)] < begin + batch.size) ++end;
  if (at.device.meta && chosen_samples_ >= batch_) {
    staged_samples_ = room;
    add_staged();
    viewed_ = 0;
  }
  while (next < end) {
    kernels::ImageViewShape shape = shape_of(views(), images.shape(), 0);
    shape.count = std::min(end - next, room - staged_samples_);
    shape.flip = false;
    shape.first_row = static_cast<std::int32_t>(begin);
    BANTAM_KERNEL(at.exec, image_views, shape, images.dtype(), images.data(), chosen_.as<std::int32_t>() + next,
                  staged_.as<std::byte>() + static_cast<std::size_t>(staged_samples_) * image_bytes);
    next += shape.count;
    staged_samples_ += shape.count;
    if (staged_samples_ == room) add_staged();
  }
}

/// Views of the samples that wait.
void ViewedBatches::add_staged() {
  if (staged_samples_ == 0) return;
  add_views(first_of(staged_, staged_samples_), chosen_.as<std::int32_t>() + viewed_, outputs_.as<float>());
  viewed_ += std::exchange(staged_samples_, 0);
}

void ViewedBatches::finish() {
  if (!of_share()) return;
  const Context at = context();
  if (at.device.meta) staged_samples_ = chosen_samples_ % batch_;
  add_staged();
  Batch all{.tensors = targets_, .size = samples_};
  all.tensors.set("outputs", outputs_);
  for (std::int64_t done = 0; done < samples_; done += batch_) {
    const Batch part = slice(at, all, done, std::min(batch_, samples_ - done));
    step_.evaluate_measures(part, part.at("outputs"));
  }
}

bool evaluate_views(TrainingStep& step, BatchSource& source, std::int64_t samples, bool may_halve,
                    const std::function<bool(std::int64_t done)>& go_on) {
  const Context input = step.model().context(Pass::evaluate).at(step.model().runtime().intern("input"));
  ViewedBatches viewed(step, samples, source.batch_size(), may_halve);
  std::int64_t done = 0;
  for (int pass = 0; pass < evaluation_passes(step); ++pass) {
    if (pass > 0) viewed.choose();
    source.start(0, 0);
    Batch batch;
    for (std::int64_t left = source.batches_per_epoch(); left > 0; --left, ++done) {
      if (!go_on(done)) return false;
      if (!source.next(input, batch)) break;
      if (pass == 0)
        viewed.first(batch);
      else
        viewed.second(batch);
    }
    if (pass + 1 == evaluation_passes(step)) viewed.finish();
  }
  return go_on(done);
}

void warm_up_views(TrainingStep& step, const Batch& batch) {
  ViewedBatches viewed(step, batch.size, batch.size, false);
  viewed.first(batch);
  viewed.choose();
  viewed.second(batch);
  viewed.finish();
}

}  // namespace bantam
