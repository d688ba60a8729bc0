// May a wgmma operand start at any row of a tile in 128-byte swizzle? Exact comparisons with the CPU; then the speed of
// shifted operands, and a 3x3 convolution from a halo tile.
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a wgmma_rows.cu
#include "probe.cuh"

using namespace probe;

// Values are sixteenths of at most 4, so that every sum is exact in float32.
inline float sixteenths(u32 seed, u64 i) {
  return static_cast<float>(static_cast<int>(hash(seed + 31u * static_cast<u32>(i)) % 129) - 64) / 16.0f;
}
std::vector<__half> values(i64 count, u32 seed) {
  std::vector<__half> v(static_cast<std::size_t>(count));
  for (i64 i = 0; i < count; ++i) v[i] = __float2half_rn(sixteenths(seed, static_cast<u64>(i)));
  return v;
}

/// A test: A's or B's operand begins at row `start` of the pixels' tile; groups of eight rows `pitch` rows apart.
struct Case {
  int start, pitch, base_mode;  ///< 0: base offset 0; 1: (start address >> 7) & 7; 2: -(that) & 7
};
constexpr int kPixels = 368;  ///< rows of the tile: 46 KiB, two boxes of 23

/// sums of one warpgroup to memory, row-major (64, kColumns).
template <int kColumns>
__device__ void write_sums(const float (&sums)[kColumns / 2], float* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int j = 0; j < kColumns / 8; ++j)
    for (int i = 0; i < 4; ++i)
      to[(warp * 16 + lane / 4 + 8 * (i / 2)) * kColumns + 8 * j + lane % 4 * 2 + i % 2] = sums[4 * j + i];
}

/// Pixels as A (64 of them) with 64 weights as B; or weights as A and kColumns pixels as B. One warpgroup.
template <int kColumns, bool kPixelsAreA>
__global__ void __launch_bounds__(128) shift_kernel(const __grid_constant__ CUtensorMap pixels,
                                                    const __grid_constant__ CUtensorMap weights, Case test, float* to) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) u64 place;
  const SharedBarrier barrier{shared_address(&place)};
  const u32 tile = shared_address(memory), w = tile + 46 * 1024;
  if (tile % 1024 != 0) __trap();
  if (threadIdx.x == 0) barrier.init(1), publish_barriers();
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier.arrive_expecting((kPixels + 64) * 128);
    load_box(tile, pixels, 0, 0, barrier);
    load_box(tile + 184 * 128, pixels, 0, 184, barrier);
    load_box(w, weights, 0, 0, barrier);
  }
  __syncthreads();
  barrier.wait(0, 1);
  const u32 at = tile + test.start * 128;
  const u32 phase = test.base_mode == 0 ? 0 : test.base_mode == 1 ? (at >> 7) & 7 : (8 - ((at >> 7) & 7)) & 7;
  const u64 shifted = operand(at, test.pitch * 128, 16, phase), plain = operand_at(w);
  float sums[kColumns / 2];
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    WarpgroupMma<kColumns>::run(sums, (kPixelsAreA ? shifted : plain) + k * kNextSixteen,
                                (kPixelsAreA ? plain : shifted) + k * kNextSixteen, k > 0);
  commit_products();
  wait_for_products<0>();
  products_done(sums);
  write_sums<kColumns>(sums, to);
}

