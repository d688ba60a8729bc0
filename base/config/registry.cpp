// The error messages of a registry for unknown names.
#include "bantam/base/config/registry.h"

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::registry_detail {

void fail_unknown(const std::string& what, std::string_view name, const std::vector<std::string>& names) {
  const auto near = nearest(name, names);
  const std::string advice = near            ? "; did you mean '" + *near + "'?"
                             : names.empty() ? std::string()
                                             : "; valid: " + join(names, ", ", " and ");
  throw ConfigError("unknown " + what + " '" + shown(name) + "'" + advice);
}

void check_new(const std::string& what, const std::string& name, bool taken) {
  if (name.empty()) throw ConfigError(what + ": an entry without a name");
  if (taken) throw ConfigError(what + " '" + name + "' is registered already");
}

}  // namespace bantam::registry_detail
