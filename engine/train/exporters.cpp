// The table of exporters.
#include "bantam/engine/train/safetensors.h"

namespace bantam {

Registry<Exporter>& exporters() {
  static Registry<Exporter> table("export format", {{"safetensors", save_weights}});
  return table;
}

void export_model(Model& model, std::string_view format, const std::filesystem::path& path) {
  exporters().at(format)(model, path);
}

}  // namespace bantam
