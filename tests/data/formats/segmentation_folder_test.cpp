// Images and masks of files that the test writes: pairs by name, both orders of folders, and what cannot be a pair.
#include "bantam/base/error.h"
#include "tests/data/formats/format_files.h"

namespace bantam::segmentation_folder_test {
namespace {

using testing::fetched;
using testing::message_of;
using testing::open_format;
using testing::TemporaryFolder;
using testing::write_file;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class SegmentationFolderTest : public ::testing::Test {
 protected:
  void put(const Names& names) const {
    for (const std::string& name : names) write_file(path() / name, name);
  }
  SampleSplits open(const std::string& more = "classes: 3") const {
    return open_format("segmentation_folder", "path: $, " + more, path());
  }
  template <class E = DataError>
  std::string error(const std::string& more = "classes: 3") const {
    return message_of<E>([&] {
      const SampleSplits splits = open(more);
      for (const auto& reader : {splits.train, splits.validation, splits.test})
        if (reader != nullptr) (void)reader->facts();
    });
  }
  const fs::path& path() const { return folder_.path(); }

  TemporaryFolder folder_;
};

TEST_F(SegmentationFolderTest, ImagesAndMasksArePairsByName) {
  put({"train/images/b.jpg", "train/images/deep/a.jpeg", "train/images/a.png", "train/masks/a.png", "train/masks/b.PNG",
       "train/masks/deep/a.png", "val/images/c.png", "val/masks/c.png"});
  const SampleSplits splits = open("classes: [sky, road], channels: 1, ignore: 255");
  const DatasetFacts facts = splits.train->facts();
  EXPECT_EQ(facts.size, 3);
  EXPECT_EQ(facts.image_shape, (Shape{0, 0, 1}));
  EXPECT_EQ(facts.class_names, (Names{"sky", "road"}));
  EXPECT_EQ(facts.ignored_label, 255);
  ASSERT_EQ(facts.targets.size(), 1u);
  EXPECT_EQ(facts.targets[0], (SampleField{"labels", {0, 0}, DType::int32, FieldEncoding::mask}));
  EXPECT_EQ(fetched(*splits.train, 0), (Names{"train/images/a.png", "train/masks/a.png"}));
  EXPECT_EQ(fetched(*splits.train, 1), (Names{"train/images/b.jpg", "train/masks/b.PNG"}));
  EXPECT_EQ(fetched(*splits.train, 2), (Names{"train/images/deep/a.jpeg", "train/masks/deep/a.png"}));
  EXPECT_EQ(splits.train->encoded_bytes(1), 35u);
  EXPECT_CONTAINS(splits.train->name_of(1), "images/b.jpg (mask ");
  EXPECT_TRUE(splits.train->files_of(1).at(1).ends_with("train/masks/b.PNG"));
  EXPECT_EQ(splits.validation->facts().size, 1);
  EXPECT_EQ(splits.test, nullptr);
}

TEST_F(SegmentationFolderTest, PartsMayLieWithinTheFoldersOfImagesAndMasks) {
  put({"photos/train/a.jpg", "notes/train/a.png", "photos/test/b.jpg", "notes/test/b.png", "photos/valid/c.jpg",
       "notes/valid/c.png"});
  const SampleSplits splits = open("classes: 2, images: photos, masks: notes");
  EXPECT_EQ(fetched(*splits.train, 0), (Names{"photos/train/a.jpg", "notes/train/a.png"}));
  EXPECT_EQ(fetched(*splits.validation, 0), (Names{"photos/valid/c.jpg", "notes/valid/c.png"}));
  EXPECT_EQ(fetched(*splits.test, 0), (Names{"photos/test/b.jpg", "notes/test/b.png"}));
  EXPECT_EQ(fetched(*open("classes: 2, images: photos, masks: notes, train: valid").train, 0)[0], "photos/valid/c.jpg");
}

TEST_F(SegmentationFolderTest, PartsMayBeListsOfNames) {
  put({"images/a.jpg", "images/b b.jpg", "images/deep/c.jpg", "images/d.jpg", "masks/a.png", "masks/b b.png",
       "masks/deep/c.png"});
  write_file(path() / "sets/Train.txt",
             "\xEF\xBB\xBF"
             "c\r\n/images/a.jpg /masks/a.png\r\n\r\n");
  write_file(path() / "sets/val.txt", "b b\n");
  write_file(path() / "sets/wrong.txt", "a\nz\n");
  write_file(path() / "sets/none.txt", "\n");
  const SampleSplits splits = open("classes: 2, train: sets/Train.txt, validation: sets/val.txt");
  ASSERT_EQ(splits.train->facts().size, 2);
  EXPECT_EQ(fetched(*splits.train, 0), (Names{"images/a.jpg", "masks/a.png"}));
  EXPECT_EQ(fetched(*splits.train, 1), (Names{"images/deep/c.jpg", "masks/deep/c.png"}));
  EXPECT_EQ(fetched(*splits.validation, 0), (Names{"images/b b.jpg", "masks/b b.png"}));
  EXPECT_EQ(splits.train->ignored().count, 0);
  EXPECT_CONTAINS(error("classes: 2, train: sets/wrong.txt"), "sets/wrong.txt:2: there is no image 'z'");
  EXPECT_CONTAINS(error("classes: 2, train: sets/none.txt"), "sets/none.txt: names no image");
  EXPECT_CONTAINS(error("classes: 2, train: sets/lost.txt"), "sets/lost.txt");
}

TEST_F(SegmentationFolderTest, PartsAreFoundInLettersOfEitherCase) {
  put({"Train/images/a.jpg", "Train/masks/a.png", "images/VAL/b.jpg", "masks/VAL/b.png", "Testing/images/c.jpg",
       "Testing/masks/c.png"});
  const SampleSplits splits = open();
  EXPECT_EQ(fetched(*splits.train, 0), (Names{"Train/images/a.jpg", "Train/masks/a.png"}));
  EXPECT_EQ(fetched(*splits.validation, 0), (Names{"images/VAL/b.jpg", "masks/VAL/b.png"}));
  EXPECT_EQ(fetched(*splits.test, 0), (Names{"Testing/images/c.jpg", "Testing/masks/c.png"}));
}

TEST_F(SegmentationFolderTest, AShareOfASingleSetIsHeldOut) {
  for (int i = 0; i < 20; ++i) put({fmt::format("images/{}.jpg", i), fmt::format("masks/{}.png", i)});
  const SampleSplits splits = open("classes: 2, split: 0.2");
  EXPECT_EQ(splits.train->facts().size, 16);
  EXPECT_EQ(splits.validation->facts().size, 4);
  EXPECT_EQ(splits.train->facts().class_names, (Names{"0", "1"}));
}

TEST_F(SegmentationFolderTest, WhatIsNoPairIsIgnoredOrNamed) {
  put({"images/a.jpg", "images/b.jpg", "images/x.heic", "masks/a.png", "masks/b.png", "masks/c.png", "masks/a.jpg"});
  const SampleSplits splits = open();
  EXPECT_EQ(splits.train->facts().size, 1);
  EXPECT_EQ(splits.train->ignored().count, 3);
  put({"images/d.jpg", "images/e.jpg"});
  EXPECT_CONTAINS(error(), "images/d.jpg: has no mask; expected ");
  EXPECT_CONTAINS(error(), "masks/d.png (2 of 4 images have none); data.on_error: skip leaves");
  fs::remove(path() / "images/e.jpg");
  fs::remove(path() / "images/d.jpg");
  put({"images/a.png"});
  EXPECT_CONTAINS(error(), "'a.jpg' and 'a.png' would have one mask");
}

TEST_F(SegmentationFolderTest, ImagesWithoutAMaskAreLeftOutWhereBrokenSamplesAre) {
  put({"images/a.jpg", "images/b.jpg", "images/c.jpg", "masks/a.png", "masks/c.png"});
  const SampleSplits splits = open("classes: 3, split: 0.5, on_error: skip");
  EXPECT_EQ(splits.train->facts().size + splits.validation->facts().size, 2);
  EXPECT_EQ(splits.train->ignored().count, 1);
  EXPECT_CONTAINS(splits.train->ignored().examples.at(0), "images/b.jpg (it has no mask)");
  EXPECT_CONTAINS(error(), "data.on_error: skip leaves images without a mask out");
}

TEST_F(SegmentationFolderTest, MasksAreFoundByUsualNames) {
  struct Case {
    const char *image, *mask;
  };
  for (const Case& names : {Case{"{}.jpg", "{}_mask.png"},
                            {"{}.jpg", "{}_seg.png"},
                            {"{}.jpg", "mask_{}.png"},
                            {"{}.jpg", "{}.mask.png"},
                            {"image_{}.jpg", "mask_{}.png"},
                            {"{}_image.png", "{}_label.png"},
                            {"{}.jpg", "{}.jpg.png"},
                            {"in-{}-x.jpg", "gt/in-{}-x-y.png"}}) {
    const TemporaryFolder folder;
    const std::string below = std::string_view(names.mask).starts_with("gt/") ? "gt/" : "";
    for (const char* number : {"07", "8", "a b"}) {
      write_file(folder.path() / "images" / (below + fmt::format(fmt::runtime(names.image), number)), number);
      write_file(folder.path() / "masks" / fmt::format(fmt::runtime(names.mask), number), number);
    }
    const SampleSplits splits = open_format("segmentation_folder", "path: $, classes: 2", folder.path());
    ASSERT_EQ(splits.whole->facts().size, 3) << names.mask;
    for (std::int64_t i = 0; i < 3; ++i) {
      const Names fields = fetched(*splits.whole, i);
      EXPECT_EQ(fields[0], fields[1]) << names.mask;
    }
  }
}

TEST_F(SegmentationFolderTest, NamesOfMasksMayBeSaid) {
  put({"a/x_rgb.png", "a/y_rgb.png", "b/x_lab.png", "b/y_lab.png", "b/x_inst.png", "b/y_inst.png"});
  const SampleSplits splits = open("classes: 2, images: a, masks: {folder: b, suffix: _lab, image_suffix: _rgb}");
  EXPECT_EQ(splits.whole->facts().size, 2);
  EXPECT_EQ(fetched(*splits.whole, 1), (Names{"a/y_rgb.png", "b/y_lab.png"}));
  EXPECT_EQ(splits.whole->ignored().count, 2);
  EXPECT_CONTAINS(error("classes: 2, images: a, masks: {folder: b, suffix: _mask}"),
                  "the folder of masks has x_inst.png: say how masks are called by data.masks: {suffix: _mask}");
}

TEST_F(SegmentationFolderTest, ImagesAndMasksMayShareAFolder) {
  put({"train/a.jpg", "train/a_mask.png", "train/b.jpg", "train/b_mask.png", "valid/c.jpg", "valid/c_mask.png"});
  const SampleSplits splits = open("classes: 2, images: ., masks: {folder: ., suffix: _mask}");
  EXPECT_EQ(splits.train->facts().size, 2);
  EXPECT_EQ(splits.train->ignored().count, 0);
  EXPECT_EQ(fetched(*splits.train, 1), (Names{"train/b.jpg", "train/b_mask.png"}));
  EXPECT_EQ(fetched(*splits.validation, 0), (Names{"valid/c.jpg", "valid/c_mask.png"}));
  EXPECT_EQ(open("classes: 2, images: ., masks: .").train->facts().size, 2) << "found by the names";
  const TemporaryFolder pairs;
  for (const char* name : {"a.jpg", "a.png", "b.jpg", "b.png"}) write_file(pairs.path() / name, name);
  const SampleSplits plain =
      open_format("segmentation_folder", "path: $, classes: 2, images: ., masks: .", pairs.path());
  EXPECT_EQ(fetched(*plain.whole, 0), (Names{"a.jpg", "a.png"})) << "photographs and what is no JPEG file";
}

TEST_F(SegmentationFolderTest, FoldersMayHaveThePartsName) {
  put({"train/a.png", "train_labels/a_L.png", "val/b.png", "val_labels/b_L.png", "test/c.png"});
  const SampleSplits splits = open("classes: 2, images: '{part}', masks: {folder: '{part}_labels', suffix: _L}");
  EXPECT_EQ(fetched(*splits.train, 0), (Names{"train/a.png", "train_labels/a_L.png"}));
  EXPECT_EQ(fetched(*splits.validation, 0), (Names{"val/b.png", "val_labels/b_L.png"}));
  EXPECT_EQ(splits.test, nullptr) << "its images have no masks";
  put({"images/train/a.png", "images/test/b.png", "masks/train/a.png"});
  EXPECT_EQ(open().test, nullptr);
}

TEST_F(SegmentationFolderTest, ValuesNameTheClasses) {
  put({"images/a.jpg", "images/b.jpg", "masks/a.png", "masks/b.png"});
  const DatasetFacts facts = open("masks: {values: {0: background, 255: car}}").train->facts();
  EXPECT_EQ(facts.class_names, (Names{"background", "car"}));
  EXPECT_NE(facts.masks, nullptr);
  EXPECT_EQ(open("ignore: 9, masks: {values: [1, 2]}").train->facts().ignored_label, 255);
}

TEST_F(SegmentationFolderTest, WrongKeysAndFoldersAreNamed) {
  EXPECT_CONTAINS(error(), "images: cannot be listed");
  fs::create_directories(path() / "images");
  EXPECT_CONTAINS(error(), "images: holds no image (JPEG, PNG, ");
  put({"images/a.jpg"});
  EXPECT_CONTAINS(error(), "masks: cannot be listed");
  fs::create_directories(path() / "masks");
  EXPECT_CONTAINS(error(), "masks: holds no masks");
  fs::remove(path() / "images/a.jpg");
  EXPECT_CONTAINS(error<ConfigError>("channels: 3"), "missing key 'classes'");
  EXPECT_CONTAINS(error<ConfigError>("classes: 300"), "t.yaml:1:");
  EXPECT_CONTAINS(error<ConfigError>("classes: []"), "1 to 256 class names");
  EXPECT_CONTAINS(error<ConfigError>("classes: [sky, sky]"), "classes 0 and 1 are both called 'sky'");
  put({"val/images/a.jpg", "val/masks/a.png"});
  EXPECT_CONTAINS(error<ConfigError>(), "no folder 'train'");
  put({"train/images/a.jpg", "train/masks/a.png"});
  EXPECT_CONTAINS(error<ConfigError>("classes: 2, split: 0.5"), "held out already");
}

}  // namespace
}  // namespace bantam::segmentation_folder_test
