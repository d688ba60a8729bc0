// Archives of images and masks as labelling tools and competitions write them: what a first configuration says of them.
#include "bantam/run/init/found_masks.h"

#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/data/images/encode.h"
#include "bantam/run/init/first_config.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::found_masks_test {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<std::uint8_t>;

std::string keys_of(const std::vector<MaskValue>& values, const std::vector<ListedClass>& listed = {},
                    MaskSurvey survey = {.files = 3}) {
  for (const MaskValue& value : values) survey.pixels[value] += 100;
  return fmt::format("{}", fmt::join(mask_keys(choose_masks(survey, listed), {}), "; "));
}
std::string keys_of(const std::vector<int>& numbers, const std::vector<ListedClass>& listed = {},
                    MaskSurvey survey = {.files = 3}) {
  std::vector<MaskValue> values;
  for (const int number : numbers) values.push_back(MaskValue::of_number(number));
  return keys_of(values, listed, std::move(survey));
}

TEST(MaskChoice, NumbersBooleansAndLabelsFromOne) {
  EXPECT_EQ(keys_of({0, 1, 2}), "classes: 3");
  EXPECT_EQ(keys_of({0, 1, 20, 255}), "classes: 21; ignore: 255");
  EXPECT_EQ(keys_of({0, 255}), "masks:\n    values: {0: background, 255: object}");
  EXPECT_EQ(keys_of({0, 255}, {{"car"}}), "masks:\n    values: {0: background, 255: car}");
  EXPECT_EQ(keys_of({1, 2, 3}), "masks:\n    values: {1: class_0, 2: class_1, 3: class_2}");
  EXPECT_EQ(keys_of({1, 2, 3}, {{"pet"}, {"background"}, {"border"}}),
            "masks:\n    values: {1: pet, 2: background, 3: border}");
  EXPECT_EQ(keys_of({0, 38, 75}), "masks:\n    values: {0: class_0, 38: class_1, 75: class_2}");
  EXPECT_EQ(keys_of({0, 128, 255}), "masks:\n    values: {0: class_0, 128: class_1, 255: class_2}");
  EXPECT_EQ(keys_of({0, 2}, {{"a"}, {"b"}, {"c"}}), "classes: [a, b, c]");
}

TEST(MaskChoice, ColoursAndFilesThatNameThem) {
  const auto rgb = [](int r, int g, int b) {
    return MaskValue::of_colour(
        {static_cast<std::uint8_t>(r), static_cast<std::uint8_t>(g), static_cast<std::uint8_t>(b)});
  };
  const std::vector<MaskValue> found = {MaskValue::of_number(0), rgb(128, 0, 0), rgb(224, 224, 192)};
  EXPECT_EQ(keys_of(found),
            "masks:\n    values: {[0, 0, 0]: background, [128, 0, 0]: object}; ignore: [224, 224, 192]");
  const std::vector<ListedClass> listed = {{"background", rgb(0, 0, 0)}, {"a b", rgb(128, 0, 0)}};
  EXPECT_EQ(keys_of(found, listed),
            "masks:\n    values: {[0, 0, 0]: background, [128, 0, 0]: 'a b'}; ignore: [224, 224, 192]");
  EXPECT_EQ(keys_of({0, 1}, listed), "classes: [background, 'a b']") << "a palette in the file's order";
  EXPECT_EQ(keys_of({0, 1}, {{"sky", MaskValue::of_number(0)}, {"road", MaskValue::of_number(1)}}),
            "classes: [sky, road]");
  EXPECT_EQ(keys_of({0, 7}, {{"sky", MaskValue::of_number(0)}, {"road", MaskValue::of_number(7)}}),
            "masks:\n    values: {0: sky, 7: road}");
}

TEST(MaskChoice, LossyMasksAreReadAsTheNearest) {
  MaskSurvey survey{.files = 2, .is_lossy = true};
  survey.pixels[MaskValue::of_number(0)] = 9000;
  survey.pixels[MaskValue::of_number(255)] = 5000;
  for (int number = 1; number < 255; ++number) survey.pixels[MaskValue::of_number(number)] = 100;
  const std::string keys = keys_of(std::vector<int>{}, {}, survey);
  EXPECT_EQ(keys, "masks:\n    values: {0: background, 255: object}\n    others: nearest   # of the values above");
}

TEST(MaskChoice, InstancesAreNoClasses) {
  std::vector<int> numbers;
  for (int number = 0; number < 700; ++number) numbers.push_back(number);
  EXPECT_THROW((void)keys_of(numbers), DataError);
}

