// Storage that is released in stream order, views, and copies to the host.
#include "bantam/engine/autograd/tensor.h"

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {

Storage::Storage(BfcAllocator& allocator, std::size_t bytes, Stream stream, AllocationTag tag)
    : data_(allocator.allocate(bytes, stream, tag)),
      bytes_(bytes),
      device_(allocator.device()),
      allocator_(&allocator),
      stream_(stream) {}

Storage::Storage(void* data, std::size_t bytes, Device device, Deleter deleter)
    : data_(data), bytes_(bytes), device_(device), deleter_(std::move(deleter)) {}

Storage::~Storage() {
  try {
    if (allocator_ != nullptr) allocator_->free(data_, stream_);
    if (deleter_) deleter_(data_);
  } catch (...) {  // a broken device: the call that broke it has thrown, and a destructor must not
  }
}

Tensor::Tensor(std::shared_ptr<Storage> storage, Shape shape, DType dtype, std::size_t byte_offset)
    : storage_(std::move(storage)), byte_offset_(byte_offset), shape_(shape), dtype_(dtype) {
  if (byte_offset_ + bytes() > storage_->bytes())
    throw ShapeError(fmt::format("a tensor {} of {} at byte {} does not fit {} bytes of storage", to_string(shape_),
                                 to_string(dtype_), byte_offset_, storage_->bytes()));
}

Tensor Tensor::view(Shape shape) const {
  if (shape.elements() != elements())
    throw ShapeError(fmt::format("cannot view {} as {}: {} elements against {}", to_string(shape_), to_string(shape),
                                 elements(), shape.elements()));
  Tensor copy = *this;
  copy.shape_ = shape;
  copy.value_id_ = 0;
  copy.parameter_ = nullptr;
  copy.notes_ = nullptr;
  return copy;
}

Tensor Tensor::slice(std::int64_t offset, Shape shape) const {
  if (offset < 0 || offset + shape.elements() > elements())
    throw ShapeError(fmt::format("{} elements at {} are outside a tensor of {}", shape.elements(), offset, elements()));
  return {storage_, shape, dtype_, byte_offset_ + static_cast<std::size_t>(offset) * size_of(dtype_)};
}

template <class T>
std::vector<T> to_host(const Tensor& tensor, Stream stream) {
  if (tensor.dtype() != dtype_of<T>)
    throw DTypeError(fmt::format("cannot read a {} tensor as {}", to_string(tensor.dtype()), to_string(dtype_of<T>)));
  if (tensor.device().meta) throw DeviceError("a tensor on a meta device has no values");
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  copy_bytes(values.data(), tensor.data(), tensor.bytes(), stream);
  synchronize(stream);
  return values;
}

template BANTAM_API std::vector<float> to_host(const Tensor&, Stream);
template BANTAM_API std::vector<Half> to_host(const Tensor&, Stream);
template BANTAM_API std::vector<BFloat16> to_host(const Tensor&, Stream);
template BANTAM_API std::vector<std::uint8_t> to_host(const Tensor&, Stream);
template BANTAM_API std::vector<std::int32_t> to_host(const Tensor&, Stream);
template BANTAM_API std::vector<std::int64_t> to_host(const Tensor&, Stream);

std::vector<float> to_host_floats(const Tensor& tensor, Stream stream) {
  if (tensor.dtype() == DType::float32) return to_host<float>(tensor, stream);
  if (tensor.dtype() == DType::float16) {
    const std::vector<Half> values = to_host<Half>(tensor, stream);
    return {values.begin(), values.end()};
  }
  const std::vector<BFloat16> values = to_host<BFloat16>(tensor, stream);
  return {values.begin(), values.end()};
}

}  // namespace bantam