template <int kColumns, bool kPixelsAreA>
i64 wrong_of(const CUtensorMap& pixels, const CUtensorMap& weights, Case test, const std::vector<float>& products,
             Array<float>& to) {
  to.poison();
  const int bytes = 46 * 1024 + 64 * 128;
  CHECK(cudaFuncSetAttribute(shift_kernel<kColumns, kPixelsAreA>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  shift_kernel<kColumns, kPixelsAreA><<<1, 128, bytes>>>(pixels, weights, test, to.data);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  const std::vector<float> got = to.host();
  i64 wrong = 0;
  const auto pixel = [&](int i) { return test.start + i / 8 * test.pitch + i % 8; };
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < kColumns; ++n) {
      const int p = pixel(kPixelsAreA ? m : n), q = kPixelsAreA ? n : m;
      if (!(got[m * kColumns + n] == products[p * 64 + q])) ++wrong;
    }
  return wrong;
}

template <int kColumns, bool kPixelsAreA>
void shifts(const char* name, const CUtensorMap& pixels, const CUtensorMap& weights,
            const std::vector<float>& products) {
  Array<float> to(64 * kColumns);
  const int groups = (kPixelsAreA ? 64 : kColumns) / 8;
  for (const int pitch : {8, 10, 18}) {
    for (int mode = 0; mode < 3; ++mode) {
      int right = 0, tests = 0;
      std::string fails;
      for (int start = 0; start < 48 && start + (groups - 1) * pitch + 8 <= kPixels; ++start, ++tests) {
        const i64 wrong = wrong_of<kColumns, kPixelsAreA>(pixels, weights, {start, pitch, mode}, products, to);
        if (wrong == 0)
          ++right;
        else if (fails.size() < 48)
          fails += " " + std::to_string(start);
      }
      std::printf("%-34s groups %2d rows apart, base offset %-16s: %2d of %2d starts exact%s%s\n", name, pitch,
                  mode == 0   ? "0"
                  : mode == 1 ? "(start >> 7) & 7"
                              : "-(start >> 7) & 7",
                  right, tests, fails.empty() ? "" : "; wrong at", fails.c_str());
    }
  }
  std::fflush(stdout);
}

// ---- a tile multiplied with itself: G = tileᵀ·tile, both operands transposed (for step B's apply + Gram) ----

/// Two tiles of 64 rows x 64 channels; G (64, 128): the first tile's channels by both's.
__global__ void __launch_bounds__(128)
    gram_kernel(const __grid_constant__ CUtensorMap rows, u32 between, u32 leading, float* to) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) u64 place;
  const SharedBarrier barrier{shared_address(&place)};
  const u32 tile = shared_address(memory);
  if (threadIdx.x == 0) barrier.init(1), publish_barriers();
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier.arrive_expecting(2 * 8192);
    load_box(tile, rows, 0, 0, barrier);
    load_box(tile + 8192, rows, 64, 0, barrier);
  }
  __syncthreads();
  barrier.wait(0, 1);
  float sums[64];
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k)  // 16 rows each: two groups of eight, 1,024 bytes apart; 64 channels on: 8,192
    WarpgroupMma<128, 1, 1>::run(sums, operand(tile + k * 2048, between, leading),
                                 operand(tile + k * 2048, between, leading), k > 0);
  commit_products();
  wait_for_products<0>();
  products_done(sums);
  write_sums<128>(sums, to);
}

void gram() {
  const std::vector<__half> x = values(64 * 128, 77);
  Array<__half> data(64 * 128);
  data.put(x);
  Array<float> to(64 * 128);
  for (const bool swapped : {false, true}) {
    to.poison();
    gram_kernel<<<1, 128, 16384>>>(tensor_map(data.data, {128, 64}, {128}, {64, 64}), swapped ? 8192 : 1024,
                                   swapped ? 1024 : 8192, to.data);
    CHECK(cudaGetLastError());
    const std::vector<float> got = to.host();
    i64 wrong = 0;
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < 128; ++n) {
        float sum = 0;
        for (int r = 0; r < 64; ++r) sum += __half2float(x[r * 128 + m]) * __half2float(x[r * 128 + n]);
        if (!(got[m * 128 + n] == sum)) ++wrong;
      }
    std::printf("Gram of a stored tile, both operands transposed, 64 x 128, SBO %s: %s (%lld wrong)\n",
                swapped ? "64 channels on, LBO 8 rows on" : "8 rows on, LBO 64 channels on",
                wrong == 0 ? "EXACT" : "WRONG", static_cast<long long>(wrong));
  }
}

// ---- a 3x3 convolution from a halo tile ----

