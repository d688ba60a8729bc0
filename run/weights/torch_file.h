// PyTorch's files, .pt and .pth: tensors of what torch.save wrote, without PyTorch, and without executing anything.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

/// A state_dict: tensors by name, contiguous and in this machine's order of bytes.
struct TorchFile {
  std::map<std::string, HostTensor> tensors;
  std::string found_at;             ///< keys to the state_dict, "checkpoint.state_dict"; empty: the file is one
  std::vector<std::string> others;  ///< keys of the state_dict that are no tensors
};

/// Reads the zip form, which PyTorch writes from 1.6 on. Its pickle may hold dictionaries (OrderedDict, too), lists,
/// tuples, texts, numbers, None, torch.Size, and tensors and parameters of float32, float64, float16, bfloat16, int64,
/// int32, uint8 or bool (read as uint8) with any strides and shared storages. Values of other classes are skipped
/// (TorchPickle). Refused are other kinds of tensors, files whose checksums are wrong, the form before PyTorch 1.6, and
/// what needs more memory than the file's size explains. Where the file is a dictionary of dictionaries, the one with
/// tensors is found; `key`, where it is not empty, says which: "state_dict_ema", "checkpoint.model". Throws DataError.
TorchFile read_torch_file(const std::filesystem::path& path, const std::string& key = "");

/// How many bytes is_torch_file() reads.
inline constexpr std::size_t kTorchFileBegin = 9;
/// Whether a file that begins with these bytes is PyTorch's: a zip archive, or, before PyTorch 1.6, a pickle.
/// Safetensors files begin with the length of their header, in 8 bytes that may be any, and the header's `{`.
bool is_torch_file(std::string_view first_bytes);

}  // namespace bantam::run
