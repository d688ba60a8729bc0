// Dropout on the CPU: eight Philox counters side by side make the 32 bits of a mask word.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/elementwise/dropout.h"

#include <algorithm>
#include <cmath>

#include "bantam/kernels/common/cpu/blocks.h"

namespace bantam::kernels::cpu {
namespace {

constexpr int kLanes = 8;                   // counters at once: 32 random words
constexpr std::int64_t kWordsOfChunk = 16;  // mask words handled together
constexpr std::int64_t kChunksOfPart = 16;
constexpr std::int64_t kValuesOfPart = kWordsOfChunk * 32 * kChunksOfPart;

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

/// A chunk of a row: values [at, at + count) of the tensor, and where the mask holds their bits.
struct RowChunk {
  std::int64_t sample, first_word, at, count;
  std::int64_t words;  // index of the first mask word
};

/// How a sample's values lie: `rows` rows of as many values as there are random numbers.
struct SampleRows {
  std::int64_t rows, values, words;
  explicit SampleRows(const DropoutShape& shape)
      : rows(shape.sample_elements / std::max<std::int64_t>(shape.row_draws(), 1)),
        values(shape.row_draws()),
        words((values + 31) / 32) {}
};

/// Calls work(chunk) for chunks of at most kWordsOfChunk mask words, which cover the first `rows` rows of all samples.
template <class Work>
void for_each_chunk(const Exec& exec, const DropoutShape& shape, std::int64_t rows, Work&& work) {
  const SampleRows sample(shape);
  const std::int64_t row_chunks = (sample.words + kWordsOfChunk - 1) / kWordsOfChunk;
  const std::int64_t grain =
      std::max<std::int64_t>(kChunksOfPart, kValuesOfPart / std::max<std::int64_t>(sample.values, 1));
  parallel_ranges(shape.samples * rows * row_chunks, grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / row_chunks, s = row / rows, first_word = i % row_chunks * kWordsOfChunk;
      const std::int64_t first = first_word * 32;
      work(RowChunk{s, first_word, s * shape.sample_elements + row % rows * sample.values + first,
                    std::min(kWordsOfChunk * 32, sample.values - first), s * sample.words + first_word});
    }
  });
}

/// The random numbers' bits, of all samples.
void draw_mask(const Exec& exec, const DropoutShape& shape, std::int64_t update, std::uint32_t* mask) {
  const std::int32_t threshold = keep_threshold(shape.rate);
  for_each_chunk(exec, shape, 1, [&](const RowChunk& s) {
    for (std::int64_t w = 0; w * 32 < s.count; ++w) {
      const std::uint32_t bits = mask_word(shape, threshold, s.sample, s.first_word + w, update);
      mask[s.words + w] = first_bits(bits, s.count - w * 32);
    }
  });
}

/// y = x·factor where the mask's bit is set, 0 elsewhere, over a chunk.
template <class T>
void apply_mask(const std::uint32_t* words, std::int64_t count, float factor, const T* x, T* y) {
  float values[kWordsOfChunk * 32];
  widen(x, values, count);
  std::fill(values + count, values + (count + 31) / 32 * 32, 0.0f);
  for (std::int64_t w = 0; w * 32 < count; ++w) mask_values(words[w], factor, values + w * 32);
  narrow(values, y, count);
}

/// The same over all samples, each of which is kept or dropped as a whole.
template <class T>
void apply_to_samples(const Exec& exec, const DropoutShape& shape, const std::uint32_t* mask, float factor, const T* x,
                      T* y) {
  const std::int64_t chunks = (shape.sample_elements + kValuesOfPart - 1) / kValuesOfPart;
  parallel_ranges(shape.samples * chunks, 1, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t s = i / chunks, first = i % chunks * kValuesOfPart;
      const std::int64_t at = s * shape.sample_elements + first;
      const std::int64_t count = std::min(kValuesOfPart, shape.sample_elements - first);
      if (mask[s] == 0)
        std::fill(y + at, y + at + count, T(0.0f));
      else
        map_range(at, at + count, x, y, [factor](const float* from, float* to, std::int64_t n) {
#pragma omp simd
          for (std::int64_t k = 0; k < n; ++k) to[k] = from[k] * factor;
        });
    }
  });
}

/// y = x·factor where the mask says so, 0 elsewhere.
template <class T>
void apply(const Exec& exec, const DropoutShape& shape, const std::uint32_t* mask, const T* x, T* y) {
  const float factor = 1.0f / (1.0f - shape.rate);
  if (shape.draws == 1) return apply_to_samples(exec, shape, mask, factor, x, y);
  for_each_chunk(exec, shape, SampleRows(shape).rows,
                 [&](const RowChunk& s) { apply_mask(mask + s.words, s.count, factor, x + s.at, y + s.at); });
}

}  // namespace

void dropout_forward(const Exec& exec, const DropoutShape& shape, DType dtype, const std::int64_t* update,
                     const void* x, void* y, std::uint32_t* mask) {
  draw_mask(exec, shape, *update, mask);
  dropout_grad(exec, shape, dtype, mask, x, y);  // the same product
}

void dropout_grad(const Exec& exec, const DropoutShape& shape, DType dtype, const std::uint32_t* mask, const void* dy,
                  void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    apply(exec, shape, mask, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace bantam::kernels::cpu
