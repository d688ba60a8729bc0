// One forward and backward pass as a program's own loop would make it: outside a training step, so that gradients lie
// in the arena as they are when it returns.
#pragma once

#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing {

inline void walk(Model& model, const Optimizer& optimizer, const Batch& batch, std::int64_t effective_batch) {
  Context ctx = model.context(Pass::train);
  Tape tape;
  ctx.tape = &tape;
  const Tensor loss =
      model.forward_loss(ctx, batch.tensors, *softmax_cross_entropy(),
                         {.divisor = static_cast<float>(effective_batch), .seed = optimizer.loss_scale()});
  (void)tape.backward(ctx, loss, optimizer.loss_scale());
}

}  // namespace bantam::testing
