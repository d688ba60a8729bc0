// Reshape: a view; the gradient is viewed back.
#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

Tensor reshape(const Context& context, const Tensor& x, const Shape& shape) {
  Tensor y = x.view(shape);
  if (!records(context, {&x})) return y;
  context.tape->record(context, y,
                       [x_ref = ValueRef(x), from = x.shape()](const Context& ctx, Tensor dy, GradientStore& store) {
                         store.add(ctx, x_ref, dy.view(from));
                       });
  if (recipe_of(x) != nullptr) {
    const SavedTensor saved = x;
    attach_recipe(
        context, y, {&saved}, [=](const Context& ctx) { return saved.get(ctx).view(shape); }, true);
  }
  return y;
}

Tensor flatten(const Context& context, const Tensor& x) {
  if (x.shape().rank() < 1) throw ShapeError("flatten: expected (batch, …), got a scalar");
  const std::int64_t batch = x.shape()[0];
  return reshape(context, x, {batch, batch == 0 ? 0 : x.elements() / batch});
}

}  // namespace bantam::ops
