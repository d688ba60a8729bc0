// Internal: KernelLoss, a loss that a kernel of kernels/loss computes together with its gradient; and what
// such losses read of a configuration alike.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bantam/engine/losses/loss.h"
#include "bantam/kernels/loss/loss_outputs.h"

namespace bantam::layers {

/// Operands of the kernel.
struct LossOperands {
  Tensor output, target;  ///< (batch, …)
  Tensor constants;       ///< float32, those of KernelLoss; undefined: none

  const float* constants_or_null() const { return constants.defined() ? constants.as<float>() : nullptr; }
};

/// Where the gradient that backward will start with is known (LossCall::seed), forward computes the gradient and keeps
/// nothing else; else it keeps the output, and backward calls the kernel once more.
class KernelLoss : public Loss, public std::enable_shared_from_this<KernelLoss> {
 public:
  /// `constants` are numbers that the kernel reads on the device, such as class weights.
  KernelLoss(LossReduction reduction, std::vector<float> constants)
      : reduction_(reduction), constants_(std::move(constants)) {}
  bool supports_meta() const override { return true; }
  /// Throws ShapeError, DTypeError where the target is not as `targets` says.
  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override;

 protected:
  virtual std::size_t workspace_bytes(const Shape& output) const = 0;
  virtual void run(const Context& context, const LossOperands& operands, const kernels::LossScale& scale,
                   const kernels::LossOutputs& out, kernels::Workspace workspace) const = 0;
  /// Returns the number that the summed loss is divided by: 1 for a sum, else `call`'s divisor, or `batch` if it is 0.
  float divisor_of(const LossCall& call, std::int64_t batch) const;
  bool sums() const { return reduction_ == LossReduction::sum; }
  const std::vector<float>& constants() const { return constants_; }

 private:
  Tensor upload_constants(const Context& context) const;
  void call_kernel(const Context& context, const LossOperands& operands, const kernels::LossScale& scale,
                   const kernels::LossOutputs& out) const;
  void record_gradient(const Context& context, Tensor& loss, const Tensor& output, Tensor dx, Tensor seed) const;
  void record_call(const Context& context, Tensor& loss, const LossOperands& operands, float divisor) const;

  LossReduction reduction_;
  std::vector<float> constants_;
};

/// Throws ConfigError, which begins with `kind`, unless all weights are above 0 and finite.
void check_weights(std::string_view kind, std::string_view what, const std::vector<float>& weights);

/// Facts of kLabels or kTargets for an output (…, classes) or of any shape. Throws ShapeError, which begins with
/// `kind`, where the output has no axis.
std::vector<TensorFacts> loss_targets(std::string_view kind, LossTargets targets, const Shape& output);

/// Throws ShapeError, which begins with `kind`, where there are weights, but not one a value of the output's last axis.
void check_weight_count(std::string_view kind, std::string_view what, std::size_t weights, const Shape& output);

/// The focal loss of each value, for targets: values.
LossPtr binary_focal(const FocalLoss& options);

/// `reduction`, `targets`, `ignore_index` and a list of weights under `key`.
LossReduction read_reduction(ConfigMap& options);
LossTargets read_targets(ConfigMap& options, std::string_view values_meaning);
std::optional<std::int32_t> read_ignore_index(ConfigMap& options);
std::vector<float> read_weights(ConfigMap& options, ConfigKey key);

/// Returns make()'s loss. Where it throws ConfigError, fails at `options`, with file and line, except in a description,
/// whose examples need not go together.
LossPtr made_at(ConfigMap& options, const std::function<LossPtr()>& make);

/// Rows of the table of losses: a name in configurations, and the reader of its options.
using LossRows = std::vector<std::pair<std::string, Reader<LossPtr>>>;

/// The rows of class_losses.cpp, value_losses.cpp and dice_loss.cpp, each in the order in which they are listed.
LossRows class_loss_rows();
LossRows value_loss_rows();
LossRows dice_loss_rows();

}  // namespace bantam::layers
