// Shares of each label's samples as colours.
#include "bantam/run/log/matrix_picture.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace bantam::run {
namespace {

double row_sum(const MetricTable& matrix, std::int64_t row) {
  double sum = 0;
  for (std::int64_t column = 0; column < matrix.columns; ++column)
    sum += matrix.values[static_cast<std::size_t>(row * matrix.columns + column)];
  return sum;
}

/// From white to dark blue; small shares are distinguished from none.
std::array<std::uint8_t, 3> colour_of(double share) {
  constexpr double kWhite[] = {255, 255, 255}, kBlue[] = {8, 48, 107};
  const double depth = share > 0 ? 0.08 + 0.92 * std::sqrt(std::min(share, 1.0)) : 0;
  std::array<std::uint8_t, 3> colour{};
  for (std::size_t c = 0; c < 3; ++c)
    colour[c] = static_cast<std::uint8_t>(std::lround(kWhite[c] + (kBlue[c] - kWhite[c]) * depth));
  return colour;
}

/// A name as a cell of a table has it.
std::string cell(std::string_view name) {
  std::string text;
  for (const char c : name) text += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return text;
}

}  // namespace

Image matrix_picture(const MetricTable& matrix) {
  constexpr std::int64_t kWanted = 256, kMostCell = 32;
  const std::int64_t classes = matrix.columns;
  const std::int64_t side = std::clamp<std::int64_t>((kWanted + classes - 1) / classes, 1, kMostCell);
  Image image;
  image.reshape({classes * side, classes * side}, 3);
  for (std::int64_t row = 0; row < classes; ++row) {
    const double sum = row_sum(matrix, row);
    for (std::int64_t column = 0; column < classes; ++column) {
      const double count = matrix.values[static_cast<std::size_t>(row * classes + column)];
      const auto colour = colour_of(sum > 0 ? count / sum : 0);
      for (std::int64_t y = row * side; y < (row + 1) * side; ++y)
        for (std::int64_t x = column * side; x < (column + 1) * side; ++x)
          std::ranges::copy(colour, image.pixels.begin() + 3 * (y * image.size.width + x));
    }
  }
  return image;
}

std::string matrix_markdown(const MetricTable& matrix, std::span<const std::string> class_names, std::int64_t most) {
  if (matrix.columns > most) return {};
  const auto name = [&](std::int64_t i) {
    const bool named = static_cast<std::int64_t>(class_names.size()) == matrix.columns;
    return named ? cell(class_names[static_cast<std::size_t>(i)]) : fmt::format("{}", i);
  };
  std::string header = "| label \\ prediction |", rule = "|---|", rows;
  for (std::int64_t column = 0; column < matrix.columns; ++column) {
    header += fmt::format(" {} |", name(column));
    rule += "---|";
  }
  for (std::int64_t row = 0; row < matrix.columns; ++row) {
    rows += fmt::format("| {} |", name(row));
    for (std::int64_t column = 0; column < matrix.columns; ++column)
      rows += fmt::format(" {} |", matrix.values[static_cast<std::size_t>(row * matrix.columns + column)]);
    rows += "\n";
  }
  return header + "\n" + rule + "\n" + rows;
}

}  // namespace bantam::run
