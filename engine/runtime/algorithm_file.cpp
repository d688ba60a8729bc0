// Algorithm files as JSON.
#include "bantam/engine/runtime/algorithm_file.h"

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"

namespace bantam {
namespace {

constexpr const char* kFormat = "bantam algorithms 1";

}  // namespace

AlgorithmMap read_algorithms(const std::filesystem::path& path, const std::string& device) {
  const nlohmann::ordered_json file = nlohmann::ordered_json::parse(read_file(path), nullptr, false);
  const auto has_text = [&](const char* key) { return file.contains(key) && file[key].is_string(); };
  if (!file.is_object() || !has_text("format") || file["format"] != kFormat || !has_text("device") ||
      !file.contains("choices") || !file["choices"].is_object())
    throw DataError(fmt::format("{}: no file of algorithms, or a damaged one", path.string()));
  if (file["device"] != device)
    throw DataError(fmt::format("{}: algorithms of {}; this device is {}", path.string(),
                                file["device"].get<std::string>(), device));
  AlgorithmMap choices;
  for (const auto& [problem, choice] : file["choices"].items()) {
    if (!choice.is_string()) throw DataError(fmt::format("{}: the choice for '{}' is no text", path.string(), problem));
    choices[problem] = choice.get<std::string>();
  }
  return choices;
}

void write_algorithms(const std::filesystem::path& path, const std::string& device, const AlgorithmMap& choices) {
  AtomicFile file(path);
  write_algorithms(file, device, choices);
  file.commit();
}

void write_algorithms(AtomicFile& file, const std::string& device, const AlgorithmMap& choices) {
  const nlohmann::ordered_json json = {{"format", kFormat}, {"device", device}, {"choices", choices}};
  file.write(json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace bantam
