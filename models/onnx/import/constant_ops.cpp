// Ops on constants: those that move values, and arithmetic with broadcasting.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/models/onnx/import/constants.h"
#include "bantam/models/onnx/import/node.h"

namespace bantam::onnx {
namespace {

using Dims = std::vector<std::int64_t>;

/// A node, its inputs, and how many elements its result may have.
struct Call {
  const Node& node;
  const std::vector<const Tensor*>& inputs;
  std::int64_t most_elements;

  const Tensor& input(std::size_t i) const {
    if (i >= inputs.size() || inputs[i] == nullptr) fail(node, fmt::format("input {} is missing", i));
    return *inputs[i];
  }
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  /// Returns the product of extents that were computed; throws where one is negative or the product is too large.
  std::int64_t elements_of(const Dims& dims) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : dims) {
      if (extent < 0 || (extent > 0 && elements > most_elements / extent))
        fail(node, "computes a constant that is too large");
      elements *= extent;
    }
    return elements;
  }
};

bool is_floating(const Tensor& tensor) { return facts_of(tensor.type).floating; }

/// Axes from an attribute or from input `from`; of -1 and so on, the axis.
Dims axes_of(const Call& call, std::size_t from, std::size_t rank) {
  Dims axes = integers(call.node, "axes");
  if (call.has(from)) axes = call.input(from).as_integers();
  for (std::int64_t& axis : axes) axis = static_cast<std::int64_t>(checked_axis(call.node, axis, rank));
  return axes;
}

Tensor with_dims(const Tensor& tensor, Dims dims) {
  Tensor result = tensor;
  result.dims = std::move(dims);
  return result;
}

/// Elements of `tensor` at `places`, in their order.
Tensor gathered(const Call& call, const Tensor& tensor, const Dims& dims, std::span<const std::int64_t> places) {
  (void)call.elements_of(dims);
  Tensor result{.type = tensor.type, .dims = dims};
  const auto bytes = static_cast<std::size_t>(facts_of(tensor.type).bytes);
  result.data.reserve(places.size() * bytes);
  for (const std::int64_t place : places)
    result.data.append(tensor.data, static_cast<std::size_t>(place) * bytes, bytes);
  return result;
}

/// Places in a tensor of these strides, of all indices of `dims` in their order.
Dims places_of(const Dims& dims, const Dims& strides, std::int64_t begin = 0) {
  Dims places{begin};
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] == 1) continue;
    Dims finer;
    finer.reserve(places.size() * static_cast<std::size_t>(dims[axis]));
    for (const std::int64_t place : places)
      for (std::int64_t i = 0; i < dims[axis]; ++i) finer.push_back(place + i * strides[axis]);
    places = std::move(finer);
  }
  return places;
}

Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

Tensor constant(const Call& call) {
  for (const auto& [name, attribute] : call.node.attributes) {
    if (const auto* tensor = std::get_if<Tensor>(&attribute); tensor != nullptr && name == "value") return *tensor;
    if (const auto* value = std::get_if<float>(&attribute); value != nullptr && name == "value_float")
      return Tensor::of("", {}, std::span(value, 1));
    if (const auto* value = std::get_if<std::int64_t>(&attribute); value != nullptr && name == "value_int")
      return Tensor::of("", {}, std::span(value, 1));
    if (const auto* values = std::get_if<std::vector<float>>(&attribute); values != nullptr && name == "value_floats")
      return Tensor::of("", {std::ssize(*values)}, *values);
    if (const auto* values = std::get_if<Dims>(&attribute); values != nullptr && name == "value_ints")
      return Tensor::of("", {std::ssize(*values)}, *values);
  }
  fail(call.node, "has no value of numbers");
}

Tensor to_type(const Call& call, const Tensor& tensor, bool to_float) {
  if (is_floating(tensor) == to_float) return tensor;
  if (to_float) {
    const Dims values = tensor.as_integers();
    if (std::ranges::any_of(values, batch_multiple)) fail(call.node, "computes with the batch's size");
    return Tensor::of("", tensor.dims, std::vector<float>(values.begin(), values.end()));
  }
  Dims integers;
  for (const float value : tensor.as_floats()) {
    if (!(std::abs(value) < 1e15f)) fail(call.node, "a number that no integer is");
    integers.push_back(static_cast<std::int64_t>(value));
  }
  return Tensor::of("", tensor.dims, integers);
}

