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
  std::map<std::string, SkippedTensor> skipped;  ///< of types that are not read: int16, complex64, quantised
  std::string found_at;  ///< keys to the state_dict, "checkpoint.state_dict"; empty: the file is one
  /// Keys to other dictionaries of about as many tensors, as those of averaged weights; not where a key was given.
  std::vector<std::string> beside;
  std::string module;               ///< the class of the module that was saved whole; empty: a state_dict was
  std::vector<std::string> others;  ///< keys of the state_dict that are no tensors
  bool key_is_prefix = false;       ///< the key has led to no dictionary: names of the usual one begin with it
};

/// Reads the zip form, which PyTorch writes from 1.6 on, and the one before. The pickle may hold dictionaries
/// (OrderedDict, too), lists, tuples, texts, numbers, None, torch.Size, and tensors and parameters with any strides and
/// shared storages. Values of other classes are skipped (TorchPickle), but a module that was saved whole
/// (torch.save(model), torch.jit.save) has the tensors that its state_dict would have. Read are float32, float64,
/// float16, bfloat16, int64, int32, uint8 and bool (as uint8). Refused are files whose checksums are wrong, and what
/// needs more memory than the file's size explains. Where the file is a dictionary of dictionaries, the one with
/// tensors is found; `key`, where it is not empty, says which: "state_dict_ema", "checkpoint.model", or is what names
/// of the usual one begin with: "teacher". Throws DataError.
TorchFile read_torch_file(const std::filesystem::path& path, const std::string& key = "");

/// How many bytes is_torch_file() reads.
inline constexpr std::size_t kTorchFileBegin = 25;
/// Whether a file that begins with these bytes may be PyTorch's: a zip archive, or a pickle with the magic number of
/// the form before 1.6. Safetensors files begin with the length of their header, in 8 bytes that may be any, and the
/// header's `{`.
bool is_torch_file(std::string_view first_bytes);

}  // namespace bantam::run
