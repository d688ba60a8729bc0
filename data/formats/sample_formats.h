// The data formats that `data.format` can name: the built-in ones and those that a program registers.
#pragma once

#include <functional>

#include "bantam/base/config/config.h"
#include "bantam/base/registry.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// Reads a format's own keys of `data:` and returns readers of both splits; opens no file. Keys of all formats
/// (`limit`, `verify`, `pipeline`) are read by the caller, who also refuses the keys that nobody asked for.
using SampleFormat = std::function<SampleSplits(ConfigMap& data)>;

/// The table. The built-in formats are those that data/CMakeLists.txt lists. A program adds one before it reads a
/// configuration that names it:
///
///     sample_formats().add("my_format", [](ConfigMap& data) { return open_mine(data.text("path")); });
Registry<SampleFormat>& sample_formats();

}  // namespace bantam