Tensor cast(const Call& call) {
  const std::int64_t to = integer(call.node, "to", 0);
  const bool to_float = to == 1 || to == 10 || to == 11 || to == 16, to_integer = to == 6 || to == 7;
  if (to == 9) {  // a truth value
    Tensor tensor = to_type(call, call.input(0), true);
    std::vector<float> values = tensor.as_floats();
    for (float& value : values) value = value != 0 ? 1.0f : 0.0f;
    return to_type(call, Tensor::of("", tensor.dims, values), false);
  }
  if (!to_float && !to_integer)
    fail(call.node, fmt::format("to element type {}; expected a float, int32, int64 or bool", to));
  return to_type(call, call.input(0), to_float);
}

Tensor cast_like(const Call& call) { return to_type(call, call.input(0), !call.has(1) || is_floating(call.input(1))); }

Tensor transposed(const Call& call) {
  const Tensor& tensor = call.input(0);
  Dims perm = integers(call.node, "perm");
  if (perm.empty())
    for (std::size_t i = tensor.dims.size(); i-- > 0;) perm.push_back(static_cast<std::int64_t>(i));
  const Dims strides = strides_of(tensor.dims);
  Dims dims, steps;
  std::vector<bool> seen(tensor.dims.size());
  for (const std::int64_t axis : perm) {
    const std::size_t from = checked_axis(call.node, axis, tensor.dims.size());
    if (seen[from]) fail(call.node, "perm names an axis twice");
    seen[from] = true;
    dims.push_back(tensor.dims[from]);
    steps.push_back(strides[from]);
  }
  if (dims.size() != tensor.dims.size()) fail(call.node, "perm does not name all axes");
  (void)call.elements_of(dims);
  return gathered(call, tensor, dims, places_of(dims, steps));
}

Tensor reshaped(const Call& call) {
  const Tensor& tensor = call.input(0);
  Dims dims = call.input(1).as_integers();
  std::int64_t rest = tensor.elements();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && integer(call.node, "allowzero", 0) == 0) dims[i] = i < tensor.dims.size() ? tensor.dims[i] : -2;
    if (dims[i] == -1) continue;
    if (dims[i] <= 0 || rest % dims[i] != 0) fail(call.node, "the shape does not fit the values");
    rest /= dims[i];
  }
  const auto open = std::ranges::find(dims, -1);
  if (open != dims.end()) *open = rest;
  if (call.elements_of(dims) != tensor.elements()) fail(call.node, "the shape does not fit the values");
  return with_dims(tensor, dims);
}

Tensor squeezed(const Call& call) {
  const Tensor& tensor = call.input(0);
  const Dims axes = axes_of(call, 1, tensor.dims.size());
  Dims dims;
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    const bool named = std::ranges::count(axes, static_cast<std::int64_t>(i)) > 0;
    if (named && tensor.dims[i] != 1) fail(call.node, "an axis that is removed has not one value");
    if (!named && (!axes.empty() || tensor.dims[i] != 1)) dims.push_back(tensor.dims[i]);
  }
  return with_dims(tensor, dims);
}

Tensor unsqueezed(const Call& call) {
  const Tensor& tensor = call.input(0);
  Dims axes = integers(call.node, "axes");
  if (call.has(1)) axes = call.input(1).as_integers();
  const std::size_t rank = tensor.dims.size() + axes.size();
  if (rank > 16) fail(call.node, "more than 16 axes");
  for (std::int64_t& axis : axes) axis = static_cast<std::int64_t>(checked_axis(call.node, axis, rank));
  Dims dims;
  auto next = tensor.dims.begin();
  for (std::size_t i = 0; i < rank; ++i) {
    const bool added = std::ranges::count(axes, static_cast<std::int64_t>(i)) > 0;
    if (!added && next == tensor.dims.end()) fail(call.node, "an axis is named twice");
    dims.push_back(added ? 1 : *next++);
  }
  return with_dims(tensor, dims);
}

