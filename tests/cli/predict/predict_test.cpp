// `bantam evaluate`, `bantam predict` and `bantam embed` as users run them: results, formats, broken files, exit codes.
#include <csignal>
#include <set>
#include <sstream>

#include "bantam/data/files/npy_array.h"
#include "bantam/data/images/encode.h"
#include "tests/cli/program.h"
#include "tests/data/formats/array_files.h"

namespace bantam::cli::predict_test {
namespace {

namespace fs = std::filesystem;

class PredictTest : public ProgramTest {
 protected:
  /// Blue images are days, black ones nights; of several sizes.
  static std::string photo(bool day, int number) {
    Image image;
    image.reshape({20 + number % 5, 18 + number % 7}, 3);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>((day && i % 3 == 2 ? 150 : 10) +
                                                  (i * 7 + static_cast<std::size_t>(number) * 13) % 40);
    return encode_png(image);
  }
  void write_photos(const std::string& folder, int count) const {
    fs::create_directories(path(folder));
    for (int i = 0; i < count; ++i) write(folder + "/" + std::to_string(1000 + i) + ".png", photo(i % 2 == 0, i));
  }
  void train_photos() const {
    for (const bool day : {true, false}) {
      const std::string folder = day ? "photos/day" : "photos/night";
      fs::create_directories(path(folder));
      for (int i = 0; i < 24; ++i) write(folder + "/" + std::to_string(i) + ".png", photo(day, i));
    }
    write("photos.yaml", R"(device: cpu
data:
  format: image_folder
  path: photos
  split: 0.25
  pipeline: [shuffle, random_resized_crop: {size: 16, scale: [0.5, 1]}, random_flip, normalize: {scale: 0.0039}, batch: {size: 8}]
model:
  input: [16, 16, 3]
  layers: [conv2d: {filters: 4, kernel: 3, stride: 2, activation: relu}, global_average_pool, dense: {units: 2}]
train: {epochs: 6, optimizer: {adam: {learning_rate: 0.05}}}
)");
    const Outcome trained = run({"train", "photos.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"});
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' lacks '" << part << "'";
}

/// Values of a float32 array of two axes.
std::vector<std::vector<float>> rows_of(const fs::path& file) {
  const NpyArray array(open_file_bytes(file));
  EXPECT_EQ(array.extents().size(), 2u);
  EXPECT_EQ(array.type().name(), "float32");
  std::vector<std::vector<float>> rows;
  for (std::int64_t row = 0; row < array.rows(); ++row)
    array.read_rows(row, rows.emplace_back(static_cast<std::size_t>(array.row_values())));
  return rows;
}

TEST_F(PredictTest, AThousandFilesWithABrokenOneAre999Answers) {
  train_photos();
  write_photos("new", 1000);
  const std::string broken = photo(true, 3).substr(0, 60);
  write("new/1500.png", broken);
  write("new/notes.txt", "no image");
  fs::remove_all(path("photos"));  // a trained model does not need its data
  const Outcome found = run({"predict", "r", "new", "--csv", "--progress", "plain"});
  EXPECT_EQ(found.code, 3);
  const std::vector<std::string> rows = lines_of(found.out);
  ASSERT_EQ(rows.size(), 1000u) << "a header, and 999 answers";
  EXPECT_EQ(rows[0], "file,class,probability,class_2,probability_2");
  EXPECT_TRUE(has(found.err, "bantam: error: new/1500.png"));
  EXPECT_TRUE(has(found.err, "999 of 1,000 images predicted; 1 could not be read"));
  EXPECT_TRUE(has(found.err, "ignored: 1 file of other suffixes, such as new/notes.txt"));
  int right = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const int number = std::stoi(rows[i].substr(4, 4));
    EXPECT_NE(number, 1500);
    right += rows[i].find(number % 2 == 0 ? ",day," : ",night,") < rows[i].find(',', 14) ? 1 : 0;
  }
  EXPECT_EQ(right, 999);
}

TEST_F(PredictTest, EveryFormatSaysTheSame) {
  train_photos();
  write_photos("new", 3);
  write("gone.txt", "");
  const Outcome text = run({"predict", "r", "new/1000.png", "new/1001.png"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("new/1000.png: day 0.")) << text.out;
  EXPECT_TRUE(has(text.out, "new/1001.png: night 0."));
  const Outcome json = run({"predict", "r", "new/1000.png", "missing.png", "new/1001.png", "--json"});
  EXPECT_EQ(json.code, 3);
  const std::vector<std::string> lines = lines_of(json.out);
  ASSERT_EQ(lines.size(), 3u);
  const auto first = nlohmann::json::parse(lines[0]), missing = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(first["file"], "new/1000.png");
  EXPECT_EQ(first["class"], "day");
  EXPECT_EQ(first["index"], 0);
  EXPECT_EQ(first["top"].size(), 2u);
  EXPECT_NEAR(first["top"][0]["probability"].get<double>() + first["top"][1]["probability"].get<double>(), 1, 1e-6);
  EXPECT_TRUE(has(missing["error"], "missing.png: cannot be read"));
  const Outcome file = run({"predict", "r", "new", "--top", "1", "--out", "new.csv"});
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(file.out, "");
  const std::vector<std::string> rows = lines_of(read("new.csv"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0], "file,class,probability");
  EXPECT_TRUE(has(rows[1], "new/1000.png,day," + first["probability"].dump()));
}

TEST_F(PredictTest, AnswersDependNeitherOnBatchesNorOnThreads) {
  train_photos();
  write_photos("new", 21);
  const std::string all = run({"predict", "r", "new", "--csv", "--threads", "1"}).out;
  EXPECT_EQ(lines_of(all).size(), 22u);
  EXPECT_EQ(run({"predict", "r", "new", "--csv", "--batch-size", "1", "--threads", "2"}).out, all);
  EXPECT_EQ(run({"predict", "r", "new", "--csv", "--batch-size", "20", "--threads", "3"}).out, all);
  const Outcome little = run({"predict", "r", "new", "--csv", "--set", "memory.limits={cpu: 320KiB}"});
  EXPECT_EQ(little.code, 0) << little.err;
  EXPECT_EQ(little.out, all) << "in smaller batches";
  EXPECT_EQ(run({"predict", "r", "new", "--set", "memory.limits={cpu: 1KiB}"}).code, 4);
}

TEST_F(PredictTest, WhatIsThereIsNotReplacedByMistake) {
  train_photos();
  write_photos("new", 2);
  const std::string image = read("new/1000.png");
  const Outcome same = run({"predict", "r", "new", "--out", "new/1000.png"});
  EXPECT_EQ(same.code, 2) << same.out;
  EXPECT_TRUE(has(same.err, "--out: new/1000.png is one of the images"));
  EXPECT_EQ(read("new/1000.png"), image);
  write("old.csv", "earlier answers\n");
  EXPECT_EQ(run({"predict", "r", "new", "--out", "old.csv", "--set", "memory.limits={cpu: 1KiB}"}).code, 4);
  EXPECT_EQ(read("old.csv"), "earlier answers\n") << "nothing was predicted";
  EXPECT_EQ(run({"predict", "r", "new", "--out", "old.csv"}).code, 0);
  EXPECT_TRUE(read("old.csv").starts_with("file,class,"));
}

TEST_F(PredictTest, RunsOfASweepAreFoundByTheirFolders) {
  write_tiny_config();
  const Outcome swept = run({"sweep", "tiny.yaml", "--set", "train.optimizer.adam.learning_rate=1e-6,5e-3", "--out",
                             "s", "--threads", "1", "--progress", "none"});
  ASSERT_EQ(swept.code, 0) << swept.err;
  const std::string folder = "s/2-learning_rate=5e-3-seed=7";
  const Outcome whole = run({"evaluate", "s"});
  EXPECT_EQ(whole.code, 2);
  EXPECT_TRUE(has(whole.err, "s is the folder of a sweep: name one of the runs in it"));
  const Outcome of_run = run({"evaluate", folder, "--json"});
  ASSERT_EQ(of_run.code, 0) << of_run.err;
  fs::copy(path(folder + "/weights.safetensors"), path("alone.safetensors"));
  const Outcome of_file = run({"evaluate", "alone.safetensors", folder + "/config.yaml", "--json"});
  ASSERT_EQ(of_file.code, 0) << "a path with '=' is no override: " << of_file.err;
  EXPECT_EQ(of_file.last_json()["loss"], of_run.last_json()["loss"]);
}

TEST_F(PredictTest, SeveralMasksAnImageHaveNamesOfTheirOwn) {
  Image picture, mask;
  picture.reshape({8, 8}, 3);
  for (const char* folder : {"m/images", "m/masks", "new"}) fs::create_directories(path(folder));
  for (int i = 0; i < 4; ++i) {
    mask.reshape({8, 8}, 1);
    for (std::size_t p = 0; p < 64; ++p) mask.pixels[p] = static_cast<std::uint8_t>(p % 2);
    write("m/images/" + std::to_string(i) + ".png", encode_png(picture));
    write("m/masks/" + std::to_string(i) + ".png", encode_png(mask));
  }
  write("m.yaml", R"(device: cpu
data: {format: segmentation_folder, path: m, split: 0.5, classes: [grass, ../road], pipeline: [resize: {size: [8, 8]}, normalize: {scale: 0.0039}, batch: {size: 2}]}
model: {input: [8, 8, 3], layers: [conv2d: {filters: 2, kernel: 1}]}
train: {epochs: 1}
)");
  const Outcome trained = run({"train", "m.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  write("new/a.png", encode_png(picture));
  const auto predict = [&](const char* out) {
    return run({"predict", "r", "new", "--out", out, "--config", "m.yaml", "--set", "train.loss=binary_cross_entropy"});
  };
  const Outcome found = predict("masks");
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_TRUE(fs::exists(path("masks/a-grass.png")));
  EXPECT_TRUE(fs::exists(path("masks/a-.._road.png"))) << "a class is no folder";
  write("new/a-grass.png", encode_png(picture));
  const Outcome replaced = predict("new");
  EXPECT_EQ(replaced.code, 2);
  EXPECT_TRUE(has(replaced.err, "the mask new/a-grass.png would replace an image"));
}

TEST_F(PredictTest, MasksAreImagesOfClassNumbers) {
  Image picture, mask;
  picture.reshape({16, 16}, 3);
  mask.reshape({16, 16}, 1);
  for (const char* folder : {"roads/images", "roads/masks"}) fs::create_directories(path(folder));
  for (int i = 0; i < 16; ++i) {
    for (std::size_t p = 0; p < 256; ++p) {
      const bool road = (p % 16 >= 8) == (i % 2 == 0);
      mask.pixels[p] = road ? 1 : 0;
      for (std::size_t c = 0; c < 3; ++c) picture.pixels[3 * p + c] = road ? 200 : 20;
    }
    write("roads/images/" + std::to_string(i) + ".png", encode_png(picture));
    write("roads/masks/" + std::to_string(i) + ".png", encode_png(mask));
  }
  write("roads.yaml", R"(device: cpu
data: {format: segmentation_folder, path: roads, split: 0.25, classes: [grass, road], pipeline: [resize: {size: [16, 16]}, normalize: {scale: 0.0039}, batch: {size: 4}]}
model: {input: [16, 16, 3], layers: [conv2d: {filters: 2, kernel: 1}]}
train: {epochs: 30, optimizer: {adam: {learning_rate: 0.1}}}
)");
  ASSERT_EQ(run({"train", "roads.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"}).code, 0);
  EXPECT_EQ(run({"predict", "r", "roads/images"}).code, 2) << "masks need a folder";
  EXPECT_EQ(run({"predict", "r", "roads/images", "--out", "roads/images"}).code, 2) << "they would replace the images";
  const Outcome found = run({"predict", "r", "roads/images", "--out", "masks"});
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_TRUE(has(found.out, "roads/images/0.png: grass 128, road 128 pixels"));
  EXPECT_EQ(read("masks/0.png"), read("roads/masks/0.png"));
  EXPECT_EQ(read("masks/1.png"), read("roads/masks/1.png"));
  const Outcome evaluated = run({"evaluate", "r", "--json"});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(evaluated.last_json()["classes"][1]["iou"], 1.0);
}

TEST_F(PredictTest, EvaluateIsTheRunsOwnToTheBit) {
  write_tiny_config();
  ASSERT_EQ(train("r", {"train.metrics=[accuracy, f1]"}).code, 0);
  const nlohmann::json epoch = read_lines("r/metrics.jsonl").back();
  const Outcome found = run({"evaluate", "r", "--json", "--progress", "none"});
  ASSERT_EQ(found.code, 0) << found.err;
  const nlohmann::json json = found.last_json();
  EXPECT_EQ(json["loss"].get<double>(), epoch["validation_loss"].get<double>());
  EXPECT_EQ(json["accuracy"].get<double>(), epoch["validation_accuracy"].get<double>());
  EXPECT_EQ(json["f1"].get<double>(), epoch["validation_f1"].get<double>());
  EXPECT_EQ(json["f1_of_classes"], epoch["validation_f1_of_classes"]);
  EXPECT_EQ(json["samples"], 40);
  EXPECT_EQ(json["classes"].size(), 10u);
  EXPECT_EQ(json["confusion_matrix"].size(), 10u);
  EXPECT_EQ(json["planned_peak_bytes"], json["peak_bytes"]);
  ::setenv("COLUMNS", "200", 1);
  const Outcome text = run({"evaluate", "r"});
  ::unsetenv("COLUMNS");
  EXPECT_TRUE(has(text.out, "validation: 40 samples in batches of 16, on cpu, float32"));
  EXPECT_TRUE(has(text.out, "confused"));
  EXPECT_TRUE(has(text.out, "\nlabel "));
  const auto is_seen = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };  // "…" has three bytes
  for (const char* columns : {"80", "40"}) {
    ASSERT_EQ(setenv("COLUMNS", columns, 1), 0);
    const Outcome narrow = run({"evaluate", "r"});
    unsetenv("COLUMNS");
    std::istringstream lines(narrow.out.substr(narrow.out.find("\nconfused")));
    for (std::string line; std::getline(lines, line) && line.find(" in use at ") == line.npos;)
      EXPECT_LE(std::ranges::count_if(line, is_seen), std::stoi(columns)) << line;
  }
  fs::copy(path("r/weights.safetensors"), path("alone.safetensors"));
  const Outcome alone = run({"evaluate", "alone.safetensors", "tiny.yaml", "data.test_samples=8", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.last_json()["samples"], 8);
}

TEST_F(PredictTest, AllSamplesOfAnotherFolderAreEvaluated) {
  train_photos();
  for (const char* folder : {"more/day", "more/night"}) fs::create_directories(path(folder));
  for (int i = 0; i < 5; ++i) write("more/day/" + std::to_string(i) + ".png", photo(true, 100 + i));
  for (int i = 0; i < 3; ++i) write("more/night/" + std::to_string(i) + ".png", photo(false, 100 + i));
  const auto samples = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"evaluate", "r", "--json", "--progress", "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.last_json()["samples"].get<int>() : -1;
  };
  EXPECT_EQ(samples({"--split", "all"}), 48);
  EXPECT_EQ(samples({"--split", "validation"}), 12);
  EXPECT_EQ(samples({"data.path=more", "--split", "all"}), 8);
}

TEST_F(PredictTest, OnePhotoAndFoldersWithoutEveryClassAreEvaluatedByName) {
  train_photos();
  fs::create_directories(path("one/night"));
  write("one/night/a.png", photo(false, 3));
  const auto evaluated = [this](const std::string& folder, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"evaluate", "r", "data.path=" + folder, "--split", "all", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome one = evaluated("one");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.last_json().at("samples"), 1);
  EXPECT_EQ(one.last_json().at("accuracy"), 1.0) << "night is the model's second class, and the folder's first";
  EXPECT_EQ(evaluated("one", {"data.background=white"}).code, 0);
  for (int i = 0; i < 3; ++i) write("one/night/" + std::to_string(i) + ".png", photo(false, i));
  EXPECT_EQ(evaluated("one").last_json().at("accuracy"), 1.0);
  fs::create_directories(path("one/dusk"));
  write("one/dusk/a.png", photo(true, 3));
  const Outcome unknown = evaluated("one");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_TRUE(has(unknown.err,
                  "the data have the class dusk, which the model does not know: its classes are day and "
                  "night; data.classes=[night] evaluates the others"));
  EXPECT_EQ(evaluated("one", {"data.classes=[night]"}).code, 0);
}

/// Rows of numbers: flowers of two kinds, of which b says all.
class TablesTest : public PredictTest {
 protected:
  void train_flowers() const {
    std::string rows = "id,a,b,kind\n";
    for (int i = 0; i < 80; ++i)
      rows += std::to_string(i) + "," + std::to_string(i % 7) + "," + (i % 2 == 0 ? "10.5" : "90") + "," +
              (i % 2 == 0 ? "rose" : "lily") + "\n";
    write("flowers.csv", rows);
    write("flowers.yaml", R"(device: cpu
data:
  format: csv
  path: flowers.csv
  label: kind
  features: [a, b]
  standardize: true
  pipeline: [shuffle, batch: {size: 8}]
model: {input: [2], layers: [dense: {units: 2}]}
train: {epochs: 10, optimizer: {adam: {learning_rate: 0.1}}}
)");
    const Outcome trained = run({"train", "flowers.yaml", "--run-dir", "f", "--progress", "none", "--threads", "1"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    fs::remove(path("flowers.csv"));
  }
  std::string classes(const std::vector<std::string>& words) const {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::string found;
    for (const std::string& line : lines_of(outcome.out))
      if (!line.empty()) found += nlohmann::json::parse(line)["class"].get<std::string>() + " ";
    return found;
  }
};

TEST_F(TablesTest, RowsOfACsvFileAreAnsweredBesideTheirColumns) {
  train_flowers();
  write("new.csv", "b,note,a,class\n10.5,first,3,x\n90,\"with, comma\",3,y\n");
  const Outcome csv = run({"predict", "f", "new.csv", "--top", "1", "--csv"});
  ASSERT_EQ(csv.code, 0) << csv.err;
  const std::vector<std::string> lines = lines_of(csv.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "b,note,a,class,predicted_class,probability");
  EXPECT_TRUE(lines[1].starts_with("10.5,first,3,x,rose,0.")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("90,\"with, comma\",3,y,lily,0.")) << lines[2];
  const auto json = nlohmann::json::parse(lines_of(run({"predict", "f", "new.csv", "--json"}).out)[1]);
  EXPECT_EQ(json["class"], "lily");
  EXPECT_EQ(json["input"]["note"], "with, comma");
  EXPECT_EQ(json["file"], "new.csv:3");
  EXPECT_TRUE(has(run({"predict", "f", "new.csv"}).out, "new.csv:2: rose "));
}

TEST_F(TablesTest, HeadersDelimitersAndArrays) {
  train_flowers();
  write("plain.csv", "3,10.5\n3,90\n");
  EXPECT_EQ(classes({"predict", "f", "plain.csv", "--json"}), "rose lily ");
  write("semicolons.csv", "b;a\n90;3\n10.5;3\n");
  EXPECT_EQ(classes({"predict", "f", "semicolons.csv", "--json"}), "lily rose ");
  const std::vector<float> values = {3, 10.5F, 3, 90, 4, 90};
  write("new.npy", testing::npy("<f4", "3, 2", values));
  EXPECT_EQ(classes({"predict", "f", "new.npy", "--json"}), "rose lily lily ");
  write("new.npz", testing::zip_archive({{"x.npy", testing::npy("<f4", "3, 2", values)}}, true));
  EXPECT_EQ(classes({"predict", "f", "new.npz", "--json"}), "rose lily lily ");
  const Outcome csv = run({"predict", "f", "new.npy", "--csv", "--top", "1"});
  EXPECT_TRUE(csv.out.starts_with("row,class,probability\n0,rose,")) << csv.out;
}

TEST_F(TablesTest, FeaturesOfRowsAreBesideTheirColumns) {
  train_flowers();
  write("new.csv", "note,b,a\nfirst,10.5,3\nsecond,,3\nthird,90,3\n");
  const Outcome none = run({"embed", "f", "new.csv", "--out", "new.npy"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.err, "--at: the network's last dense layer, 'dense', reads the samples themselves"));
  const Outcome found = run({"embed", "f", "new.csv", "--out", "f.npy", "--at", "dense", "--csv"});
  EXPECT_EQ(found.code, 3) << found.err;
  EXPECT_EQ(read("f.csv"), "note,b,a\nfirst,10.5,3\nthird,90,3\n");
  const auto rows = rows_of(path("f.npy"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GT(rows[0][1], rows[0][0]) << "a rose";
  EXPECT_GT(rows[1][0], rows[1][1]) << "a lily";
  const std::string table = read("new.csv");
  EXPECT_TRUE(has(run({"embed", "f", "new.csv", "--out", "new.npy", "--at", "dense", "--csv"}).err,
                  "--out: new.csv is the table itself"));
  EXPECT_EQ(read("new.csv"), table);
}

TEST_F(TablesTest, ARowWithAMissingCellIsNoOtherRowsError) {
  train_flowers();
  write("new.csv", "a,b\n3,10.5\n,90\n3,many\n3,90\n");
  const Outcome csv = run({"predict", "f", "new.csv", "--top", "1", "--csv"});
  EXPECT_EQ(csv.code, 3);
  const std::vector<std::string> lines = lines_of(csv.out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[2], ",90,,");
  EXPECT_TRUE(lines[4].starts_with("3,90,lily,"));
  EXPECT_TRUE(has(csv.err, "new.csv:3: column 'a': expected a number, got an empty cell"));
  EXPECT_TRUE(has(csv.err, "new.csv:4: column 'b': expected a number, got 'many'"));
  EXPECT_TRUE(has(csv.err, "2 of 4 rows predicted; 2 could not be read"));
}

TEST_F(TablesTest, WhatTheTableLacksIsNamed) {
  train_flowers();
  write("new.csv", "a,c\n3,10.5\n");
  const Outcome lacking = run({"predict", "f", "new.csv"});
  EXPECT_EQ(lacking.code, 3);
  EXPECT_TRUE(has(lacking.err, "new.csv: has no column 'b', which the model reads; its columns are a and c"));
  write("wide.csv", "1,2,3\n");
  EXPECT_TRUE(
      has(run({"predict", "f", "wide.csv"}).err, "wide.csv: has no header and 3 columns, but the model reads 2"));
  write("a.png", photo(true, 1));
  const Outcome image = run({"predict", "f", "a.png"});
  EXPECT_EQ(image.code, 2);
  EXPECT_TRUE(has(image.err, "the model reads rows of 2 numbers: name a .csv, .npy or .npz file of them"));
}

TEST_F(TablesTest, ImagesThatATableNames) {
  train_photos();
  write_photos("set/new", 4);
  write("set/list.csv", "who,image\nann,1000.png\nbob,1001.png\neve,none.png\n");
  const Outcome csv = run({"predict", "r", "set/list.csv", "--top", "1", "--csv"});
  EXPECT_EQ(csv.code, 3);
  const std::vector<std::string> lines = lines_of(csv.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "who,image,class,probability");
  EXPECT_TRUE(lines[1].starts_with("ann,1000.png,day,")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("bob,1001.png,night,")) << lines[2];
  EXPECT_EQ(lines[3], "eve,none.png,,");
}

TEST_F(TablesTest, TablesOfOneRowAndOfOneClassAreEvaluated) {
  train_flowers();
  const auto evaluated = [this](const std::string& run_dir, const std::string& table) {
    write("new.csv", table);
    const Outcome outcome = run({"evaluate", run_dir, "data.path=new.csv", "--split", "all", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.last_json() : nlohmann::json::object();
  };
  const nlohmann::json one = evaluated("f", "a,b,kind\n3,10.5,rose\n");
  EXPECT_EQ(one["samples"], 1);
  EXPECT_EQ(one["accuracy"], 1.0) << "rose is the model's second class, and the table's first";
  EXPECT_EQ(evaluated("f", "a,b,kind\n3,10.5,rose\n4,90,rose\n")["accuracy"], 0.5);
  // Classes that are called by numbers.
  std::string rows = "a,b,kind\n";
  for (int i = 0; i < 80; ++i) rows += std::to_string(i % 7) + (i % 2 == 0 ? ",10.5,0\n" : ",90,1\n");
  write("flowers.csv", rows);
  ASSERT_EQ(run({"train", "flowers.yaml", "--run-dir", "g", "--progress", "none", "--threads", "1"}).code, 0);
  EXPECT_EQ(evaluated("g", "a,b,kind\n3,90,1\n2,90,1\n")["accuracy"], 1.0);
  EXPECT_EQ(evaluated("g", "a,b,kind\n3,90,1\n")["accuracy"], 1.0);
}

TEST_F(TablesTest, ACompetitionsTestImagesLieInAnotherFolder) {
  for (const char* folder : {"train_images", "test_images"}) fs::create_directories(path(folder));
  std::string rows = "id_code,diagnosis\n";
  for (int i = 0; i < 40; ++i) {
    write("train_images/" + std::to_string(100 + i) + "a.png", photo(i % 2 == 0, i));
    rows += std::to_string(100 + i) + "a," + (i % 2 == 0 ? "day" : "night") + "\n";
  }
  write("train.csv", rows);
  for (int i = 0; i < 2; ++i) write("test_images/" + std::to_string(900 + i) + "b.png", photo(i == 0, 60 + i));
  write("test.csv", "id_code\n900b\n901b\n");
  const Outcome made = run({"init", "--data", ".", "--out", "made.yaml", "--threads", "1"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome trained = run({"train", "made.yaml", "--run-dir", "c", "--progress", "none", "--threads", "1",
                               "--device", "cpu", "train.epochs=20"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(classes({"predict", "c", "test.csv", "--json"}), "day night ");
  EXPECT_EQ(classes({"predict", "c", "train.csv", "--json", "--top", "1"}).substr(0, 10), "day night ");
}

// A competition's set: the images of both parts have the same names, and the configuration names the training's folder.
TEST_F(TablesTest, ASubmissionIsOfTheTestImages) {
  std::string labels = "id,label\n";
  for (const char* folder : {"set/train", "set/test"}) fs::create_directories(path(folder));
  for (int i = 0; i < 40; ++i) {
    const bool day = i % 2 == 0;
    write("set/train/" + std::to_string(i) + ".png", photo(day, i));
    write("set/test/" + std::to_string(i) + ".png", photo(!day, 100 + i));
    labels += std::to_string(i) + (day ? ",day\n" : ",night\n");
  }
  write("set/trainLabels.csv", labels);
  write("set/sampleSubmission.csv", "id,label\n0,day\n1,day\n2,day\n");
  write("set.yaml", R"(device: cpu
data:
  format: csv
  path: set/trainLabels.csv
  image: id
  root: set/train
  suffix: .png
  label: label
  pipeline: [shuffle, resize: {size: [16, 16]}, normalize: {scale: 0.0039}, batch: {size: 8}]
model:
  input: [16, 16, 3]
  layers: [conv2d: {filters: 4, kernel: 3, stride: 2, activation: relu}, global_average_pool, dense: {units: 2}]
train: {epochs: 12, optimizer: {adam: {learning_rate: 0.05}}}
)");
  const Outcome trained = run({"train", "set.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome csv = run({"predict", "r", "set/sampleSubmission.csv", "--top", "1", "--csv"});
  const std::vector<std::string> lines = lines_of(csv.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "id,label,class,probability");
  EXPECT_TRUE(lines[1].starts_with("0,day,night,")) << "of the training image: " << lines[1];
  EXPECT_TRUE(lines[2].starts_with("1,day,day,")) << "of the training image: " << lines[2];
  EXPECT_EQ(csv.code, 0) << csv.err;
  EXPECT_TRUE(has(csv.err, "3 of 3 images are found in")) << csv.err;
  EXPECT_TRUE(has(csv.err, "set/test")) << csv.err;
}

TEST_F(TablesTest, ImagesOfOtherTypesAreTold) {
  train_photos();
  write_photos("more", 4);
  write("more/IMG_1.HEIC", "x");
  write("more/IMG_2.heic", "x");
  write("more/notes.txt", "x");
  const Outcome found = run({"predict", "r", "more", "--top", "1", "-q"});
  EXPECT_EQ(found.code, 0);
  EXPECT_TRUE(has(found.err, "2 images of a type that is not read have no answer: 2 .heic; ")) << found.err;
}

TEST_F(PredictTest, WhatIsWrongHasAnExitCode) {
  write_tiny_config();
  ASSERT_EQ(train("r").code, 0);
  fs::copy(path("r/weights.safetensors"), path("alone.safetensors"));
  const auto fails = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_TRUE(has(outcome.err, part));
  };
  fs::create_directories(path("empty"));
  fails({"evaluate", "gone"}, 3, "there is no such run and no such file");
  fails({"evaluate", "r", "empty"}, 2, "data.path=empty with --split all evaluates the samples in it");
  fails({"evaluate", "r", "--split", "all"}, 2, "the data have parts of their own");
  fs::create_directories(path("runs"));
  fs::copy(path("r"), path("runs/copy"), fs::copy_options::recursive);
  fails({"predict", "copy", "x.png"}, 3, "did you mean runs/copy?");
  fs::create_directories(path("copy"));  // of photographs, say
  fails({"predict", "copy", "x.png"}, 3, "did you mean runs/copy?");
  fails({"predict", "runs", "x.png"}, 3, "`bantam runs runs` lists the runs below it");
  fails({"evaluate", "alone.safetensors"}, 2, "name the configuration");
  fails({"evaluate", "r", "--checkpoint", "best"}, 3, "no weights-best.safetensors");
  fails({"evaluate", "r", "--split", "test"}, 2, "no test samples");
  fails({"evaluate", "r", "--split", "dev"}, 2, "expected training, validation, test or all");
  fails({"evaluate", "r", "--ema"}, 3, "has no train.ema");
  fails({"evaluate", "r", "memory.limits={cpu: 4KiB}"}, 4, "train.evaluate={batch_size: N}");
  fails({"evaluate", "r", "--device", "cuda:99"}, 2, "--device cpu");
  fails({"predict", "r", "empty"}, 3, "holds no image (JPEG, PNG, ");
  fails({"predict", "r", "gone.png"}, 3, "0 of 1 image predicted");
  fails({"predict", "r"}, 2, "IMAGE");
}

TEST_F(PredictTest, FeaturesAreAnArrayBesideTheNamesOfItsRows) {
  train_photos();
  write_photos("new", 5);
  write("new/1002.png", photo(true, 2).substr(0, 60));
  const Outcome all = run({"embed", "r", "new", "--out", "f.npy", "--progress", "plain"});
  EXPECT_EQ(all.code, 3) << all.err;
  EXPECT_EQ(all.out, "f.npy: (4, 4) float32, outputs of global_average_pool; names in f.txt\n");
  EXPECT_TRUE(has(all.err, "bantam: error: new/1002.png"));
  EXPECT_TRUE(has(all.err, "4 of 5 images embedded; 1 could not be read"));
  const auto rows = rows_of(path("f.npy"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(read("f.txt"), "new/1000.png\nnew/1001.png\nnew/1003.png\nnew/1004.png\n");
  const Outcome one = run({"embed", "r", "new/1003.png", "--output", "one.npy", "--csv", "--batch-size", "1"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(rows_of(path("one.npy")), (std::vector<std::vector<float>>{rows[2]}));
  EXPECT_EQ(read("one.csv"), "file\nnew/1003.png\n");
  EXPECT_EQ(run({"embed", "r", "new", "-o", "maps.npy", "--at", "conv2d", "--json"}).code, 3);
  const std::vector<std::int64_t> maps = {4, 7, 7, 4};
  EXPECT_EQ(NpyArray(open_file_bytes(path("maps.npy"))).extents(), maps);
  const std::vector<nlohmann::json> lines = read_lines("maps.jsonl");
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1], (nlohmann::json{{"file", "new/1001.png"}, {"row", 1}}));
  EXPECT_TRUE(has(lines[2]["error"], "new/1002.png"));
  EXPECT_EQ(lines[4]["row"], 3);
}

TEST_F(PredictTest, FeatureFilesAreWholeOrNotThere) {
  train_photos();
  write_photos("new", 2);
  write("f.npy", "earlier");
  const auto fails = [&](std::vector<std::string> words, int code, const std::string& message) {
    words.insert(words.begin(), {"embed", "r"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_TRUE(has(outcome.err, message));
  };
  fails({"new", "--out", "f.npy", "--at", "conv"}, 2,
        "--at: the network has no layer 'conv'; did you mean 'conv2d'? `bantam summary` lists its layers");
  fails({"new", "--out", "f.txt"}, 2, "--out: expected a name that ends with .npy, got f.txt");
  fails({"new", "--out", "f.npy", "--set", "memory.limits={cpu: 1KiB}"}, 4, "");
  write("torn.png", "no image");
  fails({"torn.png", "--out", "f.npy"}, 3, "f.npy is not written");
  fails({"new"}, 2, "--out");
  fails({"new", "--out", "gone/f.npy"}, 3, "gone does not exist");
  EXPECT_EQ(read("f.npy"), "earlier");
  EXPECT_FALSE(fs::exists(path("f.txt")));
  write_photos("many", 1000);
  const pid_t child = start({"embed", "r", "many", "--batch-size", "1", "--threads", "1", "--out", "f.npy"});
  const auto begun = [&] {
    return std::ranges::any_of(fs::directory_iterator(path(".")), [](const fs::directory_entry& entry) {
      return is_temporary_of("f.npy", entry.path().filename().string()) && entry.file_size() > 500;
    });
  };
  const bool under_way = wait_until(begun);
  kill(child, SIGINT);
  const Outcome outcome = wait(child);
  ASSERT_TRUE(under_way);
  if (outcome.code == 0) GTEST_SKIP() << "it was faster than the signal";
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "; stopped"));
  EXPECT_EQ(read("f.npy"), "earlier");
  for (const auto& entry : fs::directory_iterator(path(".")))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".f.")) << entry.path();
}

TEST_F(PredictTest, CtrlCEndsItCleanly) {
  train_photos();
  write_photos("new", 1000);
  const pid_t child =
      start({"predict", "r", "new", "--csv", "--batch-size", "1", "--threads", "1", "--out", "new.csv"});
  const bool under_way =
      wait_until([&] { return fs::exists(path("new.csv")) && lines_of(read("new.csv")).size() > 5; });
  kill(child, SIGINT);
  const Outcome outcome = wait(child);
  ASSERT_TRUE(under_way);
  if (outcome.code == 0) GTEST_SKIP() << "it was faster than the signal";
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "; stopped"));
  for (const std::string& row : lines_of(read("new.csv"))) EXPECT_EQ(std::ranges::count(row, ','), 4) << row;
}

}  // namespace
}  // namespace bantam::cli::predict_test
