// predict: a trained model on image files: classes with probabilities, numbers, or masks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/images/image.h"
#include "bantam/run/trained/image_list.h"
#include "bantam/run/trained/predicted_table.h"
#include "bantam/run/trained/task.h"
#include "bantam/run/trained/trained_model.h"

namespace bantam::run {

struct PredictOptions {
  int threads = 0;              ///< of the CPU; 0: all processors
  std::int64_t batch_size = 0;  ///< most images a batch; 0: that of the configuration's evaluations, at most 64
  double threshold = 0.5;       ///< of masks: a class is where its probability is at least this
  /// Name of a layer: values are its outputs, as they are, and no layer after it runs (feature_layer). Empty: answers.
  std::string at = {};
  std::function<bool()> stop = {};                                            ///< asked before every batch
  std::function<void(std::int64_t done, std::int64_t images)> on_batch = {};  ///< before each batch, and at the end
  std::function<void(std::string_view)> on_warning = {};                      ///< must not throw
};

/// The answer for one file, or for one row of a table. A broken one has an error and nothing else.
struct Prediction {
  std::string file;   ///< its path; of a row PredictedTable::names
  std::string name;   ///< ListedImage::name
  std::string error;  ///< names the file
  /// With PredictOptions::at the layer's outputs, row by row. Task::classes: the softmax's probabilities; multi_label:
  /// each sigmoid; values: the numbers, row by row. Of a loss without probabilities, the model's outputs.
  std::vector<float> values;
  /// Task::segmentation: one, whose pixels are class numbers, or, of more than 256 classes, none. masks: one a class,
  /// of 0 and 1. As large as the network's output.
  std::vector<Image> masks;
  std::vector<std::int64_t> counts;  ///< pixels of each class, where the answer is masks
};

/// Sizes in bytes.
struct PredictionSummary {
  std::int64_t images = 0, broken = 0;  ///< images that were answered, and those of them that could not be read
  bool stopped = false;                 ///< `stop` said so
  std::int64_t resized = 0;             ///< images of another size than the training samples' one, resized to it
  std::int64_t batch_size = 1;
  double seconds = 0;                                            ///< the time of all batches
  std::uint64_t planned_peak_bytes = 0, planned_pool_bytes = 0;  ///< of the device's allocator, known before it began
  std::uint64_t peak_bytes = 0;
};

/// Runs the images through the configuration's stages of evaluation and the model, on its device and within its limits,
/// in batches that worker threads make ahead: no more than a few are in memory. Where a batch does not fit a limit, a
/// smaller one is used. `on_prediction` is called for each image in order, broken ones included, by the calling thread.
/// `model` may be without data (TrainedModelOptions::with_data). Throws ConfigError where the model does not read
/// images or the configuration does not say how images become its input; DeviceError, OutOfMemory, and what the
/// callbacks throw.
PredictionSummary predict(const TrainedModel& model, const std::vector<ListedImage>& images,
                          const PredictOptions& options, const std::function<void(const Prediction&)>& on_prediction);

/// The same of samples that are numbers (`table.samples`).
PredictionSummary predict(const TrainedModel& model, const PredictedTable& table, const PredictOptions& options,
                          const std::function<void(const Prediction&)>& on_prediction);

/// The layer of this name; empty: the one that a classifier's last dense layer reads, after which nothing but layers of
/// one input follow. Throws ConfigError with the nearest name, or where there is no such dense layer.
const GraphNode& feature_layer(const Graph& graph, const std::string& name = {});

/// The names of the values of an output: class names, else numbers.
std::vector<std::string> output_names(const TrainedModel& model);

}  // namespace bantam::run
