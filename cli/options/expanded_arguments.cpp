// Which arguments are paths is known by how they begin.
#include "bantam/cli/options/expanded_arguments.h"

#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"

namespace bantam::cli {
namespace {

bool begins_path(std::string_view text) {
  if (text.starts_with('~')) return true;
  return text.size() > 1 && text[0] == '$' &&
         (text[1] == '{' || text[1] == '_' || std::isalpha(static_cast<unsigned char>(text[1])) != 0);
}

std::string expanded(std::string_view text) {
  std::string given(text);
  std::error_code error;
  if (!begins_path(text) || std::filesystem::exists(given, error)) return given;
  try {
    return expanded_path(text);
  } catch (const ConfigError&) {
    return given;
  }
}

}  // namespace

std::vector<std::string> expanded_arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (argument.starts_with("--") && equals != std::string_view::npos)
      arguments.push_back(std::string(argument.substr(0, equals + 1)) + expanded(argument.substr(equals + 1)));
    else
      arguments.push_back(i == 0 ? std::string(argument) : expanded(argument));
  }
  return arguments;
}

}  // namespace bantam::cli
