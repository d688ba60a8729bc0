// A description of keys by their own readers: what is noted, under which conditions, and how it is printed.
#include "bantam/base/config/config_schema.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "bantam/base/config/config_template.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "tests/base/config_error.h"

namespace bantam::config_schema_test {
namespace {

using nlohmann::ordered_json;
using Read = std::function<void(ConfigMap&)>;

ConfigSchema described(const Read& read) {
  return describe_config([&](const ConfigDocument& document) {
    ConfigMap map = document.map();
    read(map);
    map.finish();
  });
}

/// The only key of this name.
const KeyFacts& only(const MapFacts& map, std::string_view name) {
  const KeyFacts* found = nullptr;
  for (const auto& key : map.keys) {
    if (key->name != name) continue;
    EXPECT_EQ(found, nullptr) << name << " is there twice";
    found = key.get();
  }
  if (!found) throw Error(std::string(name) + " is not described");
  return *found;
}

TEST(ConfigSchema, NotesEveryType) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    map.integer({"integer", "An integer."}, {.min = 1, .max = 9}, 2);
    map.integer_or_auto({"or_auto", "An integer or auto."}, {.min = 0});
    map.number({"number", "A number.", "0.5"}, {.min = 0, .max = 1, .max_open = true});
    map.boolean({"boolean", "A boolean."}, true);
    map.text({"text", "A text."});
    map.choice({"choice", "A choice."}, {"a", "b"}, "b");
    map.byte_size({"bytes", "A byte size."}, 0);
    map.duration({"every", "A duration."}, {.min = 1, .seconds = false}, Duration::epochs(2));
    map.integers({"integers", "Integers.", "[1, 2]"}, {.min = 0});
    map.pair({"pair", "A pair."}, {.min = 1}, {2, 3});
    map.texts({"texts", "Texts."}, {"x"});
  });
  EXPECT_TRUE(schema.faults.empty()) << schema.faults.front();
  const MapFacts& map = *schema.root.map;
  EXPECT_TRUE(map.closed);
  EXPECT_EQ(map.keys.size(), 11u);
  EXPECT_EQ(only(map, "integer").value.integer->max, 9);
  EXPECT_EQ(only(map, "integer").otherwise, "2");
  EXPECT_EQ(only(map, "or_auto").otherwise, "auto");
  EXPECT_EQ(only(map, "or_auto").value.words, std::vector<std::string>{"auto"});
  EXPECT_TRUE(only(map, "number").required);
  EXPECT_TRUE(only(map, "number").value.number->max_open);
  EXPECT_TRUE(only(map, "boolean").value.boolean);
  EXPECT_TRUE(only(map, "text").value.text);
  EXPECT_EQ(only(map, "choice").value.words, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(only(map, "bytes").value.byte_size, 0u);
  EXPECT_EQ(only(map, "every").otherwise, "2epochs");
  EXPECT_EQ(only(map, "integers").value.list->items.integer->min, 0);
  EXPECT_EQ(only(map, "pair").value.list->most, 2u);
  EXPECT_EQ(only(map, "pair").otherwise, "[2, 3]");
  EXPECT_TRUE(only(map, "texts").value.list->items.text);
}

void read_free(ConfigMap& map) {
  const ConfigNode node =
      map.node({"free", "Words, a number, sides or names.", "same | 3 | {top: 1} | [x, y]"}, "none");
  if (node.is_text("none") || node.is_text("same")) return;
  if (node.is_list()) {
    (void)node.as_texts();
  } else if (node.is_map()) {
    ConfigMap sides = node.as_map();
    sides.integer({"top", "Rows."}, {.min = 0}, 0);
    sides.finish();
  } else {
    (void)node.as_integer({.min = 1});
  }
}

TEST(ConfigSchema, SeveralExamplesShowWhatAValueMayBe) {
  const ConfigSchema schema = described(read_free);
  EXPECT_TRUE(schema.faults.empty());
  const KeyFacts& free = only(*schema.root.map, "free");
  EXPECT_EQ(free.otherwise, "none");
  EXPECT_EQ(free.value.words, (std::vector<std::string>{"none", "same"}));
  EXPECT_EQ(free.value.integer->min, 1);
  EXPECT_EQ(only(*free.value.map, "top").meaning, "Rows.");
  EXPECT_TRUE(free.value.list->items.text);
}

