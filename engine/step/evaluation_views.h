// EvaluationViews: test-time augmentation. An evaluated image is seen in several views, and the mean of their outputs
// is evaluated; of all samples, or of the share whose prediction is the least certain.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/step/batch_source.h"

BANTAM_API_BEGIN
namespace bantam {

class Graph;
class Loss;
class TrainingStep;

/// Views of an image: itself, crops of its size from the image with a border and, with `flip`, each of them mirrored.
struct EvaluationViews {
  /// Where a crop begins in the image with its border.
  struct Crop {
    std::int64_t top = 0, left = 0;  ///< 0 to 2 * padding
    bool operator==(const Crop&) const = default;
  };
  bool flip = true;
  std::int64_t padding = 0;      ///< pixels of the border, on each side
  bool reflect = true;           ///< the border mirrors the image without its edge; false: it is 0
  std::vector<Crop> crops = {};  ///< beside the image itself
  /// Samples that have views, in (0, 1]: those whose largest probability by the image itself is the smallest, of equal
  /// ones the first of the set; the others keep that output. 1: all.
  double share = 1.0;

  /// Views of an image, itself among them.
  std::int64_t count() const { return (1 + static_cast<std::int64_t>(crops.size())) * (flip ? 2 : 1); }
  /// The number of `samples` that are viewed: share * samples, rounded down, but at least 1; `samples` is at least 1.
  std::int64_t samples_of(std::int64_t samples) const;
  bool operator==(const EvaluationViews&) const = default;
};

/// Throws ConfigError where there is no view beside the image itself, a crop is not within the border, the share is out
/// of (0, 1], or is less than 1 with a loss that makes no softmax of the output or with several replicas.
void check_views(const EvaluationViews& views, const Loss& loss, int replicas);
/// Throws ShapeError where the model does not read images (height, width, channels) or its output is not of one axis.
void check_views(const EvaluationViews& views, const Graph& graph);

/// Sizes of the batches of views, each once, in an evaluation of `samples` in batches of `batch` where a share of them
/// has views; empty where all have: those of the evaluation.
std::vector<std::int64_t> viewed_batches(const EvaluationViews& views, std::int64_t samples, std::int64_t batch);

/// How often an evaluation by this step goes over its samples: twice where a share of them has views.
int evaluation_passes(const TrainingStep& step);

/// Batches of an evaluation by a step with views, added to its evaluation sums. Where all samples have views, each
/// batch is complete after `first`. Of a share, all batches pass through `first`; then `choose`; then all of them again
/// through `second`, in the same order; then `finish` counts. Outputs and targets of all samples lie on the device
/// until then. Used by one thread.
class BANTAM_INTERNAL ViewedBatches {
 public:
  /// For `samples` samples in batches of at most `batch`. With `may_halve` images whose forward does not fit are
  /// repeated in halves. Throws OutOfMemory.
  ViewedBatches(TrainingStep& step, std::int64_t samples, std::int64_t batch, bool may_halve);
  void first(const Batch& batch);
  /// Waits for the device, which tells the numbers of the share's samples.
  void choose();
  void second(const Batch& batch);
  void finish();

 private:
  const EvaluationViews& views() const;
  Context context() const;
  bool of_share() const { return chosen_samples_ > 0; }
  void run(const Tensor& images, const std::int32_t* places, float* sums, std::int64_t view);
  void add_views(const Tensor& images, const std::int32_t* places, float* sums);
  void store_targets(const Batch& batch, std::int64_t first) const;
  std::int64_t next_samples(const Batch& batch);
  void add_staged();

  TrainingStep& step_;
  bool may_halve_;
  std::int64_t samples_, batch_;
  std::int64_t chosen_samples_ = 0;               // 0: all have views
  std::int64_t most_ = 0;                         // images of one forward; 0: all
  std::int64_t seen_ = 0;                         // samples, in this pass
  std::int64_t staged_samples_ = 0, viewed_ = 0;  // chosen samples that wait in staged_; that have their views
  Tensor view_;                                   // a batch of images
  Tensor outputs_;                                // float32, of a batch or of all samples
  TensorMap targets_;                             // of a share: of all samples
  Tensor staged_, chosen_;                        // of a share: images of chosen samples; their numbers
  std::vector<std::int32_t> chosen_here_;         // the same on the host
};

/// All batches of `source`, from its beginning, by a step with views. `samples`: of the source, or of that which it
/// stands for. `go_on` is asked before each batch of each pass, and at the end, with those done so far; where it says
/// no, the evaluation ends, and false is returned: of a share with views nothing is counted then. A share of samples
/// reads the source twice.
bool evaluate_views(TrainingStep& step, BatchSource& source, std::int64_t samples, bool may_halve,
                    const std::function<bool(std::int64_t done)>& go_on);

/// Runs what an evaluation by a step with views runs, on one batch: adds it to the evaluation sums.
void warm_up_views(TrainingStep& step, const Batch& batch);

}  // namespace bantam
BANTAM_API_END
