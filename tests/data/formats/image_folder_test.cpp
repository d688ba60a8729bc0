// Class folders of files that the test writes: order and numbers of classes, parts and splits, what is ignored, and
// every way in which folders can be wrong.
#include <algorithm>
#include <set>

#include "bantam/base/error.h"
#include "bantam/data/formats/image_files.h"
#include "tests/data/formats/format_files.h"
#include "tests/data/formats/short_run.h"

namespace bantam::image_folder_test {
namespace {

using testing::fetched;
using testing::labels_of;
using testing::message_of;
using testing::names_of;
using testing::open_format;
using testing::TemporaryFolder;
using testing::write_file;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Labels = std::vector<std::int32_t>;

class ImageFolderTest : public ::testing::Test {
 protected:
  /// Files whose bytes are their names.
  void put(const Names& names) const {
    for (const std::string& name : names) write_file(path() / name, name);
  }
  void put_photos(const std::string& below, int each) const {
    for (const char* name : {"ant", "bee"})
      for (int i = 0; i < each; ++i) put({fmt::format("{}{}/{}.jpg", below, name, i)});
  }
  SampleSplits open(const std::string& more = "") const {
    return open_format("image_folder", "path: $" + (more.empty() ? "" : ", " + more), path());
  }
  template <class E = DataError>
  std::string error(const std::string& more = "") const {
    return message_of<E>([&] {
      const SampleSplits splits = open(more);
      for (const auto& reader : {splits.train, splits.validation, splits.test})
        if (reader != nullptr) (void)reader->facts();
    });
  }
  const fs::path& path() const { return folder_.path(); }

