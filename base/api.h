// What the shared library exports: all that a public header declares between BANTAM_API_BEGIN and BANTAM_API_END. The
// libraries are compiled with hidden visibility, so that nothing else is (docs/VERSIONS.md; the test symbols_test).
#pragma once

/// Around the namespace of a public header: classes with their vtables and type_info, functions and variables are
/// exported, and what is added there is as well. -Wattributes: a class that is exported may point to one that is not.
#define BANTAM_API_BEGIN                                                 \
  _Pragma("GCC visibility push(default)") _Pragma("GCC diagnostic push") \
      _Pragma("GCC diagnostic ignored \"-Wattributes\"")
#define BANTAM_API_END _Pragma("GCC diagnostic pop") _Pragma("GCC visibility pop")

/// On the forward declaration, in a public header, of a type whose definition is not installed: it is not exported.
#define BANTAM_INTERNAL __attribute__((visibility("hidden")))

/// On one declaration elsewhere: explicit instantiations, which do not follow their template, and C functions.
#define BANTAM_API __attribute__((visibility("default")))
