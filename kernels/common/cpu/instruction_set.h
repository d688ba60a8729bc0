// Which instructions the processor has, for kernels that are compiled for several.
#pragma once

namespace bantam::kernels::cpu {

/// Those of functions with the target attribute "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma".
inline bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

/// Those of functions with the target attribute "avx2,fma". A constant where the build needs them anyway, so that
/// narrower kernels are left out.
[[gnu::always_inline]] inline bool has_avx2() {
#if defined(__AVX2__) && defined(__FMA__)
  return true;
#elif defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

}  // namespace bantam::kernels::cpu
