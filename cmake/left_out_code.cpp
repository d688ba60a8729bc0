// What the symbols of code that is left out of the packed program stand for (BantamPackages.cmake): nothing calls them.
#include <cstdlib>

extern "C" [[noreturn]] void bantam_left_out_code() { std::abort(); }