TEST(ListedClasses, FilesOfLabellingTools) {
  const auto text_of = [](const std::string& text) {
    std::vector<std::string> parts;
    for (const ListedClass& one : read_listed_classes(text))
      parts.push_back(one.name + (one.value ? "=" + to_string(*one.value) : ""));
    return fmt::format("{}", fmt::join(parts, "; "));
  };
  EXPECT_EQ(text_of("# label:color_rgb:parts:actions\nbackground:0,0,0::\nred car:128,0,64::\n"),
            "background=[0, 0, 0]; red car=[128, 0, 64]");
  EXPECT_EQ(text_of("name,r,g,b\r\nAnimal,64,128,64\r\nArchway,192,0,128\r\n"),
            "Animal=[64, 128, 64]; Archway=[192, 0, 128]");
  EXPECT_EQ(text_of("64 128 64\tAnimal\n192 0 128\tArchway\n"), "Animal=[64, 128, 64]; Archway=[192, 0, 128]");
  EXPECT_EQ(text_of("Pixel Value, Class\n 0, background\n 1, pothole\n"), "background=0; pothole=1");
  EXPECT_EQ(text_of("__ignore__\n_background_\ncat\n"), "_background_; cat");
  EXPECT_EQ(text_of("0 sky\n1 tree\n"), "sky=0; tree=1");
  EXPECT_EQ(text_of("traffic light\nroad\n"), "traffic light; road");
}

class FoundMasksTest : public RunTest {
 protected:
  void put(const std::string& name, std::int64_t channels, const Values& colours) const {
    Image image;
    image.reshape({32, 32}, channels);
    const std::size_t count = colours.size() / static_cast<std::size_t>(channels);
    for (std::size_t p = 0; p < 32 * 32; ++p)
      for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
        image.pixels[p * static_cast<std::size_t>(channels) + c] =
            colours[p % count * static_cast<std::size_t>(channels) + c];
    fs::create_directories(path(name).parent_path());
    write_file_atomically(path(name), encode_png(image));
  }
  std::string config_of(const std::string& folder) const {
    const std::string text = first_config(path(folder), {.threads = 1, .command = "test"}).text;
    (void)parse_run_config(text, "first.yaml", {});  // as `train` reads it
    return text;
  }
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
};

TEST_F(FoundMasksTest, ACompetitionsFoldersBesideEachOther) {
  for (const char* name : {"a", "b", "c"}) {
    put(fmt::format("set/train/{}.png", name), 3, {9, 9, 9, 99, 9, 9});
    put(fmt::format("set/train_masks/{}_mask.png", name), 1, {0, 255});
    put(fmt::format("set/test/{}.png", name), 3, {9, 9, 9});
  }
  const std::string text = config_of("set");
  expect_in(text, "  images: train\n  masks:\n    folder: train_masks\n    suffix: _mask\n");
  expect_in(text, "    values: {0: background, 255: object}\n");
  expect_in(text, "classes: 2\n");
}

TEST_F(FoundMasksTest, VocFoldersWithColoursAndALabelMap) {
  for (const char* name : {"a", "b", "c", "d"}) put(fmt::format("voc/JPEGImages/{}.png", name), 3, {9, 9, 9, 99, 9, 9});
  for (const char* name : {"a", "b", "c"}) {
    put(fmt::format("voc/SegmentationClass/{}.png", name), 3, {0, 0, 0, 128, 0, 0, 224, 224, 192});
    put(fmt::format("voc/SegmentationObject/{}.png", name), 1, {0, 1});
  }
  write_file_atomically(path("voc/labelmap.txt"), "# label:color_rgb\nbackground:0,0,0::\ncar:128,0,0::\n");
  const std::string text = config_of("voc");
  expect_in(text, "  images: JPEGImages\n  on_error: skip");
  expect_in(text, "    folder: SegmentationClass\n    values: {[0, 0, 0]: background, [128, 0, 0]: car}\n");
  expect_in(text, "  ignore: [224, 224, 192]\n");
  expect_in(text, "ignore_index: 255");
}

TEST_F(FoundMasksTest, ListsOfAToolsSubsets) {
  for (const char* name : {"a", "b", "c", "d"}) {
    put(fmt::format("cvat/JPEGImages/{}.png", name), 3, {9, 9, 9, 99, 9, 9});
    put(fmt::format("cvat/SegmentationClass/{}.png", name), 1, {0, 1});
  }
  fs::create_directories(path("cvat/ImageSets/Segmentation"));
  write_file_atomically(path("cvat/ImageSets/Segmentation/Train.txt"), "a\nb\nc\n");
  write_file_atomically(path("cvat/ImageSets/Segmentation/Validation.txt"), "d\n");
  const std::string text = config_of("cvat");
  expect_in(text, "  train: ImageSets/Segmentation/Train.txt\n  validation: ImageSets/Segmentation/Validation.txt\n");
  expect_in(text, "3 training images");
  expect_in(text, "; 1 held out");
}

