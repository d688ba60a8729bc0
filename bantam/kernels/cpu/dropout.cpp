// Dropout on the CPU: eight Philox counters side by side make the 32 bits of a mask word.
#include "bantam/kernels/dropout.h"

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/convert.h"

namespace bantam::kernels::cpu {
namespace {

constexpr int kLanes = 8;                    // counters at once: 32 random words
constexpr std::int64_t kWordsOfPart = 256;   // mask words a part

/// random[lane][component] = philox(key, {first + lane, c1, c2, c3}), the rounds outside so that lanes vectorise.
struct PhiloxLanes {
  std::uint32_t v[4][kLanes];
};

PhiloxLanes philox_lanes(PhiloxKey key, const PhiloxWords& first) {
  PhiloxLanes c;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    c.v[0][lane] = first.v[0] + lane;
    for (int i = 1; i < 4; ++i) c.v[i][lane] = first.v[i];
  }
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c.v[0][lane];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c.v[2][lane];
      c.v[0][lane] = static_cast<std::uint32_t>(p1 >> 32) ^ c.v[1][lane] ^ key.k0;
      c.v[1][lane] = static_cast<std::uint32_t>(p1);
      c.v[2][lane] = static_cast<std::uint32_t>(p0 >> 32) ^ c.v[3][lane] ^ key.k1;
      c.v[3][lane] = static_cast<std::uint32_t>(p0);
    }
    key.k0 += 0x9E3779B9u;
    key.k1 += 0xBB67AE85u;
  }
  return c;
}

/// Kept bits of elements [32·word, 32·word + valid) of sample `s`; the bits after them are 0.
std::uint32_t mask_word(const DropoutShape& shape, std::int64_t s, std::int64_t word, int valid, std::int64_t update) {
  const PhiloxLanes random = philox_lanes(
      shape.key, {{static_cast<std::uint32_t>(word * kLanes), static_cast<std::uint32_t>(shape.first_sample + s),
                   static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)}});
  std::uint32_t bits = 0;
  for (int e = 0; e < 32; ++e) {
    bits |= static_cast<std::uint32_t>(uniform01(random.v[e % 4][e / 4]) >= shape.rate) << e;
  }
  return valid == 32 ? bits : bits & ((1u << valid) - 1u);
}

/// y[i] = bit i of `bits` ? x[i]·factor : 0, for i < valid <= 32.
template <class T>
void apply_word(std::uint32_t bits, int valid, float factor, const T* x, T* y) {
  float values[32];
  widen(x, values, valid);
#pragma omp simd
  for (int i = 0; i < valid; ++i) values[i] = (bits >> i) & 1u ? values[i] * factor : 0.0f;
  narrow(values, y, valid);
}

/// Calls word(s, w, valid, first element) for every word of the mask.
template <class Word>
void for_each_word(const Exec& exec, const DropoutShape& shape, Word&& word) {
  const std::int64_t row_words = (shape.sample_elements + 31) / 32;
  parallel_ranges(shape.samples * row_words, kWordsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t s = i / row_words, w = i % row_words;
      const std::int64_t left = shape.sample_elements - w * 32;
      word(i, s, w, left < 32 ? static_cast<int>(left) : 32);
    }
  });
}

}  // namespace

void dropout_forward(const Exec& exec, const DropoutShape& shape, DType dtype, const std::int64_t* update, const void* x,
                     void* y, std::uint32_t* mask) {
  const float factor = 1.0f / (1.0f - shape.rate);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_word(exec, shape, [&](std::int64_t i, std::int64_t s, std::int64_t w, int valid) {
      mask[i] = mask_word(shape, s, w, valid, *update);
      const std::int64_t at = s * shape.sample_elements + w * 32;
      apply_word(mask[i], valid, factor, static_cast<const T*>(x) + at, static_cast<T*>(y) + at);
    });
  });
}

void dropout_grad(const Exec& exec, const DropoutShape& shape, DType dtype, const std::uint32_t* mask, const void* dy,
                  void* dx) {
  const float factor = 1.0f / (1.0f - shape.rate);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_word(exec, shape, [&](std::int64_t i, std::int64_t s, std::int64_t w, int valid) {
      const std::int64_t at = s * shape.sample_elements + w * 32;
      apply_word(mask[i], valid, factor, static_cast<const T*>(dy) + at, static_cast<T*>(dx) + at);
    });
  });
}

}  // namespace bantam::kernels::cpu
