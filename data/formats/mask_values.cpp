#include "bantam/data/formats/mask_values.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/class_names.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostNumber = 65535;
constexpr std::size_t kMostMaskClasses = 256;

std::optional<std::int64_t> whole_number(std::string_view text, int base = 10) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || number < 0) return std::nullopt;
  return number;
}

/// Text, or a whole number as text: a class may be called 7.
std::string label_of(const ConfigNode& node) {
  try {
    return node.as_text();
  } catch (const ConfigError&) {
    if (!node.is_scalar()) throw;
    return std::to_string(node.as_integer());
  }
}

std::optional<MaskValue> hexadecimal_colour(std::string_view digits) {
  const auto number = digits.size() == 6 ? whole_number(digits, 16) : std::nullopt;
  if (!number) return std::nullopt;
  return MaskValue::of_colour({static_cast<std::uint8_t>(*number >> 16), static_cast<std::uint8_t>(*number >> 8),
                               static_cast<std::uint8_t>(*number)});
}

std::optional<MaskValue> colour_of(const std::vector<std::int64_t>& channels) {
  const auto fits = [](std::int64_t value) { return value >= 0 && value <= 255; };
  if (channels.size() != 3 || !std::ranges::all_of(channels, fits)) return std::nullopt;
  return MaskValue::of_colour({static_cast<std::uint8_t>(channels[0]), static_cast<std::uint8_t>(channels[1]),
                               static_cast<std::uint8_t>(channels[2])});
}

constexpr std::string_view kExpected = "expected a number, as 255, or a colour, as [128, 0, 0]";

/// A value in a list, or beside a class's name.
MaskValue read_value(const ConfigNode& node) {
  std::optional<MaskValue> value;
  if (node.is_list())
    value = colour_of(node.as_integers({.min = 0, .max = 255}));
  else if (node.is_scalar() && !node.is_text("ignore"))
    value = parse_mask_value(label_of(node));
  if (!value) node.fail(fmt::format("{}: {}", node.path(), kExpected));
  return *value;
}

/// Names and stored values in the order of the configuration.
struct NamedValues {
  std::vector<std::pair<std::string, MaskValue>> named;
  std::vector<MaskValue> ignored;
  bool by_number = false;  ///< the names are class numbers
};

NamedValues read_list(const ConfigNode& node, const std::vector<std::string>& classes) {
  NamedValues read;
  const std::vector<ConfigNode> items = node.items();
  if (!classes.empty() && classes.size() != items.size())
    node.fail(fmt::format("{}: {} values, but data.classes has {}: expected one a class", node.path(), items.size(),
                          classes.size()));
  for (std::size_t c = 0; c < items.size(); ++c) {
    const MaskValue value = read_value(items[c]);
    read.named.emplace_back(classes.empty() ? to_string(value) : classes[c], value);
  }
  return read;
}

/// `{0: background, 255: car}`, or `{background: 0, car: 255}`.
NamedValues read_map(const ConfigNode& node) {
  NamedValues read;
  const auto entries = node.entries();
  const bool by_value =
      std::ranges::all_of(entries, [](const auto& entry) { return parse_mask_value(entry.first).has_value(); });
  read.by_number = by_value && !entries.empty();
  for (const auto& [key, value] : entries) {
    const MaskValue stored = by_value ? *parse_mask_value(key) : read_value(value);
    const std::string name = by_value ? label_of(value) : key;
    read.by_number = read.by_number && whole_number(name);
    if (name == "ignore")
      read.ignored.push_back(stored);
    else
      read.named.emplace_back(name, stored);
  }
  return read;
}

/// The classes' names, where neither `classes` nor names give them: each once, in their order.
std::vector<std::string> names_of(const ConfigNode& node, const NamedValues& read) {
  std::vector<std::string> names;
  if (!read.by_number) {
    for (const auto& [name, value] : read.named)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    return names;
  }
  std::int64_t most = -1;
  for (const auto& [name, value] : read.named) most = std::max(most, *whole_number(name));
  if (most >= static_cast<std::int64_t>(kMostMaskClasses) - 1)
    node.fail(fmt::format("{}: class number {}, expected 0 to 254", node.path(), most));
  return numbered_classes(most + 1);
}

void add_value(const ConfigNode& node, const MaskValue& value, std::uint8_t number, MaskReading& reading) {
  if (const auto [first, is_new] = reading.values.emplace(value, number); !is_new)
    node.fail(fmt::format("{}: the value {} stands twice", node.path(), to_string(value)));
}

void read_values(const ConfigNode& node, bool has_classes, MaskReading& reading) {
  const NamedValues read = node.is_list() ? read_list(node, reading.classes) : read_map(node);
  if (!has_classes || reading.classes.empty()) reading.classes = names_of(node, read);
  if (const std::string fault = fault_of_class_names(reading.classes, kMostMaskClasses - 1); !fault.empty())
    node.fail(fmt::format("{}: {}", node.path(), fault));
  for (const auto& [name, value] : read.named) {
    const auto found = std::ranges::find(reading.classes, name);
    const auto number =
        read.by_number ? *whole_number(name) : static_cast<std::int64_t>(found - reading.classes.begin());
    if (number >= std::ssize(reading.classes))
      node.fail(fmt::format("{}: '{}' is none of data.classes: {}", node.path(), shown(name),
                            shown(join(reading.classes, ", ", " and "), 200)));
    add_value(node, value, static_cast<std::uint8_t>(number), reading);
  }
  for (const MaskValue& value : read.ignored) add_value(node, value, MaskReading::kIgnored, reading);
  if (!read.ignored.empty()) reading.ignored = MaskReading::kIgnored;
}

