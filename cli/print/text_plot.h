// A curve drawn with characters.
#pragma once

#include <string>
#include <vector>

namespace bantam::cli {

struct TextPlot {
  std::vector<double> x, y;        ///< of equal length, finite; x rises
  std::vector<double> marks = {};  ///< values of x that get a '^' under the axis
  bool log_x = false;              ///< x is positive, and its axis logarithmic
  int columns = 64, rows = 12;     ///< of the curve itself
};

/// Lines, each ended by a newline: the curve as '*' (the mean of the points of a column), y's values at its left end,
/// x's ends and marks below. Empty without points.
std::string draw(const TextPlot& plot);

}  // namespace bantam::cli
