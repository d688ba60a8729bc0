// Tensors by their names, as far as they fit.
#include "bantam/run/session/initial_weights.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

std::vector<std::string> begin_with_weights(Model& model, const std::filesystem::path& path) {
  const SafetensorsFile file = read_safetensors(path);
  const Stream stream = model.runtime().stream(model.device());
  std::vector<std::string> kept;
  std::size_t read = 0;
  const auto fill = [&](const std::string& name, const Tensor& tensor) {
    const auto found = file.tensors.find(name);
    const bool fits =
        found != file.tensors.end() && found->second.dtype == tensor.dtype() && found->second.shape == tensor.shape();
    if (!fits) return kept.push_back(name);
    ++read;
    if (!found->second.bytes.empty())
      copy_bytes(tensor.data(), found->second.bytes.data(), found->second.bytes.size(), stream);
  };
  for (const Parameter& parameter : model.parameters().all()) fill(parameter.name(), parameter.master());
  for (const Buffer& buffer : model.buffers().all()) fill(buffer.name, model.buffers().current(buffer));
  if (read == 0)
    throw DataError(
        fmt::format("train.initial_weights: {} has no tensor of a name and shape that the model has", path.string()));
  const Context context = model.context(Pass::train);
  model.parameters().refresh_compute(context);
  model.buffers().reset_next(context);
  synchronize(stream);
  return kept;
}

}  // namespace bantam::run