/// Tiles of 8 x 16 pixels of y (images, height, width, 64) = conv3x3(x (…, 64), w (9, 64, 64): out by in); padding 1.
/// Two warpgroups: columns 0-7 and 8-15 of a tile. Nine shifted operands; the halo comes in one copy.
__global__ void __launch_bounds__(256, 1)
    halo_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w, float* y, int height,
                int width) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) u64 place;
  const SharedBarrier barrier{shared_address(&place)};
  const u32 tile = shared_address(memory), weights = tile + 24 * 1024;
  if (tile % 1024 != 0) __trap();
  if (threadIdx.x == 0) barrier.init(1), publish_barriers();
  __syncthreads();
  const int x0 = static_cast<int>(blockIdx.x) * 16, y0 = static_cast<int>(blockIdx.y) * 8,
            image = static_cast<int>(blockIdx.z);
  if (threadIdx.x == 0) {
    barrier.arrive_expecting(180 * 128 + 9 * 8192);
    load_box(tile, x, 0, x0 - 1, y0 - 1, image, barrier);
    for (int s = 0; s < 9; ++s) load_box(weights + s * 8192, w, 0, s * 64, barrier);
  }
  __syncthreads();
  barrier.wait(0, 1);
  const int group = static_cast<int>(threadIdx.x) / 128;
  float sums[32];
  begin_products();
  for (int s = 0; s < 9; ++s) {
    const u64 a = operand(tile + (s / 3 * 18 + s % 3 + 8 * group) * 128, 18 * 128), b = operand_at(weights + s * 8192);
#pragma unroll
    for (int k = 0; k < 4; ++k) WarpgroupMma<64>::run(sums, a + k * kNextSixteen, b + k * kNextSixteen, s > 0 || k > 0);
  }
  commit_products();
  wait_for_products<0>();
  products_done(sums);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 4; ++i) {
      const int m = warp * 16 + lane / 4 + 8 * (i / 2), c = 8 * j + lane % 4 * 2 + i % 2;
      const int row = y0 + m / 8, column = x0 + 8 * group + m % 8;
      if (row < height && column < width) y[((i64{image} * height + row) * width + column) * 64 + c] = sums[4 * j + i];
    }
}

