// Masks as people have them: numbers, booleans, palettes and colours to class numbers, and what is said of the others.
#include "bantam/data/images/mask.h"

#include <gtest/gtest.h>
#include <png.h>

#include "bantam/base/error.h"
#include "bantam/data/images/decode.h"
#include "tests/data/images/image_files.h"
#include "tests/data/support.h"

namespace bantam::mask_test {
namespace {

using namespace testing;
using Values = std::vector<std::uint8_t>;

/// What `data: {keys}` says of masks.
MaskReading reading_of(const std::string& keys) {
  ConfigMap data = ConfigDocument::parse("data: {" + keys + "}", "t.yaml").map().map("data");
  const auto node = data.find("masks");
  std::optional<ConfigMap> masks;
  if (node) masks = node->as_map();
  MaskReading reading = read_mask_reading(data, masks ? &*masks : nullptr);
  if (masks) masks->finish();
  data.finish();
  return reading;
}

Values classes_of(const FileBytes& file, const std::string& keys) {
  StoredMask stored;
  decode_stored_mask(file, stored);
  Image out;
  read_classes(stored, reading_of(keys), "labels", out);
  return out.pixels;
}

std::string error_of(const FileBytes& file, const std::string& keys) {
  return message_of<DataError>([&] { (void)classes_of(file, keys); });
}

FileBytes grey(const Values& row) { return write_png({1, std::ssize(row)}, row, {.type = PNG_COLOR_TYPE_GRAY}); }
FileBytes rgb(const Values& row) { return write_png({1, std::ssize(row) / 3}, row, {.type = PNG_COLOR_TYPE_RGB}); }
FileBytes rgba(const Values& row) {
  return write_png({1, std::ssize(row) / 4}, row, {.type = PNG_COLOR_TYPE_RGB_ALPHA});
}
FileBytes indexed(const Values& row, const Values& palette) {
  return write_png({1, std::ssize(row)}, row, {.type = PNG_COLOR_TYPE_PALETTE, .palette = palette});
}

TEST(Mask, NumbersAreNamedByValues) {
  const std::string car = "masks: {values: {0: background, 255: car}}";
  EXPECT_EQ(reading_of(car).classes, (std::vector<std::string>{"background", "car"}));
  EXPECT_EQ(classes_of(grey({0, 255, 255, 0}), car), (Values{0, 1, 1, 0}));
  EXPECT_EQ(classes_of(rgb({0, 0, 0, 255, 255, 255}), car), (Values{0, 1})) << "grey stored as RGB";
  EXPECT_EQ(classes_of(rgba({0, 0, 0, 255, 255, 255, 255, 0}), car), (Values{0, 1})) << "alpha says nothing";
  EXPECT_EQ(classes_of(grey({1, 2, 3}), "masks: {values: [1, 2, 3]}"), (Values{0, 1, 2}));
  EXPECT_EQ(reading_of("classes: [a, b], masks: {values: [1, 2]}").classes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(classes_of(grey({7, 8, 9}), "masks: {values: {7: road, 8: road, 9: sky}}"), (Values{0, 0, 1}));
  EXPECT_EQ(classes_of(grey({0, 200}), "masks: {values: {background: 0, car: 200}}"), (Values{0, 1}));
  EXPECT_EQ(classes_of(grey({0, 200}), "classes: [a, b], masks: {values: {0: 1, 200: 0}}"), (Values{1, 0}));
  EXPECT_EQ(classes_of(grey({0, 200}), "classes: [car, sky], masks: {values: {0: sky, 200: car}}"), (Values{1, 0}));
}

TEST(Mask, OneBitIsZeroAndOneOrZeroAnd255) {
  const FileBytes file = write_png({1, 8}, Values{0b10110001}, {.type = PNG_COLOR_TYPE_GRAY, .bits = 1});
  const Values expected = {1, 0, 1, 1, 0, 0, 0, 1};
  EXPECT_EQ(classes_of(file, "classes: 2"), expected);
  EXPECT_EQ(classes_of(file, "masks: {values: {0: a, 255: b}}"), expected);
  EXPECT_EQ(classes_of(file, "masks: {values: {0: a, 1: b}}"), expected);
  EXPECT_EQ(classes_of(file, "masks: {values: [[0, 0, 0], [255, 255, 255]]}"), expected);
}

TEST(Mask, PalettesAreNumbersColoursOrGreys) {
  const Values voc = {0, 0, 0, 128, 0, 0, 0, 128, 0};
  EXPECT_EQ(classes_of(indexed({0, 2, 1}, voc), "classes: 3"), (Values{0, 2, 1}));
  EXPECT_EQ(classes_of(indexed({0, 2, 1}, voc), "masks: {values: {[0, 0, 0]: a, [0, 128, 0]: b, [128, 0, 0]: c}}"),
            (Values{0, 1, 2}));
  EXPECT_EQ(classes_of(indexed({0, 2, 1}, voc), "masks: {values: {0: a, 2: b, 1: c}}"), (Values{0, 1, 2}));
  const Values inverted = {255, 255, 255, 0, 0, 0};
  EXPECT_EQ(classes_of(indexed({0, 1}, inverted), "masks: {values: {0: a, 255: b}}"), (Values{1, 0}));
  EXPECT_EQ(classes_of(indexed({0, 0}, inverted), "masks: {values: {0: a, 255: b}}"), (Values{1, 1}));
}

TEST(Mask, ColoursAreNamedInEverySpelling) {
  const FileBytes file = rgb({0, 0, 0, 128, 0, 0, 0, 128, 0});
  for (const char* values :
       {"{[0, 0, 0]: sky, [128, 0, 0]: car, [0, 128, 0]: tree}",
        "{'0, 0, 0': sky, '128,0,0': car, '(0, 128, 0)': tree}", "{'#000000': sky, '#800000': car, '#008000': tree}",
        "[[0, 0, 0], [128, 0, 0], [0, 128, 0]]", "{sky: [0, 0, 0], car: [128, 0, 0], tree: '#008000'}"})
    EXPECT_EQ(classes_of(file, std::string("masks: {values: ") + values + "}"), (Values{0, 1, 2})) << values;
  const ConfigDocument document = ConfigDocument::parse("masks:\n  values:\n    [128, 0, 0]: car\n", "t.yaml");
  EXPECT_EQ(ConfigDocument::parse(document.resolved_yaml(), "again").values(), document.values());
}

TEST(Mask, IgnoredAndOtherValues) {
  EXPECT_EQ(classes_of(grey({0, 1, 255}), "classes: 2, ignore: 255"), (Values{0, 1, 255}));
  const std::string voc = "ignore: [224, 224, 192], masks: {values: {[0, 0, 0]: a, [128, 0, 0]: b}}";
  EXPECT_EQ(classes_of(rgb({0, 0, 0, 224, 224, 192, 128, 0, 0}), voc), (Values{0, 255, 1}));
  EXPECT_EQ(reading_of(voc).ignored, 255);
  EXPECT_EQ(classes_of(grey({0, 1, 2}), "masks: {values: {0: ignore, 1: a, 2: b}}"), (Values{255, 0, 1}));
  EXPECT_EQ(classes_of(grey({0, 1, 2}), "ignore: 0, masks: {values: [1, 2]}"), (Values{255, 0, 1}));
  const std::string soft = "masks: {values: {0: a, 255: b}, others: ";
  EXPECT_EQ(classes_of(grey({0, 100, 200, 255}), soft + "nearest}"), (Values{0, 0, 1, 1}));
  EXPECT_EQ(classes_of(grey({0, 100, 200, 255}), soft + "ignore}"), (Values{0, 255, 255, 1}));
  EXPECT_EQ(reading_of(soft + "ignore}").ignored, 255);
  EXPECT_EQ(classes_of(grey({0, 100, 255}), soft + "b}"), (Values{0, 1, 1}));
  EXPECT_EQ(
      classes_of(grey({0, 1, 77}), "classes: [background, thing], masks: {values: {0: background}, others: thing}"),
      (Values{0, 1, 1}))
      << "things that are numbered one by one";
  EXPECT_EQ(classes_of(rgb({3, 0, 1, 250, 255, 255}), soft + "nearest}"), (Values{0, 1}));
}

TEST(Mask, MessagesNamePixelValueAndRemedy) {
  EXPECT_CONTAINS(error_of(grey({0, 255}), "classes: 2"),
                  "'labels' has the number 255 at column 1, row 0, but the data have 2 classes, from 0; masks of 0 and "
                  "255 are read by data.masks: {values: {0: background, 255: object}}");
  EXPECT_CONTAINS(error_of(grey({0, 1, 20, 255}), "classes: 21"), "write data.ignore: 255");
  EXPECT_CONTAINS(error_of(grey({1, 2, 3}), "classes: 3"),
                  "where the first class is 1, write data.masks: {values: [1, 2, 3]}");
  EXPECT_CONTAINS(error_of(grey({0, 38, 75}), "classes: 3"),
                  "this file has 0, 38 and 75: name their classes by data.masks");
  EXPECT_CONTAINS(error_of(rgb({0, 0, 0, 128, 0, 0}), "classes: 2"),
                  "'labels' has colours, as [128, 0, 0] at column 1, row 0, where class numbers are expected: name the "
                  "colours by data.masks: {values: {[128, 0, 0]: NAME, …}}");
  EXPECT_CONTAINS(
      error_of(grey({0, 7}), "masks: {values: {0: a, 255: b}}"),
      "'labels' has the value 7 at column 1, row 0, which data.masks.values does not name (it has 0 and 255)");
  const Image drawn{{8, 8}, 1, Values(64, 200)};
  EXPECT_CONTAINS(error_of(write_jpeg(drawn), "classes: 2"), "is a JPEG file, which keeps values inexactly");
  EXPECT_EQ(classes_of(write_jpeg(drawn), "masks: {values: {0: a, 200: b}, others: nearest}"), Values(64, 1));
  const FileBytes wide = write_png({1, 2}, Values{0, 3, 1, 4}, {.type = PNG_COLOR_TYPE_GRAY, .bits = 16});
  EXPECT_CONTAINS(error_of(wide, "classes: 4"), "'labels' has the number 260 at column 1");
  EXPECT_EQ(classes_of(wide, "masks: {values: {3: a, 260: b}}"), (Values{0, 1}));
}

TEST(Mask, WrongKeysAreNamed) {
  const auto error = [](const std::string& keys) { return message_of<ConfigError>([&] { (void)reading_of(keys); }); };
  EXPECT_CONTAINS(error("masks: {values: {0: a, 0.5: b}}"), "data.masks.values");
  EXPECT_CONTAINS(error("masks: {values: {0: a, [1, 2]: b}}"), "expected a number, as 255, or a colour");
  EXPECT_CONTAINS(error("classes: 3, masks: {values: [1, 2]}"), "2 values, but data.classes has 3");
  EXPECT_CONTAINS(error("masks: {values: {0: a, 1: b}, others: c}"), "expected error, ignore, nearest or the name");
  EXPECT_CONTAINS(error("classes: 2, masks: {others: nearest}"), "needs data.masks.values");
  EXPECT_CONTAINS(error("classes: [a, b], masks: {values: {0: a, 1: c}}"), "'c' is none of data.classes");
  EXPECT_CONTAINS(error("masks: {values: {a: 0, b: 0}}"), "the value 0 stands twice");
  EXPECT_CONTAINS(error("masks: {values: {}}"), "0 class names; expected 1 to 255 class names");
}

}  // namespace
}  // namespace bantam::mask_test
