// Test support: flock() of the test program, which fails as a file system without locks does. Included by one source.
#pragma once

#include <cerrno>

#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {
int g_error = 0;  // of every flock; 0: as the system
}

extern "C" int flock(int descriptor, int operation) {
  if (g_error == 0) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = g_error;
  return -1;
}
