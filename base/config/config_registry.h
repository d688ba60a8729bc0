// What a configuration names, made by a table of readers: `adam`, or `adam: {learning_rate: 0.1}`.
#pragma once

#include <functional>

#include "bantam/base/config/config.h"
#include "bantam/base/registry.h"

namespace bantam {

/// Reads one entry's options, and makes what they describe. It need not call `finish`. Throws ConfigError at what is
/// wrong.
template <class Result>
using Reader = std::function<Result(ConfigMap& options)>;

/// The entry that a table has for `name`. Throws ConfigError at the name, with the nearest one, where there is none.
template <class Result>
const Reader<Result>& find_reader(const Registry<Reader<Result>>& table, const ConfigNode& at,
                                  const std::string& name) {
  if (const Reader<Result>* reader = table.find(name)) return *reader;
  at.fail_unknown(table.what(), name, table.names());
}

/// Of text, or of a map with one key whose value is the options. Throws ConfigError for a name that the table does not
/// have, and whatever the reader throws; options that it did not ask for are refused.
template <class Result>
Result read_registered(const Registry<Reader<Result>>& table, const ConfigNode& node) {
  const ConfigNode::Named named = node.as_named();
  const Reader<Result>& reader = find_reader(table, named.options, named.name);
  ConfigMap options = named.options.as_map();
  Result result = reader(options);
  options.finish();
  return result;
}

}  // namespace bantam