void halo(int images, int height, int width) {
  const i64 count = i64{images} * height * width * 64;
  const std::vector<__half> x = values(count, 5), w = values(9 * 64 * 64, 6);
  Array<__half> xs(count), ws(9 * 64 * 64);
  Array<float> y(count);
  xs.put(x), ws.put(w), y.poison();
  const auto h = static_cast<u64>(height), v = static_cast<u64>(width);
  const CUtensorMap x_map =
      tensor_map(xs.data, {64, v, h, static_cast<u64>(images)}, {64, v * 64, h * v * 64}, {64, 18, 10, 1});
  const CUtensorMap w_map = tensor_map(ws.data, {64, 9 * 64}, {64}, {64, 64});
  const int bytes = 24 * 1024 + 9 * 8192;
  CHECK(cudaFuncSetAttribute(halo_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  halo_kernel<<<dim3((width + 15) / 16, (height + 7) / 8, images), 256, bytes>>>(x_map, w_map, y.data, height, width);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  const std::vector<float> got = y.host();
  std::vector<float> xf(x.size()), wf(w.size());
  for (std::size_t i = 0; i < x.size(); ++i) xf[i] = __half2float(x[i]);
  for (std::size_t i = 0; i < w.size(); ++i) wf[i] = __half2float(w[i]);
  i64 wrong = 0;
  for (int n = 0; n < images; ++n)
    for (int r = 0; r < height; ++r)
      for (int c = 0; c < width; ++c)
        for (int o = 0; o < 64; ++o) {
          float sum = 0;
          for (int s = 0; s < 9; ++s) {
            const int in_r = r + s / 3 - 1, in_c = c + s % 3 - 1;
            if (in_r < 0 || in_r >= height || in_c < 0 || in_c >= width) continue;
            const float* const from = &xf[((i64{n} * height + in_r) * width + in_c) * 64];
            for (int i = 0; i < 64; ++i) sum += from[i] * wf[(s * 64 + o) * 64 + i];
          }
          if (!(got[((i64{n} * height + r) * width + c) * 64 + o] == sum)) ++wrong;
        }
  std::printf("3x3 from halo tiles, %d x %d x %d x 64: %s (%lld wrong of %lld)\n", images, height, width,
              wrong == 0 ? "EXACT" : "WRONG", static_cast<long long>(wrong), static_cast<long long>(count));
}

// ---- speed: nine operands a round, aligned or shifted ----

/// Each of two warpgroups multiplies kColumns columns with nine operands of 64 channels, again and again. Random data.
template <int kColumns, bool kPixelsAreA>
__global__ void __launch_bounds__(256, 1)
    speed_kernel(int pitch, int step_row, int step_column, int rounds, int second, float* to) {
  extern __shared__ __align__(1024) char memory[];
  // pixels: kPixels rows; then weights: 9 tiles of 64 (or of kColumns) rows
  constexpr int kWeightRows = kPixelsAreA ? kColumns : 64;
  const u32 tile = shared_address(memory), weights = tile + 46 * 1024;
  for (int i = static_cast<int>(threadIdx.x); i < (46 * 1024 + 9 * kWeightRows * 128) / 4; i += 256) {
    const __half2 pair = __floats2half2_rn(normal_of(3, 2 * i), normal_of(3, 2 * i + 1));
    reinterpret_cast<u32*>(memory)[i] = *reinterpret_cast<const u32*>(&pair);
  }
  publish_to_copies();
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  float sums[kColumns / 2] = {};
  for (int round = 0; round < rounds; ++round) {
    begin_products();
#pragma unroll
    for (int s = 0; s < 9; ++s) {
      const u64 p = operand(tile + (s / 3 * step_row + s % 3 * step_column + second * group) * 128, pitch * 128);
      const u64 w = operand_at(weights + s * kWeightRows * 128);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupMma<kColumns>::run(sums, (kPixelsAreA ? p : w) + k * kNextSixteen,
                                    (kPixelsAreA ? w : p) + k * kNextSixteen, true);
    }
    commit_products();
    wait_for_products<0>();
  }
  products_done(sums);
  float sum = 0;
  for (const float v : sums) sum += v;
  to[blockIdx.x * 256 + threadIdx.x] = sum;
}

template <int kColumns, bool kPixelsAreA>
void speed(const char* name, int multiprocessors) {
  Array<float> to(i64{multiprocessors} * 256);
  constexpr int kRounds = 400;
  const int bytes = 46 * 1024 + 9 * (kPixelsAreA ? kColumns : 64) * 128;
  if (bytes > 227 * 1024) return;
  CHECK(cudaFuncSetAttribute(speed_kernel<kColumns, kPixelsAreA>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const double flops = 2.0 * 64 * kColumns * 64 * 9 * kRounds * 2 * multiprocessors;
  const auto time = [&](int pitch, int row, int column, int second) {
    return flops * 1e-6 / microseconds(1, 5, [&](int) {
             speed_kernel<kColumns, kPixelsAreA>
                 <<<multiprocessors, 256, bytes>>>(pitch, row, column, kRounds, second, to.data);
           });
  };
  const double aligned = time(8, 8, 8, 8);
  // as a halo tile of 18 pixels a row, the second warpgroup eight pixels on; of 10 a row where 256 pixels are B
  const double shifted = kPixelsAreA || kColumns <= 128 ? time(18, 18, 1, 8) : time(10, 10, 1, 0);
  std::printf("%-44s aligned %.0f, shifted %.0f TFLOP/s (%.3f)\n", name, aligned, shifted, shifted / aligned);
}

int main() {
  const int multiprocessors = start_up();
  const std::vector<__half> x = values(kPixels * 64, 1), w = values(64 * 64, 2);
  Array<__half> xs(kPixels * 64), ws(64 * 64);
  xs.put(x), ws.put(w);
  const CUtensorMap pixels = tensor_map(xs.data, {64, kPixels}, {64}, {64, 184}),
                    weights = tensor_map(ws.data, {64, 64}, {64}, {64, 64});
  std::vector<float> products(kPixels * 64);
  for (int p = 0; p < kPixels; ++p)
    for (int q = 0; q < 64; ++q)
      for (int c = 0; c < 64; ++c) products[p * 64 + q] += __half2float(x[p * 64 + c]) * __half2float(w[q * 64 + c]);
  shifts<64, true>("pixels as A, 64 x 64", pixels, weights, products);
  shifts<64, false>("pixels as B, 64 x 64", pixels, weights, products);
  shifts<128, false>("pixels as B, 64 x 128", pixels, weights, products);
  shifts<256, false>("pixels as B, 64 x 256", pixels, weights, products);
  gram();
  halo(2, 56, 56);
  halo(1, 15, 31);
  speed<64, true>("two groups of 64 pixels x 64 channels", multiprocessors);
  speed<128, true>("two groups of 64 pixels x 128 channels", multiprocessors);
  speed<64, false>("two groups of 64 channels x 64 pixels", multiprocessors);
  speed<128, false>("two groups of 64 channels x 128 pixels", multiprocessors);
  speed<256, false>("two groups of 64 channels x 256 pixels", multiprocessors);
  return 0;
}
