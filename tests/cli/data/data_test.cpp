// `bantam data` and `bantam bench data` as users run them.
#include <fmt/format.h>

#include "bantam/base/text.h"
#include "bantam/data/images/encode.h"
#include "tests/cli/program.h"

namespace bantam::cli::data_test {
namespace {

namespace fs = std::filesystem;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class Data : public ProgramTest {
 protected:
  /// Class folders of PNG files, 12 and 4 of `cat`, 6 and 4 of `dog`, each 30 wide and 20 to 31 high.
  void write_folder() const {
    for (const auto& [part, cats, dogs] : {std::tuple("train", 12, 6), std::tuple("val", 4, 4)})
      for (const auto& [name, count, red] : {std::tuple("cat", cats, 200), std::tuple("dog", dogs, 100)}) {
        fs::create_directories(path(fmt::format("photos/{}/{}", part, name)));
        for (int i = 0; i < count; ++i) {
          Image image;
          image.reshape({20 + i, 30}, 3);
          for (std::size_t p = 0; p < image.pixels.size(); p += 3) image.pixels[p] = static_cast<std::uint8_t>(red);
          write(fmt::format("photos/{}/{}/{:02}.png", part, name, i), encode_png(image));
        }
      }
    write("photos/train/cat/notes.txt", "no image");
    write("folder.yaml", R"(version: 1
device: cpu
data:
  format: image_folder
  path: photos
  pipeline:
    - cache: auto
    - random_resized_crop: {size: 16}
    - random_flip
    - normalize: {scale: 0.00392156862745098}
    - batch: {size: 8}
model:
  input: [16, 16, 3]
  layers: [flatten, dense: {units: 2}]
train: {epochs: 2}
)");
  }
};

TEST_F(Data, TellsASplitsClassesValuesAndPipelines) {
  write_tiny_config();
  const Outcome outcome = run({"data", "tiny.yaml", "--json", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_EQ(json["format"], "generated");
  const nlohmann::json& train = json["splits"][0];
  EXPECT_EQ(train["samples"], 256);
  EXPECT_EQ(json["splits"][1]["samples"], 40);
  EXPECT_EQ(train["images_read"], 256);
  EXPECT_EQ(train["classes"].size(), 10u);
  std::int64_t counted = 0;
  for (const auto& entry : train["classes"]) counted += entry["count"].get<std::int64_t>();
  EXPECT_EQ(counted, 256);
  EXPECT_EQ(train["sizes"]["largest"]["height"], 32);
  EXPECT_GT(train["channels"][0]["deviation"], 1);
  EXPECT_EQ(json["pipeline"]["training"][0]["stage"], "random_crop");
  EXPECT_TRUE(json["pipeline"]["training"][0]["random"].get<bool>());
  EXPECT_EQ(json["cache"]["kind"], "ram");
  EXPECT_EQ(json["cache"]["bytes"], 296 * (32 * 32 * 3 + 4));
  const Outcome words = run({"data", "tiny.yaml", "--threads", "1"});
  for (const char* part : {"training: 256 samples", "test: 40 samples", "disc", "normalize: {scale: 0.0039", "cache"})
    EXPECT_NE(words.out.find(part), std::string::npos) << part << "\n" << words.out;
  std::istringstream lines(words.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;
}

/// The stage that it prints is one that a configuration can have.
TEST_F(Data, PrintsANormalizeStageThatMakesMeanZeroAndDeviationOne) {
  write_tiny_config();
  const std::string line = run({"data", "tiny.yaml", "--json"}).last_json()["normalize"];
  const std::string value = line.substr(line.find('{'));
  const Outcome outcome = run({"data", "tiny.yaml", "--json", "data.pipeline.normalize=" + value});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.last_json()["normalize"], line);
}

/// Vectors have one mean and one deviation for all features: 4 and sqrt(2 / 3 + 4) of the values 1, 2, 3 and 5, 6, 7.
TEST_F(Data, PrintsANormalizeStageOfVectorsThatTheyCanHave) {
  write("points.csv", "a,b,y\n1,5,0\n2,6,1\n3,7,0\n");
  write("points.yaml",
        "data: {format: csv, train: points.csv, test: points.csv, label: y, pipeline: [normalize: {scale: 1}, batch: "
        "{size: 1}]}\nmodel: {input: [2], layers: [dense: {units: 2}]}\n");
  const Outcome found = run({"data", "points.yaml", "--json"});
  ASSERT_EQ(found.code, 0) << found.err;
  const std::string line = found.last_json()["normalize"];
  EXPECT_EQ(line, "normalize: {scale: 1, mean: [4], std: [2.16]}");
  const Outcome outcome = run({"data", "points.yaml", "data.pipeline.normalize=" + line.substr(line.find('{'))});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(Data, WritesAPageOfSamples) {
  write_tiny_config();
  ASSERT_EQ(run({"data", "tiny.yaml", "--out", "page.html", "--samples", "3"}).code, 0);
  const std::string page = read("page.html");
  EXPECT_EQ(count_of(page, "src=\"data:image/png;base64,iVBORw0KGgo"), 3u * 7) << "stored, five epochs, evaluation";
  EXPECT_EQ(page.find("http"), std::string::npos) << "needs no other file";
}

TEST_F(Data, AFolderOfImages) {
  write_folder();
  const Outcome outcome = run({"data", "folder.yaml", "--json", "--out", "page.html"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  const nlohmann::json& train = json["splits"][0];
  EXPECT_EQ(train["samples"], 18);
  EXPECT_EQ(train["classes"][0], (nlohmann::json{{"name", "cat"}, {"count", 12}}));
  EXPECT_EQ(train["imbalance"], 2.0);
  EXPECT_EQ(train["ignored"]["files"], 1);
  EXPECT_EQ(train["sizes"]["smallest"], (nlohmann::json{{"height", 20}, {"width", 30}}));
  EXPECT_EQ(train["sizes"]["largest"], (nlohmann::json{{"height", 31}, {"width", 30}}));
  EXPECT_EQ(train["stored_channels"]["3"], 18);
  EXPECT_EQ(train["channels"][1]["mean"], 0);
  EXPECT_NEAR(train["channels"][0]["mean"].get<double>(), (200 * 306 + 100 * 135) / 441.0, 1e-9);
  EXPECT_EQ(json["pipeline"]["training"][0]["stage"], "random_resized_crop");
  EXPECT_EQ(json["splits"][1]["split"], "validation") << "as `train` and `evaluate` call it";
  const nlohmann::json& resize = json["pipeline"]["evaluation"][0];
  EXPECT_EQ(resize["stage"], "resize");
  EXPECT_EQ(resize["size"], nullptr);
  EXPECT_EQ(resize["shorter_side"], 18) << "16 * 256 / 224";
  EXPECT_EQ(json["cache"]["auto"], true);
  const Outcome words = run({"data", "folder.yaml"});
  EXPECT_NE(words.out.find("2 x the samples of the least frequent"), std::string::npos) << words.out;
  EXPECT_EQ(count_of(read("page.html"), "<img"), 8u * 7);
  const Outcome checked = run({"data", "folder.yaml", "--check", "--out", "page.html"});
  EXPECT_EQ(checked.code, 0);
  EXPECT_EQ(count_of(checked.out, "every sample is read and decoded, none is broken"), 2u) << checked.out;
  EXPECT_NE(checked.out.find("resize                 shorter side 18\n"), std::string::npos) << checked.out;
  EXPECT_NE(checked.out.find("Samples as the network sees them: page.html\n"), std::string::npos) << checked.out;
}

TEST_F(Data, ListsBrokenFiles) {
  write_folder();
  const std::string sound = read("photos/train/dog/03.png");
  write("photos/train/dog/03.png", sound.substr(0, sound.size() / 2));
  const Outcome outcome = run({"data", "folder.yaml", "--check", "--json"});
  EXPECT_EQ(outcome.code, 3);
  const nlohmann::json broken = outcome.last_json()["splits"][0]["broken"];
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_TRUE(broken[0]["name"].get<std::string>().ends_with("photos/train/dog/03.png")) << broken;
  EXPECT_FALSE(broken[0]["reason"].get<std::string>().empty());
  const Outcome words = run({"data", "folder.yaml", "--check"});
  EXPECT_EQ(words.code, 3);
  EXPECT_NE(words.out.find("03.png"), std::string::npos) << words.out;
  EXPECT_EQ(run({"data", "folder.yaml", "--out", "page.html"}).code, 0) << "without --check a word of it is enough";
}

// A check claims that everything was read: samples that a run's limits leave out are part of it.
TEST_F(Data, ChecksWhatLimitsLeaveOut) {
  write_folder();
  const std::vector<std::string> limits = {"data.limit=4", "train.evaluate={limit: 2}"};
  const auto data = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), limits.begin(), limits.end());
    return run(arguments);
  };
  const nlohmann::json limited = data({"data", "folder.yaml", "--json"}).last_json();
  EXPECT_EQ(limited["splits"][0]["samples"], 4);
  EXPECT_EQ(limited["splits"][1]["samples"], 2);
  write("photos/train/dog/05.png", "no picture");
  write("photos/val/dog/03.png", "no picture");
  const Outcome outcome = data({"data", "folder.yaml", "--check", "--json"});
  EXPECT_EQ(outcome.code, 3);
  const nlohmann::json checked = outcome.last_json();
  for (const auto& [split, samples, file] :
       {std::tuple(0, 18, "train/dog/05.png"), std::tuple(1, 8, "val/dog/03.png")}) {
    const nlohmann::json& found = checked["splits"][split];
    EXPECT_EQ(found["samples"], samples);
    ASSERT_EQ(found["broken"].size(), 1u) << found;
    EXPECT_TRUE(found["broken"][0]["name"].get<std::string>().ends_with(file)) << found;
  }
  EXPECT_EQ(checked["epoch"]["samples"], 4) << "of a run, which keeps its limit";
}

// Before there is a model, a pipeline, or a size.
TEST_F(Data, NeedsNeitherAModelNorOneSize) {
  write_folder();
  write("early.yaml", "data:\n  format: image_folder\n  path: photos\n");
  const Outcome outcome = run({"data", "early.yaml", "--json", "--out", "page.html"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_EQ(json["splits"][0]["samples"], 18);
  EXPECT_EQ(json["splits"][0]["sizes"]["largest"], (nlohmann::json{{"height", 31}, {"width", 30}}));
  EXPECT_EQ(json["one_size"], false);
  EXPECT_EQ(count_of(read("page.html"), "<img"), 0u) << "there are no batches to show";
  const Outcome words = run({"data", "early.yaml", "--check"});
  EXPECT_EQ(words.code, 0);
  EXPECT_NE(words.out.find("add a stage such as `resize"), std::string::npos) << words.out;
  write("flip.yaml",
        "data:\n  format: image_folder\n  path: photos\n  pipeline: [random_flip, batch: {size: 4}]\n"
        "model: {input: [20, 20, 3], layers: [flatten, dense: {units: 2}]}\n");
  EXPECT_EQ(run({"data", "flip.yaml"}).code, 0);
  EXPECT_EQ(run({"plan", "flip.yaml"}).code, 2) << "training needs one size";
  write("wrong.yaml", "data:\n  format: image_folder\n  path: photos\n  sed: 3\n");
  const Outcome wrong = run({"data", "wrong.yaml"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("wrong.yaml:4:3"), std::string::npos) << wrong.err;
}

TEST_F(Data, NeedsData) {
  write("none.yaml", "model: {input: [4, 4, 1], layers: [flatten, dense: {units: 2}]}\n");
  const Outcome outcome = run({"data", "none.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("missing key 'data'"), std::string::npos) << outcome.err;
}

TEST_F(Data, BenchTimesTheLoader) {
  write_folder();
  const Outcome outcome =
      run({"bench", "data", "folder.yaml", "--seconds", "0.2", "--json", "--workers", "1", "--batch-size", "6"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_EQ(json["batch"], 6);
  EXPECT_EQ(json["workers"], 1);
  EXPECT_EQ(json["images"].get<std::int64_t>() % 6, 0);
  EXPECT_GE(json["seconds"], 0.2);
  EXPECT_NEAR(json["images_per_s"].get<double>(), json["images"].get<double>() / json["seconds"].get<double>(), 1e-6);
  EXPECT_GT(json["cpu_us_per_image"], 0);
  EXPECT_GT(json["stored_bytes"], 60);
  EXPECT_LE(json["waited_share"], 1.0);
  EXPECT_EQ(json["decoder"], "CPU");
  const Outcome words = run({"bench", "data", "folder.yaml", "--seconds", "0.1"});
  EXPECT_NE(words.out.find("images/s"), std::string::npos) << words.out;
  EXPECT_NE(words.out.find("decoder     CPU\n"), std::string::npos) << words.out;
  const Outcome refused = run({"bench", "data", "folder.yaml", "--seconds", "0.1", "device=cpu", "data.decode=gpu"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("decode: gpu needs a GPU"), std::string::npos) << refused.err;
}

TEST_F(Data, ImagesThatAreNotReadAreAWarningOfEveryVerb) {
  write_folder();
  for (const char* name : {"train/cat/IMG_1.HEIC", "train/cat/2.heic", "train/dog/3.avif"})
    write(fmt::format("photos/{}", name), "no bytes of an image");
  const std::string warning =
      "warning: 3 images are of types that are not read: cat 2 (.heic) and dog 1 (.avif); JPEG, PNG";
  const auto warns = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find(warning), std::string::npos) << arguments[0] << "\n" << outcome.err;
  };
  warns({"data", "folder.yaml"});
  warns({"validate", "folder.yaml"});
  warns({"init", "--data", "photos", "--out", "made.yaml"});
  warns({"train", "folder.yaml", "--run-dir", "r", "-q", "train.epochs=1"});
}

TEST_F(Data, TransparencyAndValuesAsStoredAreTold) {
  fs::create_directories(path("mixed/a"));
  fs::create_directories(path("mixed/b"));
  Image clear;
  clear.reshape({8, 8}, 4);
  for (const char* folder : {"a", "b"})
    for (int i = 0; i < 4; ++i) {
      write(fmt::format("mixed/{}/clear{}.png", folder, i), encode_png(clear));
      std::string pgm = "P5 8 8 65535\n";
      for (int p = 0; p < 64; ++p)
        pgm += std::string{static_cast<char>(p % 16), static_cast<char>(folder[0] == 'a' ? 255 : 9)};
      write(fmt::format("mixed/{}/{}.pgm", folder, i), pgm);
    }
  write("mixed.yaml", R"(device: cpu
data:
  format: image_folder
  path: mixed
  channels: 1
  split: 0.25
  pipeline: [resize: {size: [6, 6]}, shuffle, normalize: {scale: 1/4095}, batch: {size: 2}]
model: {input: [6, 6, 1], layers: [flatten, dense: {units: 2}]}
train: {epochs: 1}
)");
  const Outcome told = run({"data", "mixed.yaml"});
  ASSERT_EQ(told.code, 0) << told.err;
  for (const char* part : {"6 files of 16 bits, greatest value 4,095 (12 bits)", "data.range: stored keeps them",
                           "6 files have alpha", "data.background: white puts white under them"})
    EXPECT_NE(told.out.find(part), std::string::npos) << part << "\n" << told.out;
  const Outcome stored = run({"data", "mixed.yaml", "data.range=stored", "data.background=white", "--json"});
  ASSERT_EQ(stored.code, 0) << stored.err;
  const nlohmann::json train = stored.last_json()["splits"][0];
  EXPECT_EQ(train["image_dtype"], "float32");
  EXPECT_EQ(train["with_alpha"], 6);
  EXPECT_EQ(train["channels"][0]["most"], 4095);
  EXPECT_EQ(run({"train", "mixed.yaml", "--run-dir", "r", "data.range=stored", "data.background=[255, 0, 9]"}).code, 0);
  const Outcome predicted = run({"predict", "r", "mixed/a/0.pgm", "mixed/b/clear0.png"});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  const Outcome exported = run({"export", "r", "--onnx", "r.onnx", "--json"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(exported.last_json()["input_stages"][0].dump(),
            R"({"background":[255,0,9],"channels":1,"exif":true,"range":"stored","stage":"decode"})");
  const Outcome refused = run({"data", "mixed.yaml", "data.background=mauve"});
  EXPECT_EQ(refused.code, 2) << refused.err;
}

// What it writes goes away with it.
TEST_F(Data, BenchOfACacheOnDiskHasATemporaryFolder) {
  write_folder();
  std::filesystem::create_directories(path("scratch"));
  ::setenv("TMPDIR", path("scratch").c_str(), 1);
  const Outcome outcome =
      run({"bench", "data", "folder.yaml", "--seconds", "0.1", "--json", "data.pipeline.cache=disk"});
  ::unsetenv("TMPDIR");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(outcome.last_json()["images"], 0);
  EXPECT_TRUE(std::filesystem::is_empty(path("scratch")));
}

}  // namespace
}  // namespace bantam::cli::data_test
