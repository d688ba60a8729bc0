// The layout of ImagePlacement: hosts fill it and devices read it, so it must be the same for both compilers.
#include "bantam/kernels/contracts/input/image_batch.h"

namespace bantam::kernels {

static_assert(sizeof(ImagePlacement) == 12 && alignof(ImagePlacement) == 4);

}  // namespace bantam::kernels
