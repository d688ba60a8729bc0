// Mask files as they are stored, and the class numbers of their pixels.
#include "bantam/data/images/mask.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/images/decode.h"
#include "bantam/data/images/png.h"

namespace bantam {
namespace {

using Rgb = std::array<std::uint8_t, 3>;
constexpr std::size_t kRgb = 3;
constexpr int kUnknown = -1;

Rgb rgb_at(const StoredMask& stored, std::size_t pixel) {
  const std::uint8_t* at = &stored.pixels[kRgb * pixel];
  return {at[0], at[1], at[2]};
}

bool is_grey(const Rgb& rgb) { return rgb[0] == rgb[1] && rgb[1] == rgb[2]; }

/// A file of colours that are all grey: their values are numbers.
bool make_grey(StoredMask& stored) {
  if (!stored.is_colour) return true;
  for (std::size_t i = 0; i < stored.count(); ++i)
    if (!is_grey(rgb_at(stored, i))) return false;
  stored.numbers.resize(stored.count());
  for (std::size_t i = 0; i < stored.count(); ++i) stored.numbers[i] = stored.pixels[kRgb * i];
  stored.is_colour = false;
  return true;
}

std::string place_of(const StoredMask& stored, std::size_t pixel) {
  const auto width = static_cast<std::size_t>(stored.size.width);
  return fmt::format("at column {}, row {}", pixel % width, pixel / width);
}

/// The numbers of a file's pixels, each once, with the first pixel that has it.
std::map<std::uint16_t, std::size_t> first_pixels(const StoredMask& stored) {
  const std::size_t most = *std::ranges::max_element(stored.numbers);
  std::vector<std::size_t> first(most + 1, stored.count());
  for (std::size_t i = stored.count(); i > 0; --i) first[stored.numbers[i - 1]] = i - 1;
  std::map<std::uint16_t, std::size_t> found;
  for (std::size_t number = 0; number < first.size(); ++number)
    if (first[number] < stored.count()) found.emplace(static_cast<std::uint16_t>(number), first[number]);
  return found;
}

/// Keys of `data` that would read numbers that are no classes: advice, made of what the one file has.
std::string advice_on(const std::map<std::uint16_t, std::size_t>& found, std::size_t classes) {
  constexpr std::size_t kMostListed = 20;
  const std::uint16_t least = found.begin()->first, most = found.rbegin()->first;
  std::vector<std::string> numbers;
  for (const auto& [number, pixel] : found) numbers.push_back(std::to_string(number));
  if (most == 255 && classes <= 2 && (found.size() == 1 || (least == 0 && found.size() == 2)))
    return "; masks of 0 and 255 are read by data.masks: {values: {0: background, 255: object}}";
  if (most == 255 && (found.size() == 1 || std::prev(found.end(), 2)->first < classes))
    return "; where 255 is no class, as in Pascal VOC's borders, write data.ignore: 255, and tell the loss: "
           "{softmax_cross_entropy: {ignore_index: 255}}";
  if (least > 0 && most <= classes) {
    numbers.clear();
    for (std::size_t c = 1; c <= classes; ++c) numbers.push_back(std::to_string(c));
    if (classes <= kMostListed)
      return fmt::format("; where the first class is 1, write data.masks: {{values: [{}]}}", join(numbers, ", ", ", "));
  }
  if (numbers.size() > kMostListed)
    return fmt::format(
        "; this file has {} numbers: where its edges are soft, name the classes' own, and read each "
        "pixel as the nearest: data.masks: {{values: {{0: background, 255: object}}, others: nearest}}",
        numbers.size());
  return fmt::format(
      "; this file has {}: name their classes by data.masks: {{values: {{{}: NAME, …}}}}, or give more "
      "classes",
      join(numbers, ", ", " and "), most);
}

/// The numbers are the classes.
void read_numbers(const StoredMask& stored, const MaskReading& reading, const std::string& field, Image& out) {
  const std::size_t classes = reading.classes.empty() ? 256 : reading.classes.size();
  const auto is_class = [&](std::uint16_t number) {
    return number < classes || (reading.ignored == static_cast<std::int32_t>(number) && number < 256);
  };
  const auto wrong = std::ranges::find_if_not(stored.numbers, is_class);
  if (wrong != stored.numbers.end()) {
    if (stored.is_lossy)
      throw DataError(fmt::format(
          "'{}' is a JPEG file, which keeps values inexactly: {} {} is no class; name the values that were drawn and "
          "read each pixel as the nearest: data.masks: {{values: {{0: background, 255: object}}, others: nearest}}",
          field, *wrong, place_of(stored, static_cast<std::size_t>(wrong - stored.numbers.begin()))));
    throw DataError(fmt::format("'{}' has the number {} {}, but the data have {} classes, from 0{}{}", field, *wrong,
                                place_of(stored, static_cast<std::size_t>(wrong - stored.numbers.begin())), classes,
                                reading.ignored ? fmt::format(", and {} for none", *reading.ignored) : "",
                                advice_on(first_pixels(stored), classes)));
  }
  std::ranges::transform(stored.numbers, out.pixels.begin(),
                         [](std::uint16_t number) { return static_cast<std::uint8_t>(number); });
}

/// The classes of values, each looked up once.
class ClassOfValue {
 public:
  explicit ClassOfValue(const MaskReading& reading) : reading_(reading), has_numbers_(false) {
    for (const auto& [value, number] : reading.values) has_numbers_ = has_numbers_ || !value.is_colour;
  }