/// Computes Concat: joins one or more tensors of one type and rank along an axis.
Tensor concatenated(const Call& call) {
  const Tensor& first = call.input(0);
  const std::size_t axis = checked_axis(call.node, integer(call.node, "axis", 0), first.dims.size());
  Dims dims = first.dims;
  dims[axis] = 0;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& tensor = call.input(i);
    if (tensor.type != first.type || tensor.dims.size() != first.dims.size())
      fail(call.node, "constants of several types or ranks");
    for (std::size_t a = 0; a < dims.size(); ++a)
      if (a != axis && tensor.dims[a] != dims[a]) fail(call.node, "constants whose extents do not fit");
    dims[axis] += tensor.dims[axis];
  }
  (void)call.elements_of(dims);
  const std::int64_t outer = std::accumulate(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis),
                                             std::int64_t{1}, std::multiplies<>());
  Tensor result{.type = first.type, .dims = dims};
  if (result.elements() == 0) return result;
  std::vector<const std::string*> parts;  // without those that are empty
  for (const Tensor* tensor : call.inputs)
    if (!tensor->data.empty()) parts.push_back(&tensor->data);
  for (std::int64_t o = 0; o < outer; ++o)
    for (const std::string* data : parts) {
      const std::size_t part = data->size() / static_cast<std::size_t>(outer);
      result.data.append(*data, static_cast<std::size_t>(o) * part, part);
    }
  return result;
}

Tensor gathered_axis(const Call& call) {
  const Tensor &tensor = call.input(0), &indices = call.input(1);
  const std::size_t axis = checked_axis(call.node, integer(call.node, "axis", 0), tensor.dims.size());
  Dims dims = tensor.dims;
  const auto at = dims.begin() + static_cast<std::ptrdiff_t>(axis);
  const std::int64_t extent = *at;
  dims.insert(dims.erase(at), indices.dims.begin(), indices.dims.end());
  (void)call.elements_of(dims);
  const Dims strides = strides_of(tensor.dims);
  const auto split = static_cast<std::ptrdiff_t>(axis);
  const Dims before(tensor.dims.begin(), tensor.dims.begin() + split),
      after(tensor.dims.begin() + split + 1, tensor.dims.end());
  Dims places;
  const Dims inner_places = places_of(after, strides_of(after)), wanted = indices.as_integers();
  for (const std::int64_t outer : places_of(before, strides))
    for (const std::int64_t index : wanted) {
      if (index < -extent || index >= extent) fail(call.node, fmt::format("index {} of {}", index, extent));
      const std::int64_t begin = outer + (index < 0 ? index + extent : index) * strides[axis];
      for (const std::int64_t place : inner_places) places.push_back(begin + place);
    }
  return gathered(call, tensor, dims, places);
}

/// Begin and number of values of a range with any step, as NumPy has it.
std::pair<std::int64_t, std::int64_t> stepped(const Call& call, const SliceRange& range, std::int64_t extent) {
  if (range.step == 0) fail(call.node, "a step of 0");
  const bool back = range.step < 0;
  const auto place = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? std::max(at, -extent - 1) + extent : at, back ? -1 : 0,
                                    back ? extent - 1 : extent);
  };
  const std::int64_t start = place(range.start), end = place(range.end);
  const std::int64_t distance = back ? start - end : end - start;
  const std::int64_t step = std::min<std::int64_t>(back ? -std::max(range.step, -extent - 1) : range.step, extent + 1);
  return {start, distance <= 0 ? 0 : (distance + step - 1) / step};
}

Tensor sliced(const Call& call) {
  const Tensor& tensor = call.input(0);
  Dims dims = tensor.dims, strides = strides_of(tensor.dims);
  std::int64_t begin = 0;
  for (const SliceRange& range : slice_ranges(call.node, call.inputs, dims.size())) {
    const auto axis = static_cast<std::size_t>(range.axis);
    const auto [start, count] = stepped(call, range, tensor.dims[axis]);
    begin += start * strides[axis];
    dims[axis] = count;
    strides[axis] *= std::clamp(range.step, -tensor.dims[axis] - 1, tensor.dims[axis] + 1);
  }
  if (std::ranges::count(dims, 0) > 0) return gathered(call, tensor, dims, {});
  return gathered(call, tensor, dims, places_of(dims, strides, begin));
}

