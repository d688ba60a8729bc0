// Files of tensors that the caller makes, or has read: what checkpoints need beside safetensors.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bantam/base/atomic_file.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam {

/// Files of more are refused: names and shapes need some hundreds of bytes each.
inline constexpr std::size_t kMostTensors = 100'000;

/// Writes as write_safetensors of a path does, into a file that the caller commits.
void write_safetensors(AtomicFile& file, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

/// Loads as load_state of a path does, from a file that was read before; its `path` stands in messages.
void load_state(const StateRegistry& registry, Stream stream, const SafetensorsFile& file);

}  // namespace bantam
