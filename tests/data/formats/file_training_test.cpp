// Folders and CSV files of drawn shapes, from files to trained networks: each format for two epochs, the same losses
// whatever the cache, several labels a sample to an F1 of 0.95, a class a pixel to a mean IoU of 0.9.
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "tests/data/formats/shape_files.h"
#include "tests/data/formats/short_run.h"

namespace bantam::file_training_test {
namespace {

using testing::data_of;
using testing::draw_shapes;
using testing::kShapeKinds;
using testing::kShapeNames;
using testing::message_of;
using testing::ShapePicture;
using testing::TemporaryFolder;
using testing::train_two_epochs;
using testing::write_file;
using testing::write_jpeg;
using testing::write_png;
namespace fs = std::filesystem;

const std::string kNormalised = "normalize: {scale: 0.0039}, batch: {size: 16}]";

/// Class folders of JPEG and PNG files, and a file that is none.
void write_class_folders(const fs::path& folder, int train, int held_out) {
  for (std::int64_t kind = 0; kind < kShapeKinds; ++kind) {
    const std::string name = kShapeNames[static_cast<std::size_t>(kind)];
    for (int i = 0; i < train + held_out; ++i) {
      const ShapePicture picture = draw_shapes(static_cast<std::uint64_t>(i * 3 + kind), kind);
      const fs::path file = folder / (i < train ? "train" : "val") / name / fmt::format("{}", i);
      if (i % 2 == 0)
        write_file(file.string() + ".jpg", write_jpeg(picture.image));
      else
        write_file(file.string() + ".PNG", write_png(picture.image));
    }
  }
  write_file(folder / "train/disc/notes.txt", std::string_view("no image"));
}

TEST(FileTraining, AnImageFolderForTwoEpochs) {
  const TemporaryFolder folder;
  write_class_folders(folder.path(), 40, 10);
  std::vector<double> reference;
  for (const std::string cache : {"ram", "off", "auto"}) {
    const DataOptions options =
        data_of("format: image_folder, path: $, pipeline: [cache: " + cache +
                    ", shuffle, random_resized_crop: {size: 24, scale: [0.7, 1]}, random_flip, " + kNormalised,
                folder.path());
    EXPECT_EQ(train_facts(options).size, 120);
    EXPECT_EQ(validation_facts(options).size, 30);
    const std::vector<double> losses = train_two_epochs(options, kShapeKinds);
    if (reference.empty()) reference = losses;
    EXPECT_EQ(losses, reference) << cache;
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_LT(losses[1], 0.8 * losses[0]);
  }
}

TEST(FileTraining, ABrokenFileIsNamedOrSkipped) {
  const TemporaryFolder folder;
  write_class_folders(folder.path(), 10, 4);
  write_file(folder.path() / "train/disc/broken.jpg", std::string_view("GIF89a"));
  const std::string keys =
      "format: image_folder, path: $, pipeline: [cache: off, resize: {size: [24, 24]}, " + kNormalised;
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)train_two_epochs(data_of(keys, folder.path()), kShapeKinds); }),
                  "disc/broken.jpg: ");
  EXPECT_EQ(train_two_epochs(data_of(keys + ", on_error: skip", folder.path()), kShapeKinds).size(), 2u);
}

TEST(FileTraining, ImagesNamedInACsvWithWeightsForTwoEpochs) {
  const TemporaryFolder folder;
  write_class_folders(folder.path(), 20, 5);
  std::string text = "image,label,weight\n";
  for (const char* name : kShapeNames)
    for (int i = 0; i < 20; i += 2) text += fmt::format("train/{}/{}.jpg,{},{}\n", name, i, name, i == 0 ? 5 : 1);
  write_file(folder.path() / "all.csv", std::string_view(text));
  const DataOptions options = data_of(
      "format: csv, path: $/all.csv, image: image, label: label, weight: weight, sampling: {weights: true, samples: "
      "96}, "
      "pipeline: [resize: {size: [24, 24]}, " +
          kNormalised,
      folder.path());
  EXPECT_EQ(train_facts(options).size, 27);
  const std::vector<double> losses = train_two_epochs(options, kShapeKinds);
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_LT(losses[1], 0.8 * losses[0]);
}

TEST(FileTraining, RowsOfNumbersForTwoEpochs) {
  const TemporaryFolder folder;
  PhiloxSequence random(philox_key(3, RandomPurpose::test, 1));
  std::string text = "height,width,kind,area\n";
  for (int i = 0; i < 400; ++i) {
    const double height = 100 + 900 * uniform01(random.next()), width = 2 * uniform01(random.next());
    text += fmt::format("{},{},{},{}\n", height, width, height > 550 ? "tall" : "small", height / 550 + width);
  }
  write_file(folder.path() / "t.csv", std::string_view(text));
  const std::string keys = "format: csv, path: $/t.csv, features: [height, width], standardize: true, ";
  const auto classes =
      train_two_epochs(data_of(keys + "label: kind, pipeline: [shuffle, batch: {size: 8}]", folder.path()), 2);
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_LT(classes[1], 0.5 * classes[0]);
  const auto errors = train_two_epochs(
      data_of(keys + "target: area, pipeline: [shuffle, batch: {size: 8}]", folder.path()), 1, {.loss = mse_loss()});
  EXPECT_LT(errors[1], 0.3 * errors[0]);
}

