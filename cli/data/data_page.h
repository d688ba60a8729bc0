// Samples as the network sees them, as one HTML file that needs no other.
#pragma once

#include <string>
#include <vector>

#include "bantam/cli/data/data_report.h"
#include "bantam/data/survey/sample_views.h"

namespace bantam::cli {

/// One training sample on the page.
struct PageSample {
  std::string name;                  ///< its file or number
  Image stored;                      ///< as decoded; empty where there is no picture
  std::vector<SampleView> training;  ///< an epoch each
  SampleView evaluation;
};

/// Figures and a table of classes, then a row of pictures a sample, as PNG data URIs; none is larger than 160 pixels.
std::string data_page(const DataReport& report, const std::vector<PageSample>& samples);

}  // namespace bantam::cli
