// GpuDecoder: JPEG files decoded by nvJPEG, several at a time, into page-locked host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bantam/data/images/decode.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// Files so far, by who decoded them.
struct DecoderCounts {
  std::int64_t gpu = 0, cpu = 0;
};

/// nvJPEG on one device. A file's pixels depend on the file alone: not on those that are decoded with it, nor on
/// threads. It decodes files of 8 bits with Huffman codes, grey or Y'CbCr of usual chroma sampling, that end with
/// their end marker and have at most kBatchPixels; others, those that nvJPEG refuses, and pictures that it did not
/// write or that are black, are the CPU decoder's. nvJPEG's hardware decodes where the device has it, and then files
/// that it says it supports, of one scan alone (not progressive ones); elsewhere the GPU and a CPU thread share the
/// work.
///
/// All of its memory is allocated by the constructor: blocks of the runtime's allocators (category input, "nvJPEG"),
/// from which nvJPEG's own allocations come too. Thread-safe. The runtime must outlive it.
class GpuDecoder {
 public:
  static constexpr std::int64_t kMostFiles = 16;                       ///< decoded together
  static constexpr std::int64_t kBatchPixels = std::int64_t{2} << 20;  ///< pixels of those files together
  static constexpr int kMostBatches = 8;

  /// For `batches` (1 to kMostBatches) batches at a time. On a meta device it allocates the same device memory and has
  /// no library. Works on the CPU too, with a library whose device memory is the host's. Throws DeviceError without
  /// the library and where nvJPEG does not work on the device, and OutOfMemory.
  GpuDecoder(Runtime& runtime, Device device, int batches);
  ~GpuDecoder();
  GpuDecoder(const GpuDecoder&) = delete;
  GpuDecoder& operator=(const GpuDecoder&) = delete;

  /// One of the batches, reserved while this object lives. A thread must not reserve a second one: it could wait for
  /// itself.
  class Batch {
   public:
    /// Blocks until a batch is free.
    explicit Batch(GpuDecoder& decoder);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    /// Decodes the first files, as many as fit, at least one, and returns a picture of each: without pixels where the
    /// CPU is to decode it. Pictures are valid until the next call. Throws DeviceError where the device fails, and
    /// OutOfMemory where nvJPEG needs more memory than is reserved for it.
    std::span<const StoredRgb> decode(std::span<const std::span<const std::byte>> files);

   private:
    GpuDecoder& decoder_;
    std::size_t slot_;
  };

  /// "nvJPEG 12.3, hardware": all that its pixels depend on beside the files.
  std::string name() const;
  DecoderCounts counts() const;
  /// Count the bytes that the decoder has allocated on the device, and of host memory.
  std::uint64_t device_bytes() const;
  std::uint64_t host_bytes() const;
  /// Return how many of those bytes nvJPEG itself has used at most.
  std::uint64_t peak_device_bytes() const;
  std::uint64_t peak_host_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