Tensor shape_of(const Call& call) {
  const Dims shape = named_extents(call.node, call.input(0).dims);
  return Tensor::of("", {std::ssize(shape)}, shape);
}

/// Extents that were computed. What has the batch's extent is the same for each sample: one is enough.
Dims extents_of(const Tensor& shape) {
  Dims dims = shape.as_integers();
  std::ranges::replace(dims, kBatch, 1);
  return dims;
}

Tensor filled(const Call& call) {
  const Dims dims = extents_of(call.input(0));
  const auto count = static_cast<std::size_t>(call.elements_of(dims));
  const auto value = call.node.attributes.find("value");
  const Tensor* one = value == call.node.attributes.end() ? nullptr : std::get_if<Tensor>(&value->second);
  if (one == nullptr) return Tensor::of("", dims, std::vector<float>(count));
  if (one->elements() != 1) fail(call.node, "a value of more than one number");
  return gathered(call, *one, dims, Dims(count, 0));
}

/// The extents that both broadcast to, as NumPy has it.
Dims broadcast(const Call& call, const Dims& a, const Dims& b) {
  Dims dims(std::max(a.size(), b.size()), 1);
  for (const Dims* other : {&a, &b})
    for (std::size_t i = 0; i < other->size(); ++i) {
      std::int64_t& extent = dims[dims.size() - other->size() + i];
      const std::int64_t wanted = (*other)[i];
      if (extent != 1 && wanted != 1 && extent != wanted) fail(call.node, "constants whose extents do not fit");
      extent = extent == 1 ? wanted : extent;
    }
  (void)call.elements_of(dims);
  return dims;
}

/// Places in a tensor that is broadcast to `dims`.
Dims broadcast_places(const Dims& tensor, const Dims& dims) {
  Dims strides(dims.size(), 0);
  const Dims own = strides_of(tensor);
  for (std::size_t i = 0; i < tensor.size(); ++i)
    strides[dims.size() - tensor.size() + i] = tensor[i] == 1 ? 0 : own[i];
  return places_of(dims, strides);
}

Tensor expanded(const Call& call) {
  const Tensor& tensor = call.input(0);
  const Dims dims = broadcast(call, tensor.dims, extents_of(call.input(1)));
  if (std::ranges::count(dims, 0) > 0) fail(call.node, "a shape without values");
  return gathered(call, tensor, dims, broadcast_places(tensor.dims, dims));
}

/// The numbers from a start to before a limit. Of as many as the batch has, the first.
Tensor range(const Call& call) {
  const bool floating = is_floating(call.input(0));
  std::array<double, 3> bounds{};
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor& bound = call.input(i);
    if (bound.elements() != 1 || is_floating(bound) != floating) fail(call.node, "expected three numbers of one type");
    const std::int64_t whole = floating ? 0 : bound.as_integers()[0];
    bounds[i] = floating ? bound.as_floats()[0] : whole == kBatch ? 1.0 : static_cast<double>(whole);
  }
  const auto [start, limit, step] = bounds;
  const double steps = std::ceil((limit - start) / step);
  if (!(std::abs(start) < 1e15) || !(std::abs(step) < 1e15) || step == 0 || std::isnan(steps))
    fail(call.node, "bounds that no range has");
  if (steps > static_cast<double>(call.most_elements)) fail(call.node, "computes a constant that is too large");
  const auto count = static_cast<std::int64_t>(std::max(steps, 0.0));
  if (floating) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(start + static_cast<double>(i) * step));
    return Tensor::of("", {count}, values);
  }
  Dims values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<std::int64_t>(start) + i * static_cast<std::int64_t>(step));
  return Tensor::of("", {count}, values);
}

template <class Value>
Tensor combined(const Call& call, const std::vector<Value>& a, const std::vector<Value>& b, auto&& function) {
  const Dims dims = broadcast(call, call.input(0).dims, call.input(1).dims);
  if (std::ranges::count(dims, 0) > 0) fail(call.node, "constants without values");
  const Dims in_a = broadcast_places(call.input(0).dims, dims), in_b = broadcast_places(call.input(1).dims, dims);
  std::vector<Value> result;
  for (std::size_t i = 0; i < in_a.size(); ++i)
    result.push_back(function(a[static_cast<std::size_t>(in_a[i])], b[static_cast<std::size_t>(in_b[i])]));
  return Tensor::of("", dims, std::span<const Value>(result));
}

