// What the symbols of code that is left out of the packed program stand for (BantamPackages.cmake).
#include <cstdlib>

/// Of encoders, which nothing calls.
extern "C" [[noreturn]] void bantam_left_out_code() { std::abort(); }

/// Of decoders for old formats: none can be made, which their callers check.
extern "C" void* bantam_left_out_format() { return nullptr; }