TEST(ConfigSchema, AnExampleThatTheReaderRefusesIsAFault) {
  const ConfigSchema schema = described([](ConfigMap& map) { map.integer({"size", "A size.", "0"}, {.min = 1}, 2); });
  ASSERT_EQ(schema.faults.size(), 1u);
  EXPECT_NE(schema.faults.front().find("size: expected an integer ≥ 1, got 0"), std::string::npos)
      << schema.faults.front();
}

TEST(ConfigSchema, AKeyWithoutAMeaningIsListedWithout) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    map.integer("plain", {.min = 1}, 0);  // a default outside the range, as "none", is no fault
    if (const auto maybe = map.find("maybe")) (void)maybe->as_boolean();
  });
  EXPECT_EQ(only(*schema.root.map, "plain").meaning, "");
  EXPECT_EQ(only(*schema.root.map, "plain").otherwise, "0");
  EXPECT_TRUE(only(*schema.root.map, "plain").value.is_known());
}

TEST(ConfigSchema, OptionalKeysAreThereInSomeRounds) {
  int given = 0, missing = 0;
  const ConfigSchema schema = described([&](ConfigMap& map) {
    const auto limit = map.find({"limit", "A limit.", "7", "all"});
    ++(limit ? given : missing);
    if (!limit) return;
    EXPECT_EQ(limit->as_integer({.min = 1}), 7);
  });
  EXPECT_GT(given, 0);
  EXPECT_GT(missing, 0);
  EXPECT_FALSE(only(*schema.root.map, "limit").required);
  EXPECT_EQ(only(*schema.root.map, "limit").otherwise_meaning, "all");
}

void read_either(ConfigMap& map) {
  const ConfigKey rate{"rate", "What is new.", "0.1"};
  if (map.has(rate))
    map.number(rate, {.min = 0});
  else
    map.number({"momentum", "What stays."}, {.max = 1}, 0.9);
  map.boolean({"scale", "In any case."}, true);
}

TEST(ConfigSchema, KeysThatExcludeEachOtherHaveConditions) {
  const ConfigSchema schema = described(read_either);
  EXPECT_TRUE(schema.faults.empty());
  const MapFacts& map = *schema.root.map;
  EXPECT_FALSE(only(map, "rate").when);
  EXPECT_FALSE(only(map, "rate").required);
  ASSERT_TRUE(only(map, "momentum").when);
  EXPECT_TRUE(only(map, "momentum").when->missing);
  EXPECT_EQ(only(map, "momentum").when->key, "rate");
  EXPECT_FALSE(only(map, "scale").when);
}

Registry<Reader<int>>& formats() {
  static Registry<Reader<int>> table("format", {{"idx",
                                                 [](ConfigMap& map) {
                                                   map.text({"path", "A folder."});
                                                   map.integer({"samples", "How many."}, {.min = 1}, 10);
                                                   return 1;
                                                 }},
                                                {"cifar",
                                                 [](ConfigMap& map) {
                                                   map.text({"path", "A folder."});
                                                   return 2;
                                                 }},
                                                {"generated", [](ConfigMap& map) {
                                                   map.integer({"samples", "How many."}, {.min = 1}, 4);
                                                   return 3;
                                                 }}});
  return table;
}

void read_format(ConfigMap& map) {
  const std::string name = map.choice({"format", "A format.", "idx"}, {"idx", "cifar", "generated"}, "idx");
  (void)read_beside(formats(), map, "format", name);
  map.integer({"limit", "At most."}, {.min = 0}, 0);
}

TEST(ConfigSchema, KeysOfAChoiceHaveItsValuesAsCondition) {
  const ConfigSchema schema = described(read_format);
  EXPECT_TRUE(schema.faults.empty());
  const MapFacts& map = *schema.root.map;
  EXPECT_EQ(only(map, "path").when->values, (std::vector<std::string>{"idx", "cifar"}));
  EXPECT_FALSE(only(map, "limit").when);
  int samples = 0;
  for (const auto& key : map.keys) samples += key->name == "samples" ? 1 : 0;
  EXPECT_EQ(samples, 2) << "defaults differ, so that both are told";
  const ordered_json json = json_schema(schema, "test");
  EXPECT_EQ(json.at("properties").at("format").at("enum"), ordered_json({"idx", "cifar", "generated"}));
  EXPECT_EQ(json.at("additionalProperties"), false);
  EXPECT_NE(markdown_reference(schema).find("With `format: idx` or `format: cifar`:"), std::string::npos);
}