void read_others(const ConfigNode& node, MaskReading& reading) {
  const std::string others = label_of(node);
  const auto found = std::ranges::find(reading.classes, others);
  if (others == "error") {
    reading.others = OtherMaskValues::error;
  } else if (others == "nearest") {
    reading.others = OtherMaskValues::nearest;
  } else if (others == "ignore") {
    reading.others = OtherMaskValues::ignore;
    reading.ignored = MaskReading::kIgnored;
  } else if (found != reading.classes.end()) {
    reading.others = OtherMaskValues::a_class;
    reading.other_class = static_cast<std::uint8_t>(found - reading.classes.begin());
  } else if (!node.is_described()) {
    node.fail(fmt::format("{}: expected error, ignore, nearest or the name of a class ({}), got '{}'", node.path(),
                          shown(join(reading.classes, ", ", ", "), 200), shown(others)));
  }
}

/// `data.ignore`: of stored numbers, or of the values that `masks.values` may name.
void read_ignored(const ConfigNode& node, MaskReading& reading) {
  if (reading.values.empty()) {
    if (!node.is_scalar())
      node.fail("data.ignore: expected a number; colours need data.masks: {values: {[0, 0, 0]: background}}");
    reading.ignored = static_cast<std::int32_t>(node.as_integer({.min = 0, .max = kMostNumber}));
    return;
  }
  reading.ignored = MaskReading::kIgnored;
  add_value(node, read_value(node), MaskReading::kIgnored, reading);
}

/// In a description: what `values` may be.
void note_kinds(const ConfigNode& values) {
  if (values.is_list()) {
    (void)values.as_integers();
    return;
  }
  for (const auto& [key, name] : values.entries()) (void)name.as_text();
}

/// Names, or a number of classes that are called by their numbers.
std::vector<std::string> read_classes_key(const ConfigNode& node) {
  if (node.is_list()) return read_class_names(node, kMostMaskClasses);
  return numbered_classes(node.as_integer({.min = 1, .max = static_cast<std::int64_t>(kMostMaskClasses)}));
}

}  // namespace

std::string to_string(const MaskValue& value) {
  return value.is_colour ? fmt::format("[{}, {}, {}]", value.rgb[0], value.rgb[1], value.rgb[2])
                         : std::to_string(value.number);
}

std::optional<MaskValue> parse_mask_value(const std::string& text) {
  if (text.starts_with('#')) return hexadecimal_colour(std::string_view(text).substr(1));
  if (const auto number = whole_number(text)) {
    if (*number > kMostNumber) return std::nullopt;
    return MaskValue::of_number(*number);
  }
  std::vector<std::int64_t> channels;
  std::string digits;
  for (const char c : text + ",") {
    if (c == '[' || c == ']' || c == '(' || c == ')' || c == ' ') continue;
    if (c != ',') {
      digits += c;
      continue;
    }
    const auto channel = whole_number(digits);
    if (!channel) return std::nullopt;
    channels.push_back(*channel);
    digits.clear();
  }
  return colour_of(channels);
}

std::string MaskReading::fingerprint() const {
  std::string text = fmt::format("masks {} {} {} {}", static_cast<int>(others), other_class, resize,
                                 ignored ? std::to_string(*ignored) : "none");
  for (const auto& [value, number] : values) text += fmt::format("; {}: {}", to_string(value), number);
  return text;
}

MaskReading read_mask_reading(ConfigMap& data, ConfigMap* masks) {
  MaskReading reading;
  std::optional<ConfigNode> values;
  if (masks != nullptr)
    values = masks->find(
        {"values",
         "The masks' stored values, where they are not the class numbers 0, 1, …: a list, in the order "
         "of the classes, or a map to their names, of which several values may have one, and `ignore` "
         "is no class. A value is a number of one channel (grey, also stored as three equal channels, "
         "or a palette's entry) or a colour. The order of the names is that of the classes.",
         "{0: background, 255: car} | [1, 2, 3] | {[0, 0, 0]: sky, [128, 0, 0]: car}", "numbers of classes"});
  const ConfigKey classes{"classes",
                          "How many classes there are, or their names, in the order of the masks' numbers: 0 is the "
                          "first. With masks.values: of the values.",
                          "2 | [background, road]", "those of masks.values"};
  std::optional<ConfigNode> named;
  if (values && values->is_described()) note_kinds(*values);
  if (values && !values->is_described())
    named = data.find(classes);
  else
    named = data.node(classes);
  if (named) reading.classes = read_classes_key(*named);
  if (values && !values->is_described()) read_values(*values, named.has_value(), reading);
  if (masks != nullptr) {
    const ConfigNode others = masks->node(
        {"others",
         "Pixels whose value is none of `values`. error; ignore: no class; nearest: that of the nearest value, for "
         "masks with soft edges and JPEG files; or the name of a class.",
         "nearest"},
        "error");
    if (!values && !others.is_described() && !others.is_text("error"))
      others.fail("data.masks.others: needs data.masks.values, which it is not one of");
    read_others(others, reading);
    reading.resize = masks->boolean(
        {"resize", "Masks of another size than their image's get that size, pixel by pixel the nearest.", "true"},
        false);
  }
  if (const auto ignored = data.find(
          {"ignore",
           "Number of the masks' pixels that belong to no class. Say the same to the loss (ignore_index) and to "
           "metrics "
           "(ignore_label). With masks.values: a stored value, also a colour; it becomes 255, which the loss is told.",
           "255", "none: every number is a class"}))
    read_ignored(*ignored, reading);
  return reading;
}

}  // namespace bantam
