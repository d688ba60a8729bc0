// Without a toolkit there are no GPUs, and nothing between them.
#include "bantam/memory/device/links.h"

#include "bantam/base/error.h"

namespace bantam {

std::vector<GpuLink> gpu_links() { return {}; }
std::string gpu_identity(int) { throw DeviceError("this program was built without CUDA"); }

}  // namespace bantam
