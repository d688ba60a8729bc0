// Names that PyTorch itself writes no longer, and weights that it saves in parts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

/// DenseNet's names of before torchvision 0.3 ("denselayer1.norm.1" for "denselayer1.norm1"), which torchvision renames
/// when it loads its own files; weights that weight_norm, spectral_norm and prune hold in parts, as functions and as
/// parametrizations, are put together. Returns a line for the user on each kind that was met.
std::vector<std::string> rename_as_torch_does(std::map<std::string, HostTensor>& tensors);

}  // namespace bantam::run
