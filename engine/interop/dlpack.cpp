// Tensors out: a struct that owns a tensor until its deleter is called. Tensors in: storage whose deleter is the
// producer's. In both directions memory is reused only after the other side's work.
#include "bantam/engine/interop/dlpack.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/interop/dlpack_abi.h"
#include "bantam/engine/interop/external_memory.h"

namespace bantam {
namespace {

constexpr std::int64_t kLegacyStream = 1, kPerThreadStream = 2;

DLDataType dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::float32:
    case DType::float64:
    case DType::float16:
      return {kDLFloat, bits, 1};
    case DType::bfloat16:
      return {kDLBfloat, bits, 1};
    case DType::uint8:
      return {kDLUInt, bits, 1};
    case DType::int32:
    case DType::int64:
      break;
  }
  return {kDLInt, bits, 1};
}

std::string name_of(DLDataType type) {
  constexpr std::array kNames = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const std::string name = type.code < kNames.size() ? kNames[type.code] : fmt::format("type {} of ", type.code);
  return fmt::format("{}{}{}", name, type.bits, type.lanes == 1 ? "" : fmt::format(" x {}", type.lanes));
}

DType bantam_type(DLDataType type) {
  if (type.lanes == 1 && type.code == kDLBool && type.bits == 8) return DType::uint8;
  for (const DType dtype :
       {DType::float32, DType::float16, DType::bfloat16, DType::float64, DType::uint8, DType::int32, DType::int64}) {
    const DLDataType known = dlpack_type(dtype);
    if (known.code == type.code && known.bits == type.bits && known.lanes == type.lanes) return dtype;
  }
  throw DTypeError(fmt::format(
      "from_dlpack: {} elements; expected float16, bfloat16, float32, float64, uint8, bool8, int32 or int64",
      name_of(type)));
}

// The stream that a number of the protocol names.
Stream stream_of(Device device, std::int64_t number) {
  return external_stream(device, reinterpret_cast<void*>(static_cast<std::uintptr_t>(number)));
}

void check_stream(const char* call, Device device, DlpackStream stream) {
  if (!stream) return;
  if (!device.is_cuda() && *stream != kDlpackNoWait)
    throw DeviceError(fmt::format("{}: stream {} for a tensor on {}; expected none", call, *stream, to_string(device)));
  if (*stream == 0 || *stream < kDlpackNoWait)
    throw DeviceError(fmt::format(
        "{}: stream {} says no stream; expected 1 (legacy default), 2 (per-thread default), -1 (no wait) or a handle",
        call, *stream));
}

/// A tensor that a consumer has, with what its struct points to.
template <class Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;
  DlpackExport options;
  std::array<std::int64_t, Shape::kMaxRank> shape{}, strides{};
};

/// Makes the stream that will reuse the tensor's memory wait for the consumer's work, which may still read it.
void order_release(const Tensor& tensor, const DlpackExport& options) {
  const Device device = tensor.device();
  if (!device.is_cuda()) return;
  const std::int64_t number = options.consumer.value_or(kLegacyStream);
  if (number == kDlpackNoWait) return;  // the consumer's affair, as its reading is
  // The per-thread stream is that of the thread which consumed, and this may be another.
  if (number == kPerThreadStream || (number > kPerThreadStream && !options.consumer_stream_lives))
    return synchronize_device(device);
  const std::shared_ptr<Storage>& storage = tensor.storage();
  order_streams(stream_of(device, number), storage->foreign() ? options.producer : storage->stream());
}

template <class Managed>
void delete_exported(Managed* self) {
  const std::unique_ptr<Exported<Managed>> exported(static_cast<Exported<Managed>*>(self->manager_ctx));
  try {
    order_release(exported->tensor, exported->options);
  } catch (const Error&) {  // a broken device has nothing under way
  }
  exported->tensor = Tensor();  // before what keeps its runtime alive
}

template <class Managed>
Managed* make_exported(const Tensor& tensor, const DlpackExport& options) {
  if (!tensor.defined()) throw Error("to_dlpack: an undefined tensor");
  const Device device = tensor.device();
  const DlpackDevice place = dlpack_device(device);
  check_stream("to_dlpack", device, options.consumer);
  auto exported = std::make_unique<Exported<Managed>>();
  exported->tensor = tensor;
  exported->options = options;
  const std::span<const std::int64_t> extents = tensor.shape().extents();
  std::ranges::copy(extents, exported->shape.begin());
  std::int64_t stride = 1;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    exported->strides[axis] = stride;
    stride *= std::max<std::int64_t>(1, extents[axis]);
  }
  exported->managed.dl_tensor = {.data = tensor.data(),
                                 .device = {static_cast<DLDeviceType>(place.type), place.id},
                                 .ndim = tensor.shape().rank(),
                                 .dtype = dlpack_type(tensor.dtype()),
                                 .shape = exported->shape.data(),
                                 .strides = exported->strides.data(),
                                 .byte_offset = 0};
  exported->managed.deleter = delete_exported<Managed>;
  exported->managed.manager_ctx = exported.get();
  if (device.is_cuda() && options.consumer != kDlpackNoWait)
    order_streams(options.producer, stream_of(device, options.consumer.value_or(kLegacyStream)));
  return &exported.release()->managed;
}

