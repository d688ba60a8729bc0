// A schema as JSON Schema, draft 2020-12, as editors and validators read it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bantam/base/config/config_schema.h"
#include "bantam/base/config/config_tree.h"
#include "bantam/base/json.h"

namespace bantam {
namespace {

using Json = nlohmann::ordered_json;
using Data = ConfigNode::Data;

Json value_of(const Data& node) {
  if (node.kind == ConfigKind::null) return nullptr;
  if (node.kind == ConfigKind::list || node.kind == ConfigKind::map) {
    Json json = node.kind == ConfigKind::list ? Json::array() : Json::object();
    for (const auto& child : node.children) {
      if (child->has_key)
        json[child->key] = value_of(*child);
      else
        json.push_back(value_of(*child));
    }
    return json;
  }
  if (node.quoted || (!looks_like_number(node.scalar) && !looks_like_boolean(node.scalar))) return node.scalar;
  return Json::parse(node.scalar);
}

/// Parses a value in YAML's flow style into JSON.
Json value_of(const std::string& yaml) {
  const ConfigSource source{.name = "default", .lines = split_lines(yaml)};
  return value_of(*parse_yaml(source));
}

Json integer_of(IntegerRange range) {
  constexpr IntegerRange kAll;
  Json json = {{"type", "integer"}};
  if (range.min != kAll.min) json["minimum"] = range.min;
  if (range.max != kAll.max) json["maximum"] = range.max;
  return json;
}

Json number_of(NumberRange range) {
  Json json = {{"type", "number"}};
  if (std::isfinite(range.min)) json[range.min_open ? "exclusiveMinimum" : "minimum"] = range.min;
  if (std::isfinite(range.max)) json[range.max_open ? "exclusiveMaximum" : "maximum"] = range.max;
  return json;
}

std::string duration_pattern(DurationRange range) {
  std::string units;
  if (range.updates) units += "|updates?";
  if (range.epochs) units += "|epochs?";
  if (range.seconds) units += "|s|min|h";
  return "^[0-9]+ ?(" + units.substr(1) + ")$";
}

Json table_reference(const std::string& what) {
  std::string name = what;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return {{"$ref", "#/$defs/" + name}};
}

Json object_of(const MapFacts& map);
Json schema_of(const ValueFacts& value);
void allow_expressions_below(Json& json);

bool needs_a_key(const MapFacts& map) {
  for (const auto& key : map.keys)
    if (key->required) return true;
  return false;
}

/// Everything that a value may be, one schema each.
std::vector<Json> alternatives_of(const ValueFacts& value) {
  std::vector<Json> all;
  if (!value.words.empty()) all.push_back({{"enum", value.words}});
  if (value.integer) all.push_back(integer_of(*value.integer));
  if (value.number) all.push_back(number_of(*value.number));
  if (value.boolean) all.push_back({{"type", "boolean"}});
  if (value.text && !value.only_words && value.tables.empty()) all.push_back({{"type", "string"}});
  if (value.byte_size) {
    all.push_back(integer_of({.min = static_cast<std::int64_t>(*value.byte_size)}));
    all.push_back({{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$"}});
  }
  if (value.duration) {
    if (value.duration->updates) all.push_back(integer_of({.min = value.duration->min}));
    all.push_back({{"type", "string"}, {"pattern", duration_pattern(*value.duration)}});
  }
  if (value.list) {
    Json list = {{"type", "array"}, {"items", schema_of(value.list->items)}};
    if (value.list->least > 0) list["minItems"] = value.list->least;
    if (value.list->most < std::numeric_limits<std::size_t>::max()) list["maxItems"] = value.list->most;
    all.push_back(std::move(list));
  }
  if (value.map) all.push_back(object_of(*value.map));
  for (const std::string& table : value.tables) all.push_back(table_reference(table));
  if (value.other_names) {
    const Json other = {{"not", {{"enum", value.other_names->known}}}};
    all.push_back({{"type", "string"}, {"not", other["not"]}});
    all.push_back({{"type", "object"},
                   {"minProperties", 1},
                   {"maxProperties", 1},
                   {"propertyNames", other},
                   {"additionalProperties", {{"type", {"object", "null"}}}}});
  }
  return all;
}

Json schema_of(const ValueFacts& value) {
  std::vector<Json> all = alternatives_of(value);
  if (all.empty()) return true;
  return all.size() == 1 ? std::move(all.front()) : Json{{"anyOf", std::move(all)}};
}

Json schema_of(const KeyFacts& key) {
  Json json = schema_of(key.value);
  if (!json.is_object()) json = Json::object();
  std::string description = key.meaning;
  if (!key.otherwise_meaning.empty()) description += " Default: " + key.otherwise_meaning + ".";
  if (!description.empty()) json["description"] = description;
  if (key.otherwise && key.otherwise_meaning.empty()) json["default"] = value_of(*key.otherwise);
  for (const std::string& example : key.examples) json["examples"].push_back(value_of(example));
  return json;
}

Json condition_of(const KeyCondition& when, const MapFacts& map) {
  const Json given = {{"required", {when.key}}};
  if (when.missing) return {{"not", given}};
  if (when.values.empty()) return given;
  Json json = {{"properties", {{when.key, {{"enum", when.values}}}}}};
  // Where the key is missing its default counts.
  const KeyFacts* key = map.find(when.key);
  const bool is_default =
      key && key->otherwise && std::find(when.values.begin(), when.values.end(), *key->otherwise) != when.values.end();
  if (!is_default) json["required"] = {when.key};
  return json;
}

/// `if` a condition holds, then its keys are as they are there.
void add_conditional_keys(Json& json, const MapFacts& map) {
  std::vector<std::pair<KeyCondition, Json>> branches;
  for (const auto& key : map.keys) {
    if (!key->when) continue;
    auto branch = std::find_if(branches.begin(), branches.end(), [&](const auto& b) { return b.first == *key->when; });
    if (branch == branches.end()) branch = branches.insert(branches.end(), {*key->when, Json::object()});
    branch->second["properties"][key->name] = schema_of(*key);
    if (key->required) branch->second["required"].push_back(key->name);
  }
  for (auto& [when, then] : branches)
    json["allOf"].push_back({{"if", condition_of(when, map)}, {"then", std::move(then)}});
}

/// A key whose conditions all fail is refused.
void refuse_out_of_place(Json& json, const MapFacts& map, const std::string& name) {
  Json conditions = Json::array();
  for (const auto& key : map.keys) {
    if (key->name != name) continue;
    if (!key->when) return;
    conditions.push_back(condition_of(*key->when, map));
  }
  json["allOf"].push_back(
      {{"if", {{"not", {{"anyOf", std::move(conditions)}}}}}, {"then", {{"properties", {{name, false}}}}}});
}

/// Where the map has no definitions of names, its lists have known names alone.
void refuse_undefined_names(Json& json, const MapFacts& map) {
  for (const auto& key : map.keys) {
    if (!key->value.list || !key->value.list->items.other_names) continue;
    const OtherNames& others = *key->value.list->items.other_names;
    if (map.find(others.defined_by) == nullptr) continue;
    const Json known = {{"enum", others.known}};
    const Json item = {{"if", {{"type", "object"}}}, {"then", {{"propertyNames", known}}}, {"else", known}};
    json["allOf"].push_back({{"if", {{"not", {{"required", {others.defined_by}}}}}},
                             {"then", {{"properties", {{key->name, {{"items", item}}}}}}}});
  }
}

Json object_of(const MapFacts& map) {
  Json json = {{"type", "object"}};
  if (!needs_a_key(map) && !map.any) json["type"] = {"object", "null"};
  for (const auto& key : map.keys) {
    Json& property = json["properties"][key->name];
    if (!key->when) property = schema_of(*key);
    if (key->when && property.is_null()) property = Json{{"description", key->meaning}};
    if (key->required && !key->when) json["required"].push_back(key->name);
  }
  if (map.any)
    json["additionalProperties"] = schema_of(*map.any);
  else if (map.closed)
    json["additionalProperties"] = false;
  add_conditional_keys(json, map);
  refuse_undefined_names(json, map);
  if (map.closed)
    for (const auto& key : map.keys)
      if (key->when && map.find(key->name) == key.get()) refuse_out_of_place(json, map, key->name);
  return json;
}

/// Lets the value, and every value below it, be an expression as well.
void allow_expressions(Json& json) {
  static const Json kExpression = {{"type", "string"}, {"pattern", "^\\$\\(.*\\)$"}};
  if (!json.is_object()) return;
  allow_expressions_below(json);
  Json constraints = json;
  for (const char* annotation : {"description", "default", "examples"}) constraints.erase(annotation);
  if (constraints.empty()) return;
  for (const auto& [key, value] : constraints.items()) json.erase(key);
  json["anyOf"] = {std::move(constraints), kExpression};
}

void allow_expressions_below(Json& json) {
  if (json.contains("items")) allow_expressions(json["items"]);
  if (json.contains("properties"))
    for (Json& property : json["properties"]) allow_expressions(property);
  if (json.contains("allOf"))
    for (Json& branch : json["allOf"]) allow_expressions_below(branch["then"]);
  if (json.contains("anyOf"))
    for (Json& alternative : json["anyOf"]) allow_expressions_below(alternative);
}

/// A name alone, where its options all have defaults; or a map of the name with its options.
Json table_of(const TableFacts& table) {
  Json names = Json::array(), maps = {{"type", "object"}, {"minProperties", 1}, {"maxProperties", 1}};
  maps["properties"] = Json::object();
  for (const auto& entry : table.entries) {
    const ValueFacts& options = entry->options;
    if (options.map && !needs_a_key(*options.map))
      names.push_back({{"const", entry->name}, {"description", options.meaning}});
    Json property = schema_of(options);
    if (!property.is_object()) property = Json::object();
    if (table.expressions) allow_expressions_below(property);
    if (!options.meaning.empty()) property["description"] = options.meaning;
    maps["properties"][entry->name] = std::move(property);
  }
  maps["additionalProperties"] = false;
  Json all = Json::array();
  if (!names.empty()) all.push_back({{"anyOf", std::move(names)}});
  all.push_back(std::move(maps));
  return {{"description", "A " + table.what + "."}, {"anyOf", std::move(all)}};
}

}  // namespace

nlohmann::ordered_json json_schema(const ConfigSchema& schema, std::string_view title) {
  Json json = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  json.update(schema_of(schema.root));
  if (!schema.root.meaning.empty()) json["description"] = schema.root.meaning;
  for (const auto& table : schema.tables) {
    const std::string reference = table_reference(table->what)["$ref"];
    json["$defs"][reference.substr(reference.rfind('/') + 1)] = table_of(*table);
  }
  return json;
}

}  // namespace bantam
