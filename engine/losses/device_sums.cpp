// Sums moved by the host, in order of the context's stream.
#include <vector>

#include "bantam/engine/losses/loss.h"

namespace bantam {

void add_to_sums(const Context& context, const DeviceSums& sums, std::span<const double> values) {
  if (sums.ring == nullptr || context.device.meta) return;
  std::int32_t slot = 0;
  if (sums.slot != nullptr) {
    copy_bytes(&slot, sums.slot, sizeof(slot), context.stream);
    synchronize(context.stream);
  }
  double* place = sums.ring + static_cast<std::size_t>(slot) * values.size();
  std::vector<double> now(values.size());
  copy_bytes(now.data(), place, values.size_bytes(), context.stream);
  synchronize(context.stream);
  for (std::size_t i = 0; i < now.size(); ++i) now[i] += values[i];
  copy_bytes(place, now.data(), values.size_bytes(), context.stream);
  synchronize(context.stream);  // before the host's values go
}

}  // namespace bantam
