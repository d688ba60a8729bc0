// Live: which handles there are, so that one that was destroyed is refused instead of read.
#pragma once

namespace bantam::capi {

/// A member of each handle. The set of their places is the process's, as handles are; any thread may ask for it.
class Live {
 public:
  Live();
  Live(const Live&) : Live() {}
  Live& operator=(const Live&) { return *this; }
  ~Live();

  /// The library owns the handle, and a callback is only shown it: `release` refuses it.
  void lend();

  /// Looks at the address alone.
  static bool is_alive(const Live* place) noexcept;
  /// Whether it was alive and the program's; it is neither from then on.
  static bool release(const Live* place) noexcept;
};

}  // namespace bantam::capi