Registry<Reader<int>>& shapes() {
  static Registry<Reader<int>> table("shape",
                                     {{"dot", [](ConfigMap&) { return 0; }},
                                      {"group", [](ConfigMap& map) {
                                         map.describe("Shapes in one.", "group: {body: [dot]}");
                                         for (const ConfigNode& item : map.list({"body", "What is in it.", "[dot]"}))
                                           (void)read_registered(shapes(), item);
                                         return 1;
                                       }}});
  return table;
}

TEST(ConfigSchema, ListsWithOwnNamesAndExpressionsSaySo) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    const auto list = map.find({"shapes", "Shapes.", "[dot]", "none"});
    if (!list) return;
    describe_registered(shapes(), *list);
    const std::vector<std::string> tables = {"shape"}, known = {"dot", "group"};
    ConfigTemplate::describe(*list, tables, known, "own_shapes");
    (void)map.find({"own_shapes", "Shapes of the file.", "{}", "none"});
  });
  const ordered_json json = json_schema(schema, "test");
  const ordered_json& items = json.at("properties").at("shapes").at("items").at("anyOf");
  ASSERT_EQ(items.size(), 3u);  // of the table, another name, another name with options
  EXPECT_EQ(items[1].at("not").at("enum"), ordered_json({"dot", "group"}));
  EXPECT_EQ(items[2].at("propertyNames").at("not").at("enum"), ordered_json({"dot", "group"}));
  const ordered_json& group = json.at("$defs").at("shape").at("anyOf").back().at("properties").at("group");
  const ordered_json& body = group.at("properties").at("body").at("anyOf");
  EXPECT_EQ(body.front().at("type"), "array");
  EXPECT_EQ(body.back().at("pattern"), "^\\$\\(.*\\)$");
  const ordered_json& without = json.at("allOf").at(0);
  EXPECT_EQ(without.at("if").at("not").at("required"), ordered_json({"own_shapes"}));
  EXPECT_EQ(without.at("then").at("properties").at("shapes").at("items").at("else").at("enum"),
            ordered_json({"dot", "group"}));
}

TEST(ConfigSchema, TablesMayNameThemselves) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    const auto list = map.find({"shapes", "Shapes.", "[]", "none"});
    if (!list) return;
    describe_registered(shapes(), *list);
    for (const ConfigNode& item : list->items()) (void)read_registered(shapes(), item);
  });
  EXPECT_TRUE(schema.faults.empty()) << schema.faults.front();
  EXPECT_EQ(only(*schema.root.map, "shapes").value.list->items.tables, std::vector<std::string>{"shape"});
  ASSERT_EQ(schema.tables.size(), 1u);
  const ValueFacts& group = schema.table("shape")->find("group")->options;
  EXPECT_EQ(group.meaning, "Shapes in one.");
  EXPECT_EQ(only(*group.map, "body").value.list->items.tables, std::vector<std::string>{"shape"});
  const ordered_json json = json_schema(schema, "test");
  EXPECT_EQ(json.at("properties").at("shapes").at("items").at("$ref"), "#/$defs/shape");
  const ordered_json& names = json.at("$defs").at("shape").at("anyOf").at(0).at("anyOf");
  ASSERT_EQ(names.size(), 1u) << "group needs a body, so it is no name alone";
  EXPECT_EQ(names.at(0).at("const"), "dot");
}

TEST(ConfigSchema, AReaderThatFailsIsDescribedAsFarAsItCame) {
  static Registry<Reader<int>> table("thing", {{"fails",
                                                [](ConfigMap& map) -> int {
                                                  map.integer({"size", "A size."}, {.min = 1}, 2);
                                                  throw std::runtime_error("no such file");
                                                }},
                                               {"works", [](ConfigMap&) { return 1; }}});
  const ConfigSchema schema = described([](ConfigMap& map) {
    (void)read_registered(table, map.node({"thing", "A thing.", "works"}, "works"));
  });
  EXPECT_EQ(schema.faults, std::vector<std::string>{"thing fails: no such file"});
  EXPECT_EQ(only(*schema.table("thing")->find("fails")->options.map, "size").otherwise, "2");
  EXPECT_NE(schema.table("thing")->find("works"), nullptr);
}

