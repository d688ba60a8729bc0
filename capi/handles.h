// Internal: what the handles of the C interface are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bantam/bantam_c.h"
#include "bantam/capi/live.h"
#include "bantam/capi/status.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/memory/device/device.h"
#include "bantam/models/infer/predictor.h"
#include "bantam/run/config/run_config.h"

struct bantam_engine {
  std::shared_ptr<bantam::Runtime> runtime;
  bantam::capi::Live live = {};
};

struct bantam_tensor {
  std::shared_ptr<bantam::Runtime> runtime;  // outlives what follows
  std::shared_ptr<void> owner;               // of memory that is not the tensor's own: a model
  bantam::Tensor tensor;
  bantam::Stream stream;   // of the work that wrote it
  bool read_only = false;  // another library's, which it may not be written to
  bantam::capi::Live live = {};
};

struct bantam_config {
  bantam::run::RunConfig config;
  bantam::capi::Live live = {};
};

struct bantam_model {
  std::shared_ptr<bantam::Runtime> runtime;  // outlives what follows
  bantam::run::RunConfig config;
  std::vector<std::string> class_names;
  std::int64_t parameters = 0;
  std::int64_t most_batch = 32;  // samples of one pass of a prediction
  // One of the two: what trains, or what predicts, with the weights that it was made from, for saving.
  std::shared_ptr<bantam::TrainingSession> session;
  std::unique_ptr<bantam::Predictor> predictor;
  bantam::SafetensorsFile weights;
  // Metrics of updates that were read from the device and not yet returned to the caller.
  bantam::Metrics untold;
  std::int64_t untold_updates = 0;
  std::int64_t accumulated = 0;  // micro-batches since the last update
  bantam::capi::Live live = {};
};

namespace bantam::capi {

/// Checks a handle as other pointers are checked, and refuses one that is not alive as well.
template <class Handle>
requires requires(Handle& handle) { handle.live; }
Handle& required(Handle* handle, const char* name) {
  if (handle == nullptr) throw BadArgument(std::string(name) + " is null");
  if (!Live::is_alive(&handle->live))
    throw BadArgument(std::string(name) + " is no handle: it was destroyed, or this library has not made it");
  return *handle;
}

/// Throws BadArgument where `device` is null, bantam::Error where it names no device.
inline Device device_named(const char* device) { return parse_device(&required(device, "device")); }

/// Ends a handle of the program's; says so where it is none, or one that the program was only shown.
template <class Handle>
void destroy(Handle* handle, const char* function) noexcept {
  if (handle == nullptr) return;
  if (Live::release(&handle->live))
    delete handle;
  else
    set_last_error(function);
}

/// The session. Throws BadArgument naming the function for a model that was opened for predictions.
TrainingSession& training(bantam_model& model, const char* function);

/// A whole step on a batch that is on the device; its metrics where `metrics` is not null.
void run_step(bantam_model& model, const Batch& batch, bantam_metrics* metrics);
/// Throws BadArgument naming the function between bantam_model_accumulate and bantam_model_update.
void require_no_micro_batch(const bantam_model& model, const char* function);

}  // namespace bantam::capi
