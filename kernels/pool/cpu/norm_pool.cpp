// Max pooling that normalises as it reads on the CPU; backward gathers a block of rows, which the norm's sums read from
// cache.
#include "bantam/kernels/pool/norm_pool.h"

#include <vector>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"
#include "bantam/kernels/pool/cpu/pool_windows.h"

namespace bantam::kernels::cpu {
namespace {

/// Eight values as they are after they were written as T.
template <class T>
[[gnu::always_inline]] inline Float8 rounded(Float8 v) {
  if constexpr (sizeof(T) == sizeof(float)) return v;
  T values[kLanes];
  store8(values, v);
  return load8(values);
}

/// Forward of one call.
template <class T, class Function>
struct NormedWindows {
  Pool pool;
  Saved<T> saved;
  Function f;
  T* y;
  std::uint16_t* winner;

  /// Up to eight channels from c on of the window whose first position is at `from`, to offset `to` of y.
  [[gnu::always_inline]] void channels(std::int64_t from, Span rows, Span columns, std::int64_t to, std::int64_t c,
                                       std::int64_t lanes) const {
    const Float8 mean = load_lanes(saved.mean + c, lanes), factor = load_lanes(saved.factor + c, lanes),
                 shift = load_lanes(saved.shift + c, lanes);
    const T* first = saved.x + from + c;
    max_of_window(
        rows, columns, pool.w.window, lanes,
        [&](std::int64_t kh, std::int64_t kw) __attribute__((always_inline)) {
          const Float8 v = load_lanes(first + (kh * pool.w.in + kw) * pool.channels, lanes);
          return rounded<T>(f(linear(v, mean, factor, shift)));
        },
        y + to + c, winner != nullptr ? winner + to + c : nullptr);
  }
  [[gnu::always_inline]] void window(std::int64_t from, Span rows, Span columns, std::int64_t to) const {
    const std::int64_t whole = pool.channels / kLanes * kLanes;
    for (std::int64_t c = 0; c < whole; c += kLanes) channels(from, rows, columns, to, c, kLanes);
    if (whole < pool.channels) channels(from, rows, columns, to, whole, pool.channels - whole);
  }
  /// A window without padding of a size that is known: its loops unroll.
  template <std::int64_t kWindow>
  void whole_window(std::int64_t from, std::int64_t to) const {
    window(from, {0, kWindow}, {0, kWindow}, to);
  }
};

/// The windows that hold a position, while it moves along its axis.
class MovingWindows {
 public:
  MovingWindows(const Axis& axis, std::int64_t at) : axis_(axis), at_(at), held_(axis.windows(at)) {}
  std::int64_t at() const { return at_; }
  const Span& held() const { return held_; }
  void advance() {
    ++at_;
    if (held_.begin * axis_.stride - axis_.pad + axis_.window <= at_) ++held_.begin;
    if (held_.end < axis_.out && held_.end * axis_.stride - axis_.pad <= at_) ++held_.end;
  }

 private:
  Axis axis_;
  std::int64_t at_;
  Span held_;
};

/// A window that holds a position: its offset in dy, and the position's place in it.
struct HoldingWindow {
  std::int64_t at;
  std::int32_t place;
};

/// Gradient of the pooling's input from those of its windows.
template <class T>
struct WonGradients {
  Pool pool;
  const T* dy;
  const std::uint16_t* winner;
  T* dx;

