// The entry points of libFuzzer. BANTAM_FUZZ_READER names the reader: one program serves all of them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/readers.h"

namespace {

const bantam::testing::FuzzedReader* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  const char* name = std::getenv("BANTAM_FUZZ_READER");
  for (const auto& reader : bantam::testing::fuzzed_readers())
    if (name != nullptr && reader.name == name) chosen = &reader;
  if (chosen == nullptr) {
    std::fprintf(stderr, "BANTAM_FUZZ_READER names none of the readers\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  (void)accepts(*chosen, {bytes, count});
  return 0;
}
