// A range test as one HTML file that needs no other.
#pragma once

#include <string>

#include "bantam/run/find_lr.h"

namespace bantam::cli {

/// `name` is the configuration's. The curve is an SVG drawing, the points stand in a table below it.
std::string range_page(const std::string& name, const run::RangeTest& test);

}  // namespace bantam::cli