/// Wraps instead of overflowing, which no shape needs and a damaged file may ask for.
std::int64_t wrapped(std::int64_t a, std::int64_t b, std::string_view op) {
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  return static_cast<std::int64_t>(op == "Add" ? x + y : op == "Sub" ? x - y : x * y);
}

/// Computes an op of a multiple of the batch's unknown extent: only + 0, - 0, and products and quotients that are
/// multiples or numbers do not throw.
std::int64_t with_batch(const Call& call, std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const std::string& op = call.node.op;
  const std::int64_t m = batch_multiple(a), n = batch_multiple(b), other = m > 0 ? b : a;
  if (op == "Div" && m > 0 && n > 0 && m % n == 0) return m / n;
  if (op == "Div" && m > 0 && b > 0 && m % b == 0) return of_batch(m / b);
  if (op == "Mul" && other > 0 && other < kMost && std::max(m, n) < kMost / other)
    return of_batch(std::max(m, n) * other);
  if (other == 0 && (op == "Add" || (op == "Sub" && m > 0))) return of_batch(std::max(m, n));
  fail(call.node, "computes with the batch's size");
}

Tensor arithmetic(const Call& call) {
  const std::string& op = call.node.op;
  if (op == "Mod" && (is_floating(call.input(0)) || integer(call.node, "fmod", 0) != 0))
    fail(call.node, "of floats, or as C's fmod; expected integers");
  if (is_floating(call.input(0)))
    return combined<float>(call, call.input(0).as_floats(), call.input(1).as_floats(), [&](float a, float b) {
      return op == "Add" ? a + b : op == "Sub" ? a - b : op == "Mul" ? a * b : op == "Div" ? a / b : std::pow(a, b);
    });
  return combined<std::int64_t>(call, call.input(0).as_integers(), call.input(1).as_integers(),
                                [&](std::int64_t a, std::int64_t b) {
                                  if (op == "Pow") fail(call.node, "of integers");
                                  if (batch_multiple(a) > 0 || batch_multiple(b) > 0) return with_batch(call, a, b);
                                  if ((op == "Div" || op == "Mod") && (b == 0 || b == -1))
                                    fail(call.node, "divides by 0 or -1");
                                  if (op == "Mod") return (a % b + b) % b;  // of the divisor's sign
                                  return op == "Div" ? a / b : wrapped(a, b, op);
                                });
}

/// 1 or 0 of two integers. The batch's extent equals itself alone; it is not ordered.
Tensor compared(const Call& call) {
  const std::string& op = call.node.op;
  const auto holds = [&](auto a, auto b) {
    return op == "Equal"         ? a == b
           : op == "Less"        ? a < b
           : op == "LessOrEqual" ? a <= b
           : op == "Greater"     ? a > b
                                 : a >= b;
  };
  if (is_floating(call.input(0))) {
    const Tensor result = combined<float>(call, call.input(0).as_floats(), call.input(1).as_floats(),
                                          [&](float a, float b) { return holds(a, b) ? 1.0f : 0.0f; });
    return to_type(call, result, false);
  }
  return combined<std::int64_t>(call, call.input(0).as_integers(), call.input(1).as_integers(),
                                [&](std::int64_t a, std::int64_t b) -> std::int64_t {
                                  if ((batch_multiple(a) > 0 || batch_multiple(b) > 0) && op != "Equal")
                                    fail(call.node, "computes with the batch's size");
                                  return holds(a, b) ? 1 : 0;
                                });
}

Tensor logical(const Call& call) {
  const std::string& op = call.node.op;
  return combined<std::int64_t>(call, call.input(0).as_integers(), call.input(1).as_integers(),
                                [&](std::int64_t a, std::int64_t b) -> std::int64_t {
                                  return (op == "And" ? a != 0 && b != 0 : a != 0 || b != 0) ? 1 : 0;
                                });
}

Tensor negated(const Call& call) {
  Dims values = call.input(0).as_integers();
  for (std::int64_t& value : values) value = value == 0 ? 1 : 0;
  return Tensor::of("", call.input(0).dims, values);
}