  TemporaryFolder folder_;
};

TEST_F(ImageFolderTest, ClassesAndFilesComeInTorchvisionsOrder) {
  // What sorted(os.walk(…)) lists: folders before what lies deeper, '-' before '/'.
  put({"train/cat-big/z.png", "train/cat/b/a.jpg", "train/cat/b-2/a.jpg", "train/cat/c.JPEG", "train/cat/B.Png",
       "val/cat/1.jpg", "val/cat-big/2.jpg"});
  const SampleSplits splits = open();
  EXPECT_EQ(splits.train->facts().class_names, (Names{"cat", "cat-big"}));
  EXPECT_EQ(names_of(*splits.train, path() / "train"),
            (Names{"cat/B.Png", "cat/c.JPEG", "cat/b/a.jpg", "cat/b-2/a.jpg", "cat-big/z.png"}));
  EXPECT_EQ(labels_of(*splits.train), (Labels{0, 0, 0, 0, 1}));
  EXPECT_EQ(labels_of(*splits.validation), (Labels{0, 1}));
  EXPECT_EQ(splits.test, nullptr);
}

TEST_F(ImageFolderTest, AFetchedSampleIsItsFileAndItsLabel) {
  put_photos("train/", 2);
  put_photos("val/", 1);
  const auto reader = open("channels: 1").train;
  const DatasetFacts facts = reader->facts();
  EXPECT_EQ(facts.size, 4);
  EXPECT_EQ(facts.image_shape, (Shape{0, 0, 1}));
  EXPECT_TRUE(facts.has_encoded_images());
  EXPECT_EQ(facts.fields()[0].encoding, FieldEncoding::image);
  EXPECT_EQ(fetched(*reader, 3), (Names{"train/bee/1.jpg", std::string("\1\0\0\0", 4)}));
  EXPECT_EQ(reader->encoded_bytes(3), std::string("train/bee/1.jpg").size());
  EXPECT_EQ(reader->name_of(3), (path() / "train/bee/1.jpg").string());
  EXPECT_CONTAINS(message_of<Error>([&] { reader->read(0, {}); }), "0.jpg");
}

TEST_F(ImageFolderTest, PartsAreFoundByTheirNamesOrNamed) {
  put_photos("train/", 3);
  put_photos("validation/", 2);
  put_photos("test/", 1);
  const SampleSplits found = open();
  EXPECT_EQ(found.train->facts().size, 6);
  EXPECT_EQ(found.validation->facts().size, 4);
  EXPECT_EQ(found.test->facts().size, 2);
  const SampleSplits named = open("train: test, validation: train, test: validation");
  EXPECT_EQ(named.train->facts().size, 2);
  EXPECT_EQ(named.validation->facts().size, 6);
  EXPECT_EQ(named.test->facts().size, 4);
}

TEST_F(ImageFolderTest, PartsAreFoundInLettersOfEitherCase) {
  put_photos("Training/", 3);
  put_photos("DEV/", 2);
  put_photos("Testing/", 1);
  const SampleSplits found = open();
  EXPECT_EQ(names_of(*found.train, path()).at(0), "Training/ant/0.jpg");
  EXPECT_EQ(names_of(*found.validation, path()).at(0), "DEV/ant/0.jpg");
  EXPECT_EQ(found.test->facts().size, 2);
  put_photos("Train/", 5);
  EXPECT_EQ(open().train->facts().size, 10);  // `train` is looked for first
}

TEST_F(ImageFolderTest, FoldersThatLookLikePartsAreRefused) {
  put_photos("learn/", 3);
  put_photos("check/", 2);
  put({"notes/a.txt"});
  const std::string message = error<ConfigError>();
  EXPECT_CONTAINS(message, "t.yaml:1:");
  EXPECT_CONTAINS(message, "check and learn look like parts of the set");
  EXPECT_CONTAINS(message, "each has the folders ant and bee");
  EXPECT_CONTAINS(message, "data.train and data.validation");
  EXPECT_EQ(open("train: learn, validation: check").validation->facts().size, 4);
  EXPECT_EQ(open("classes: [check, learn], split: 0.5").whole->facts().size, 10);
  fs::remove_all(path() / "notes");
  put({"check/cow/1.jpg"});
  EXPECT_EQ(open().whole->facts().class_names, (Names{"check", "learn"}));
  fs::remove_all(path() / "check/cow");
  put({"check/1.jpg"});
  EXPECT_EQ(open().whole->facts().size, 11);
}

bool any_contains(const Names& texts, std::string_view part) {
  return std::ranges::any_of(texts, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST_F(ImageFolderTest, FoldersOfArchivesArePassedThrough) {
  put_photos("seg_train/seg_train/", 3);
  put_photos("seg_test/seg_test/", 2);
  put({"seg_pred/seg_pred/1.jpg", "readme.md"});
  const SampleSplits intel = open();
  EXPECT_EQ(names_of(*intel.train, path()).at(0), "seg_train/seg_train/ant/0.jpg");
  EXPECT_EQ(intel.validation->facts().size, 4);
  EXPECT_TRUE(any_contains(intel.train->notes(), "the class folders are found in"));
  EXPECT_TRUE(any_contains(intel.train->notes(), "the folder seg_pred is not read beside"));
  EXPECT_EQ(open("train: seg_test, validation: seg_train").train->facts().size, 4);
  fs::create_directories(path() / "outer/archive");
  fs::rename(path() / "seg_train", path() / "outer/archive/Training_Set");
  const auto wrapped = open_format("image_folder", "path: $/outer", path());
  EXPECT_EQ(wrapped.whole->facts().size, 6);
  put_photos("deep/archive/dataset/", 2);
  const auto whole = open_format("image_folder", "path: $/deep", path()).whole;
  EXPECT_EQ(names_of(*whole, path()).at(0), "deep/archive/dataset/ant/0.jpg");
  EXPECT_EQ(whole->facts().class_names, (Names{"ant", "bee"}));
  EXPECT_TRUE(
      any_contains(whole->notes(), "the class folders are found in " + (path() / "deep/archive/dataset").string()));
}

TEST_F(ImageFolderTest, AnUnlabelledTestFolderIsLeftOut) {
  put_photos("train/", 20);
  put({"test/1.jpg", "test/2.jpg"});
  const auto check = [&](std::string_view why) {
    const SampleSplits splits = open();
    EXPECT_EQ(splits.whole->facts().size, 40);
    EXPECT_EQ(splits.validation->facts().size, 4);
    EXPECT_TRUE(any_contains(splits.train->notes(), why));
  };
  check("test: its images are in no class folders, so that nothing can be evaluated on them: it is left out");
  fs::rename(path() / "test", path() / "inner");
  fs::create_directories(path() / "Test");
  fs::rename(path() / "inner", path() / "Test/unknown");
  check("Test: its images are in no class folders");
  fs::remove_all(path() / "Test");
  put({"test/notes.txt"});
  check("test: holds no image, and is left out");
  put({"val/images/1.jpg"});
  check("val: its images are in no class folders");
  fs::remove_all(path() / "train");
  put({"train/cat.1.jpg", "train/dog.1.jpg", "test1/1.jpg"});
  EXPECT_CONTAINS(error(), "train: has no class folders, but 2 image files");
  EXPECT_CONTAINS(error(), "use format: csv with `image` and `label`");
}

TEST_F(ImageFolderTest, FoldersNamedByNumbersAreInTheirOrder) {
  for (int c = 0; c < 12; ++c) put({fmt::format("{}/1.jpg", c), fmt::format("{}/2.jpg", c)});
  const auto reader = open().whole;
  EXPECT_EQ(reader->facts().class_names, (Names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}));
  EXPECT_EQ(names_of(*reader, path()).at(4), "2/1.jpg");
  put({"x/1.jpg"});
  EXPECT_EQ(open().whole->facts().class_names.at(2), "10") << "as bytes where one is no number";
}

TEST_F(ImageFolderTest, WhatSystemsLeaveIsNoClass) {
  put_photos("", 3);
  put({"__MACOSX/ant/._0.jpg", "@eaDir/a.jpg", "lost+found/a.jpg", "Thumbs.db", "desktop.ini", ".DS_Store",
       "ant/._0.jpg", "ant/Thumbs.db", ".ipynb_checkpoints/a.jpg", "$RECYCLE.BIN/a.jpg"});
  const auto reader = open().whole;
  EXPECT_EQ(reader->facts().class_names, (Names{"ant", "bee"}));
  EXPECT_EQ(reader->facts().size, 6);
  EXPECT_EQ(reader->ignored().count, 0);
  EXPECT_TRUE(any_contains(reader->notes(), "10 files and folders of systems and programs are not read, such as"));
}

TEST_F(ImageFolderTest, FoldersThatAreOddAreTold) {
  put({"cat/1.jpg", "cat/2.jpg"});
  EXPECT_TRUE(any_contains(open().train->notes(), "there is one class alone, 'cat'"));
  put({"dog/big/1.jpg", "dog/small/1.jpg", "loose.jpg"});
  fs::create_directories(path() / "New folder/empty");
  const auto reader = open().whole;
  EXPECT_EQ(reader->facts().class_names, (Names{"cat", "dog"}));
  const Names notes = reader->notes();
  EXPECT_TRUE(any_contains(notes, "1 image file lies beside the class folders, and belongs to no class"));
  EXPECT_TRUE(any_contains(notes, "the folder New folder is empty, and no class"));
  EXPECT_TRUE(any_contains(notes, "all images of 'dog' (big and small) lie in folders within"));
  put({"train/1.jpg"});
  EXPECT_EQ(open().whole->facts().class_names, (Names{"cat", "dog", "train"})) << "a class of trains";
}

TEST_F(ImageFolderTest, NamesThatAreNoUtf8AreClassesAllTheSame) {
  put(
      {"train/Z\xe9"
       "ro/1.jpg",
       "train/one/1.jpg",
       "val/Z\xe9"
       "ro/2.jpg"});
  const SampleSplits splits = open();
  EXPECT_EQ(splits.train->facts().class_names, (Names{"Z\xc3\xa9ro", "one"}));
  EXPECT_EQ(fetched(*splits.validation, 0)[0],
            "val/Z\xe9"
            "ro/2.jpg");
  EXPECT_EQ(labels_of(*open("classes: [one, Z\xc3\xa9ro]").validation), (Labels{1}));
}

TEST_F(ImageFolderTest, TestSamplesAloneAreTheHeldOutOnes) {
  put_photos("train/", 3);
  put_photos("test/", 1);
  const SampleSplits splits = open();
  EXPECT_EQ(splits.validation->facts().size, 2);
  EXPECT_EQ(splits.test, nullptr);
}

TEST_F(ImageFolderTest, AShareOfEachClassIsHeldOutOfASingleSet) {
  put_photos("", 40);
  const SampleSplits splits = open("split: 0.25");
  const Labels train = labels_of(*splits.train), held_out = labels_of(*splits.validation);
  EXPECT_EQ(std::ranges::count(train, 0), 30);
  EXPECT_EQ(std::ranges::count(held_out, 0), 10);
  EXPECT_EQ(std::ranges::count(held_out, 1), 10);
  Names names = names_of(*splits.train, path());
  const Names out = names_of(*splits.validation, path());
  names.insert(names.end(), out.begin(), out.end());
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 80u);
  EXPECT_EQ(names_of(*open("split: 0.25").validation, path()), out);  // in every run
  EXPECT_EQ(open().validation->facts().size, 8);
}

TEST_F(ImageFolderTest, EachClassKeepsSamplesToTrainOn) {
  const auto held_out = [&](const std::vector<int>& sizes, const std::string& share) {
    fs::remove_all(path() / "set");
    for (std::size_t c = 0; c < sizes.size(); ++c)
      for (int i = 0; i < sizes[c]; ++i) put({fmt::format("set/class{:03}/{}.jpg", c, i)});
    const SampleSplits splits = open_format("image_folder", "path: $/set, split: " + share, path());
    EXPECT_EQ(splits.train->facts().size + splits.validation->facts().size, splits.whole->facts().size);
    std::vector<std::int64_t> counts(sizes.size());
    for (const std::int32_t label : labels_of(*splits.validation)) ++counts[static_cast<std::size_t>(label)];
    return counts;
  };
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(held_out({100, 10, 1}, "0.1"), (Counts{10, 1, 0}));
  EXPECT_EQ(held_out({5, 7}, "0.2"), (Counts{1, 1}));
  EXPECT_EQ(held_out({1, 2, 5}, "0.9"), (Counts{0, 1, 4}));
  EXPECT_EQ(held_out({1, 3, 2}, "0.05"), (Counts{0, 1, 0}));  // at least one
  const Counts small = held_out(std::vector<int>(100, 4), "0.1");
  EXPECT_EQ(std::ranges::count(small, 1), 40);
  EXPECT_EQ(std::ranges::count(small, 0), 60);
}

TEST_F(ImageFolderTest, ALimitKeepsSamplesOfAllClasses) {
  put_photos("set/train/", 20);
  put_photos("set/val/", 2);
  put_photos("whole/", 20);
  const auto limited = [&](const std::string& folder, const std::string& limit) {
    const DataOptions options = testing::data_of(
        "format: image_folder, path: $/" + folder + limit + ", pipeline: [resize: {size: [8, 8]}, batch: {size: 2}]",
        path());
    const SampleSplits splits = open_splits(options, 1);
    EXPECT_EQ(train_facts(options).size, splits.train->facts().size);
    return splits.train;
  };
  EXPECT_EQ(names_of(*limited("set", ", limit: 4"), path() / "set/train"),
            (Names{"ant/0.jpg", "ant/18.jpg", "bee/0.jpg", "bee/18.jpg"}));
  EXPECT_EQ(labels_of(*limited("whole", ", limit: 5")), (Labels{0, 0, 0, 1, 1}));  // also after a split
  EXPECT_EQ(limited("set", ", limit: 100")->facts().size, 40);
  EXPECT_EQ(labels_of(*limited("set", ", limit: 8, validation: {split: 0.25}")).size(), 6u);
}

TEST_F(ImageFolderTest, OtherFilesAreIgnoredAndCounted) {
  put_photos("train/", 2);
  put_photos("val/", 1);
  put({"train/readme.txt", "train/ant/b.md", "train/ant/deep/c.pdf", "train/bee/jpg", "train/bee/.hidden.txt",
       "train/.ipynb_checkpoints/a.jpg"});
  const SampleSplits splits = open();
  EXPECT_EQ(splits.train->facts().class_names, (Names{"ant", "bee"}));
  EXPECT_EQ(splits.train->facts().size, 4);
  const IgnoredFiles ignored = splits.train->ignored();
  EXPECT_EQ(ignored.count, 4);
  EXPECT_EQ(ignored.examples.size(), 3u);
  EXPECT_EQ(splits.validation->ignored().count, 0);
}

TEST_F(ImageFolderTest, ImagesOfTypesThatAreNotReadAreCountedByClass) {
  put_photos("train/", 2);
  put_photos("val/", 1);
  EXPECT_EQ(unsupported_images_warning(open()), "");
  put({"train/ant/IMG_1.HEIC", "train/ant/deep/2.heic", "train/bee/a.avif", "train/bee/b.heic", "val/bee/c.svg",
       "train/bee/notes.txt"});
  EXPECT_EQ(open().train->facts().size, 4);
  const std::string warning = unsupported_images_warning(open());
  EXPECT_CONTAINS(
      warning, "5 images are of types that are not read: ant 2 (.heic) and bee 3 (.avif 1, .heic 1, .svg 1); JPEG, ");
  EXPECT_CONTAINS(warning, "are read: convert them to JPEG or PNG to train on them, or remove them");
}

TEST_F(ImageFolderTest, ChosenClassesHaveTheirOrderAsNumbers) {
  put_photos("train/", 2);
  put({"train/cow/a.jpg", "val/bee/1.jpg", "val/cow/1.jpg"});
  const SampleSplits splits = open("classes: [cow, ant]");
  EXPECT_EQ(splits.train->facts().class_names, (Names{"cow", "ant"}));
  EXPECT_EQ(labels_of(*splits.train), (Labels{0, 1, 1}));
  EXPECT_EQ(labels_of(*splits.validation), (Labels{0}));
}

TEST_F(ImageFolderTest, ALinkBackIsNotFollowedForEver) {
  put_photos("train/", 2);
  put_photos("val/", 1);
  fs::create_directory_symlink(path() / "train/ant", path() / "train/ant/again");
  fs::create_directory_symlink(path() / "train/ant", path() / "train/wasp");
  const SampleSplits splits = open();
  EXPECT_EQ(labels_of(*splits.train), (Labels{0, 0, 1, 1, 2, 2}));
}

TEST_F(ImageFolderTest, AMissingFolderIsAnErrorAtTheKey) {
  const std::string message =
      message_of<ConfigError>([&] { (void)open_format("image_folder", "path: $/none", path()); });
  EXPECT_CONTAINS(message, "t.yaml:1:");
  EXPECT_CONTAINS(message, "there is no folder");
  put_photos("train/", 2);
  put_photos("val/", 1);
  EXPECT_CONTAINS(error<ConfigError>("split: 0.2"), "held out already");
  EXPECT_CONTAINS(error<ConfigError>("split: 1"), "t.yaml:1:");
  EXPECT_CONTAINS(error<ConfigError>("channels: 2"), "1 (grey), 3 (RGB) or 4 (RGBA)");
  EXPECT_CONTAINS(error<ConfigError>("classes: []"), "at least one class");
  EXPECT_CONTAINS(error<ConfigError>("classes: [ant, bee, ant]"), "classes 0 and 2 are both called 'ant': name each");
  EXPECT_CONTAINS(error<ConfigError>("classes: [ant, '']"), "the name of class 1 is empty");
  EXPECT_CONTAINS(error("validation: none"), "none: cannot be listed: No such file");
}

TEST_F(ImageFolderTest, WrongFoldersAreNamed) {
  EXPECT_CONTAINS(error(), "has no class folders");
  put_photos("train/", 2);
  put({"val/wasp/1.jpg"});
  EXPECT_CONTAINS(error(), "'wasp' is no class of the training samples, which are ant and bee");
  fs::remove_all(path() / "val");
  put({"train/cow/a.heic", "val/ant/1.jpg"});
  EXPECT_CONTAINS(error(), "cow: the class 'cow' holds no image (JPEG, PNG, ");
  EXPECT_CONTAINS(error(), "; of types that are not read it has 1 (.heic): convert them to JPEG or PNG");
  EXPECT_CONTAINS(error("classes: [ant, dog]"), "dog: cannot be listed");
}

TEST_F(ImageFolderTest, AFileThatIsGoneIsNamed) {
  put_photos("train/", 2);
  put_photos("val/", 1);
  const auto reader = open().train;
  EXPECT_EQ(reader->facts().size, 4);
  fs::remove(path() / "train/ant/1.jpg");
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)fetched(*reader, 1); }), "ant/1.jpg: cannot be read: No such file");
  fs::create_directory(path() / "train/ant/1.jpg");
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)fetched(*reader, 1); }),
                  "ant/1.jpg: cannot be read: it is no file");
}

TEST_F(ImageFolderTest, OneSampleCannotBeSplit) {
  put({"ant/1.jpg"});
  EXPECT_CONTAINS(error(), "a set of 1 cannot be split in two");
}

}  // namespace
}  // namespace bantam::image_folder_test
