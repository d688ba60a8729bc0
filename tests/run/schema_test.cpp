// The description of whole configurations: complete, in step with docs/CONFIG.md and with the shipped configurations.
#include "bantam/run/schema.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/config/config_template.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/error.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run::schema_test {
namespace {

namespace fs = std::filesystem;

const ConfigSchema& schema() {
  static const ConfigSchema made = describe_run_config();
  return made;
}

/// Calls `visit` with every key and its path: "memory.limits", "layer conv2d.filters".
void visit_keys(const ValueFacts& value, const std::string& path,
                const std::function<void(const KeyFacts&, const std::string&)>& visit) {
  if (value.list) visit_keys(value.list->items, path, visit);
  if (!value.map) return;
  for (const auto& key : value.map->keys) {
    const std::string place = path.empty() ? key->name : path + "." + key->name;
    visit(*key, place);
    visit_keys(key->value, place, visit);
  }
}

void visit_keys(const std::function<void(const KeyFacts&, const std::string&)>& visit) {
  visit_keys(schema().root, "", visit);
  for (const auto& table : schema().tables)
    for (const auto& entry : table->entries) visit_keys(entry->options, table->what + " " + entry->name, visit);
}

TEST(ConfigReference, ReadersAcceptTheirOwnExamples) {
  for (const std::string& fault : schema().faults) ADD_FAILURE() << fault;
}

TEST(ConfigReference, EveryKeyHasAMeaningAndAType) {
  int keys = 0;
  visit_keys([&](const KeyFacts& key, const std::string& path) {
    ++keys;
    EXPECT_FALSE(key.meaning.empty()) << path << " is read without a meaning (ConfigKey)";
    EXPECT_TRUE(key.meaning.ends_with('.')) << path << ": " << key.meaning;
    EXPECT_TRUE(key.value.is_known()) << path << ": its examples do not reach the code that reads its value";
    EXPECT_TRUE(key.required || key.otherwise || !key.otherwise_meaning.empty())
        << path << ": what counts where it is missing?";
  });
  EXPECT_GT(keys, 100);
}

TEST(ConfigReference, EveryEntryHasAMeaning) {
  std::set<std::string> tables;
  for (const auto& table : schema().tables) {
    tables.insert(table->what);
    for (const auto& entry : table->entries)
      EXPECT_FALSE(entry->options.meaning.empty()) << table->what << " " << entry->name << " (ConfigMap::describe)";
  }
  EXPECT_EQ(tables, (std::set<std::string>{"activation", "block", "callback", "layer", "loss", "metric", "optimizer",
                                           "pipeline stage", "schedule"}));
}

/// Fails for each key of `node` that the description does not have.
class Walk {
 public:
  void walk(const ConfigNode& node, const ValueFacts& value) {
    if (node.is_list() && value.list)
      for (const ConfigNode& item : node.items()) walk(item, value.list->items);
    if (is_expression(node)) return;
    if (!value.tables.empty() && !node.is_list()) return walk_named(node.as_named(), value);
    if (!node.is_map()) return;
    ASSERT_TRUE(value.map) << node.path() << " is a map, which the description does not have";
    for (const auto& [name, inner] : node.entries()) {
      ++keys;
      if (value.map->any)
        walk(inner, *value.map->any);
      else
        walk_key(name, inner, *value.map);
    }
  }
  int keys = 0;

 private:
  void walk_key(const std::string& name, const ConfigNode& inner, const MapFacts& map) {
    bool found = false;
    for (const auto& key : map.keys) {
      if (key->name != name || found) continue;
      found = true;
      walk(inner, key->value);
    }
    EXPECT_TRUE(found) << inner.position() << ": " << inner.path() << " is not described";
  }

  static bool is_expression(const ConfigNode& node) {
    return node.is_scalar() && ConfigTemplate::has_expressions(node);
  }

  void walk_named(const ConfigNode::Named& named, const ValueFacts& value) {
    const TableFacts::Entry* entry = nullptr;
    for (const std::string& table : value.tables)
      if (!entry) entry = schema().table(table)->find(named.name);
    if (!entry && value.other_names) return;  // a block of the file's own
    ASSERT_TRUE(entry) << named.options.position() << ": " << named.name << " is not described";
    ++keys;
    walk(named.options, entry->options);
  }
};

std::vector<fs::path> shipped_configs() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(BANTAM_SOURCE_DIR) / "configs"))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  return paths;
}

TEST(ConfigReference, HasEveryKeyOfTheShippedConfigurations) {
  ASSERT_GE(shipped_configs().size(), 6u);
  for (const fs::path& path : shipped_configs()) {
    Walk file, resolved;
    file.walk(ConfigDocument::load(path).root(), schema().root);
    EXPECT_GT(file.keys, 6) << path;
    const std::string all = read_run_config(path, {}).document.resolved_yaml();
    resolved.walk(ConfigDocument::parse(all, path.string() + " (resolved)").root(), schema().root);
    EXPECT_GT(resolved.keys, file.keys) << path;
  }
}

TEST(ConfigReference, ExamplesOfSectionsAreConfigurations) {
  const std::string model = "model: {zoo: resnet18_cifar}\n";
  int examples = 0;
  for (const auto& key : schema().root.map->keys) {
    const std::string& example = key->value.example;
    if (example.empty()) continue;
    ++examples;
    // `accumulate` without batch norm.
    const std::string text = key->name == "memory"  ? "model: {zoo: separable_cnn}\n" + example
                             : key->name == "model" ? example
                                                    : model + example;
    EXPECT_NO_THROW((void)parse_run_config(text, "example.yaml", {})) << text;
  }
  EXPECT_EQ(examples, 6);
}

TEST(ConfigReference, TheCheckedInPageIsNotStale) {
  const std::string page = read_file(fs::path(BANTAM_SOURCE_DIR) / "docs" / "CONFIG.md");
  // No diff of the whole page: one word says what to do.
  EXPECT_TRUE(page == reference_text()) << "docs/CONFIG.md is stale: it is not what `bantam schema --markdown` prints. "
                                           "Run `make schema` and commit the page.";
}

TEST(ConfigReference, KeysOfModelAndDataHaveTheirConditions) {
  const MapFacts& model = *schema().root.map->find("model")->value.map;
  EXPECT_TRUE(model.find("layers")->required);
  EXPECT_TRUE(model.find("layers")->when->missing);
  const std::vector<std::string>& with_width = model.find("width")->when->values;
  EXPECT_EQ(std::ranges::count(with_width, "mobilenet_v1"), 1);
  EXPECT_EQ(std::ranges::count(with_width, "resnet50"), 0);
  const MapFacts& data = *schema().root.map->find("data")->value.map;
  EXPECT_EQ(data.find("path")->when->key, "format");
  const KeyFacts& format = *data.find("format");
  for (const std::string& name : format.value.words)
    EXPECT_TRUE(format.choices.contains(name)) << "the format " << name << " has no meaning (ConfigMap::describe)";
  EXPECT_FALSE(data.find("limit")->when);
}

}  // namespace
}  // namespace bantam::run::schema_test
