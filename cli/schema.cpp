// `bantam schema`: every key that a configuration may have, for editors and for people.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/run.h"

namespace bantam::cli {

void add_schema(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("schema", "Every key of a configuration, documented");
  command->footer(
      "Prints a JSON Schema (draft 2020-12), written from the code that reads the keys.\n"
      "An editor with the YAML language server completes and checks configurations\n"
      "whose first line names it:\n"
      "  # yaml-language-server: $schema=bantam.schema.json\n"
      "Example: bantam schema > bantam.schema.json");
  const auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "The reference page docs/CONFIG.md");
  command->callback([&action, markdown] {
    action = [markdown] {
      print_out("{}", *markdown ? config_reference() : config_schema());
      return 0;
    };
  });
}

}  // namespace bantam::cli
