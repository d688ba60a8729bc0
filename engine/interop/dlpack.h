// Tensors to and from other libraries without copying, by DLPack: NumPy, PyTorch, CuPy, JAX and others read and make
// the same structs (dlpack_abi.h has them; a program that only hands pointers on needs it not).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "bantam/base/api.h"
#include "bantam/engine/autograd/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

BANTAM_API_BEGIN
namespace bantam {

/// The `stream` that a consumer passes to `__dlpack__` (Python array API standard): on CUDA nothing or 1 for the legacy
/// default stream, 2 for the per-thread one, -1 for no synchronisation, else a cudaStream_t; on the CPU nothing.
using DlpackStream = std::optional<std::int64_t>;

inline constexpr std::int64_t kDlpackNoWait = -1;

/// Returns the argument for another library's `__dlpack__` with which `stream`'s later work sees its tensor complete.
DlpackStream dlpack_stream(Stream stream);

/// A device as DLPack names it: what `__dlpack_device__` returns. A share's is its card's.
struct DlpackDevice {
  std::int32_t type = 1;
  std::int32_t id = 0;
  bool operator==(const DlpackDevice&) const = default;
};
/// Throws DeviceError for meta devices, which have no memory.
DlpackDevice dlpack_device(Device device);

/// How a tensor is handed out.
struct DlpackExport {
  /// The stream of the work that wrote the tensor: Context::stream.
  Stream producer;
  /// The consumer's: its later work waits on the device for the producer's so far.
  DlpackStream consumer = {};
  /// The consumer must not write: a flag, which nothing enforces. Throws Error for the struct without a version, which
  /// cannot say so.
  bool read_only = false;
  /// true: a consumer's stream that it made itself (not 1 or 2) lives until it has deleted the tensor, as PyTorch's
  /// do. The memory is then reused after that stream's work, and the host waits for nothing. false: the host waits for
  /// all work of the device when the consumer deletes the tensor, because its stream may be gone.
  bool consumer_stream_lives = false;
  /// Lives as long as the consumer has the tensor: whatever owns the Runtime, where a consumer may outlive it.
  std::shared_ptr<void> keep_alive = {};
};

/// The tensor's memory for another library, which deletes the struct when it is done. Shares the storage: writes of one
/// side are seen by the other. Throws DeviceError for a meta device's tensor, and for a `consumer` that its device does
/// not know; Error for an undefined tensor. The Runtime must outlive the struct (`keep_alive`). The deleter may be
/// called from any thread.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, const DlpackExport& options);
/// The same for consumers that ask for no version (`max_version` absent or below 1.0).
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor, const DlpackExport& options);

/// How a tensor is accepted.
struct DlpackImport {
  /// The stream that will use the tensor, which the producer was told (`dlpack_stream`). The tensor is on its device;
  /// which may be a share.
  Stream consumer;
  /// The stream in whose order the producer reuses its memory, as in DlpackStream: it is made to wait for `consumer`
  /// when the last tensor is gone. It must live until then. Nothing: the host waits for `consumer` then.
  DlpackStream producer = {};
  /// Whether `producer` was told of no stream (-1): `consumer` is then made to wait for it here.
  bool wait_for_producer = false;
};

/// Another library's tensor, without a copy: on success the tensor owns `managed`, and calls its deleter when the last
/// that shares its storage is gone; where this throws, `managed` is still the caller's. Accepts host memory
/// (page-locked too) on the CPU and device or managed memory on CUDA; int32, int64, uint8, bool (as uint8), float16,
/// bfloat16, float32 and float64; any strides that mean row-major without gaps. Throws DeviceError, DTypeError or
/// ShapeError saying what came and what was expected (addresses are multiples of 16 on CUDA, of the element on the
/// CPU), Error for another major version than 1.
Tensor from_dlpack(DLManagedTensorVersioned* managed, const DlpackImport& options);
Tensor from_dlpack(DLManagedTensor* managed, const DlpackImport& options);

}  // namespace bantam
BANTAM_API_END
