// The sum over batch norms borrows batch_norm_workspace_bytes, so there is nothing to size here.
#include "bantam/kernels/batch_norm_add.h"
