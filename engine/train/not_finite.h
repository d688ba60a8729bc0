// NotFiniteSearch: what of an update was the first not to be finite, found by looking into its micro-batches as they
// run once more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/step/training_step.h"

namespace bantam {

/// A class number of the data that names no class: losses make numbers of it that are not finite.
struct WrongLabel {
  std::string tensor;  ///< its name
  std::int32_t value = 0;
  std::int64_t classes = 0;
};

/// Looks at inputs, class numbers and weights, then at the output of each operation in forward, then at gradients in
/// the order of backward, until something is not finite. Waits for the device at each. Used once, by one thread.
class NotFiniteSearch {
 public:
  explicit NotFiniteSearch(TrainingStep& step) : step_(step) {}

  /// For TrainingStep::look_into; refers to this.
  StepHooks hooks();
  /// "the output of layer 'stem' (conv2d)"; empty: all was finite.
  const std::string& what() const { return what_; }
  /// Samples it was seen in, as places in the effective batch; empty where it is of none or of all alike.
  const std::vector<std::int64_t>& places() const { return places_; }
  /// The first one, where that is the cause: `places` is its sample's, and `what` is empty.
  const std::optional<WrongLabel>& wrong_label() const { return wrong_label_; }

 private:
  void begin(std::int64_t first_sample, const Batch& batch);
  void look_at_labels(const Batch& batch);
  /// Notes the first tensor that is not finite. The first axis of a tensor of the micro-batch is its samples.
  void look(const std::string& what, const Tensor& tensor, bool of_samples);
  std::string layer_of(std::string_view path) const;
  std::string operation_of(NodeId first, NodeId last) const;

  TrainingStep& step_;
  std::int64_t first_sample_ = 0, samples_ = 0;  // of the micro-batch
  std::string what_;
  std::vector<std::int64_t> places_;
  std::optional<WrongLabel> wrong_label_;
};

/// An update that was skipped, for a message.
struct NotFiniteUpdate {
  std::int64_t epoch = 0, update = 0;  ///< both from 0
  std::int64_t skipped_in_a_row = 1;   ///< with it
  float loss_scale = 1;
  std::string what;                          ///< first not finite; empty: not known
  std::string reason;                        ///< why it is not known
  std::optional<WrongLabel> wrong_label;     ///< found by NotFiniteSearch
  std::vector<std::int64_t> places;          ///< found by NotFiniteSearch
  std::int64_t samples = 0;                  ///< of the update
  std::span<const std::int64_t> of_dataset;  ///< the update's samples in the data set, by place; empty: not known
};

/// One line: which update, what was the first not to be finite, in which samples, and what to do.
std::string not_finite_message(const NotFiniteUpdate& update);

}  // namespace bantam
