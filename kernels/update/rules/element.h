// One weight of the update as a rule moves it: the code of both backends, with a `Math` of each.
//
// A rule is a struct template over Math. It says how many float32 values it keeps a weight and how many bias
// corrections it reads (RuleOf), and has one function:
//
//     BANTAM_RULE static void move(Element<kSlots>& e, float g, const StepValues& s);
//
// which moves e.w and e.slots by the gradient g, unscaled and clipped. Padding has zeros everywhere, and must keep
// them. Math has what backends compute differently: `root`, `quotient` (0 where the divisor is 0), `larger`, and
// `plus_product`, a + b·c as the backend rounds it.
#pragma once

// Rules are device code in CUDA sources, and inlined into vectorised loops elsewhere.
#if defined(__CUDACC__)
#define BANTAM_RULE __device__
#else
#define BANTAM_RULE [[gnu::always_inline]]
#endif

namespace bantam::kernels::rules {

/// Values of one group in one update, t being its number from 1 on.
struct StepValues {
  float lr;
  float decay;            ///< times the weight, added to the gradient
  float decoupled_decay;  ///< times the weight, added to the step
  float beta1, beta2, beta3, epsilon;
  float correction1, correction2, correction3;  ///< 1/(1 - beta^t), of those that the rule reads
  float one;                                    ///< 1, of Math::plus_product
  bool first;                                   ///< t = 1
};

template <int kSlots>
struct Element {
  float w;
  float slots[kSlots > 0 ? kSlots : 1];
};

/// Properties of a rule: float32 values it keeps a weight, and bias corrections it reads, from beta1's on.
template <int kSlotCount, int kCorrectionCount = 0>
struct RuleOf {
  static constexpr int kSlots = kSlotCount;
  static constexpr int kCorrections = kCorrectionCount;
  static constexpr bool kByNorm = false;  ///< whether steps are scaled by norms over a tensor, as LAMB's
};

}  // namespace bantam::kernels::rules
