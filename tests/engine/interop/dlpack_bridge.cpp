// A runtime and two tensors behind C functions, for exchange_with_python.py: one that goes out, one that came in.
#include <cstring>
#include <numeric>
#include <string>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/interop/dlpack.h"
#include "bantam/engine/interop/dlpack_abi.h"

namespace {

using namespace bantam;

struct Bridge {
  std::shared_ptr<Runtime> runtime = std::make_shared<Runtime>(RuntimeOptions{.threads = 1});
  Context context;
  Tensor out, in;
};

thread_local std::string message;

template <class Call>
int guarded(const Call& call) {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    message = error.what();
    return 1;
  }
}

/// 0, 1, 2, … as float32, by copies that the stream orders.
Tensor counted(const Context& context, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  std::iota(values.begin(), values.end(), 0.0f);
  return context.upload({2, 3, elements / 6}, values.data());
}

DlpackStream number_of(std::int64_t stream) { return stream == 0 ? DlpackStream() : DlpackStream(stream); }

}  // namespace

extern "C" {

const char* bridge_error() { return message.c_str(); }

Bridge* bridge_open(const char* device, std::int64_t elements) {
  auto bridge = std::make_unique<Bridge>();
  const int failed = guarded([&] {
    bridge->context = Context::make(*bridge->runtime, parse_device(device));
    bridge->out = counted(bridge->context, elements);
  });
  return failed != 0 ? nullptr : bridge.release();
}

/// What Python has of it lives on.
void bridge_close(Bridge* bridge) { delete bridge; }

void bridge_device(Bridge* bridge, std::int32_t* type, std::int32_t* id) {
  const DlpackDevice device = dlpack_device(bridge->context.device);
  *type = device.type;
  *id = device.id;
}

/// `stream` 0: none was named.
void* bridge_export(Bridge* bridge, std::int64_t stream, int versioned, int read_only) {
  void* managed = nullptr;
  (void)guarded([&] {
    const DlpackExport options{.producer = bridge->context.stream,
                               .consumer = number_of(stream),
                               .read_only = read_only != 0,
                               .consumer_stream_lives = true,
                               .keep_alive = bridge->runtime};
    if (versioned != 0)
      managed = to_dlpack(bridge->out, options);
    else
      managed = to_dlpack_unversioned(bridge->out, options);
  });
  return managed;
}

/// What to pass as `stream`; 0: nothing.
std::int64_t bridge_stream(Bridge* bridge) { return dlpack_stream(bridge->context.stream).value_or(0); }

int bridge_import(Bridge* bridge, void* managed, int versioned, std::int64_t producer) {
  return guarded([&] {
    const DlpackImport options{.consumer = bridge->context.stream, .producer = number_of(producer)};
    bridge->in = versioned != 0 ? from_dlpack(static_cast<DLManagedTensorVersioned*>(managed), options)
                                : from_dlpack(static_cast<DLManagedTensor*>(managed), options);
  });
}

void bridge_drop(Bridge* bridge) { bridge->in = Tensor(); }

/// The elements of one of the two as floats, into `values`; how many there are.
std::int64_t bridge_read(Bridge* bridge, int imported, float* values) {
  const Tensor& tensor = imported != 0 ? bridge->in : bridge->out;
  const int failed = guarded([&] {
    const std::vector<float> read = to_host_floats(tensor, bridge->context.stream);
    std::memcpy(values, read.data(), read.size() * sizeof(float));
  });
  return failed != 0 ? -1 : tensor.elements();
}

}  // extern "C"
