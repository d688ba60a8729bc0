// Of the shared library that the Python package loads alone: what archives of the distribution, whose code is not made
// for shared libraries, ask of the C library by address.

extern "C" {
// Whether the process has one thread, so that reference counts need no atomic additions: it is never assumed.
extern __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
}
