// Lists of sums that wait.
#include "bantam/kernels/contracts/update/pending_sums.h"

#include <string>

#include "bantam/base/error.h"

namespace bantam::kernels {

void PendingSums::add(const Array& array) {
  if (count >= kMost) throw Error("pending sums: there is room for " + std::to_string(kMost) + " arrays only");
  arrays[count++] = array;
}

}  // namespace bantam::kernels
