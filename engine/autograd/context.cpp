// Allocation and scratch memory through a context.
#include "bantam/engine/autograd/context.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/program/node_plan.h"

namespace bantam {

Tensor SavedStatistics::next() {
  if (next_ >= tensors_.size()) throw Error("recompute: the second pass of a checkpoint segment is not like the first");
  return std::move(tensors_[next_++]);
}

Scratch::Scratch(BfcAllocator& allocator, std::size_t bytes, Stream stream, const char* owner)
    : allocator_(allocator), stream_(stream), bytes_(bytes) {
  if (bytes > 0) data_ = allocator.allocate(bytes, stream, {Category::workspace, owner});
}

Scratch::~Scratch() {
  try {
    if (data_ != nullptr) allocator_.free(data_, stream_);
  } catch (...) {  // as Storage's: the call that broke the device has thrown
  }
}

Context Context::make(Runtime& runtime, Device device, Precision precision) {
  Context context;
  context.runtime = &runtime;
  context.device = device;
  context.stream = runtime.stream(device);
  context.exec = runtime.exec(device);
  context.precision = precision;
  return context;
}

Tensor Context::allocate(const Shape& shape, DType dtype, Category category) const {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  return {std::make_shared<Storage>(allocator(), bytes, stream, AllocationTag{category, path}), shape, dtype};
}

Scratch Context::scratch(std::size_t bytes) const { return {allocator(), bytes, stream, path}; }

Tensor Context::upload_bytes(const Shape& shape, DType dtype, const void* values, Category category) const {
  Tensor tensor = allocate(shape, dtype, category);
  if (tensor.bytes() > 0) copy_bytes(tensor.data(), values, tensor.bytes(), stream);
  return tensor;
}

void Context::check_device(const char* op, std::initializer_list<const Tensor*> operands) const {
  for (const Tensor* tensor : operands)
    if (tensor->defined() && tensor->device() != device)
      throw DeviceError(fmt::format("{}: an operand is on {}, the context on {}", op, to_string(tensor->device()),
                                    to_string(device)));
}

const NodePlan& Context::plan() const {
  static const NodePlan kUndecided;
  return node != nullptr ? *node : kUndecided;
}

Context Context::inner() const {
  Context copy = *this;
  copy.node = nullptr;
  return copy;
}

bool Context::output_unused() const { return node != nullptr && node->ends_segment && replays(); }

Context Context::at(const char* layer_path) const {
  Context copy = *this;
  copy.path = copy.exec.owner = layer_path;
  return copy;
}

}  // namespace bantam
