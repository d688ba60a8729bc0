// How losses are cut into parts of samples (by shapes only, so that the bits never change), and what a part adds up to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/loss/dice_loss.h"
#include "bantam/kernels/loss/value_loss.h"

namespace bantam::kernels {

/// The sums of a part of a sample, or of a whole sample.
struct LossTerms {
  double loss = 0;           ///< Σ of terms
  std::int32_t right = 0;    ///< positions or values that the model has right
  std::int32_t counted = 0;  ///< those that count
};

inline constexpr std::int64_t kPositionsOfClassPart = 64;
inline constexpr std::int64_t kValuesOfPart = 1024;
inline constexpr std::int64_t kPositionsOfDicePart = 256;

/// The number of parts that a sample's items are cut into; at least 1.
BANTAM_HOST_DEVICE constexpr std::int64_t loss_parts(std::int64_t items, std::int64_t part) {
  return items > part ? (items + part - 1) / part : 1;
}
BANTAM_HOST_DEVICE constexpr std::int64_t loss_parts(const ClassLossShape& s) {
  return loss_parts(s.positions, kPositionsOfClassPart);
}
BANTAM_HOST_DEVICE constexpr std::int64_t loss_parts(const ValueLossShape& s) {
  return loss_parts(s.values, kValuesOfPart);
}
BANTAM_HOST_DEVICE constexpr std::int64_t loss_parts(const DiceLossShape& s) {
  return loss_parts(s.positions, kPositionsOfDicePart);
}

/// Whether the mean's divisor of a sample must be counted before its gradient can be made.
constexpr bool counts_labels_first(const ClassLossShape& s) { return s.has_ignored && s.positions > 1; }

/// All three losses have these sums in their workspace: the parts', and the samples' where a sample has several parts.
struct LossSumsLayout {
  std::int64_t batch = 0, parts = 1;

  std::size_t part_bytes() const { return static_cast<std::size_t>(batch * parts) * sizeof(LossTerms); }
  std::size_t sample_bytes() const { return parts > 1 ? static_cast<std::size_t>(batch) * sizeof(LossTerms) : 0; }
  std::size_t bytes() const {
    return aligned_bytes(static_cast<std::int64_t>(part_bytes())) +
           aligned_bytes(static_cast<std::int64_t>(sample_bytes()));
  }
};

/// The same, cut: `samples` is `parts` where each sample has one.
struct LossSumsMemory {
  LossSumsMemory(const LossSumsLayout& layout, WorkspaceCutter& cutter)
      : parts(cutter.cut<LossTerms>(layout.part_bytes())),
        samples(layout.parts > 1 ? cutter.cut<LossTerms>(layout.sample_bytes()) : parts) {}
  LossTerms* parts;
  LossTerms* samples;
};

/// The sums of a sample's dice for one class: I = Σ p·t, P = Σ p, T = Σ t.
struct DiceSums {
  float both = 0, predicted = 0, target = 0;
};
/// d term/dp = level - slope·t.
struct DiceGradient {
  float level = 0, slope = 0;
};

/// The bytes of a dice loss's scratch: its parts' counts, then the classes' sums by part, then their gradients.
inline std::size_t dice_count_bytes(const DiceLossShape& s) {
  return static_cast<std::size_t>(s.batch * loss_parts(s)) * sizeof(LossTerms);
}
inline std::size_t dice_part_bytes(const DiceLossShape& s) {
  return static_cast<std::size_t>(s.batch * loss_parts(s) * s.classes) * sizeof(DiceSums);
}
inline std::size_t dice_gradient_bytes(const DiceLossShape& s) {
  return static_cast<std::size_t>(s.batch * s.classes) * sizeof(DiceGradient);
}

/// Where a dice loss's scratch memory lies.
struct DiceMemory {
  DiceMemory(const DiceLossShape& s, WorkspaceCutter cutter)
      : samples(LossSumsMemory(LossSumsLayout{s.batch, 1}, cutter).samples),
        counts(cutter.cut<LossTerms>(dice_count_bytes(s))),
        parts(cutter.cut<DiceSums>(dice_part_bytes(s))),
        gradients(cutter.cut<DiceGradient>(dice_gradient_bytes(s))) {}
  LossTerms* samples;       // (batch)
  LossTerms* counts;        // (batch, parts)
  DiceSums* parts;          // (batch, parts, classes)
  DiceGradient* gradients;  // (batch, classes)
};

}  // namespace bantam::kernels
