// The keys and values that this program reads in a configuration, as JSON Schema and as the page docs/CONFIG.md.
#pragma once

#include <string>

#include "bantam/base/config/config_schema.h"

namespace bantam::run {

/// Every key, by running the readers of a configuration (base/config/config_schema.h). What the program has registered
/// is part of it.
ConfigSchema describe_run_config();

/// A JSON Schema, and a page of Markdown.
std::string schema_text();
std::string reference_text();

}  // namespace bantam::run
