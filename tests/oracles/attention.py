#!/usr/bin/env python3
"""Scaled dot-product attention and its gradient by PyTorch (CPU, any 2.x), as a C++ header: attention.py > tests/kernels/attention/attention_oracle.h

qkv (batch, tokens, 3, heads, size) and dout (batch, tokens, heads, size) are formulas: eighths of whole numbers."""
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def eighths(count, step, modulus):
    return torch.tensor([((i * step) % modulus - modulus // 2) / 8 for i in range(count)])


def listed(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values.flatten().tolist()) + "}"


def case(batch, tokens, heads, size):
    qkv = eighths(batch * tokens * 3 * heads * size, 37, 23).reshape(batch, tokens, 3, heads, size).requires_grad_()
    dout = eighths(batch * tokens * heads * size, 29, 19).reshape(batch, tokens, heads, size)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    o.backward(dout)
    lse = torch.logsumexp(q @ k.transpose(2, 3) / math.sqrt(size), -1)
    arrays = ", ".join(listed(t.detach()) for t in (qkv, dout, o, lse, qkv.grad))
    print(f"      {{{batch}, {tokens}, {heads}, {size}, {arrays}}},")


print("""// PyTorch's attention and its gradient: written by tests/oracles/attention.py.
#pragma once

#include <cstdint>
#include <vector>

namespace bantam::testing {

struct AttentionOracle {
  std::int64_t batch, tokens, heads, size;
  std::vector<double> qkv, dout, o, lse, dqkv;
};

inline std::vector<AttentionOracle> attention_oracles() {
  return {""")
case(1, 3, 1, 8)
case(2, 4, 2, 12)
print("""  };
}

}  // namespace bantam::testing""")
