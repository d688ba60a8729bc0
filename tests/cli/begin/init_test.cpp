// `bantam init` as users run it: what it writes trains as it stands, for every kind of data.
#include <fmt/format.h>

#include "bantam/data/images/encode.h"
#include "tests/cli/program.h"

namespace bantam::cli {
namespace {

namespace fs = std::filesystem;

class Init : public ProgramTest {
 protected:
  /// A grey or coloured picture whose brightness is `level`.
  static std::string picture(std::int64_t height, std::int64_t width, std::int64_t channels, int level) {
    Image image;
    image.reshape({height, width}, channels);
    for (std::size_t p = 0; p < image.pixels.size(); ++p)
      image.pixels[p] = static_cast<std::uint8_t>(level + static_cast<int>(p * 7 % 40));
    return encode_png(image);
  }
  void write_file(const std::string& name, const std::string& text) const {
    fs::create_directories(path(name).parent_path());
    write(name, text);
  }
  /// A file of NumPy's, version 1.
  static std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
    header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
    std::string text("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(header.size() & 0xFF);
    text += static_cast<char>(header.size() >> 8);
    return text + header + data;
  }
  static std::string big_endian(std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
    return bytes;
  }
  void write_idx(const std::string& part, std::uint32_t images) const {
    std::string pixels, labels;
    for (std::uint32_t i = 0; i < images; ++i) {
      pixels += std::string(28 * 28, static_cast<char>(i % 10 * 20));
      labels += static_cast<char>(i % 10);
    }
    write_file("digits/" + part + "-images-idx3-ubyte",
               big_endian(0x803) + big_endian(images) + big_endian(28) + big_endian(28) + pixels);
    write_file("digits/" + part + "-labels-idx1-ubyte", big_endian(0x801) + big_endian(images) + labels);
  }

