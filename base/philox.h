// Philox4x32-10: a counter-based random generator, the same bits on host and device.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11 (constants of table 2 and section 4.3).
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/base/api.h"

#if defined(__CUDACC__)
#define BANTAM_HOST_DEVICE __host__ __device__
#else
#define BANTAM_HOST_DEVICE
#endif

BANTAM_API_BEGIN
namespace bantam {

/// Four 32-bit words: a counter going in, random bits coming out.
struct PhiloxWords {
  std::uint32_t v[4];
};

/// The purpose of a random stream. Keys of different purposes never collide; an op adds its layer's hash.
enum class RandomPurpose : std::uint32_t {
  initializer = 1,
  shuffle = 2,
  augmentation = 3,
  dropout = 4,
  dataset = 5,
  test = 6,
  planner = 7
};

/// A key: (seed, purpose, index), the index being that of a layer, an epoch, ….
struct PhiloxKey {
  std::uint32_t k0 = 0;
  std::uint32_t k1 = 0;
};

/// Mixes 64 bits (the finaliser of SplitMix64).
BANTAM_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

BANTAM_HOST_DEVICE constexpr PhiloxKey philox_key(std::uint64_t seed, RandomPurpose purpose, std::uint64_t what = 0) {
  const std::uint64_t k = mix64(mix64(seed) ^ mix64((static_cast<std::uint64_t>(purpose) << 56) ^ mix64(what)));
  return {static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32)};
}

/// FNV-1a of a name: the `what` of keys that belong to something named, the same in every build.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// Ten rounds of Philox4x32 on `counter` under `key`.
BANTAM_HOST_DEVICE constexpr PhiloxWords philox(PhiloxKey key, PhiloxWords counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.v[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter.v[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.v[1] ^ key.k0, static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.v[3] ^ key.k1, static_cast<std::uint32_t>(p0)}};
    key.k0 += 0x9E3779B9u;
    key.k1 += 0xBB67AE85u;
  }
  return counter;
}

/// 32 random bits to a float in [0, 1): the top 24 bits over 2^24, exact.
BANTAM_HOST_DEVICE constexpr float uniform01(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

/// A sequence of random words under one key, for host code that draws one after another (shuffles, initialisers,
/// drawings).
class PhiloxSequence {
 public:
  constexpr PhiloxSequence(PhiloxKey key, std::uint64_t start = 0) : key_(key), block_(start) {}
  constexpr std::uint32_t next() {
    if (used_ == 4) {
      words_ = philox(key_, {{static_cast<std::uint32_t>(block_), static_cast<std::uint32_t>(block_ >> 32), 0, 0}});
      ++block_;
      used_ = 0;
    }
    return words_.v[used_++];
  }
  /// Uniform in [0, 1).
  constexpr float uniform() { return uniform01(next()); }
  /// Uniform in [low, high).
  constexpr float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Uniform integer in [0, bound), bound > 0 (multiply-shift on 64 bits: bias below 2^-32).
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t high = next();
    const std::uint64_t bits = (high << 32) | next();
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
  }

 private:
  PhiloxKey key_;
  std::uint64_t block_;
  PhiloxWords words_{};
  int used_ = 4;
};

}  // namespace bantam
BANTAM_API_END
