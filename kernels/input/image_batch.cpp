// The layouts of ImagePlacement and SampleMix: hosts fill them and devices read them, so they must be the same for both
// compilers.
#include "bantam/kernels/input/image_batch.h"

#include "bantam/kernels/input/mix_batch.h"

namespace bantam::kernels {

static_assert(sizeof(ImagePlacement) == 28 && alignof(ImagePlacement) == 4);
static_assert(sizeof(SampleMix) == 12 && alignof(SampleMix) == 4);

}  // namespace bantam::kernels
