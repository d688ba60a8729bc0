// Test support: the library that tests build in place of nvJPEG's (fake_nvjpeg.cpp), beside their programs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace bantam::testing {

/// While it lives, programs that load nvJPEG get the stand-in.
class FakeNvjpeg {
 public:
  FakeNvjpeg() {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    set("BANTAM_NVJPEG", (program.parent_path() / "libfake_nvjpeg.so").string());
  }
  ~FakeNvjpeg() {
    for (const char* name :
         {"BANTAM_NVJPEG", "FAKE_NVJPEG_HARDWARE", "FAKE_NVJPEG_BYTES", "FAKE_NVJPEG_BROKEN", "FAKE_NVJPEG_NO_HEADERS"})
      ::unsetenv(name);
  }
  FakeNvjpeg(const FakeNvjpeg&) = delete;
  FakeNvjpeg& operator=(const FakeNvjpeg&) = delete;
  void set(const char* name, const std::string& value) const { ::setenv(name, value.c_str(), 1); }
};

}  // namespace bantam::testing
