// How an array is cut into shares, one a rank, and these into what travels at once.
#pragma once

#include <algorithm>

namespace bantam {

/// A part of an array, in its elements or bytes.
template <class Size>
struct SpanPart {
  Size begin = 0, size = 0;
};

/// The share of `rank` among `ranks`: as even as whole lines of `line` are; the array's last one may be shorter.
template <class Size>
SpanPart<Size> share_of_span(Size size, Size line, int rank, int ranks) {
  const Size lines = (size + line - 1) / line;
  const auto edge = [&](int r) {
    return std::min(size, lines * static_cast<Size>(r) / static_cast<Size>(ranks) * line);
  };
  return {edge(rank), edge(rank + 1) - edge(rank)};
}

/// Piece number `round`, of at most `piece`, of a share; of no size where the share ends before.
template <class Size>
SpanPart<Size> piece_of_share(const SpanPart<Size>& share, Size piece, Size round) {
  const Size before = std::min(share.size, piece * round);
  return {share.begin + before, std::min(share.size - before, piece)};
}

}  // namespace bantam