TEST(FileTraining, WrongMasksAreNamed) {
  const TemporaryFolder folder;
  for (int i = 0; i < 4; ++i) {
    const ShapePicture picture = draw_shapes(std::uint64_t{5100} + static_cast<std::uint64_t>(i));
    write_file(folder.path() / fmt::format("images/{}.png", i), write_png(picture.image));
    write_file(folder.path() / fmt::format("masks/{}.png", i), write_png(picture.classes));
  }
  const auto error = [&](const std::string& keys) {
    return message_of<DataError>([&] {
      Runtime runtime({.threads = 1});
      const DataOptions options = data_of("format: segmentation_folder, path: $, " + keys +
                                              ", pipeline: [cache: ram, resize: {size: [8, 8]}, batch: {size: 4}]",
                                          folder.path());
      (void)open_data(runtime, options, Device::cpu(), 5);
    });
  };
  Image mask = draw_shapes(5100).classes;
  mask.pixels[7] = 9;
  for (int i = 0; i < 4; ++i) write_file(folder.path() / fmt::format("masks/{}.png", i), write_png(mask));
  const std::string message = error("classes: 4");
  EXPECT_CONTAINS(message, "images/");
  EXPECT_CONTAINS(message, ".png): 'labels' has the number 9 at column 7, row 0, but the data have 4 classes, from 0");
  EXPECT_CONTAINS(error("classes: 4, ignore: 255"), "from 0, and 255 for none");
  mask.reshape({40, 43}, 1);
  for (int i = 0; i < 4; ++i) write_file(folder.path() / fmt::format("masks/{}.png", i), write_png(mask));
  EXPECT_CONTAINS(error("classes: 4, ignore: 9"), "'labels' has 43 x 40 pixels, its image 44 x 40");
}

/// The last validation value of the step's only metric.
struct LastValue : Callback {
  void on_epoch_end(const EpochEvent& event) override { value = event.validation.values.at(0).value(); }
  double value = 0;
};

double trained_value(const DataOptions& options, Graph graph, LossOptions loss, std::int64_t epochs) {
  Runtime runtime({.threads = 2});
  OpenedData data = open_data(runtime, options, Device::cpu(), 5);
  Model model(runtime, Device::cpu(), graph, {.seed = 7});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 3e-3f})});
  TrainingStep step(model, optimizer, std::move(loss));
  LastValue last;
  Trainer trainer(step, *data.train, data.validation.get(), {.epochs = epochs});
  trainer.add(last);
  (void)trainer.run();
  ::testing::Test::RecordProperty("value", fmt::format("{:.4f}", last.value));
  return last.value;
}

LayerPtr convolution(std::int64_t filters, std::int64_t stride = 1) {
  return conv2d({.filters = filters,
                 .kernel = {3, 3},
                 .stride = {stride, stride},
                 .padding = Padding::same(),
                 .activation = {Activation::relu}});
}

TEST(FileTraining, SeveralLabelsReachAnF1Of095) {
  const TemporaryFolder folder;
  std::string train = "image,disc,square,cross\n", held_out = train;
  for (int i = 0; i < 750; ++i) {
    const ShapePicture picture = draw_shapes(std::uint64_t{1000} + static_cast<std::uint64_t>(i));
    write_file(folder.path() / fmt::format("{}.png", i), write_png(picture.image));
    (i < 600 ? train : held_out) +=
        fmt::format("{}.png,{:d},{:d},{:d}\n", i, picture.present[0], picture.present[1], picture.present[2]);
  }
  write_file(folder.path() / "train.csv", std::string_view(train));
  write_file(folder.path() / "val.csv", std::string_view(held_out));
  const DataOptions options = data_of(
      "format: csv, path: $, train: train.csv, validation: val.csv, image: image, label: [disc, square, cross], "
      "pipeline: [cache: ram, shuffle, resize: {size: [32, 32]}, random_flip, " +
          kNormalised,
      folder.path());
  Graph graph({32, 32, 3});
  graph.add("a", convolution(16, 2));
  graph.add("b", convolution(32, 2));
  graph.add("pool", global_max_pool());
  graph.add("head", dense({.units = kShapeKinds}));
  EXPECT_GE(trained_value(options, graph, {.loss = binary_cross_entropy(), .metrics = {f1({.multi_label = true})}}, 8),
            0.95);
}

TEST(FileTraining, AClassAPixelReachesAMeanIouOf09) {
  const TemporaryFolder folder;
  for (int i = 0; i < 240; ++i) {
    const ShapePicture picture = draw_shapes(std::uint64_t{5000} + static_cast<std::uint64_t>(i));
    const std::string part = i < 200 ? "train" : "val";
    write_file(folder.path() / part / fmt::format("images/{}.jpg", i),
               write_jpeg(picture.image, {.quality = 95, .chroma_across = 1, .chroma_down = 1}));
    write_file(folder.path() / part / fmt::format("masks/{}.png", i), write_png(picture.classes));
  }
  const DataOptions options = data_of(
      "format: segmentation_folder, path: $, classes: [none, disc, square, cross], "
      "pipeline: [cache: ram, shuffle, random_crop: {size: 32}, random_flip, " +
          kNormalised +
          ", "
          "evaluation: {pipeline: [center_crop: {size: 32}]}",
      folder.path());
  Graph graph({32, 32, 3});
  graph.add("a", convolution(16));
  graph.add("b", convolution(16));
  graph.add("head", conv2d({.filters = 1 + kShapeKinds, .kernel = {1, 1}}));
  EXPECT_GE(trained_value(options, graph, {.metrics = {mean_iou()}}, 12), 0.9);
}

}  // namespace
}  // namespace bantam::file_training_test
