// A camera's frames go into a network and its answers into another library, by DLPack, without a copy of either.
#include <cstdio>
#include <vector>

#include "bantam/bantam.h"
#include "bantam/engine/interop/dlpack.h"
#include "bantam/engine/interop/dlpack_abi.h"

using namespace bantam;

namespace {

/// Stands for a library that fills images: frames of 8 x 8 pixels, and the struct by which it hands them out.
struct Camera {
  std::vector<float> pixels = std::vector<float>(4 * 8 * 8 * 3, 0.5f);
  int64_t shape[4] = {4, 8, 8, 3};

  DLManagedTensorVersioned* frames() {
    return new DLManagedTensorVersioned{
        .version = {1, 0},
        .manager_ctx = this,
        .deleter =
            [](DLManagedTensorVersioned* self) {
              std::printf("the camera has its frames back\n");
              delete self;
            },
        .flags = 0,
        .dl_tensor = {pixels.data(), {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, nullptr, 0}};
  }
};

/// Stands for a library that reads tensors: prints the first value and deletes what it was given.
void show(DLManagedTensorVersioned* managed) {
  const DLTensor& tensor = managed->dl_tensor;
  std::printf("a tensor of %d axes, %lld x %lld, on device %d\n", tensor.ndim, (long long)tensor.shape[0],
              (long long)tensor.shape[1], (int)tensor.device.device_type);
  managed->deleter(managed);
}

}  // namespace

int main() {
  const auto runtime = std::make_shared<Runtime>();
  Graph graph({8, 8, 3});
  graph.add(conv2d({.filters = 8, .kernel = {3, 3}}));
  graph.add(global_average_pool());
  graph.add(dense({.units = 2}));
  Model model(*runtime, Device::cpu(), graph, {.seed = 1});
  const Context context = model.context(Pass::evaluate);

  Camera camera;
  DLManagedTensorVersioned* const frames = camera.frames();
  {
    const Tensor images = from_dlpack(frames, {.consumer = context.stream});  // calls the deleter in the end
    std::printf("same memory: %s\n", images.data() == camera.pixels.data() ? "yes" : "no");
    const Tensor logits = model.forward(context, images);
    show(to_dlpack(logits, {.producer = context.stream, .keep_alive = runtime}));
  }
}