/// The smallest or largest of one or more tensors.
Tensor extreme(const Call& call) {
  Tensor result = call.input(0);
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    const std::vector<const Tensor*> pair{&result, &call.input(i)};
    const Call two{call.node, pair, call.most_elements};
    const bool least = call.node.op == "Min";
    if (is_floating(result))
      result = combined<float>(two, result.as_floats(), pair[1]->as_floats(),
                               [&](float a, float b) { return least ? std::min(a, b) : std::max(a, b); });
    else
      result = combined<std::int64_t>(two, result.as_integers(), pair[1]->as_integers(),
                                      [&](std::int64_t a, std::int64_t b) {
                                        if (batch_multiple(a) > 0 || batch_multiple(b) > 0)
                                          fail(call.node, "computes with the batch's size");
                                        return least ? std::min(a, b) : std::max(a, b);
                                      });
  }
  return result;
}

Tensor chosen(const Call& call) {
  const Tensor &condition = call.input(0), &a = call.input(1), &b = call.input(2);
  if (a.type != b.type) fail(call.node, "constants of several types");
  const Dims dims = broadcast(call, broadcast(call, condition.dims, a.dims), b.dims);
  if (std::ranges::count(dims, 0) > 0) fail(call.node, "constants without values");
  const Dims which = broadcast_places(condition.dims, dims), in_a = broadcast_places(a.dims, dims),
             in_b = broadcast_places(b.dims, dims), holds = condition.as_integers();
  Tensor result{.type = a.type, .dims = dims};
  const auto bytes = static_cast<std::size_t>(facts_of(a.type).bytes);
  for (std::size_t i = 0; i < which.size(); ++i) {
    const bool first = holds[static_cast<std::size_t>(which[i])] != 0;
    result.data.append((first ? a : b).data, static_cast<std::size_t>(first ? in_a[i] : in_b[i]) * bytes, bytes);
  }
  return result;
}

Tensor element_count(const Call& call) {
  const std::int64_t count = call.input(0).elements();
  return Tensor::of("", {}, std::span(&count, 1));
}

/// Over axes, or over all of them where none are named: of weights that are normalised while the network runs.
Tensor reduced(const Call& call) {
  const Tensor& tensor = call.input(0);
  const std::string& op = call.node.op;
  const Dims axes = axes_of(call, 1, tensor.dims.size());
  if (axes.empty() && integer(call.node, "noop_with_empty_axes", 0) != 0) return tensor;
  const bool keep = integer(call.node, "keepdims", 1) != 0, floating = is_floating(tensor);
  Dims dims, strides;  // of the result, by axis of the tensor
  std::int64_t count = 1, size = 1;
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    const bool gone = axes.empty() || std::ranges::count(axes, static_cast<std::int64_t>(i)) > 0;
    if (gone) count *= tensor.dims[i];
    if (!gone || keep) dims.push_back(gone ? 1 : tensor.dims[i]);
    strides.push_back(gone ? 0 : 1);
  }
  for (std::size_t i = strides.size(); i-- > 0;)
    if (strides[i] != 0) {
      strides[i] = size;
      size *= tensor.dims[i];
    }
  const Dims places = places_of(tensor.dims, strides);
  const bool product = op == "ReduceProd", least = op == "ReduceMin", most = op == "ReduceMax";
  const Dims whole = floating ? Dims{} : tensor.as_integers();
  const std::vector<float> values = floating ? tensor.as_floats() : std::vector<float>{};
  if (std::ranges::any_of(whole, batch_multiple)) fail(call.node, "computes with the batch's size");
  std::vector<double> results(static_cast<std::size_t>(size), product ? 1.0
                                                              : least ? HUGE_VAL
                                                              : most  ? -HUGE_VAL
                                                                      : 0.0);
  for (std::size_t i = 0; i < places.size(); ++i) {
    double& result = results[static_cast<std::size_t>(places[i])];
    const double value = floating ? values[i] : static_cast<double>(whole[i]);
    if (op == "ReduceL2" || op == "ReduceSumSquare")
      result += value * value;
    else if (product)
      result *= value;
    else if (least)
      result = std::min(result, value);
    else if (most)
      result = std::max(result, value);
    else
      result += op == "ReduceL1" ? std::abs(value) : value;
  }
  if (op == "ReduceMean")
    for (double& result : results) result /= static_cast<double>(count);
  if (op == "ReduceL2")
    for (double& result : results) result = std::sqrt(result);
  if (floating) return Tensor::of("", dims, std::vector<float>(results.begin(), results.end()));
  Dims integers;
  for (const double result : results) {
    if (!(std::abs(result) < 1e15)) fail(call.node, "a number that is too large");
    integers.push_back(static_cast<std::int64_t>(result));
  }
  return Tensor::of("", dims, integers);
}

