// Streams recorded into CUDA graphs.
#include <algorithm>
#include <initializer_list>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/cuda/current_device.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam::cuda_backend {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here; a later launch check must not see it again
  throw CudaError(fmt::format("{} failed: {}: {}", call, cudaGetErrorName(status), cudaGetErrorString(status)));
}

cudaStream_t as_stream(void* handle) { return static_cast<cudaStream_t>(handle); }

struct Graph {
  cudaGraph_t handle = nullptr;
  Graph() = default;
  ~Graph() {
    if (handle != nullptr) (void)cudaGraphDestroy(handle);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};

std::int64_t count_nodes(cudaGraph_t graph, std::initializer_list<cudaGraphNodeType> types) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  return std::ranges::count_if(nodes, [types](cudaGraphNode_t node) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    return std::ranges::find(types, type) != types.end();
  });
}

/// The graph that a capture of the stream is filling; null where there is no capture.
cudaGraph_t graph_under_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr),
        "cudaStreamGetCaptureInfo");
#else
  check(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph), "cudaStreamGetCaptureInfo");
#endif
  return status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

}  // namespace

void begin_capture(int device, void* stream) {
  const CurrentDevice scope(device);
  check(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

Recorded end_capture(int device, void* stream) {
  const CurrentDevice scope(device);
  Graph graph;
  check(cudaStreamEndCapture(as_stream(stream), &graph.handle), "cudaStreamEndCapture");
  Recorded recorded{.kernels = count_nodes(graph.handle, {cudaGraphNodeTypeKernel})};
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.handle, 0), "cudaGraphInstantiate");
  const cudaError_t uploaded =
      cudaGraphUpload(executable, as_stream(stream));  // so that the first launch costs as others
  if (uploaded != cudaSuccess) (void)cudaGraphExecDestroy(executable);
  check(uploaded, "cudaGraphUpload");
  recorded.executable = executable;
  return recorded;
}

std::int64_t captured_activities(int device, void* stream) {
  const CurrentDevice scope(device);
  const cudaGraph_t graph = graph_under_capture(as_stream(stream));
  if (graph == nullptr) return 0;
  return count_nodes(graph, {cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset});
}

void abandon_capture(int device, void* stream) noexcept {
  int previous = device;
  (void)cudaGetDevice(&previous);
  if (previous != device) (void)cudaSetDevice(device);
  Graph graph;
  (void)cudaStreamEndCapture(as_stream(stream), &graph.handle);
  (void)cudaGetLastError();  // clears the error of a call refused in between, which has thrown already
  restore_device(previous);
}

void launch_recorded(int device, void* executable, void* stream) {
  const CurrentDevice scope(device);
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), as_stream(stream)), "cudaGraphLaunch");
}

void destroy_recorded(int device, void* executable) noexcept {
  int previous = device;
  (void)cudaGetDevice(&previous);
  if (previous != device) (void)cudaSetDevice(device);
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
  restore_device(previous);
}

}  // namespace bantam::cuda_backend
