// Convolution for inference: weights in the order that the kernel reads, and its epilogue in the same pass.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/elementwise/epilogue.h"

namespace bantam::kernels {

/// Scratch bytes of `conv2d_inference`, and of `conv2d_pack_weights`; shape, dtype and target only.
std::size_t conv2d_inference_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target);
std::size_t conv2d_pack_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target);

/// Whether the kernel that computes the convolution applies bias and activation as it stores, from float32 sums that
/// are rounded once, and reads w as conv2d_forward does, not packed: on CUDA, convolutions of images of up to 4
/// channels in half types. Elsewhere the epilogue is a pass of its own, or weights are packed.
bool conv2d_applies_epilogue(const Conv2dShape& shape, DType dtype, DeviceKind target);

/// Whether a kernel may apply bias and relu as it stores what `conv2d_inference` computes, from w as conv2d_forward
/// reads it, so that a training step, too, should have both from that: on CUDA in half types, convolutions that are no
/// GEMM, of images of up to 4 channels or, by cuDNN, of multiples of 8 channels. Whatever the batch. Where cuDNN has no
/// such kernel, or its own are slower, a pass after the convolution applies them.
bool conv2d_fuses_relu(const Conv2dShape& shape, DType dtype, DeviceKind target);

/// Brings w, as conv2d_forward reads it, into the order that `conv2d_inference` of the same shape reads, whatever its
/// batch: in place, of as many bytes. Weights are packed once.
using Conv2dPackWeights = void(const Exec&, const Conv2dShape&, DType dtype, void* w, Workspace);
/// y = epilogue of the convolution of x with packed weights; types as conv2d_forward's. Nothing aliases. Deterministic.
/// On the CPU in float32 an image's result has the same bits in every batch.
using Conv2dInference = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* w,
                             const Epilogue&, void* y, Workspace);

BANTAM_DECLARE_KERNEL(Conv2dPackWeights, conv2d_pack_weights);
BANTAM_DECLARE_KERNEL(Conv2dInference, conv2d_inference);

}  // namespace bantam::kernels