  bool has_numbers() const { return has_numbers_; }
  bool knows(std::int64_t number) const { return reading_.values.contains(MaskValue::of_number(number)); }

  /// kUnknown: of no class.
  int of_number(std::int64_t number) const {
    if (const auto found = reading_.values.find(MaskValue::of_number(number)); found != reading_.values.end())
      return found->second;
    if (number <= 255) {
      const auto grey = static_cast<std::uint8_t>(number);
      const auto found = reading_.values.find(MaskValue::of_colour({grey, grey, grey}));
      if (found != reading_.values.end()) return found->second;
    }
    return other([&](const MaskValue& value) {
      if (value.is_colour) return distance({clamped(number), clamped(number), clamped(number)}, value.rgb);
      const std::int64_t difference = number - value.number;
      return 3 * difference * difference;
    });
  }
  /// A number that is named is a grey, too.
  int of_colour(const Rgb& rgb) const {
    if (const auto found = reading_.values.find(MaskValue::of_colour(rgb)); found != reading_.values.end())
      return found->second;
    if (is_grey(rgb) && knows(rgb[0])) return reading_.values.at(MaskValue::of_number(rgb[0]));
    return other([&](const MaskValue& value) {
      const std::uint8_t grey = clamped(value.number);
      return distance(rgb, value.is_colour ? value.rgb : Rgb{grey, grey, grey});
    });
  }

