// Images and masks of files that the test writes: pairs by name, both orders of folders, and what cannot be a pair.
#include "bantam/base/error.h"
#include "tests/data/formats/format_files.h"

namespace bantam {
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
  put({"images/a.jpg", "images/b.jpg", "images/x.tif", "masks/a.png", "masks/b.png", "masks/c.png", "masks/a.jpg"});
  const SampleSplits splits = open();
  EXPECT_EQ(splits.train->facts().size, 1);
  EXPECT_EQ(splits.train->ignored().count, 3);
  put({"images/d.jpg"});
  EXPECT_CONTAINS(error(), "images/d.jpg: has no mask; expected ");
  EXPECT_CONTAINS(error(), "masks/d.png");
  fs::remove(path() / "images/d.jpg");
  put({"images/a.png"});
  EXPECT_CONTAINS(error(), "'a.jpg' and 'a.png' would have one mask");
}

TEST_F(SegmentationFolderTest, WrongKeysAndFoldersAreNamed) {
  EXPECT_CONTAINS(error(), "images: cannot be listed");
  fs::create_directories(path() / "images");
  EXPECT_CONTAINS(error(), "images: holds no .jpg, .jpeg or .png");
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
}  // namespace bantam