Tensor of_each(const Call& call, float (*function)(float)) {
  if (!is_floating(call.input(0))) {  // Neg and Abs are defined of integers, too
    Dims integers = call.input(0).as_integers();
    for (std::int64_t& value : integers) {
      if (value > (1 << 24) || value < -(1 << 24)) fail(call.node, "of an integer that is too large");
      value = static_cast<std::int64_t>(function(static_cast<float>(value)));
    }
    return Tensor::of("", call.input(0).dims, integers);
  }
  std::vector<float> values = call.input(0).as_floats();
  std::ranges::transform(values, values.begin(), function);
  return Tensor::of("", call.input(0).dims, values);
}

Tensor same(const Call& call) { return call.input(0); }

/// Computes BatchNormalization of constants, as networks standardise weights: by their own or by constant statistics.
Tensor normalised(const Call& call) {
  const Tensor& tensor = call.input(0);
  if (tensor.dims.size() < 2 || tensor.elements() == 0) fail(call.node, "a constant without channels");
  const auto channels = static_cast<std::size_t>(tensor.dims[1]);
  std::array<std::vector<float>, 4> given;  // scale, shift, mean, variance
  const bool own = integer(call.node, "training_mode", 0) != 0;
  for (std::size_t i = 0; i < (own ? 2u : 4u); ++i) {
    given[i] = call.input(i + 1).as_floats();
    if (given[i].size() != channels) fail(call.node, fmt::format("input {} has not one value a channel", i + 1));
  }
  Dims strides(tensor.dims.size(), 0);
  strides[1] = 1;
  const Dims channel = places_of(tensor.dims, strides);
  std::vector<float> values = tensor.as_floats();
  std::vector<double> mean(given[2].begin(), given[2].end()), variance(given[3].begin(), given[3].end());
  if (own) {
    const double count = static_cast<double>(values.size() / channels);
    mean.assign(channels, 0);
    variance.assign(channels, 0);
    for (std::size_t i = 0; i < values.size(); ++i) mean[static_cast<std::size_t>(channel[i])] += values[i] / count;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto c = static_cast<std::size_t>(channel[i]);
      variance[c] += (values[i] - mean[c]) * (values[i] - mean[c]) / count;
    }
  }
  const double epsilon = number(call.node, "epsilon", 1e-5f);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<std::size_t>(channel[i]);
    values[i] =
        static_cast<float>((values[i] - mean[c]) / std::sqrt(variance[c] + epsilon) * given[0][c] + given[1][c]);
  }
  return Tensor::of("", tensor.dims, values);
}

