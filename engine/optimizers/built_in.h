// The built-in rules and their options. Defaults are those of a configuration that only names them.
//
//     Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.1f, .momentum = 0.9f}), .clip_norm = 1.0f});
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/optimizers/update_rule.h"

/// X(name) of every built-in optimizer, in the order of the documentation: X has its factory below, a `read_X` of a
/// configuration's options, and an entry of `optimizers`.
#define BANTAM_OPTIMIZERS(X) X(adam) X(adamw) X(sgd) X(rmsprop) X(lion) X(lamb) X(muon) X(adan)

BANTAM_API_BEGIN
namespace bantam {

// Each factory throws ConfigError where an option is out of its range, or two do not go together.

/// Kingma and Ba 2015; weight decay is added to the gradient (L2).
struct AdamOptions {
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-7f;
};
RulePtr adam(const AdamOptions& options = {});

/// Loshchilov and Hutter 2019: each update shrinks the weight by weight decay times the learning rate (decoupled).
struct AdamWOptions {
  float learning_rate = 1e-3f;
  float weight_decay = 0.004f;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-7f;
};
RulePtr adamw(const AdamWOptions& options = {});

/// Plain, or with momentum in PyTorch's form; weight decay is added to the gradient.
struct SgdOptions {
  float learning_rate = 0.01f;
  float weight_decay = 0.0f;
  float momentum = 0.0f;            ///< share of the velocity that stays; 0: none is kept
  float dampening = 0.0f;           ///< share of each gradient but the first that does not enter the velocity
  bool nesterov = false;            ///< without dampening
  bool scheduled_momentum = false;  ///< momentum has a schedule: a velocity is kept although it begins at 0
};
RulePtr sgd(const SgdOptions& options = {});

/// Hinton 2012, in PyTorch's form; weight decay is added to the gradient.
struct RmsPropOptions {
  float learning_rate = 0.01f;
  float weight_decay = 0.0f;
  float momentum = 0.0f;
  float alpha = 0.99f;    ///< share of the mean of squared gradients that stays at each update
  bool centered = false;  ///< divides by the standard deviation of gradients (Graves 2013)
  float epsilon = 1e-8f;
  bool scheduled_momentum = false;  ///< as SgdOptions::scheduled_momentum
};
RulePtr rmsprop(const RmsPropOptions& options = {});

/// Chen et al. 2023; decoupled weight decay.
struct LionOptions {
  float learning_rate = 1e-4f;
  float weight_decay = 0.0f;
  float beta1 = 0.9f, beta2 = 0.99f;
};
RulePtr lion(const LionOptions& options = {});

/// You et al. 2020; decoupled weight decay.
struct LambOptions {
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-6f;
};
RulePtr lamb(const LambOptions& options = {});

/// Jordan 2024: weights with 2 dimensions (dense) and 4 (convolutions), as matrices of a row an output; decoupled
/// weight decay. All other parameters move by `rest`.
struct MuonOptions {
  float learning_rate = 0.02f;
  float weight_decay = 0.0f;
  float momentum = 0.95f;
  bool nesterov = true;
  /// Newton-Schulz steps, 1 to 10. Each moves singular values s to a·s + b·s³ + c·s⁵.
  int steps = 5;
  /// a, b and c: Jordan's by default. Refused where they take singular values of up to 1.05 above 2 in `steps` steps.
  std::array<float, 3> coefficients = {3.4445f, -4.7750f, 2.0315f};
  /// Before every n-th update, the first included, each matrix is scaled to a Frobenius norm of √rows; 0: never.
  std::int64_t normalize_every = 0;
  /// Names of parameters, where * stands for any text, that `rest` moves although they have 2 or 4 dimensions.
  std::vector<std::string> exclude = {};
  /// Another built-in rule; null: adamw(). Its learning rate keeps its ratio to Muon's where that is scheduled.
  RulePtr rest = nullptr;
};
RulePtr muon(const MuonOptions& options = {});

/// Xie et al. 2022, in the form of the authors' code: betas are shares that stay. An update divides the weight by 1 +
/// weight decay times the learning rate (decoupled).
struct AdanOptions {
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;
  float beta1 = 0.98f, beta2 = 0.92f, beta3 = 0.99f, epsilon = 1e-8f;
};
RulePtr adan(const AdanOptions& options = {});

}  // namespace bantam
BANTAM_API_END
