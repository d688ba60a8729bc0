// The table of callbacks that a configuration may name.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bantam/base/config/config_registry.h"
#include "bantam/engine/train/trainer.h"

namespace bantam {

/// Makes a callback for one run: a configuration may be read several times, and its callbacks are made once.
using CallbackMaker = std::function<std::unique_ptr<Callback>()>;

/// There is no built-in one. Register before the first configuration is read:
///
///     callbacks().add("print_epochs", [](ConfigMap&) -> CallbackMaker {
///       return [] { return std::make_unique<PrintEpochs>(); };
///     });
Registry<Reader<CallbackMaker>>& callbacks();

/// `callbacks: [NAME, {NAME: {options}}, …]`, in their order; none where the key is missing. Throws ConfigError.
std::vector<CallbackMaker> read_callbacks(ConfigMap& section);

}  // namespace bantam
