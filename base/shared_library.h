// A shared library opened at run time: the program starts without CUDA's libraries, and without the 50 ms that linking
// them costs.
#pragma once

#include <string>
#include <vector>

namespace bantam {

/// Stays loaded until the process ends: CUDA libraries do not unload cleanly.
class SharedLibrary {
 public:
  /// Opens the first of `names` that can be opened. Throws DeviceError naming the files, the cause and the remedy.
  SharedLibrary(const char* product, const std::vector<std::string>& names);

  /// Sets `function` to the symbol of that name; throws DeviceError where the library does not have it.
  template <class Function>
  void bind(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(find(symbol));
  }

 private:
  void* find(const char* symbol) const;

  const char* product_;
  std::string opened_;
  void* handle_ = nullptr;
};

}  // namespace bantam
