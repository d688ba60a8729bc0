// A file of library algorithms' choices: what was timed on a device is not timed a second time, and a resumed run makes
// the choices of its first part.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace bantam {

class AtomicFile;

/// Problem to choice, as kernels::AlgorithmChoices holds them.
using AlgorithmMap = std::map<std::string, std::string>;

/// JSON: {"format": "bantam algorithms 1", "device": "NVIDIA H200", "choices": {problem: choice, ...}}. Throws
/// DataError where there is no such file, where it is damaged, and where it is another device's.
AlgorithmMap read_algorithms(const std::filesystem::path& path, const std::string& device);

/// Writes the file, whole or not at all, into a folder that is there. Throws DataError.
void write_algorithms(const std::filesystem::path& path, const std::string& device, const AlgorithmMap& choices);
/// The same of a file that the caller commits.
void write_algorithms(AtomicFile& file, const std::string& device, const AlgorithmMap& choices);

}  // namespace bantam
