// Tensor: shared storage on a device, with a shape and an element type. Always contiguous; images are NHWC. TensorMap:
// a few tensors by name, what a batch is made of; and TensorFacts, their shapes and types before there is a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/device.h"

BANTAM_API_BEGIN
namespace bantam {

class Parameter;
struct BANTAM_INTERNAL TensorNotes;

/// Bytes on a device, released in stream order with the last tensor that shares them. Memory from elsewhere comes with
/// a deleter of its own.
class Storage {
 public:
  using Deleter = std::function<void(void*)>;
  /// From an allocator, for work on `stream`. Throws OutOfMemory.
  Storage(BfcAllocator& allocator, std::size_t bytes, Stream stream, AllocationTag tag);
  /// Foreign memory; `deleter` may be empty.
  Storage(void* data, std::size_t bytes, Device device, Deleter deleter);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  /// Memory from elsewhere, which its owner may still read.
  bool foreign() const { return allocator_ == nullptr; }
  /// The stream in whose order the memory is released; of foreign memory the CPU's.
  Stream stream() const { return stream_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  BfcAllocator* allocator_ = nullptr;
  Stream stream_;
  Deleter deleter_;
};

/// A value: cheap to copy (copies share storage). A default tensor is undefined.
class Tensor {
 public:
  Tensor() = default;
  /// A tensor of `shape` at `byte_offset` of `storage`. Throws ShapeError where it does not fit.
  Tensor(std::shared_ptr<Storage> storage, Shape shape, DType dtype, std::size_t byte_offset = 0);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }
  Device device() const { return storage_->device(); }

  /// Address on the tensor's device; never dereference a CUDA or meta tensor's on the host.
  void* data() const { return static_cast<std::byte*>(storage_->data()) + byte_offset_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data());
  }

  /// The same bytes under another shape of as many elements (no identity on a tape: use ops::reshape in a model).
  Tensor view(Shape shape) const;
  /// `shape.elements()` elements from element `offset` on, sharing the storage. Throws ShapeError where they are not
  /// there.
  Tensor slice(std::int64_t offset, Shape shape) const;
  /// The bytes from `byte_offset` on as another shape and type. Throws ShapeError where they are not there.
  Tensor reinterpret(std::size_t byte_offset, Shape shape, DType dtype) const {
    return {storage_, shape, dtype, byte_offset_ + byte_offset};
  }
  /// The memory, which the tensor shares with its copies and views.
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// Whether nobody else holds the memory: no other tensor shares the storage, and it is not foreign. Then ops may work
  /// in place.
  bool sole_owner() const { return storage_.use_count() == 1 && !storage_->foreign(); }

  /// Identity on a tape; 0 where no gradient is wanted.
  std::uint64_t value_id() const { return value_id_; }
  void set_value_id(std::uint64_t id) { value_id_ = id; }
  /// The parameter whose compute copy this is, or null.
  Parameter* parameter() const { return parameter_; }
  void set_parameter(Parameter* parameter) { parameter_ = parameter; }
  /// For ops: what the op that wrote the tensor tells its readers (tensor_notes.h), or null. Copies have it, views do
  /// not.
  const std::shared_ptr<const TensorNotes>& notes() const { return notes_; }
  void set_notes(std::shared_ptr<const TensorNotes> notes) { notes_ = std::move(notes); }

 private:
  std::shared_ptr<Storage> storage_;
  std::size_t byte_offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::float32;
  std::uint64_t value_id_ = 0;
  Parameter* parameter_ = nullptr;
  std::shared_ptr<const TensorNotes> notes_;
};

/// Who gets a value's gradient, without holding the value's memory: an identity on a tape, or a parameter.
struct ValueRef {
  ValueRef() = default;
  ValueRef(const Tensor& tensor) : id(tensor.value_id()), parameter(tensor.parameter()) {}
  std::uint64_t id = 0;
  Parameter* parameter = nullptr;
};

/// Copies to host memory and waits: a vector of T, whose dtype must be the tensor's. Throws DTypeError, and DeviceError
/// on meta devices.
template <class T>
std::vector<T> to_host(const Tensor& tensor, Stream stream);
/// As floats, from float32, float16 or bfloat16.
std::vector<float> to_host_floats(const Tensor& tensor, Stream stream);

/// The names of a batch's tensors that the built-in sources make: a model's input, (batch, height, width, channels) in
/// the context's compute type, and class numbers, (batch) int32.
inline constexpr std::string_view kImages = "images";
inline constexpr std::string_view kLabels = "labels";

/// Describes one tensor of a batch before any batch exists: its name, a sample's shape, its type and its classes.
struct TensorFacts {
  std::string name = {};
  Shape shape = {};                 ///< of one sample: without the batch axis
  std::optional<DType> dtype = {};  ///< none: the type that the model computes in
  std::int64_t classes = 0;         ///< of class numbers: each is in [0, classes); 0: they are none
};

/// Null where there is no such name.
const TensorFacts* find_facts(std::span<const TensorFacts> tensors, std::string_view name);

/// A value: copies share the tensors' memory. Names are compared one by one, since there are few. Not thread-safe.
///
///     TensorMap tensors = {{"images", images}, {"labels", labels}};
class TensorMap {
 public:
  /// A tensor and its name.
  struct Entry {
    Entry(std::string_view its_name, Tensor value) : name(its_name), tensor(std::move(value)) {}
    std::string name;
    Tensor tensor;
  };

  TensorMap() = default;
  /// Throws Error for a name that comes twice.
  TensorMap(std::initializer_list<Entry> entries);

  /// Throws Error naming what there is, where there is no such name.
  const Tensor& at(std::string_view name) const;
  /// Null where there is no such name.
  const Tensor* find(std::string_view name) const;
  /// Replaces the tensor of that name, whose memory is then released, or adds one at the end.
  void set(std::string_view name, Tensor tensor);

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace bantam
BANTAM_API_END
