// The covariance of the patches that a convolution reads in images, and the weights that whiten them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bantam/engine/layers/layers.h"

namespace bantam::run {

/// Sums of products of a convolution's patches: of each position whose window lies within the image.
class PatchCovariance {
 public:
  /// `image`: (height, width, channels). Throws ConfigError where no window lies within it.
  PatchCovariance(const Shape& image, const Conv2dOptions& conv);

  /// Images are added in multiples of so many, but for the last: sums then have the same bits however many at once.
  static constexpr std::int64_t kImagesAtOnce = 4;

  /// `images` (count, height, width, channels). Sums are float64, in an order that the images alone decide: the same
  /// bits for any number of threads.
  void add(std::span<const float> images, int threads);

  /// Elements of a patch: kernel × kernel × channels, in the order of a filter's weights.
  std::int64_t patch() const { return patch_; }
  std::int64_t images() const { return images_; }
  /// (patch, patch): the mean of the products. No mean is subtracted from the patches.
  std::vector<double> mean() const;

 private:
  std::int64_t padded_columns() const;
  /// Element k of a row's windows at `patches` + k · padded_columns().
  void gather_row(const float* image, std::int64_t row, double* patches) const;
  void add_image(const float* image, double* sums) const;

  Shape image_;
  Extent2d kernel_, stride_, dilation_;
  std::int64_t rows_, columns_, patch_;  // positions of windows, and their elements
  std::int64_t images_ = 0;
  std::vector<double> sums_;  // (patch, patch), of which rows up to the diagonal's right count
};

/// (filters, patch): filters/2 unit eigenvectors of a symmetric `covariance` (patch, patch), that of the largest
/// eigenvalue first, each divided by √(eigenvalue + epsilon); then their negatives. `filters` is even, and at most
/// 2·patch. An eigenvector's sign is that with which its
/// first element of at least 0.9 times its largest magnitude is positive. Throws DataError where values are not finite.
std::vector<float> whitening_weights(std::span<const double> covariance, std::int64_t patch, std::int64_t filters,
                                     double epsilon);

}  // namespace bantam::run
