// Plateau: a value that falls where evaluations no longer improve.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/optimizers/schedule.h"

namespace bantam {

/// PyTorch's ReduceLROnPlateau, in its words and with its defaults.
struct PlateauOptions {
  std::string metric = "loss";
  bool larger = false;         ///< is better
  double factor = 0.1;         ///< what the value is multiplied by
  std::int64_t patience = 10;  ///< evaluations without an improvement that change nothing
  double threshold = 1e-4;     ///< what counts as an improvement
  bool relative = true;        ///< threshold is a share of the best, else a difference
  std::int64_t cooldown = 0;   ///< evaluations after a change that do not count
  double final = 0;            ///< the value does not fall below it
};

/// Reads the keys of `on_plateau` but for the warm-up.
PlateauOptions read_plateau(ConfigMap& options);

class Plateau : public EvaluatedSchedule {
 public:
  Plateau(PlateauOptions options, double peak);
  double value() const { return value_; }
  std::string_view metric() const override { return options_.metric; }
  void evaluated(const Metrics& validation) override;
  /// The value, the best result, bad evaluations, cooldown, and the peak that the value is relative to.
  std::vector<double> state() const override;
  /// With another peak the value is the same share of this one's, and not below `final`. Throws DataError.
  void set_state(const std::vector<double>& numbers) override;

 private:
  bool improves(double result) const;
  /// Scales `value`, of a run with the given peak, to this one's peak; at least the lower one of `final` and that peak.
  double with_own_peak(double value, double peak) const;

  PlateauOptions options_;
  double peak_, value_, best_;
  double bad_ = 0, cooldown_ = 0;  // evaluations
};

}  // namespace bantam
