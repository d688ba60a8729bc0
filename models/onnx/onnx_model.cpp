// Element types, and values of an ONNX tensor.
#include "bantam/models/onnx/onnx_model.h"

#include <cstring>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::onnx {
namespace {

constexpr TypeFacts kTypes[] = {
    {Type::float32, 4, true, "float32"}, {Type::uint8, 1, false, "uint8"},    {Type::int8, 1, false, "int8"},
    {Type::int32, 4, false, "int32"},    {Type::int64, 8, false, "int64"},    {Type::boolean, 1, false, "bool"},
    {Type::float16, 2, true, "float16"}, {Type::float64, 8, true, "float64"}, {Type::bfloat16, 2, true, "bfloat16"}};

template <class T>
Tensor tensor_of(std::string name, Type type, std::vector<std::int64_t> dims, std::span<const T> values) {
  Tensor tensor{.name = std::move(name), .type = type, .dims = std::move(dims)};
  if (tensor.elements() != std::ssize(values))
    throw Error(fmt::format("tensor '{}': {} values, extents for {}", tensor.name, values.size(), tensor.elements()));
  tensor.data.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return tensor;
}

/// Values stored as `Stored`, each converted to `Value`. Throws DataError where the data do not fit the extents.
template <class Stored, class Value>
std::vector<Value> values_of(const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.elements());
  if (tensor.data.size() != count * sizeof(Stored))
    throw DataError(fmt::format("tensor '{}': {} bytes, expected {} of {} values", tensor.name, tensor.data.size(),
                                count * sizeof(Stored), count));
  std::vector<Value> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, tensor.data.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<Value>(stored);
  }
  return values;
}

}  // namespace

const TypeFacts* find_type(std::int64_t type) {
  for (const TypeFacts& facts : kTypes)
    if (static_cast<std::int64_t>(facts.type) == type) return &facts;
  return nullptr;
}

const TypeFacts& facts_of(Type type) {
  const TypeFacts* facts = find_type(static_cast<std::int64_t>(type));
  if (facts == nullptr) throw DataError(fmt::format("a tensor has element type {}", static_cast<std::int32_t>(type)));
  return *facts;
}

std::int64_t Tensor::elements() const {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

Tensor Tensor::of(std::string name, std::vector<std::int64_t> dims, std::span<const float> values) {
  return tensor_of(std::move(name), Type::float32, std::move(dims), values);
}

Tensor Tensor::of(std::string name, std::vector<std::int64_t> dims, std::span<const std::int64_t> values) {
  return tensor_of(std::move(name), Type::int64, std::move(dims), values);
}

std::vector<float> Tensor::as_floats() const {
  if (type == Type::float32) return values_of<float, float>(*this);
  if (type == Type::float16) return values_of<Half, float>(*this);
  if (type == Type::bfloat16) return values_of<BFloat16, float>(*this);
  if (type == Type::float64) return values_of<double, float>(*this);
  throw DataError(fmt::format("tensor '{}': expected floating-point numbers, got {}", name, facts_of(type).name));
}

std::vector<std::int64_t> Tensor::as_integers() const {
  if (type == Type::int64) return values_of<std::int64_t, std::int64_t>(*this);
  if (type == Type::int32) return values_of<std::int32_t, std::int64_t>(*this);
  if (type == Type::uint8 || type == Type::boolean) return values_of<std::uint8_t, std::int64_t>(*this);
  if (type == Type::int8) return values_of<std::int8_t, std::int64_t>(*this);
  throw DataError(fmt::format("tensor '{}': expected integers, got {}", name, facts_of(type).name));
}

std::vector<float> permuted(std::span<const float> values, std::span<const std::int64_t> dims,
                            std::span<const std::size_t> axes) {
  std::vector<std::int64_t> steps(dims.size(), 1);  // of the values, by axis
  for (std::size_t i = dims.size() - 1; i > 0; --i) steps[i - 1] = steps[i] * dims[i];
  const std::int64_t row = dims[axes.back()], step = steps[axes.back()];  // along the result's last axis
  std::vector<std::int64_t> place(dims.size(), 0);                        // in the result
  std::vector<float> result;
  result.reserve(values.size());
  while (result.size() < values.size()) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i + 1 < axes.size(); ++i) from += place[i] * steps[axes[i]];
    for (std::int64_t i = 0; i < row; ++i) result.push_back(values[static_cast<std::size_t>(from + i * step)]);
    for (std::size_t i = axes.size() - 1; i-- > 0 && ++place[i] == dims[axes[i]];) place[i] = 0;
  }
  return result;
}

}  // namespace bantam::onnx
