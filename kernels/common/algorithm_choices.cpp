// A map under a lock.
#include "bantam/kernels/common/algorithm_choices.h"

namespace bantam::kernels {

std::optional<std::string> AlgorithmChoices::find(const std::string& problem) const {
  const std::lock_guard lock(guard_);
  const auto found = choices_.find(problem);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

void AlgorithmChoices::keep(const std::string& problem, const std::string& choice) {
  const std::lock_guard lock(guard_);
  choices_[problem] = choice;
}

void AlgorithmChoices::add(const std::map<std::string, std::string>& choices) {
  const std::lock_guard lock(guard_);
  choices_.insert(choices.begin(), choices.end());
}

std::map<std::string, std::string> AlgorithmChoices::all() const {
  const std::lock_guard lock(guard_);
  return choices_;
}

}  // namespace bantam::kernels
