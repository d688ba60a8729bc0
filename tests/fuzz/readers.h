// The readers of files and messages from elsewhere, each as one function of bytes: libFuzzer calls them
// (fuzz_readers.py), and fuzz_replay with the files of corpus/.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace bantam::testing {

struct FuzzedReader {
  std::string_view name;  ///< the folder of its corpus
  /// Reads the bytes, and all that a caller would read of the result. Throws bantam::Error for bytes that are refused;
  /// whatever else it throws is a fault.
  void (*read)(std::span<const std::uint8_t> bytes);
};

std::span<const FuzzedReader> fuzzed_readers();

/// Reads bytes as a caller does, who catches bantam::Error. Returns whether they were accepted. Ends the process, with
/// the exception's text on stderr, where the reader throws anything else.
bool accepts(const FuzzedReader& reader, std::span<const std::uint8_t> bytes);

}  // namespace bantam::testing