  /// Up to eight channels from c on of a position that `count` windows hold, to offset `to` of dx.
  [[gnu::always_inline]] void channels(const HoldingWindow* windows, int count, std::int64_t to, std::int64_t c,
                                       std::int64_t lanes) const {
    Float8 sum{};
#pragma GCC unroll 4
    for (int k = 0; k < count; ++k) {
      const std::int64_t at = windows[k].at + c;
      const Int8 won = load_places(winner + at, lanes) == Int8{} + windows[k].place;
      sum += won ? load_lanes(dy + at, lanes) : Float8{};
    }
    store_lanes(dx + to + c, lanes, sum);
  }
  /// All channels. kCount: how many windows, where that is known; else 0.
  template <int kCount>
  void position(const std::vector<HoldingWindow>& windows, std::int64_t to) const {
    const int count = kCount > 0 ? kCount : static_cast<int>(windows.size());
    const std::int64_t whole = pool.channels / kLanes * kLanes;
    for (std::int64_t c = 0; c < whole; c += kLanes) channels(windows.data(), count, to, c, kLanes);
    if (whole < pool.channels) channels(windows.data(), count, to, whole, pool.channels - whole);
  }
  /// The windows that hold a position of image row `row`, whose image's windows begin with row `first` of all.
  void find(std::int64_t first, std::int64_t row, const Span& rows, const MovingWindows& column,
            std::vector<HoldingWindow>& windows) const {
    windows.clear();
    for (std::int64_t oh = rows.begin; oh < rows.end; ++oh)
      for (std::int64_t ow = column.held().begin; ow < column.held().end; ++ow) {
        const std::int64_t place =
            (row + pool.h.pad - oh * pool.h.stride) * pool.w.window + column.at() + pool.w.pad - ow * pool.w.stride;
        windows.push_back({((first + oh) * pool.w.out + ow) * pool.channels, static_cast<std::int32_t>(place)});
      }
  }
  /// Positions [rows.begin, rows.end) of all images.
  void operator()(RowBlock rows) const {
    std::vector<HoldingWindow> windows;
    for (std::int64_t r = rows.begin; r < rows.end;) {
      const std::int64_t line = r / pool.w.in, row = line % pool.h.in, first = line / pool.h.in * pool.h.out;
      const Span held = pool.h.windows(row);
      MovingWindows column(pool.w, r % pool.w.in);
      for (; r < rows.end && column.at() < pool.w.in; ++r, column.advance()) {
        find(first, row, held, column, windows);
        const std::int64_t to = r * pool.channels;
        if (windows.size() == 1)
          position<1>(windows, to);
        else if (windows.size() == 2)
          position<2>(windows, to);
        else if (windows.size() == 4)
          position<4>(windows, to);
        else
          position<0>(windows, to);
      }
    }
  }
};

/// Whether a window of `size` along both axes is all there.
bool is_whole(std::int64_t size, Span rows, Span columns) { return rows.count() == size && columns.count() == size; }

}  // namespace

void norm_pool_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, const NormOperand& x, void* y,
                       void* winner, Workspace workspace) {
  if (shape.y_elements() <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(norm_of_pool(shape), dtype, DeviceKind::cpu),
                    "norm_pool_forward");
  const std::int64_t window = shape.window_h == shape.window_w ? shape.window_h : 0;
  const auto run = [&](const auto& windows) {
    for_windows(exec, windows.pool,
                [&](std::int64_t from, Span rows, Span columns, std::int64_t to, std::int64_t, std::int64_t) {
                  if (window == 2 && is_whole(2, rows, columns)) return windows.template whole_window<2>(from, to);
                  if (window == 3 && is_whole(3, rows, columns)) return windows.template whole_window<3>(from, to);
                  windows.window(from, rows, columns, to);
                });
  };
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Saved<T> saved = saved_of<T>(x, shape.channels, static_cast<float*>(workspace.data));
    with_activation8<T>(x.affine.activation, [&](auto f) {
      run(NormedWindows<T, decltype(f)>{Pool(shape), saved, f, static_cast<T*>(y),
                                        static_cast<std::uint16_t*>(winner)});
    });
  });
}

void norm_pool_backward(const Exec& exec, const Pool2dShape& shape, DType dtype, const NormOperand& x, const void* dy,
                        const void* winner, const NormGradients& to, Workspace workspace) {
  const BatchNormShape norm = norm_of_pool(shape);
  if (norm.rows <= 0 || norm.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(norm, dtype, DeviceKind::cpu), "norm_pool_backward");
  float* totals = static_cast<float*>(workspace.data);  // (2, channels), then factor and shift, then the parts' sums
  float* partials = totals + 4 * norm.channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Saved<T> saved = saved_of<T>(x, norm.channels, totals + 2 * norm.channels);
    T* dx = static_cast<T*>(to.dx);
    const WonGradients<T> gather{Pool(shape), static_cast<const T*>(dy), static_cast<const std::uint16_t*>(winner), dx};
    with_activation8<T>(x.affine.activation, [&](auto f) {
      gradient_sums(exec, norm, saved, dx, f, partials, totals, gather);
      input_gradient(exec, norm, saved, dx, f, totals, dx);
    });
  });
  store_gradients(totals, norm.channels, {to.dscale, to.dshift, to.accumulate});
}

}  // namespace bantam::kernels::cpu
