// Element types on the device: conversion to and from float (arithmetic is done in float only), and host-side dispatch
// by DType.
#pragma once

#include <string>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bantam/base/dtype.h"
#include "bantam/base/error.h"

namespace bantam::kernels::cuda {

__host__ __device__ inline float to_float(float value) { return value; }
__host__ __device__ inline float to_float(__half value) { return __half2float(value); }
__host__ __device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// `value` rounded to nearest even in T.
template <class T>
__host__ __device__ inline T from_float(float value);
template <>
__host__ __device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__host__ __device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// Calls `call(tag)` with a std::type_identity of the device type of `dtype`:
/// `dispatch_floating(dtype, [&](auto tag) { using T = typename decltype(tag)::type; ... });`
/// Throws DTypeError for all but float32, float16 and bfloat16.
template <class Call>
decltype(auto) dispatch_floating(DType dtype, Call&& call) {
  switch (dtype) {
    case DType::float32:
      return call(std::type_identity<float>{});
    case DType::float16:
      return call(std::type_identity<__half>{});
    case DType::bfloat16:
      return call(std::type_identity<__nv_bfloat16>{});
    default:
      break;
  }
  throw DTypeError("a CUDA kernel was given " + std::string(to_string(dtype)) +
                   "; it supports float32, float16 and bfloat16");
}

}  // namespace bantam::kernels::cuda
