// Calls into C libraries that report errors by a function that must not return.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace bantam {

/// An error of the library jumps out of `run`, whose callable therefore owns nothing: whatever has a destructor lives
/// outside of it. (An exception would have to pass through the library's own frames.)
class GuardedCall {
 public:
  /// False: the library called `fail`. The callable's changes up to there stay.
  template <class Work>
  [[gnu::noinline]] bool run(const Work& work) {
    if (setjmp(jump_) != 0) return false;
    work();
    return true;
  }
  [[noreturn]] void fail(const char* message) {
    std::snprintf(message_, sizeof message_, "%s", message);
    std::longjmp(jump_, 1);
  }
  std::string_view message() const { return message_; }

 private:
  std::jmp_buf jump_;
  char message_[256] = "";
};

}  // namespace bantam
