// Lists of partial sums.
#include "bantam/kernels/update/partial_sums.h"

#include <string>

#include "bantam/base/error.h"

namespace bantam::kernels {

void PartialSums::add(const Array& array) {
  if (count >= kMost) throw Error("partial sums: there is room for " + std::to_string(kMost) + " arrays only");
  arrays[count++] = array;
}

}  // namespace bantam::kernels
