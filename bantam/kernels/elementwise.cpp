// Element-wise work needs no workspace, so there is nothing to size here.
#include "bantam/kernels/elementwise.h"
