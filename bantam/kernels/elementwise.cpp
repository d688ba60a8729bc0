// Element-wise work needs no workspace, so there is nothing to size: this file checks that the contract compiles by itself.
#include "bantam/kernels/elementwise.h"
