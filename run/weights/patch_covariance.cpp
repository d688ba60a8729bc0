// Sums over patches, and the eigenvectors of their mean.
#include "bantam/run/weights/patch_covariance.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/kernels/common/window.h"
#include "bantam/run/weights/eigenvectors.h"

namespace bantam::run {
namespace {

constexpr std::int64_t kImagesOfPart = 4;  // that have one sum
constexpr std::int64_t kLanes = 4;         // of a row of windows, side by side

/// The sign with which an eigenvector counts: whatever the solver found, and whichever of near-equal elements is the
/// largest by a rounding.
double sign_of(std::span<const double> vector) {
  double largest = 0;
  for (const double value : vector) largest = std::max(largest, std::abs(value));
  for (const double value : vector)
    if (std::abs(value) >= 0.9 * largest) return value < 0 ? -1.0 : 1.0;
  return 1.0;
}

}  // namespace

static_assert(PatchCovariance::kImagesAtOnce % kImagesOfPart == 0);

PatchCovariance::PatchCovariance(const Shape& image, const Conv2dOptions& conv)
    : image_(image),
      kernel_(conv.kernel),
      stride_(conv.stride),
      dilation_(conv.dilation),
      rows_(kernels::window_positions(image[0], kernel_.h, stride_.h, dilation_.h)),
      columns_(kernels::window_positions(image[1], kernel_.w, stride_.w, dilation_.w)),
      patch_(kernel_.h * kernel_.w * image[2]),
      sums_(static_cast<std::size_t>(patch_ * patch_)) {
  const auto fits = [](std::int64_t extent, std::int64_t kernel, std::int64_t dilation) {
    return (kernel - 1) * dilation < extent;
  };
  if (!fits(image[0], kernel_.h, dilation_.h) || !fits(image[1], kernel_.w, dilation_.w))
    throw ConfigError(
        fmt::format("whiten: no window of {}x{} lies within an image of {}", kernel_.h, kernel_.w, to_string(image)));
}

std::int64_t PatchCovariance::padded_columns() const { return (columns_ + kLanes - 1) / kLanes * kLanes; }

void PatchCovariance::gather_row(const float* image, std::int64_t row, double* patches) const {
  const std::int64_t channels = image_[2], padded = padded_columns();
  for (std::int64_t y = 0; y < kernel_.h; ++y) {
    for (std::int64_t x = 0; x < kernel_.w; ++x) {
      const float* const from = image + ((row * stride_.h + y * dilation_.h) * image_[1] + x * dilation_.w) * channels;
      for (std::int64_t c = 0; c < channels; ++c, patches += padded)
        for (std::int64_t column = 0; column < columns_; ++column)
          patches[column] = from[column * stride_.w * channels + c];
    }
  }
}

void PatchCovariance::add_image(const float* image, double* sums) const {
  const std::int64_t padded = padded_columns();
  std::vector<double> patches(static_cast<std::size_t>(patch_ * padded));  // the rest of a row is 0
  for (std::int64_t row = 0; row < rows_; ++row) {
    gather_row(image, row, patches.data());
    for (std::int64_t i = 0; i < patch_; ++i) {
      for (std::int64_t j = i; j < patch_; ++j) {
        const double *const a = patches.data() + i * padded, *const b = patches.data() + j * padded;
        double lanes[kLanes] = {};
        for (std::int64_t column = 0; column < padded; column += kLanes)
          for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += a[column + l] * b[column + l];
        sums[i * patch_ + j] += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
      }
    }
  }
}

void PatchCovariance::add(std::span<const float> images, int threads) {
  const std::int64_t each = image_.elements(), count = static_cast<std::int64_t>(images.size()) / each;
  if (static_cast<std::int64_t>(images.size()) != count * each)
    throw Error(fmt::format("whiten: expected images of {}, got {} values", to_string(image_), images.size()));
  const std::int64_t parts = (count + kImagesOfPart - 1) / kImagesOfPart;
  std::vector<std::vector<double>> sums(static_cast<std::size_t>(parts), std::vector<double>(sums_.size()));
  parallel_parts(parts, threads, [&](std::int64_t part) {
    for (std::int64_t i = part * kImagesOfPart; i < std::min(count, (part + 1) * kImagesOfPart); ++i)
      add_image(images.data() + i * each, sums[static_cast<std::size_t>(part)].data());
  });
  for (const std::vector<double>& own : sums)
    for (std::size_t i = 0; i < own.size(); ++i) sums_[i] += own[i];
  images_ += count;
}

std::vector<double> PatchCovariance::mean() const {
  const double patches = static_cast<double>(images_ * rows_ * columns_);
  std::vector<double> mean(sums_.size());
  for (std::int64_t i = 0; i < patch_; ++i) {
    for (std::int64_t j = 0; j < patch_; ++j)
      mean[static_cast<std::size_t>(i * patch_ + j)] =
          sums_[static_cast<std::size_t>(std::min(i, j) * patch_ + std::max(i, j))] / patches;
  }
  return mean;
}

std::vector<float> whitening_weights(std::span<const double> covariance, std::int64_t patch, std::int64_t filters,
                                     double epsilon) {
  for (const double value : covariance)
    if (!std::isfinite(value)) throw DataError("whiten: the first training images have values that are not finite");
  const Eigenvectors found = eigenvectors(covariance, patch);
  std::vector<float> weights(static_cast<std::size_t>(filters * patch));
  for (std::int64_t row = 0; row < filters / 2; ++row) {
    const std::span<const double> vector(found.vectors.data() + row * patch, static_cast<std::size_t>(patch));
    // A rounding may leave an eigenvalue of 0 below it.
    const double value = std::max(0.0, found.values[static_cast<std::size_t>(row)]);
    const double factor = sign_of(vector) / std::sqrt(value + epsilon);
    for (std::int64_t i = 0; i < patch; ++i) {
      const auto weight = static_cast<float>(factor * vector[static_cast<std::size_t>(i)]);
      weights[static_cast<std::size_t>(row * patch + i)] = weight;
      weights[static_cast<std::size_t>((filters / 2 + row) * patch + i)] = -weight;
    }
  }
  return weights;
}

}  // namespace bantam::run
