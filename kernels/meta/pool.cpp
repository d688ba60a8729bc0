// Work of pooling: input and output once, and the winners' places.
#include "bantam/kernels/contracts/pool/pool2d.h"
#include "bantam/kernels/meta/work.h"

namespace bantam::kernels::meta {
namespace {

KernelWork pass(const Pool2dShape& s, DType dtype, const std::uint16_t* winner = nullptr) {
  return {.bytes = bytes_of(s.x_elements() + s.y_elements(), dtype) + unless_null(winner, 2 * s.y_elements())};
}

}  // namespace

void max_pool2d_forward(const Exec& exec, const Pool2dShape& s, DType dtype, const void*, void*,
                        std::uint16_t* winner) {
  note(exec, "max_pool2d_forward", pass(s, dtype, winner));
}
void max_pool2d_grad_input(const Exec& exec, const Pool2dShape& s, DType dtype, const void*,
                           const std::uint16_t* winner, void*) {
  note(exec, "max_pool2d_grad_input", pass(s, dtype, winner));
}
void avg_pool2d_forward(const Exec& exec, const Pool2dShape& s, DType dtype, bool, const void*, void*) {
  note(exec, "avg_pool2d_forward", pass(s, dtype));
}
void avg_pool2d_grad_input(const Exec& exec, const Pool2dShape& s, DType dtype, bool, const void*, void*) {
  note(exec, "avg_pool2d_grad_input", pass(s, dtype));
}

}  // namespace bantam::kernels::meta