 private:
  static std::uint8_t clamped(std::int64_t number) {
    return static_cast<std::uint8_t>(std::min<std::int64_t>(number, 255));
  }
  static std::int64_t distance(const Rgb& a, const Rgb& b) {
    std::int64_t sum = 0;
    for (std::size_t c = 0; c < kRgb; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
    return sum;
  }
  template <class Distance>
  int other(const Distance& to) const {
    switch (reading_.others) {
      case OtherMaskValues::ignore:
        return MaskReading::kIgnored;
      case OtherMaskValues::a_class:
        return reading_.other_class;
      case OtherMaskValues::error:
        return kUnknown;
      case OtherMaskValues::nearest:
        break;
    }
    const auto nearest =
        std::ranges::min_element(reading_.values, {}, [&](const auto& named) { return to(named.first); });
    return nearest->second;
  }

  const MaskReading& reading_;
  bool has_numbers_;
};

/// A palette's entries may be meant by their numbers, or by the greys that they show: 0 and 255 of an image of one bit.
bool means_greys(const StoredMask& stored, const std::map<std::uint16_t, std::size_t>& found,
                 const ClassOfValue& classes) {
  constexpr std::size_t kBoolean = 2;
  const std::vector<Rgb>& palette = stored.palette;
  if (palette.empty() || !std::ranges::all_of(palette, is_grey)) return false;
  const auto is_named = [&](const auto& entry) { return classes.knows(entry.first); };
  const auto is_named_grey = [&](const auto& entry) {
    return entry.first < palette.size() && classes.knows(palette[entry.first][0]);
  };
  std::size_t named_entries = 0;
  for (std::size_t i = 0; i < palette.size(); ++i) named_entries += classes.knows(static_cast<std::int64_t>(i)) ? 1 : 0;
  if (named_entries == palette.size() || !std::ranges::all_of(found, is_named_grey)) return false;
  return palette.size() <= kBoolean || !std::ranges::all_of(found, is_named);
}

[[noreturn]] void fail_unknown(const MaskReading& reading, const std::string& field, const std::string& value,
                               const std::string& place, bool is_lossy) {
  std::vector<std::string> named;
  for (const auto& [known, number] : reading.values) named.push_back(to_string(known));
  throw DataError(
      fmt::format("'{}' has the value {} {}, which data.masks.values does not name (it has {}): add it, or write "
                  "data.masks.others: "
                  "nearest (the nearest value's class{}), ignore (no class) or a class's name",
                  field, value, place, shown(join(named, ", ", " and "), 200),
                  is_lossy ? "; this is a JPEG file, which keeps values inexactly" : ", for soft edges"));
}

void read_named_numbers(const StoredMask& stored, const MaskReading& reading, const std::string& field,
                        const ClassOfValue& classes, Image& out) {
  const auto found = first_pixels(stored);
  const bool by_colour = !stored.palette.empty() && (!classes.has_numbers() || means_greys(stored, found, classes));
  std::vector<std::uint8_t> table(std::size_t{found.rbegin()->first} + 1);
  for (const auto& [number, pixel] : found) {
    const bool has_colour = by_colour && number < stored.palette.size();
    const int of_class = has_colour ? classes.of_colour(stored.palette[number]) : classes.of_number(number);
    if (of_class == kUnknown)
      fail_unknown(reading, field,
                   to_string(has_colour ? MaskValue::of_colour(stored.palette[number]) : MaskValue::of_number(number)),
                   place_of(stored, pixel), stored.is_lossy);
    table[number] = static_cast<std::uint8_t>(of_class);
  }
  std::ranges::transform(stored.numbers, out.pixels.begin(), [&](std::uint16_t number) { return table[number]; });
}

void read_named_colours(const StoredMask& stored, const MaskReading& reading, const std::string& field,
                        const ClassOfValue& classes, Image& out) {
  std::unordered_map<std::uint32_t, int> known;
  std::uint32_t last = 0;
  int of_last = kUnknown;
  for (std::size_t i = 0; i < stored.count(); ++i) {
    const Rgb rgb = rgb_at(stored, i);
    const auto key = static_cast<std::uint32_t>(rgb[0] << 16 | rgb[1] << 8 | rgb[2]);
    if (key != last || of_last == kUnknown) {
      const auto [at, is_new] = known.try_emplace(key, kUnknown);
      if (is_new) at->second = classes.of_colour(rgb);
      if (at->second == kUnknown)
        fail_unknown(reading, field, to_string(MaskValue::of_colour(rgb)), place_of(stored, i), stored.is_lossy);
      last = key;
      of_last = at->second;
    }
    out.pixels[i] = static_cast<std::uint8_t>(of_last);
  }
}

}  // namespace

void decode_stored_mask(std::span<const std::byte> file, StoredMask& out) {
  const ImageHeader header = read_image_header(file);
  out.palette.clear();
  out.is_lossy = header.type == ImageFileType::jpeg;
  if (header.type == ImageFileType::png) {
    PngDecoder(file).read_stored(out);
  } else if (header.bits == 16 && header.channels <= 2) {  // numbers of TIFF and PNM files
    PixelForm form(1);
    form.as_stored = true;
    Image values;
    decode_image(file, form, values);
    out.size = values.size;
    out.is_colour = false;
    out.numbers.resize(out.count());
    for (std::size_t i = 0; i < out.count(); ++i) {
      float value = 0;
      std::memcpy(&value, values.pixels.data() + i * sizeof value, sizeof value);
      out.numbers[i] = static_cast<std::uint16_t>(value);
    }
  } else {
    Image image;
    decode_image(file, kRgb, image);
    out.size = image.size;
    out.is_colour = true;
    out.pixels = std::move(image.pixels);
  }
  (void)make_grey(out);
}

void read_classes(const StoredMask& stored, const MaskReading& reading, const std::string& field, Image& out) {
  out.reshape(stored.size, 1);
  if (stored.count() == 0) return;
  if (reading.values.empty()) {
    if (!stored.is_colour) return read_numbers(stored, reading, field, out);
    std::size_t pixel = 0;
    while (is_grey(rgb_at(stored, pixel))) ++pixel;
    throw DataError(
        fmt::format("'{}' has colours, as {} {}, where class numbers are expected: name the colours by "
                    "data.masks: {{values: {{{}: NAME, …}}}}{}",
                    field, to_string(MaskValue::of_colour(rgb_at(stored, pixel))), place_of(stored, pixel),
                    to_string(MaskValue::of_colour(rgb_at(stored, pixel))),
                    stored.is_lossy ? " and others: nearest, since a JPEG keeps values inexactly" : ""));
  }
  const ClassOfValue classes(reading);
  if (stored.is_colour)
    read_named_colours(stored, reading, field, classes, out);
  else
    read_named_numbers(stored, reading, field, classes, out);
}

}  // namespace bantam
