// A run's initial weights: another run's file, or weights made from the data.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "bantam/engine/model/model.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// How a model's weights were made.
struct InitialWeights {
  std::string text;           ///< a line for the user; empty: initial values by the seed
  bool warns = false;         ///< tensors were missing, and that was allowed
  double whiten_seconds = 0;  ///< of making weights from the data
};

/// Reads the file of `model.weights` or `train.initial_weights`, if any, into the model; waits for the device. Throws
/// DataError where the file cannot be read, is another than its SHA-256 says, or does not fit.
InitialWeights load_named_weights(Model& model, const RunConfig& config);

/// The weights of a run's first update: load_named_weights, or, without a file, the seed's with whitened layers
/// (whitening.h), for which the first training images are read. Throws as both.
InitialWeights load_initial_weights(Model& model, const RunConfig& config);

/// Throws DataError where `bytes`, those of the file `path`, begin as a file of PyTorch or of another program does, and
/// says how its weights come here.
void refuse_other_formats(std::string_view bytes, const std::filesystem::path& path);
/// Throws DataError where there is no file as `model.weights` names it; nothing is read.
void require_weights(const RunConfig& config);

/// The SHA-256 of the file of `model.weights`. Throws DataError where it cannot be read.
std::string sha256_of_weights(const std::filesystem::path& path);

}  // namespace bantam::run
