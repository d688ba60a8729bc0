// Internal: a split's stored files in host memory (`cache: ram` of images that have no one size before chance comes
// in).
#pragma once

#include <memory>

#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// A reader whose `fetch` copies from one block of the runtime's CPU allocator (category input), which is filled here,
/// in parallel. On a meta device nothing is read, and the same bytes are allocated on the meta CPU, none on a meta GPU.
/// With `skip` a sample that cannot be fetched is one without bytes, which whoever decodes it refuses. Throws
/// OutOfMemory, and DataError for files whose size is not what `encoded_bytes` said.
std::shared_ptr<const SampleReader> encoded_in_ram(Runtime& runtime, std::shared_ptr<const SampleReader> reader,
                                                   Device device, bool skip);

}  // namespace bantam
