// Dropout on the CPU: eight Philox counters side by side make the 32 bits of a mask word.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/contracts/elementwise/dropout.h"

#include <algorithm>
#include <cmath>

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/device/convert.h"

namespace bantam::kernels::cpu {
namespace {

constexpr int kLanes = 8;                   // counters at once: 32 random words
constexpr std::int64_t kWordsOfChunk = 16;  // mask words handled together
constexpr std::int64_t kChunksOfPart = 16;

/// v[component][lane] of philox(key, {first.v[0] + lane, first.v[1], …}); the rounds are outside, so that lanes
/// vectorise.
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

/// Kept bits of elements [32·word, 32·word + 32) of sample `s`. `threshold`: what the top
/// 24 random bits must reach, which is uniform01(…) >= rate in integers, exactly.
std::uint32_t mask_word(const DropoutShape& shape, std::int32_t threshold, std::int64_t s, std::int64_t word,
                        std::int64_t update) {
  const PhiloxLanes random = philox_lanes(
      shape.key, {{static_cast<std::uint32_t>(word * kLanes), static_cast<std::uint32_t>(shape.first_sample + s),
                   static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)}});
  std::uint32_t bits = 0;
  for (int component = 0; component < 4; ++component) {
#pragma omp simd reduction(| : bits)
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto drawn = static_cast<std::int32_t>(random.v[component][lane] >> 8);
      bits |= (drawn >= threshold ? 1u : 0u) << (4 * lane + component);
    }
  }
  return bits;
}

/// The first `left` bits of a word; all where there are as many.
std::uint32_t first_bits(std::uint32_t bits, std::int64_t left) {
  return left >= 32 ? bits : bits & ((1u << left) - 1u);
}

std::int32_t keep_threshold(float rate) { return static_cast<std::int32_t>(std::ceil(rate * 16777216.0f)); }

/// values[i] = bit i of `bits` ? values[i]·factor : 0. Multiplied in any case, so that no branch is left.
void mask_values(std::uint32_t bits, float factor, float* values) {
#pragma omp simd
  for (int i = 0; i < 32; ++i) {
    const float scaled = values[i] * factor;
    values[i] = (bits & (1u << i)) != 0 ? scaled : 0.0f;
  }
}

/// A chunk of one sample's row: elements [at, at + count) of the tensor, and where the mask holds their bits.
struct RowChunk {
  std::int64_t sample, first_word, at, count;
  std::int64_t words;  // index of the first mask word
};

/// Calls work(chunk) for chunks of at most kWordsOfChunk mask words, which cover all rows.
template <class Work>
void for_each_chunk(const Exec& exec, const DropoutShape& shape, Work&& work) {
  const std::int64_t row_words = (shape.sample_elements + 31) / 32;
  const std::int64_t row_chunks = (row_words + kWordsOfChunk - 1) / kWordsOfChunk;
  parallel_ranges(shape.samples * row_chunks, kChunksOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sample = i / row_chunks, first_word = i % row_chunks * kWordsOfChunk;
      const std::int64_t first = first_word * 32;
      work(RowChunk{sample, first_word, sample * shape.sample_elements + first,
                    std::min(kWordsOfChunk * 32, shape.sample_elements - first), sample * row_words + first_word});
    }
  });
}

/// y = x·factor where the mask's bit is set, 0 elsewhere, over a chunk.
template <class T>
void apply_mask(const std::uint32_t* words, std::int64_t count, float factor, const T* x, T* y) {
  float values[kWordsOfChunk * 32] = {};
  widen(x, values, count);
  for (std::int64_t w = 0; w * 32 < count; ++w) mask_values(words[w], factor, values + w * 32);
  narrow(values, y, count);
}

}  // namespace

void dropout_forward(const Exec& exec, const DropoutShape& shape, DType dtype, const std::int64_t* update,
                     const void* x, void* y, std::uint32_t* mask) {
  const float factor = 1.0f / (1.0f - shape.rate);
  const std::int32_t threshold = keep_threshold(shape.rate);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_chunk(exec, shape, [&](const RowChunk& s) {
      std::uint32_t* words = mask + s.words;
      for (std::int64_t w = 0; w * 32 < s.count; ++w) {
        const std::uint32_t bits = mask_word(shape, threshold, s.sample, s.first_word + w, *update);
        words[w] = first_bits(bits, s.count - w * 32);
      }
      apply_mask(words, s.count, factor, static_cast<const T*>(x) + s.at, static_cast<T*>(y) + s.at);
    });
  });
}

void dropout_grad(const Exec& exec, const DropoutShape& shape, DType dtype, const std::uint32_t* mask, const void* dy,
                  void* dx) {
  const float factor = 1.0f / (1.0f - shape.rate);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_chunk(exec, shape, [&](const RowChunk& s) {
      apply_mask(mask + s.words, s.count, factor, static_cast<const T*>(dy) + s.at, static_cast<T*>(dx) + s.at);
    });
  });
}

}  // namespace bantam::kernels::cpu
