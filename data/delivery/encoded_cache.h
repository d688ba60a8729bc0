// Internal: a split's stored files in host memory (`cache: ram` of images that have no one size before chance comes
// in).
#pragma once

#include <memory>

#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// A reader whose `fetch` copies from one block of the runtime's CPU allocator (category input), which is filled here,
/// in parallel. On a meta device nothing is read, and the same bytes are allocated on the meta CPU, none on a meta GPU.
/// Throws OutOfMemory, and DataError for files larger than `encoded_bytes` said.
std::shared_ptr<const SampleReader> encoded_in_ram(Runtime& runtime, std::shared_ptr<const SampleReader> reader,
                                                   Device device);

/// The same samples; one that cannot be fetched has no bytes, which whoever decodes it refuses.
std::shared_ptr<const SampleReader> fetched_or_empty(std::shared_ptr<const SampleReader> reader);

}  // namespace bantam
