// Pooling needs no workspace, so there is nothing to size here.
#include "bantam/kernels/pool2d.h"
