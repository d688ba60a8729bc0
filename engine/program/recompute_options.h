// RecomputeOptions: what backward recomputes or rebuilds instead of keeping it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// Which tensors backward rebuilds by a recipe from tensors that are kept anyway.
enum class Derive : std::uint8_t {
  none,
  inner,  ///< one kept tensor's: normalised, activated, dropped-out
  cheap   ///< sums of two, too
};

/// The values that backward computes again instead of keeping them from forward.
struct RecomputeOptions {
  enum class Kind : std::uint8_t { none, all, named } kind = Kind::none;
  /// named: checkpoint segments: nodes, blocks (the part of a node's name before a "/"), or "first..last" from one of
  /// these to another, in the graph's order.
  std::vector<std::string> names = {};
  /// Tensors that one pass over kept ones computes (normalised, activated, summed) are not kept either; no convolution
  /// and no matrix product is recomputed for them. `all` includes `cheap`.
  Derive derive = Derive::none;
  /// named: a recomputed segment keeps all that it computes as long as its backward runs, `derive` or not: less work,
  /// more bytes meanwhile.
  bool whole = false;

  Derive derives() const { return kind == Kind::all ? Derive::cheap : derive; }
  /// Within recomputed segments.
  Derive derives_in_recompute() const { return whole ? Derive::none : derives(); }
};

}  // namespace bantam
BANTAM_API_END
