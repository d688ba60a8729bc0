// The networks of the zoo that tests build with their weights.
#pragma once

#include <string>
#include <vector>

#include "bantam/models/zoo/zoo.h"

namespace bantam::models {

/// Without those that are another one with larger numbers, and hundreds of megabytes of weights.
inline std::vector<std::string> distinct_networks() {
  std::vector<std::string> names = zoo_names();
  for (const char* larger : {"convnextv2_tiny", "vit_small_16", "vit_base_16", "vit_large_16", "deit3_base_16"})
    std::erase(names, larger);
  return names;
}

}  // namespace bantam::models
