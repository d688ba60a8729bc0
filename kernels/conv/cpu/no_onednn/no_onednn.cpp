// A build without oneDNN: our own kernels compute every convolution.
#include "bantam/kernels/common/cpu/conv_library.h"

namespace bantam::kernels::cpu {

std::unique_ptr<ConvLibrary> make_conv_library() { return nullptr; }

std::string onednn_version() { return {}; }

}  // namespace bantam::kernels::cpu