TEST(ConfigSchema, FreeKeysHaveOneKindOfValue) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    const auto limits = map.find({"limits", "Bytes by device.", "{cpu: 8GiB}"});
    if (!limits) return;
    for (const auto& [name, value] : limits->entries()) EXPECT_EQ(value.as_byte_size(1), 8ull << 30) << name;
  });
  const ValueFacts& limits = only(*schema.root.map, "limits").value;
  EXPECT_EQ(limits.map->any->byte_size, 1u);
  EXPECT_TRUE(json_schema(schema, "test").at("properties").at("limits").at("additionalProperties").contains("anyOf"));
}

TEST(ConfigSchema, JsonHasTypesRangesDefaultsAndExamples) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    map.integer({"size", "The size.", "3 | 5"}, {.min = 1, .max = 9}, 2);
    map.number({"rate", "The rate."}, {.min = 0, .max = 1, .min_open = true});
    ConfigMap inner = map.map_or_empty({"inner", "A section."});
    inner.text({"name", "A name.", "", "the file's"}, "config");
    inner.finish();
  });
  const ordered_json json = json_schema(schema, "test");
  EXPECT_EQ(json.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(json.at("required"), ordered_json({"rate"}));
  EXPECT_EQ(json.at("properties").at("size"), ordered_json::parse(R"({"type": "integer", "minimum": 1, "maximum": 9,
      "description": "The size.", "default": 2, "examples": [3, 5]})"));
  EXPECT_EQ(json.at("properties").at("rate").at("exclusiveMinimum"), 0);
  const ordered_json& name = json.at("properties").at("inner").at("properties").at("name");
  EXPECT_EQ(name.at("description"), "A name. Default: the file's.");
  EXPECT_FALSE(name.contains("default")) << "it is not the same for every file";
}

TEST(ConfigSchema, MarkdownHasARowForEachKey) {
  const ConfigSchema schema = described([](ConfigMap& map) {
    map.integer({"size", "One | two."}, {.min = 1, .max = 4096}, 2);
    map.choice({"mode", "A mode."}, {"a", "b"});
  });
  const std::string page = markdown_reference(schema);
  EXPECT_NE(page.find("| `size` | integer | `2` | 1 to 4,096 | One \\| two. |"), std::string::npos) << page;
  EXPECT_NE(page.find("| `mode` | word | **required** | `a`, `b` | A mode. |"), std::string::npos) << page;
}

TEST(ConfigSchema, DescriptionsAreTheSameEachTime) {
  const auto text = [] { return json_schema(described(read_format), "test").dump(); };
  EXPECT_EQ(text(), text());
}

TEST(ConfigKey, ReadsFilesAsAPlainNameDoes) {
  const ConfigDocument document = ConfigDocument::parse("free: {top: 2}\nformat: generated\nsamples: 5", "t.yaml");
  ConfigMap map = document.map();
  read_free(map);
  read_format(map);
  EXPECT_FALSE(map.has({"rate", "What is new.", "0.1"})) << "examples are none of a file's values";
  map.finish();
  EXPECT_EQ(document.resolved_yaml(), "free: {top: 2}\nformat: generated\nsamples: 5\nlimit: 0\n");
  const ConfigDocument empty = ConfigDocument::parse("", "t.yaml");
  ConfigMap nothing = empty.map();
  read_free(nothing);
  EXPECT_EQ(nothing.list({"names", "Names."}, {"x"}).at(0).as_named().name, "x");
  EXPECT_EQ(empty.resolved_yaml(), "free: none\nnames: [x]\n");
  ConfigMap idx = ConfigDocument::parse("samples: 3", "t.yaml").map();
  EXPECT_NE(testing::config_error_of([&] { read_format(idx); }).find("missing key 'path'"), std::string::npos);
}

}  // namespace
}  // namespace bantam::config_schema_test
