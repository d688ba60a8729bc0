// The kernels of the program's own layer, as C++ sees them: a launcher each, in order of a CUDA stream.
#pragma once

#include <cstdint>

/// Whether this program was built where nvcc is. Where it was not, the launchers throw DeviceError.
bool own_kernels_are_built();
/// y = max(x, 0)², float32, in order of `stream` (a cudaStream_t). Returns the launch's error code; 0 is success.
int squared_relu_forward(const float* x, float* y, std::int64_t elements, void* stream);
/// dx = dy · 2·max(x, 0).
int squared_relu_backward(const float* dy, const float* x, float* dx, std::int64_t elements, void* stream);