Device device_of(const DLTensor& tensor, Stream consumer) {
  const bool host = tensor.device.device_type == kDLCPU || tensor.device.device_type == kDLCUDAHost;
  const bool cuda = tensor.device.device_type == kDLCUDA || tensor.device.device_type == kDLCUDAManaged;
  const Device here = consumer.device;
  if (host && here.is_cpu()) return here;
  if (cuda && here.is_cuda() && here.index == tensor.device.device_id) return here;
  const std::string came =
      host   ? "cpu"
      : cuda ? fmt::format("cuda:{}", tensor.device.device_id)
             : fmt::format("a device of DLPack's type {}", static_cast<int>(tensor.device.device_type));
  throw DeviceError(fmt::format("from_dlpack: the tensor is on {}, its consumer on {}", came, to_string(here)));
}

Shape shape_of(const DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > Shape::kMaxRank || (tensor.ndim > 0 && tensor.shape == nullptr))
    throw ShapeError(fmt::format("from_dlpack: {} axes; expected 0 to {}", tensor.ndim, Shape::kMaxRank));
  const Shape shape(std::span<const std::int64_t>(tensor.shape, static_cast<std::size_t>(tensor.ndim)));
  if (tensor.strides == nullptr || shape.elements() == 0) return shape;
  std::int64_t expected = 1;
  for (int axis = tensor.ndim; axis-- > 0;) {
    if (shape[axis] != 1 && tensor.strides[axis] != expected)
      throw ShapeError(fmt::format(
          "from_dlpack: stride {} of axis {} of a tensor {}; expected {}: row-major without gaps (make it contiguous)",
          tensor.strides[axis], axis, to_string(shape), expected));
    expected *= shape[axis];
  }
  return shape;
}

void* address_of(const DLTensor& tensor, const Shape& shape, DType dtype, Device device) {
  if (shape.elements() == 0) return nullptr;
  if (tensor.data == nullptr) throw Error("from_dlpack: a tensor " + to_string(shape) + " without memory");
  auto* const address = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const std::size_t alignment = device.is_cuda() ? 16 : size_of(dtype);
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    throw ShapeError(fmt::format("from_dlpack: a {} tensor at an address that is no multiple of {} (copy it first)",
                                 to_string(dtype), alignment));
  return address;
}

/// After the last tensor: the producer reuses its memory only after our work.
template <class Managed>
void release_imported(Managed* managed, const DlpackImport& options) {
  try {
    if (options.producer && *options.producer != kDlpackNoWait && *options.producer != kPerThreadStream)
      order_streams(options.consumer, stream_of(options.consumer.device, *options.producer));
    else
      synchronize(options.consumer);
  } catch (const Error&) {  // a broken device has nothing under way
  }
  if (managed->deleter != nullptr) managed->deleter(managed);
}

template <class Managed>
Tensor import(Managed* managed, const DlpackImport& options) {
  const DLTensor& tensor = managed->dl_tensor;
  const Device device = device_of(tensor, options.consumer);
  check_stream("from_dlpack", device, options.producer);
  const DType dtype = bantam_type(tensor.dtype);
  const Shape shape = shape_of(tensor);
  void* const address = address_of(tensor, shape, dtype, device);
  if (device.is_cuda() && options.wait_for_producer) {
    const std::int64_t number = options.producer.value_or(kLegacyStream);
    if (number != kDlpackNoWait) order_streams(stream_of(device, number), options.consumer);
  }
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  Storage::Deleter deleter = [managed, options](void*) { release_imported(managed, options); };
  return {std::make_shared<Storage>(address, bytes, device, std::move(deleter)), shape, dtype};
}

}  // namespace

DlpackStream dlpack_stream(Stream stream) {
  if (!stream.device.is_cuda()) return std::nullopt;
  const auto number = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(stream.handle));
  return number == 0 ? kLegacyStream : number;
}

DlpackDevice dlpack_device(Device device) {
  if (device.meta) throw DeviceError(fmt::format("dlpack: {} has no memory", to_string(device)));
  return device.is_cuda() ? DlpackDevice{kDLCUDA, device.index} : DlpackDevice{kDLCPU, 0};
}

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, const DlpackExport& options) {
  auto* const managed = make_exported<DLManagedTensorVersioned>(tensor, options);
  managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->flags = options.read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor, const DlpackExport& options) {
  if (options.read_only)
    throw Error(
        "to_dlpack: the consumer asks for DLPack without a version, which cannot say that a tensor is read-only");
  return make_exported<DLManagedTensor>(tensor, options);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed, const DlpackImport& options) {
  if (managed == nullptr) throw Error("from_dlpack: a null pointer");
  if (managed->version.major != DLPACK_MAJOR_VERSION)
    throw Error(fmt::format("from_dlpack: DLPack {}.{}; expected version {}", managed->version.major,
                            managed->version.minor, DLPACK_MAJOR_VERSION));
  return import(managed, options);
}

Tensor from_dlpack(DLManagedTensor* managed, const DlpackImport& options) {
  if (managed == nullptr) throw Error("from_dlpack: a null pointer");
  return import(managed, options);
}

}  // namespace bantam