TEST_F(FoundMasksTest, OneFolderWithTheToolsClasses) {
  for (const char* part : {"train", "valid"})
    for (const char* name : {"a", "b", "c"}) {
      put(fmt::format("set/{}/{}.png", part, name), 3, {9, 9, 9, 99, 9, 9});
      put(fmt::format("set/{}/{}_mask.png", part, name), 1, {0, 1});
    }
  write_file_atomically(path("set/train/_classes.csv"), "Pixel Value, Class\n0, background\n1, pothole\n");
  const std::string text = config_of("set");
  expect_in(text, "  images: '.'\n  masks:\n    folder: '.'\n    suffix: _mask\n");
  expect_in(text, "  classes: [background, pothole]\n");
  expect_in(text, "; 3 held out");
}

TEST_F(FoundMasksTest, FoldersThatNameTheirPart) {
  for (const char* part : {"train", "val"})
    for (const char* name : {"a", "b", "c"}) {
      put(fmt::format("camvid/{}/{}.png", part, name), 3, {9, 9, 9, 99, 9, 9});
      put(fmt::format("camvid/{}_labels/{}_L.png", part, name), 3, {64, 128, 64, 192, 0, 128});
    }
  write_file_atomically(path("camvid/class_dict.csv"), "name,r,g,b\nAnimal,64,128,64\nArchway,192,0,128\n");
  const std::string text = config_of("camvid");
  expect_in(text, "  images: '{part}'\n  masks:\n    folder: '{part}_labels'\n    suffix: _L\n");
  expect_in(text, "    values: {[64, 128, 64]: Animal, [192, 0, 128]: Archway}\n");
}

TEST_F(FoundMasksTest, PartsAndCitiesWithinTheFolders) {
  for (const char* part : {"train", "val"})
    for (const char* name : {"a", "b", "c"}) {
      put(fmt::format("mm/img_dir/{}/{}.png", part, name), 3, {9, 9, 9, 99, 9, 9});
      put(fmt::format("mm/ann_dir/{}/{}.png", part, name), 1, {0, 1});
      put(fmt::format("city/leftImg8bit/{}/ulm/{}_leftImg8bit.png", part, name), 3, {9, 9, 9, 99, 9, 9});
      put(fmt::format("city/gtFine/{}/ulm/{}_gtFine_labelIds.png", part, name), 1, {0, 1, 2});
      put(fmt::format("city/gtFine/{}/ulm/{}_gtFine_color.png", part, name), 3, {0, 0, 0, 128, 0, 0});
    }
  expect_in(config_of("mm"), "  images: img_dir\n  masks:\n    folder: ann_dir\n  classes: 2\n");
  expect_in(config_of("city"),
            "  images: leftImg8bit\n  masks:\n    folder: gtFine\n    suffix: _gtFine_labelIds\n"
            "    image_suffix: _leftImg8bit\n  classes: 3\n");
}

TEST_F(FoundMasksTest, TheTestsFoldersAreNotThoseOfTraining) {
  for (const char* part : {"test", "train"})
    for (const char* name : {"a", "b", "c"}) {
      put(fmt::format("set/{}_images/{}{}.png", part, part, name), 3, {9, 9, 9, 99, 9, 9});
      put(fmt::format("set/{}_masks/{}{}.png", part, part, name), 1, {0, 255});
    }
  const std::string text = config_of("set");
  expect_in(text, "  images: '{part}_images'\n  masks:\n    folder: '{part}_masks'\n");
  expect_in(text, "3 training images");
}

TEST_F(FoundMasksTest, MasksWithoutTheirImages) {
  for (const char* folder : {"SegmentationClass", "SegmentationObject"})
    for (const char* name : {"a", "b"}) put(fmt::format("cvat/{}/{}.png", folder, name), 3, {0, 0, 0, 128, 0, 0});
  fs::create_directories(path("cvat/ImageSets/Segmentation"));
  EXPECT_FALSE(find_masks(path("cvat"))) << "drawings of instances are no images";
  EXPECT_THROW(refuse_unpaired_masks(path("cvat")), DataError);
  EXPECT_THROW((void)config_of("cvat"), DataError);
}

TEST_F(FoundMasksTest, ClassFoldersAreNoMasks) {
  for (const char* name : {"a", "b"}) {
    put(fmt::format("photos/cat/{}.png", name), 3, {9, 9, 9});
    put(fmt::format("photos/dog/{}.png", name), 3, {9, 9, 9});
    write_file_atomically(path("photos/labels.txt"), "cat\ndog\n");
  }
  EXPECT_FALSE(find_masks(path("photos")));
}

}  // namespace
}  // namespace bantam::run::found_masks_test