using Function = Tensor (*)(const Call&);
constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"Constant", constant},
    {"Identity", same},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"Expand", expanded},
    {"Range", range},
    {"Equal", compared},
    {"Less", compared},
    {"LessOrEqual", compared},
    {"Greater", compared},
    {"GreaterOrEqual", compared},
    {"And", logical},
    {"Or", logical},
    {"Not", negated},
    {"Min", extreme},
    {"Max", extreme},
    {"Where", chosen},
    {"Size", element_count},
    {"BatchNormalization", normalised},
    {"ReduceSum", reduced},
    {"ReduceMean", reduced},
    {"ReduceProd", reduced},
    {"ReduceMin", reduced},
    {"ReduceMax", reduced},
    {"ReduceL1", reduced},
    {"ReduceL2", reduced},
    {"ReduceSumSquare", reduced},
    {"Transpose", transposed},
    {"Reshape", reshaped},
    {"Squeeze", squeezed},
    {"Unsqueeze", unsqueezed},
    {"Concat", concatenated},
    {"Gather", gathered_axis},
    {"Slice", sliced},
    {"Shape", shape_of},
    {"ConstantOfShape", filled},
    {"Add", arithmetic},
    {"Sub", arithmetic},
    {"Mul", arithmetic},
    {"Div", arithmetic},
    {"Pow", arithmetic},
    {"Mod", arithmetic},
    {"Abs", [](const Call& call) { return of_each(call, [](float x) { return std::abs(x); }); }},
    {"Log", [](const Call& call) { return of_each(call, [](float x) { return std::log(x); }); }},
    {"Sqrt", [](const Call& call) { return of_each(call, [](float x) { return std::sqrt(x); }); }},
    {"Neg", [](const Call& call) { return of_each(call, [](float x) { return -x; }); }},
    {"Exp", [](const Call& call) { return of_each(call, [](float x) { return std::exp(x); }); }},
    {"Floor", [](const Call& call) { return of_each(call, [](float x) { return std::floor(x); }); }},
    {"Ceil", [](const Call& call) { return of_each(call, [](float x) { return std::ceil(x); }); }},
    {"Reciprocal", [](const Call& call) { return of_each(call, [](float x) { return 1 / x; }); }}};

}  // namespace

Computed compute(const Node& node, const std::vector<const Tensor*>& inputs, std::int64_t most_elements) {
  const auto* found = std::ranges::find(kFunctions, node.op, &std::pair<std::string_view, Function>::first);
  if (found == std::end(kFunctions)) return {.known = false};
  constexpr std::string_view kReadNothing[] = {"ConstantOfShape", "Concat", "Identity", "Cast",
                                               "CastLike",        "Shape",  "Size"};  // that may be empty
  if (!inputs.empty() && inputs[0] != nullptr && inputs[0]->elements() == 0 &&
      std::ranges::find(kReadNothing, node.op) == std::end(kReadNothing))
    fail(node, "reads a constant without values");
  return {.tensor = found->second({node, inputs, most_elements})};
}

std::vector<std::int64_t> named_extents(const Node& node, const std::vector<std::int64_t>& extents) {
  const std::int64_t count = std::ssize(extents);
  const auto place = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count); };
  const std::int64_t start = place(integer(node, "start", 0));
  const std::int64_t end = std::max(place(integer(node, "end", count)), start);
  return {extents.begin() + start, extents.begin() + end};
}

std::vector<SliceRange> slice_ranges(const Node& node, const std::vector<const Tensor*>& inputs, std::size_t rank) {
  const auto values = [&](std::size_t input, const char* attribute) {
    if (input < inputs.size() && inputs[input] != nullptr) return inputs[input]->as_integers();
    return integers(node, attribute);
  };
  const Dims starts = values(1, "starts"), ends = values(2, "ends"), axes = values(3, "axes"),
             steps = values(4, "steps");
  if (starts.empty() || ends.size() != starts.size() || (!axes.empty() && axes.size() != starts.size()) ||
      (!steps.empty() && steps.size() != starts.size()))
    fail(node, "starts, ends, axes and steps do not fit, or are no constants");
  std::vector<SliceRange> ranges;
  std::vector<bool> cut(rank);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t axis = checked_axis(node, axes.empty() ? static_cast<std::int64_t>(i) : axes[i], rank);
    if (cut[axis]) fail(node, fmt::format("axes names axis {} twice", axis));
    cut[axis] = true;
    ranges.push_back({.axis = static_cast<std::int64_t>(axis),
                      .start = starts[i],
                      .end = ends[i],
                      .step = steps.empty() ? 1 : steps[i]});
  }
  return ranges;
}

SliceRange resolved(const Node& node, SliceRange range, const Dims& extents) {
  if (range.step < 1) fail(node, fmt::format("a step of {}; expected one forwards", range.step));
  const std::int64_t extent = extents[static_cast<std::size_t>(range.axis)];
  const auto place = [&](std::int64_t at) {
    if (at == kBatch) return std::int64_t{0};
    return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent);
  };
  range.start = place(range.start);
  range.end = std::max(place(range.end), range.start);
  return range;
}

}  // namespace bantam::onnx
