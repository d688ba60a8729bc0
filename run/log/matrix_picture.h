// A confusion matrix as a picture, and as a table in Markdown.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bantam/data/images/image.h"
#include "bantam/engine/metrics/metric.h"

namespace bantam::run {

/// Rows are labels, columns predictions: a square a class pair, white for none of the label's samples, dark blue for
/// all of them. Of 1 to 32 pixels a class, at least so that the picture has 256, if it can.
Image matrix_picture(const MetricTable& matrix);

/// The counts, with the classes' names where there are as many as rows; empty for more than `most` rows.
std::string matrix_markdown(const MetricTable& matrix, std::span<const std::string> class_names,
                            std::int64_t most = 32);

}  // namespace bantam::run
