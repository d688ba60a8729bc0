// The rates that a device sustains, measured: copies, matrix products and chains of kernels.
#pragma once

#include "bantam/engine/autograd/context.h"

namespace bantam::run {

/// Bytes read plus bytes written in a second, by large copies within the context's device. Allocates two buffers (512
/// MiB on a GPU, 64 MiB on a CPU); throws OutOfMemory. Waits for the device.
double measure_copy_rate(const Context& context);

/// Operations in a second of large square matrix products of `dtype` on random values; a multiply-add is two. Allocates
/// three matrices and the GEMM's workspace; throws OutOfMemory. Waits for the device.
double measure_matmul_rate(const Context& context, DType dtype);

/// Seconds that a kernel which does next to nothing adds to a chain of them: recorded on CUDA, called one by one on a
/// CPU. Waits for the device.
double measure_kernel_seconds(const Context& context);

}  // namespace bantam::run
