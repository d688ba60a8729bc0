// Command-line text to overrides and lists.
#include "bantam/cli/options/options.h"

#include <charconv>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::cli {

void add_common_options(CLI::App& command, CommonOptions& options) {
  command.add_option("CONFIG", options.config, "YAML file, e.g. configs/quickstart.yaml")->required();
  command.add_option("OVERRIDES", options.overrides, "KEY=VALUE, e.g. train.epochs=5 data.path=DIR");
  add_override_flag(command, options, "--device", "device", "auto (default), cpu or cuda:N");
  add_override_flag(command, options, "--seed", "seed", "Seed of weights, order, augmentation, dropout");
  command.add_option("--threads", options.threads, "CPU threads; 0: all processors.\nResults do not depend on it")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void add_precision_flag(CLI::App& command, CommonOptions& options) {
  add_override_flag(command, options, "--precision", "precision",
                    "auto (default), float32, mixed_float16,\nmixed_bfloat16 or float16");
}

void add_override_flag(CLI::App& command, CommonOptions& options, const std::string& flag, const std::string& key,
                       const std::string& help) {
  command.add_option_function<std::string>(
      flag, [&options, key](const std::string& value) { options.flag_overrides[key] = value; }, help);
}

void add_progress_flags(CLI::App& command, std::string& progress) {
  CLI::Option* mode =
      command.add_option("--progress", progress, "auto, bar, plain, json or none (on stderr)")->capture_default_str();
  command
      .add_flag_callback(
          "-q,--quiet", [&progress] { progress = "none"; }, "Warnings, errors and the result, nothing else")
      ->excludes(mode);
}

std::vector<std::string> all_overrides(const CommonOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  for (const auto& [key, value] : options.flag_overrides) overrides.push_back(key + "=" + value);
  return overrides;
}

RunConfig read_config(const CommonOptions& options) { return read_run_config(options.config, all_overrides(options)); }

CLI::Validator positive_seconds() {
  const double most = 86400;
  // The parser's own check for positive numbers names the largest double in its message, digit by digit.
  const std::function<std::string(std::string&)> check = [most](std::string& text) {
    double seconds = 0;
    const bool number = CLI::detail::lexical_cast(text, seconds);
    return number && seconds > 0 && seconds <= most
               ? std::string()
               : fmt::format("expected seconds above 0 and up to {}, got '{}'", most, shown(text, 20));
  };
  return CLI::Validator(check, "SECONDS");
}

std::uint64_t parse_bytes(const std::string& flag, const std::string& text) {
  const std::uint64_t bytes = of_flag(flag, [&] { return parse_byte_size(text); });
  if (bytes == 0) throw ConfigError(flag + ": expected more than 0 bytes");
  return bytes;
}

std::vector<std::string> parse_texts(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) throw ConfigError(fmt::format("{}: expected a list such as a,b,c, got '{}'", flag, text));
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::int64_t> parse_integers(const std::string& flag, const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string& part : parse_texts(flag, text)) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 1 || value > 1 << 24)
      throw ConfigError(
          fmt::format("{}: expected whole numbers from 1 to {}, such as 16,128, got '{}'", flag, 1 << 24, part));
    values.push_back(value);
  }
  return values;
}

}  // namespace bantam::cli
