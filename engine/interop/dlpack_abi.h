/* The structs by which libraries hand tensors to each other: DLPack's binary interface, versions 1.0 to 1.x and the one
 * before versions, for C and C++.
 *
 * The names are the interface's own, so that a program may use its own copy of DLPack's header instead: include that
 * one first, and this header declares nothing; included after this one, that one does. */
#pragma once
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#include <stdint.h>

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 0

#ifdef __cplusplus
extern "C" {
#endif

/** Structs of another major version have another layout after `deleter`; of another minor version, more enumerators. */
typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

typedef enum
#ifdef __cplusplus
    : int32_t
#endif
{ kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3, /* page-locked host memory */
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16 } DLDeviceType;

/** Where memory lies. */
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6
} DLDataTypeCode;

/** float32 is {kDLFloat, 32, 1}. */
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* more than 1: a vector type */
} DLDataType;

/** A tensor that somebody else owns. Element i lies at data + byte_offset + sum of i[k] * strides[k] elements. */
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; null: row-major without gaps */
  uint64_t byte_offset;
} DLTensor;

/** A tensor with its owner, before versions. Whoever has it calls `deleter` once, unless that is null. */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1)

/** The same with a version. Of another major version than one's own only `version` and `deleter` may be used. */
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif
#endif
