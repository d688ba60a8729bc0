// The table of the update's rules, from which UpdateKind and the tables of both backends are made. A rule is a file in
// rules/ and a row here.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/kernels/update/rules/adam.h"
#include "bantam/kernels/update/rules/adan.h"
#include "bantam/kernels/update/rules/lion.h"
#include "bantam/kernels/update/rules/rmsprop.h"
#include "bantam/kernels/update/rules/sgd.h"

/// X(name, template, whether weight decay is a step of its own, times the learning rate, rather than a part of the
/// gradient).
#define BANTAM_UPDATE_RULES(X)                                 \
  X(sgd, Sgd, false)                                           \
  X(sgd_momentum, SgdMomentum, false)                          \
  X(sgd_nesterov, SgdNesterov, false)                          \
  X(sgd_dampened, SgdDampened, false)                          \
  X(adam, Adam, false)                                         \
  X(adamw, Adam, true)                                         \
  X(rmsprop, RmsProp, false)                                   \
  X(rmsprop_momentum, RmsPropMomentum, false)                  \
  X(rmsprop_centered, RmsPropCentered, false)                  \
  X(rmsprop_centered_momentum, RmsPropCenteredMomentum, false) \
  X(lion, Lion, true)                                          \
  X(lamb, Lamb, true)                                          \
  X(adan, Adan, true)

namespace bantam::kernels {

enum class UpdateKind : std::uint8_t {
#define BANTAM_RULE_NAME(name, Rule, decoupled) name,
  BANTAM_UPDATE_RULES(BANTAM_RULE_NAME)
#undef BANTAM_RULE_NAME
};

/// A row of the table.
struct UpdateRuleFacts {
  std::string_view name;
  UpdateKind kind;
  int slots;             ///< float32 arrays of the arena's size that it keeps: UpdateArena::slots
  bool by_norm;          ///< reads weights and slots twice, for norms over each span
  bool decoupled_decay;  ///< weight decay is a step of its own
};

/// Rows in the order of UpdateKind.
inline constexpr UpdateRuleFacts kUpdateRules[] = {
#define BANTAM_RULE_FACTS(name, Rule, decoupled) \
  {#name, UpdateKind::name, rules::Rule<void>::kSlots, rules::Rule<void>::kByNorm, decoupled},
    BANTAM_UPDATE_RULES(BANTAM_RULE_FACTS)
#undef BANTAM_RULE_FACTS
};

constexpr const UpdateRuleFacts& facts_of(UpdateKind kind) { return kUpdateRules[static_cast<int>(kind)]; }

}  // namespace bantam::kernels