  /// Writes a configuration for `data`, which must be sound, and trains two updates of it. Returns its text.
  std::string trained(const std::string& data, const std::vector<std::string>& overrides = {}) const {
    const Outcome made = run({"init", "--data", data, "--out", "made.yaml", "--overwrite", "--threads", "1"});
    EXPECT_EQ(made.code, 0) << made.err;
    std::vector<std::string> words = {"train",    "made.yaml", "--fast-dev-run", "2", "--threads", "1",
                                      "--device", "cpu",       "--json"};
    words.insert(words.end(), overrides.begin(), overrides.end());
    const Outcome checked = run({"validate", "made.yaml"});
    EXPECT_EQ(checked.code, 0) << checked.err << read("made.yaml");
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err << read("made.yaml");
    if (outcome.code == 0) {
      EXPECT_EQ(outcome.last_json().at("updates"), 2);
    }
    return read("made.yaml");
  }
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "lacks " << part << ":\n" << text;
  }
};

TEST_F(Init, ClassFolders) {
  for (int i = 0; i < 24; ++i) {
    write_file(fmt::format("my photos/cat/{:02}.png", i), picture(70 + i, 80, 3, 150));
    if (i < 20) write_file(fmt::format("my photos/dog/{:02}.png", i), picture(66, 90 + i, 3, 20));
  }
  const std::string text = trained("my photos");
  expect_in(text, "format: image_folder\n  path: 'my photos'\n");
  expect_in(text, "of 2 classes");
  expect_in(text, "random_resized_crop: {size: 64,");
  expect_in(text, "input: [64, 64, 3]");
  expect_in(text, "dense: {units: 2}");
}

TEST_F(Init, ImagesAndMasks) {
  for (int i = 0; i < 20; ++i) {
    write_file(fmt::format("roads/images/{:02}.png", i), picture(40, 50, 3, 100));
    Image mask;
    mask.reshape({40, 50}, 1);
    for (std::size_t p = 0; p < mask.pixels.size(); ++p) mask.pixels[p] = p % 7 == 0 ? 255 : p % 3;
    write_file(fmt::format("roads/masks/{:02}.png", i), encode_png(mask));
  }
  const std::string text = trained("roads");
  expect_in(text, "classes: 3\n  ignore: 255\n");
  expect_in(text, "zoo: unet");
}

TEST_F(Init, TablesOfClassesAndOfNumbers) {
  std::string kinds = "id,length,width,kind\n", prices = "rooms;area;price\n";
  for (int i = 0; i < 200; ++i) {
    kinds += fmt::format("{},{},{},{}\n", i, i % 17 + 0.5, i % 5 + 0.25, i % 2 == 0 ? "rose" : "lily");
    prices += fmt::format("{};{};{}\n", i % 6, 20 + i, 1000.5 + 13 * i);
  }
  write("flowers.csv", kinds);
  write("flats.csv", prices);
  const std::string flowers = trained("flowers.csv"), flats = trained("flats.csv");
  expect_in(flowers, "label: kind\n  features: [length, width]\n  standardize: true\n");
  expect_in(flowers, "dense: {units: 2}");
  expect_in(flats, "target: price\n  delimiter: ';'\n  features: [rooms, area]\n");
  expect_in(flats, "loss: mse");
}

TEST_F(Init, ImagesNamedInATable) {
  std::string table = "file,label\n";
  for (int i = 0; i < 40; ++i) {
    write_file(fmt::format("set/images/{:02}.png", i), picture(36, 40, 1, i % 2 == 0 ? 10 : 200));
    table += fmt::format("images/{:02}.png,{}\n", i, i % 2 == 0 ? "dark" : "light");
  }
  write_file("set/labels.csv", table);
  expect_in(trained("set"), "image: file\n  label: label\n");
}

TEST_F(Init, Arrays) {
  std::string pixels, labels;
  for (int i = 0; i < 100; ++i) {
    pixels += std::string(16 * 16, static_cast<char>(i % 2 * 90));
    labels += std::string(1, static_cast<char>(i % 2));
  }
  write_file("arrays/x_train.npy", npy("|u1", "(100, 16, 16)", pixels));
  write_file("arrays/y_train.npy", npy("|u1", "(100,)", labels));
  expect_in(trained("arrays"), "train: {images: arrays/x_train.npy, labels: arrays/y_train.npy}");
}

TEST_F(Init, DigitsInAFolderOfAFolder) {
  write_idx("train", 200);
  write_idx("t10k", 40);
  fs::create_directories(path("outer/inner"));
  fs::rename(path("digits"), path("outer/inner/digits"));
  const std::string text = trained("outer");
  expect_in(text, "format: idx\n  path: outer/inner/digits\n");
  expect_in(text, "input: [28, 28, 1]");
}

TEST_F(Init, WithoutDataThereAreGeneratedImages) {
  const Outcome outcome = run({"init", "--out", "-"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  write("generated.yaml", outcome.out);
  EXPECT_EQ(run({"train", "generated.yaml", "--fast-dev-run", "1", "--threads", "1", "--device", "cpu"}).code, 0);
}

TEST_F(Init, TheConfigurationItselfIsNoJson) {
  const Outcome outcome = run({"init", "--out", "-", "--json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  expect_in(outcome.err, "--json does not go with --out -");
}

TEST_F(Init, RefusesWhatItCannotUse) {
  fs::create_directories(path("empty"));
  const Outcome nothing = run({"init", "--data", "empty"}), missing = run({"init", "--data", "none"});
  EXPECT_EQ(nothing.code, 3);
  expect_in(nothing.err, "empty: no data set was found: expected two or more class folders");
  EXPECT_EQ(missing.code, 3);
  EXPECT_FALSE(fs::exists(path("config.yaml")));
  EXPECT_EQ(run({"init"}).code, 0);
  const std::string first = read("config.yaml");
  const Outcome again = run({"init", "--data", "empty"});
  EXPECT_EQ(again.code, 2);
  expect_in(again.err, "config.yaml is there already");
  EXPECT_EQ(read("config.yaml"), first);
}

/// Data sets of this machine, where BANTAM_DATA names their folder.
TEST_F(Init, RealDataSets) {
  const char* folder = std::getenv("BANTAM_DATA");
  if (folder == nullptr) GTEST_SKIP() << "BANTAM_DATA is not set: skipped";
  for (const char* name : {"fashion-mnist", "imagefolder", "cifar10"})
    if (fs::exists(fs::path(folder) / name)) trained(std::string(folder) + "/" + name);
}

}  // namespace
}  // namespace bantam::cli
