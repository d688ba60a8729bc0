// Flags of the verbs that use a trained model: which weights, on which device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bantam/cli/options/options.h"
#include "bantam/run/trained/trained_model.h"

namespace bantam::cli {

struct ModelFlags {
  std::string path, checkpoint, config;
  bool ema = false;
  std::vector<std::string> set;             ///< "key=value", as typed
  std::map<std::string, std::string> keys;  ///< by configuration key, from --device and the like
  int threads = 0;
};

/// RUN, --checkpoint, --ema, --config, --set, --device, --precision, --threads.
void add_model_flags(CLI::App& command, ModelFlags& flags);

/// The model that they mean (TrainedModelOptions::whole_set). Throws what open_trained_model throws.
TrainedModel open_model(const ModelFlags& flags, bool with_data, bool whole_set = false);

/// "runs/photos/weights.safetensors", and what of it is worth knowing: "update 120", "averaged".
std::string weights_text(const TrainedModel& model);

/// The error with what helps where the model's device is not in this machine.
[[noreturn]] void explain_device(const DeviceError& error);

}  // namespace bantam::cli
