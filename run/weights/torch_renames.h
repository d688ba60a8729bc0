// Names that PyTorch itself writes no longer, and weights that it saves in parts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

/// Names of old are renamed as their programs do when they load their own files: DenseNet's of before torchvision 0.3
/// ("denselayer1.norm.1" for "denselayer1.norm1"), those of the MLPs of torchvision's first vision transformers
/// ("mlp.linear_1" for "mlp.0") and of DeiT III's authors ("gamma_1" for "ls1.gamma"). Weights that weight_norm,
/// spectral_norm and prune hold in parts, as functions and as parametrizations, are put together, and so are the rows
/// of the layers of queries, keys and values ("attention.query" or "attention.q_proj", …: "attention.qkv"). Returns a
/// line for the user on each kind that was met.
std::vector<std::string> rename_as_torch_does(std::map<std::string, HostTensor>& tensors);

}  // namespace bantam::run
