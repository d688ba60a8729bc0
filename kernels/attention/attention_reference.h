// Attention as plain loops over all scores: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/attention/attention.h"

namespace bantam::kernels::reference {

/// Where rows of a head lie in qkv and in o.
struct AttentionRows {
  const AttentionShape& shape;
  /// The first element of a token's row; `part`: 0 queries, 1 keys, 2 values.
  std::size_t qkv(std::int64_t sample, std::int64_t head, std::int64_t token, std::int64_t part) const {
    return static_cast<std::size_t>((((sample * shape.tokens + token) * 3 + part) * shape.heads + head) * shape.size);
  }
  std::size_t o(std::int64_t sample, std::int64_t head, std::int64_t token) const {
    return static_cast<std::size_t>(((sample * shape.tokens + token) * shape.heads + head) * shape.size);
  }
  std::size_t lse(std::int64_t sample, std::int64_t head, std::int64_t token) const {
    return static_cast<std::size_t>((sample * shape.heads + head) * shape.tokens + token);
  }
};

/// Σ a·b of two rows.
template <class T>
T dot(const AttentionShape& shape, const T* a, const T* b) {
  T sum = 0;
  for (std::int64_t i = 0; i < shape.size; ++i) sum += a[i] * b[i];
  return sum;
}

/// Calls query(sample, head, token) for every row of scores.
template <class Query>
void for_queries(const AttentionShape& shape, Query&& query) {
  for (std::int64_t sample = 0; sample < shape.batch; ++sample)
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (std::int64_t token = 0; token < shape.tokens; ++token) query(sample, head, token);
}

/// o (batch, tokens, heads, size) and lse (batch, heads, tokens).
template <class T>
struct AttentionOutput {
  std::vector<T> o, lse;
};

template <class T>
AttentionOutput<T> attention_forward(const AttentionShape& s, const std::vector<T>& qkv) {
  const AttentionRows rows{s};
  AttentionOutput<T> out{std::vector<T>(qkv.size() / 3), std::vector<T>(static_cast<std::size_t>(s.rows() * s.heads))};
  std::vector<T> scores(static_cast<std::size_t>(s.tokens));
  for_queries(s, [&](std::int64_t sample, std::int64_t head, std::int64_t token) {
    const T* q = &qkv[rows.qkv(sample, head, token, 0)];
    for (std::int64_t key = 0; key < s.tokens; ++key)
      scores[static_cast<std::size_t>(key)] = T(s.scale) * dot(s, q, &qkv[rows.qkv(sample, head, key, 1)]);
    const T top = *std::max_element(scores.begin(), scores.end());
    T sum = 0;
    for (T& score : scores) sum += score = std::exp(score - top);
    out.lse[rows.lse(sample, head, token)] = top + std::log(sum);
    T* o = &out.o[rows.o(sample, head, token)];
    for (std::int64_t key = 0; key < s.tokens; ++key) {
      const T p = scores[static_cast<std::size_t>(key)] / sum;
      const T* v = &qkv[rows.qkv(sample, head, key, 2)];
      for (std::int64_t i = 0; i < s.size; ++i) o[i] += p * v[i];
    }
  });
  return out;
}

/// dqkv like qkv, from what forward wrote.
template <class T>
std::vector<T> attention_backward(const AttentionShape& s, const std::vector<T>& qkv, const AttentionOutput<T>& saved,
                                  const std::vector<T>& dout) {
  const AttentionRows rows{s};
  std::vector<T> dqkv(qkv.size());
  for_queries(s, [&](std::int64_t sample, std::int64_t head, std::int64_t token) {
    const T *q = &qkv[rows.qkv(sample, head, token, 0)], *g = &dout[rows.o(sample, head, token)];
    const T delta = dot(s, g, &saved.o[rows.o(sample, head, token)]), lse = saved.lse[rows.lse(sample, head, token)];
    T* dq = &dqkv[rows.qkv(sample, head, token, 0)];
    for (std::int64_t key = 0; key < s.tokens; ++key) {
      const T *k = &qkv[rows.qkv(sample, head, key, 1)], *v = &qkv[rows.qkv(sample, head, key, 2)];
      T *dk = &dqkv[rows.qkv(sample, head, key, 1)], *dv = &dqkv[rows.qkv(sample, head, key, 2)];
      const T p = std::exp(T(s.scale) * dot(s, q, k) - lse);
      const T ds = T(s.scale) * p * (dot(s, g, v) - delta);
      for (std::int64_t i = 0; i < s.size; ++i) {
        dv[i] += p * g[i];
        dk[i] += ds * q[i];
        dq[i] += ds * k[i];
      }
    }
  });
  return dqkv;
}

}  // namespace bantam::kernels::reference
