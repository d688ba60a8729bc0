// `bantam init` as users run it: what it writes trains as it stands, for every kind of data.
#include <fmt/format.h>

#include "bantam/data/images/encode.h"
#include "tests/cli/program.h"
#include "tests/data/formats/array_files.h"

namespace bantam::cli::init_test {
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
  /// No configuration of `data` is written, and the message has `part`.
  void refused(const std::string& data, const std::string& part) {
    const Outcome made = run({"init", "--data", data, "--out", "none.yaml"});
    EXPECT_EQ(made.code, 3) << data;
    expect_in(made.err, part);
    EXPECT_FALSE(fs::exists(path("none.yaml")));
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
  expect_in(flats, "dense: {units: 1}\n    - layer_scale: {initial: 7");  // near 13 · 200 / √12
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

/// Arrays that people bring: each is trained on as it stands.
TEST_F(Init, ArraysOfEveryForm) {
  constexpr int kSamples = 96;
  const auto bytes = [](int count, const auto& value) {
    std::string data;
    for (int i = 0; i < count; ++i) data += static_cast<char>(value(i));
    return data;
  };
  const auto floats = [](int count, const auto& value) {
    std::vector<float> data;
    for (int i = 0; i < count; ++i) data.push_back(static_cast<float>(value(i)));
    return std::string(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(float));
  };
  const auto images = [&](const std::string& shape, int values) {
    return npy("|u1", shape, bytes(kSamples * values, [&](int i) { return i / values % 3 * 70 + i % 20; }));
  };
  const std::string grey = images("(96, 12, 12)", 144), classes = bytes(kSamples, [](int i) { return i % 3; });
  const auto set = [&](const std::string& name, const std::string& x, const std::string& y) {
    write_file(name + "/x.npy", x);
    write_file(name + "/y.npy", y);
    return trained(name);
  };
  expect_in(set("nchw", images("(96, 3, 12, 12)", 432), npy("|u1", "(96,)", classes)), "layout: nchw");
  const std::string rows = set("rows", grey, npy("|u1", "(96, 1)", classes));
  expect_in(rows, "of 3 classes");
  const std::string from_one = set("one", grey, npy("|u1", "(96,)", bytes(kSamples, [](int i) { return i % 3 + 1; })));
  expect_in(from_one, "first_label: 1\n");
  expect_in(from_one, "units: 3}");
  const std::string signs =
      set("signs", grey, npy("|i1", "(96,)", bytes(kSamples, [](int i) { return i % 2 * 2 - 1; })));
  expect_in(signs, "first_label: -1\n");
  const std::string one_hot =
      set("onehot", grey, npy("<f4", "(96, 3)", floats(288, [](int i) { return i / 3 % 3 == i % 3 ? 1 : 0; })));
  expect_in(one_hot, "label_form: one_hot");
  expect_in(one_hot, "metrics: [accuracy]");
  const std::string whole = set("whole", grey, npy("<f4", "(96,)", floats(96, [](int i) { return i % 4; })));
  expect_in(whole, "label_form: classes");
  expect_in(whole, "of 4 classes");
  const std::string ages = set("ages", grey, npy("|u1", "(96,)", bytes(kSamples, [](int i) { return i; })));
  expect_in(ages, "label_form: values");
  expect_in(ages, "loss: mse");
  const std::string several =
      set("several", grey, npy("|u1", "(96, 4)", bytes(384, [](int i) { return (i / 4 + i % 4 * 5) % 3 == 0; })));
  expect_in(several, "loss: binary_cross_entropy");
  expect_in(set("points", grey, npy("<f4", "(96, 4)", floats(384, [](int i) { return i * 0.01; }))), "units: 4}");
  write_file("camel/trainX.npy", grey);
  write_file("camel/trainY.npy", npy("|u1", "(96,)", classes));
  write_file("camel/testX.npy", grey);
  write_file("camel/testY.npy", npy("|u1", "(96,)", classes));
  expect_in(trained("camel"), "test: {images: camel/testX.npy, labels: camel/testY.npy}");
  const testing::Members med = {{"train_images.npy", grey},
                                {"val_images.npy", grey},
                                {"test_images.npy", grey},
                                {"train_labels.npy", npy("|u1", "(96, 1)", classes)},
                                {"val_labels.npy", npy("|u1", "(96, 1)", bytes(96, [](int i) { return i % 2; }))},
                                {"test_labels.npy", npy("|u1", "(96, 1)", classes)}};
  write_file("medmnist.npz", testing::zip_archive(med, true));
  const std::string three = trained("medmnist.npz");
  expect_in(three, "test_images: test_images, test_labels: test_labels}");
  expect_in(three, "keys: {images: val_images, labels: val_labels}}");
  const testing::Members unnamed = {{"arr_0.npy", grey}, {"arr_1.npy", npy("|u1", "(96,)", classes)}};
  write_file("unnamed.npz", testing::zip_archive(unnamed, false));
  expect_in(trained("unnamed.npz"), "keys: {images: arr_0, labels: arr_1}");
}

TEST_F(Init, ArraysOfMeasuredNumbersAreNoClasses) {
  std::string rows, values;
  for (int i = 0; i < 240; ++i) {
    const float x[2] = {static_cast<float>(i), static_cast<float>(i % 7)};
    const double y = 25 + i * 7 % 80;  // 80 different whole numbers, three of each
    rows.append(reinterpret_cast<const char*>(x), sizeof x);
    values.append(reinterpret_cast<const char*>(&y), sizeof y);
  }
  write_file("measured/X.npy", npy("<f4", "(240, 2)", rows));
  write_file("measured/y.npy", npy("<f8", "(240,)", values));
  expect_in(trained("measured"), "loss: mse");
  std::string names;
  for (int i = 0; i < 240; ++i) names += i % 2 == 0 ? "ant" : "bee";
  write_file("named/X.npy", npy("<f4", "(240, 2)", rows));
  write_file("named/y.npy", npy("|S3", "(240,)", names));
  expect_in(trained("named"), "of 2 classes");
}

TEST_F(Init, IdxFilesUnderOtherNames) {
  write_idx("train", 120);
  write_idx("t10k", 40);
  for (const char* part : {"train", "t10k"})
    for (const char* end : {"images-idx3-ubyte", "labels-idx1-ubyte"}) {
      std::string other = std::string(part) + "-" + end;
      other[other.rfind("-idx")] = '.';
      fs::rename(path("digits/" + std::string(part) + "-" + end), path("digits/" + other));
    }
  expect_in(trained("digits"), "format: idx\n  path: digits\n");
  for (const char* part : {"train", "t10k"})
    for (const std::string end : {"images.idx3-ubyte", "labels.idx1-ubyte"})
      write_file(std::string("letters/emnist-letters-") + (part[1] == 'r' ? "train" : "test") + "-" + end.substr(0, 6) +
                     "-idx" + end[10] + "-ubyte.gz",
                 testing::gzipped(read(std::string("digits/") + part + "-" + end)));
  expect_in(trained("letters"), "format: idx\n  path: letters\n");
}

TEST_F(Init, TablesOfEveryForm) {
  std::string iris, pandas = ",sepal,petal,species\n", kaggle = "PassengerId,Survived,Name,Age,Fare,Sibs\n",
                    wide = "a,b,target_1,target_2\n";
  for (int i = 0; i < 120; ++i) {
    const char* species = i % 3 == 0 ? "setosa" : i % 3 == 1 ? "virginica" : "versicolor";
    iris += fmt::format("{},{},{}\n", 4 + i % 7 * 0.1, i % 3 + 0.5, species);
    pandas += fmt::format("{},{},{},{}\n", i, 4 + i % 7 * 0.1, i % 3 + 0.5, species);
    kaggle += fmt::format("{},{},\"Smith, {}\",{},{},{}\n", i + 1, i % 2, i, i % 5 == 0 ? "" : "30", 7.5 + i, i % 4);
    wide += fmt::format("{},{},{},{}\n", i % 9, i % 4, i * 0.1, i * 0.2);
  }
  write("iris.csv", iris);
  write("pandas.csv", pandas);
  write_file("titanic/train.csv", kaggle);
  write_file("titanic/test.csv", "PassengerId,Name,Age,Fare,Sibs\n1,a,2,3,4\n");
  write_file("titanic/gender_submission.csv", "PassengerId,Survived\n1,0\n");
  write("wide.csv", wide);
  const std::string plain = trained("iris.csv");
  expect_in(plain, "label: 2\n  header: false\n  features: [0, 1]\n");
  expect_in(trained("pandas.csv"), "label: species\n  features: [sepal, petal]\n");
  const std::string titanic = trained("titanic");
  expect_in(titanic, "path: titanic/train.csv\n");
  expect_in(titanic, "label: Survived\n");
  expect_in(titanic, "Fare, Sibs]");
  expect_in(titanic, "# test.csv is left out: it has no column Survived\n");
  expect_in(trained("wide.csv"), "target: [target_1, target_2]\n  features: [a, b]\n");
}

TEST_F(Init, TablesOfImages) {
  std::string tags = "image_name,tags\n", points = "file,x,y\n", marks = "img,red,green,blue\n";
  for (int i = 0; i < 60; ++i) {
    write_file(fmt::format("set/pictures/{:02}.png", i), picture(36, 40, 3, i % 2 == 0 ? 10 : 200));
    tags += fmt::format("{:02}.png,{}\n", i, i % 3 == 0 ? "clear water" : i % 3 == 1 ? "clear" : "clear haze");
    points += fmt::format("{:02}.png,{},{}\n", i, i * 0.5, i * 1.25);
    marks += fmt::format("{:02}.png,{},{},{}\n", i, i % 2, i % 3 == 0 ? 1 : 0, 1);
  }
  write_file("set/labels.csv", tags);
  const std::string words = trained("set");
  expect_in(words, "image: image_name\n  root: set/pictures\n  label: tags\n  separator: ' '\n");
  expect_in(words, "loss: binary_cross_entropy");
  write_file("set/labels.csv", points);
  expect_in(trained("set"), "target: [x, 'y']\n");  // y alone is a boolean of YAML 1.1
  write_file("set/labels.csv", marks);
  expect_in(trained("set"), "label: [red, green, blue]\n");
  fs::remove_all(path("set/pictures"));
  const Outcome none = run({"init", "--data", "set", "--out", "none.yaml"});
  EXPECT_EQ(none.code, 3);
  expect_in(none.err, "column 'img' names images such as 00.png, which are neither beside the file nor");
}

TEST_F(Init, TablesOfImagesThatOthersWrote) {
  std::string windows = "path,label\n", machine = ",filename,target\n", ids = "image_id,dx\n",
              one_hot = "image,MEL,NV\n";
  for (int i = 0; i < 40; ++i) {
    const std::string kind = i % 2 == 0 ? "dark" : "light", image = picture(36, 40, 3, i % 2 == 0 ? 10 : 200);
    write_file(fmt::format("windows/images/{}/{}.png", kind, i), image);
    write_file(fmt::format("machine/imgs/{}.png", i), image);
    write_file(fmt::format("ids/part_{}/ISIC_{:04}.png", i % 4 / 2, i), image);
    write_file(fmt::format("onehot/train/ISIC_{:04}.png", i), image);
    windows += fmt::format("images\\{}\\{}.png,{}\n", kind, i, kind);
    machine += fmt::format("{},/content/drive/imgs/{}.png,{}\n", i, i, kind);
    ids += fmt::format("ISIC_{:04},{}\n", i, kind);
    one_hot += fmt::format("ISIC_{:04},{}\n", i, i % 2 == 0 ? "1.0,0.0" : "0.0,1.0");
  }
  write_file("windows/annotations.csv", windows);
  write_file("machine/data.csv", machine);
  write_file("ids/metadata.csv", ids);
  write_file("onehot/truth.csv", one_hot);
  expect_in(trained("windows"), "path: windows/annotations.csv\n  image: path\n  label: label\n");
  expect_in(trained("machine"), "path: machine/data.csv\n  image: filename\n  label: target\n");
  expect_in(trained("ids"), "image: image_id\n  label: dx\n");
  expect_in(trained("onehot"), "image: image\n  root: onehot/train\n  suffix: '.png'\n  label: {one_hot: [MEL, NV]}\n");
}

TEST_F(Init, WhatIsPredictedOfATable) {
  std::string adult = "age,hours,income\n", flags = "a,b,flag\n", wide = "label", gaps = "PassengerId,Survived,Age\n";
  for (int c = 0; c < 100; ++c) wide += fmt::format(",pixel{}", c);
  wide += "\n";
  for (int i = 0; i < 120; ++i) {
    adult += fmt::format("{},{},{}\n", 20 + i % 40, 30 + i % 7, i % 3 == 0 ? "<=50K" : ">50K");
    flags += fmt::format("{},{},{}\n", i % 9, i % 4, i % 3 == 0 ? "True" : "False");
    wide += fmt::format("{}", i % 10);
    for (int c = 0; c < 100; ++c) wide += fmt::format(",{}", (i * 7 + c) % 256);
    wide += "\n";
    gaps += fmt::format("{},{},{}\n", i + 1, i % 2, i % 5 == 0 ? "" : fmt::format("{}", 20 + i % 30));
  }
  write("adult.csv", adult);
  write("flags.csv", flags);
  write("wide.csv", wide);
  write("gaps.csv", gaps);
  expect_in(trained("adult.csv"), "label: income\n  features: [age, hours]\n");
  const std::string booleans = trained("flags.csv");
  expect_in(booleans, "label: flag\n  features: [a, b]\n");
  expect_in(booleans, "units: 2}");
  expect_in(trained("wide.csv"), "label: label\n  features: all\n");
  expect_in(trained("gaps.csv"), "label: Survived\n  features: [Age]\n  standardize: true\n  missing: mean ");
}

TEST_F(Init, IdsThatTrainAndTestImagesShare) {
  std::string labels = "id,label\n", parts = "lesion_id,image_id,dx\n";
  for (int i = 1; i <= 60; ++i) {
    write_file(fmt::format("set/train/{}.png", i), picture(36, 40, 3, i % 2 == 0 ? 10 : 200));
    labels += fmt::format("{},{}\n", i, i % 2 == 0 ? "dark" : "light");
    write_file(fmt::format("ham/part_{}/{}.png", i <= 30 ? 1 : 2, i), picture(36, 40, 3, i % 2 == 0 ? 10 : 200));
    parts += fmt::format("{},{},{}\n", i / 2, i, i % 2 == 0 ? "dark" : "light");
  }
  for (int i = 1; i <= 80; ++i) write_file(fmt::format("set/test/{}.png", i), "none of these is read");
  write_file("set/trainLabels.csv", labels);
  write_file("set/sampleSubmission.csv", "id,label\n1,dark\n2,dark\n");
  expect_in(trained("set"), "root: set/train\n  suffix: '.png'\n");
  write_file("ham/metadata.csv", parts);
  const std::string two = trained("ham");
  expect_in(two, "image: image_id\n");
  expect_in(two, "group: lesion_id");
  EXPECT_EQ(two.find("root:"), std::string::npos);
}

TEST_F(Init, ColumnsThatPandasWrites) {
  std::string shuffled = ",sepal,petal,target\n", truths = "a,b,target,Unnamed: 3\n", gaps = "a,b,target,c\n",
              patients = "patient,a,b,diagnosis\n";
  for (int i = 0; i < 120; ++i) {
    shuffled += fmt::format("{},{},{},{}\n", i * 7 % 60, 4 + i % 7 * 0.1, i % 3 + 0.5, i % 3);
    truths += fmt::format("{},{},{},\n", i * 0.25, i % 7, i % 3 == 0 ? "True" : "False");
    gaps += fmt::format("{},{},{},{}\n", i * 0.25, i % 7 + 0.5, i % 9 == 0 ? "" : i % 2 == 0 ? "0.0" : "1.0", i * 0.5);
    patients += fmt::format("{},{},{},{}\n", i / 4, i * 0.25, i % 7, i % 3 == 0 ? "M" : "B");
  }
  write("shuffled.csv", shuffled);
  write("truths.csv", truths);
  write("gaps.csv", gaps);
  write("patients.csv", patients);
  const std::string index = trained("shuffled.csv");
  expect_in(index, "label: target\n  features: [sepal, petal]\n");
  expect_in(trained("truths.csv"), "label: target\n  features: [a, b]\n");
  const std::string gap = trained("gaps.csv");
  expect_in(gap, "label: target\n  features: [a, b, c]\n");
  expect_in(gap, "missing: drop");
  expect_in(trained("patients.csv"), "label: diagnosis\n  group: patient");
  write("table.txt", patients);
  expect_in(trained("table.txt"), "group: patient");
  write_file("apart/X_train.csv", "a,b\n1,2\n3,4\n");
  write_file("apart/y_train.csv", "target\n1\n2\n");
  const Outcome apart = run({"init", "--data", "apart", "--out", "none.yaml"});
  EXPECT_EQ(apart.code, 3);
  expect_in(apart.err, "`paste -d, X_train.csv y_train.csv > train.csv`");
}

TEST_F(Init, FoldersOfClassesBesideACompetitionsTables) {
  for (int i = 0; i < 24; ++i)
    for (const char* name : {"ants", "bees"}) {
      write_file(fmt::format("zoo/seg_train/seg_train/{}/{}.png", name, i),
                 picture(40, 40, 3, name[0] == 'a' ? 20 : 160));
      write_file(fmt::format("zoo/seg_test/seg_test/{}/{}.png", name, i),
                 picture(40, 40, 3, name[0] == 'a' ? 20 : 160));
    }
  write_file("zoo/seg_pred/seg_pred/1.png", picture(40, 40, 3, 9));
  write_file("zoo/sample_submission.csv", "id,label\n1,ants\n2,ants\n");
  write_file("zoo/weather.csv", "day,rain,sun\n1,0.5,2.5\n2,1.5,0.25\n3,1,2\n");
  expect_in(trained("zoo"), "format: image_folder\n");
}

TEST_F(Init, TablesBesideClassFolders) {
  std::string birds = "class id,filepaths,labels,data set\n", results = "epoch,loss,accuracy\n",
              submission = "file,kind\n", ham = "lesion,image_id,dx,age,sex\n";
  for (int i = 0; i < 24; ++i) {
    const std::string kind = i % 2 == 0 ? "owl" : "tit", image = picture(36, 40, 3, i % 2 == 0 ? 10 : 200);
    const std::string part = i < 16 ? "train" : "test", name = fmt::format("{}/{}/{}.png", part, kind, i);
    write_file("birds/" + name, image);
    birds += fmt::format("{},{},{},{}\n", i % 2, name, kind, part);
    write_file(fmt::format("results/{}/{}.png", kind, i), image);
    results += fmt::format("{},{},{}\n", i, 1.0 / (i + 1), i / 30.0);
    write_file(fmt::format("seedlings/train/{}/{}.png", kind, i), image);
    write_file(fmt::format("seedlings/test/{}x.png", i), image);
    submission += fmt::format("{}x.png,owl\n", i);
    write_file(fmt::format("ham/part_{}/I{:03}.png", i / 12, i), image);
    ham += fmt::format("L{},I{:03},{},{},{}\n", i / 2, i, kind, 20 + i % 4 * 5, i % 3 == 0 ? "male" : "female");
  }
  write_file("birds/birds.csv", birds);
  write_file("results/results.csv", results);
  write_file("seedlings/sample_submission.csv", submission);
  write_file("ham/metadata.csv", ham);
  expect_in(trained("birds"), "format: image_folder\n  path: birds\n");
  expect_in(trained("results"), "format: image_folder\n  path: results\n");
  expect_in(trained("seedlings"), "format: image_folder\n  path: seedlings\n");
  expect_in(trained("ham"), "image: image_id\n  label: dx\n");
}

TEST_F(Init, AFolderAmongOtherFiles) {
  write_file("archive/README.md", "photos");
  for (int i = 0; i < 12; ++i)
    for (const char* name : {"cat", "dog"})
      write_file(fmt::format("archive/pets/{}/{}.png", name, i), picture(40, 40, 3, name[0] == 'c' ? 20 : 160));
  const std::string text = trained("archive");
  expect_in(text, "path: archive/pets\n");
  expect_in(text, "color_jitter");
  expect_in(text, "docs/tasks/PRETRAINED.md");
  expect_in(text, "batch: {size: 4,");
  expect_in(text, "momentum: 0.8");
  const Outcome made = run({"init", "--data", "archive", "--out", "x.yaml"});
  expect_in(made.out, "few photographs: begin with weights");
}

TEST_F(Init, ManyBrokenSamplesAreNoData) {
  for (int i = 0; i < 20; ++i)
    for (const char* name : {"cat", "dog"}) {
      const std::string whole = picture(40, 40, 3, 90);
      write_file(fmt::format("pets/{}/{}.png", name, i), i < 5 ? "RIFF....WEBP is another format" : whole);
    }
  const Outcome made = run({"init", "--data", "pets", "--out", "pets.yaml"});
  EXPECT_EQ(made.code, 3);
  expect_in(made.err, "of 36 samples that were read cannot be, so that no configuration is written; the first: ");
  EXPECT_FALSE(fs::exists(path("pets.yaml")));
}

TEST_F(Init, DataThatAreNotReadAreNamed) {
  for (int i = 0; i < 8; ++i) {
    write_file(fmt::format("coco/train2017/{}.png", i), picture(8, 8, 3, 9));
    write_file(fmt::format("yolo/images/{}.png", i), picture(8, 8, 3, 9));
    write_file(fmt::format("yolo/labels/{}.txt", i), "0 0.5 0.5 0.25 0.25\n");
    write_file(fmt::format("voc/JPEGImages/{}.png", i), picture(8, 8, 3, 9));
    write_file(fmt::format("voc/Annotations/{}.xml", i), "<annotation><object><bndbox/></object></annotation>");
    write_file(fmt::format("flat/cat.{}.png", i), picture(8, 8, 3, 9));
    write_file(fmt::format("flat/dog.{}.png", i), picture(8, 8, 3, 9));
  }
  write_file("coco/annotations/instances.json", R"({"images": [], "annotations": [{"bbox": [1, 2, 3, 4]}]})");
  refused("coco", "boxes around objects, as COCO has them; detection is not supported");
  refused("yolo", "boxes around objects, as YOLO has them; detection is not supported");
  refused("voc", "boxes around objects, as Pascal VOC has them; detection is not supported");
  refused("flat", "flat: has 16 images, but nothing says their classes");
  refused("flat",
          "names begin with cat and dog; in the shell, a folder for each: `cd flat; for c in cat dog; do mkdir -p "
          "classes/$c;");
  for (const auto& [file, what] :
       std::vector<std::pair<std::string, std::string>>{{"a/train.tfrecord", "TensorFlow's records"},
                                                        {"b/data.mdb", "an LMDB database"},
                                                        {"c/train.parquet", "a Parquet table"},
                                                        {"d/train.h5", "an HDF5 file"},
                                                        {"e/pets.zip", "an archive, which is not read; unpack it"},
                                                        {"f/set.mat", "a MATLAB file"}}) {
    write_file(file, "x");
    refused(file.substr(0, 1), file + ": " + what);
    refused(file, file + ": " + what);
  }
}

TEST_F(Init, FilesOfLabellingToolsAreNamed) {
  const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> files = {
      {R"({"a.jpg1": {"filename": "a.jpg", "regions": [{"shape_attributes": {"name": "rect", "x": 1}}]}})",
       {"via_region_data.json", "regions of images, as the VGG Image Annotator has them; detection is not supported"}},
      {R"({"version": "5.4", "shapes": [], "imagePath": "a.jpg"})",
       {"a.json", "outlines of one image, as LabelMe has them"}},
      {R"({"size": {}, "objects": [{"classTitle": "ant"}]})", {"a.jpg.json", "as Supervisely has them"}},
      {R"([{"image": "a.jpg", "annotations": [{"label": "ant", "coordinates": {"x": 5}}]}])",
       {"_annotations.createml.json", "boxes around objects, as CreateML has them"}},
      {R"([{"id": 1, "annotations": [{"result": [{"value": {"choices": ["ant"]}}]}]}])",
       {"project-1.json", "tasks of Label Studio; let it write a table"}},
      {R"({"info": {}, "licenses": [], "images": [{"file_name": "a.jpg"}, )", {"big.json", "as COCO has them"}},
      {R"(<?xml version="1.0"?><annotations><version>1.1</version></annotations>)",
       {"annotations.xml", "labels as \"CVAT for images\" has them"}},
      {"0 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5\n", {"a.txt", "boxes around objects, as YOLO has them"}},
      {"train: ../train/images\nval: ../valid/images\nnc: 1\nnames: [ant]\n",
       {"data.yaml", "boxes around objects, as YOLO has them"}},
      {"Car 0.00 0 -1.58 587.0 173.3 614.1 200.1 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n",
       {"000001.txt", "boxes around objects, as KITTI has them"}},
      {"filename,file_size,region_shape_attributes\na.jpg,1,\"{\"\"name\"\":\"\"rect\"\"}\"\n",
       {"via.csv", "has boxes around objects (region_shape_attributes): detection is not supported"}},
      {"ant,1,2,3,4,a.jpg,64,64\nbee,1,2,3,5,a.jpg,64,64\n", {"labels.csv", "columns 1 to 4, as Make Sense has them"}},
      {"image_id,width,bbox\na,64,\"[1, 2, 3, 4]\"\nb,64,\"[1, 2, 3, 5]\"\n",
       {"train.csv", "has boxes around objects (bbox): detection is not supported"}}};
  int number = 0;
  for (const auto& [text, told] : files) {
    const std::string folder = fmt::format("tool{}", number++);
    write_file(folder + "/" + told.first, text);
    write_file(folder + "/a.jpg", picture(8, 8, 3, 9));
    refused(folder, told.first + ": ");
    refused(folder, told.second);
  }
}

TEST_F(Init, AProjectsFolderOfData) {
  write_file("project/train.py", "import torch");
  write_file("project/checkpoints/model.pth", "x");
  for (int i = 0; i < 8; ++i)
    for (const char* name : {"cat", "dog"})
      write_file(fmt::format("project/data/train/{}/{}.png", name, i), picture(40, 40, 3, name[0] == 'c' ? 20 : 160));
  EXPECT_EQ(run({"init", "--data", "project", "--out", "p.yaml"}).code, 0);
  fs::copy(path("project/data"), path("project/other"), fs::copy_options::recursive);
  refused("project", "project: several folders hold a data set: data and other; name one of them");
}

TEST_F(Init, TablesWithPathsOfAnotherMachine) {
  std::string windows = "Path;Label\r\n", tasks = "image,id,choice,lead_time\n", parts = "filename, ant, bee\n";
  for (int i = 0; i < 16; ++i) {
    const bool is_ant = i % 2 == 0;
    const std::string image = picture(40, 40, 3, is_ant ? 20 : 160);
    write_file(fmt::format("windows/photos/{}.png", i), image);
    windows += fmt::format("C:\\Users\\Ann\\photos\\{}.png;{}\r\n", i, is_ant ? "ant" : "bee");
    write_file(fmt::format("studio/media/upload/3/{}.png", i), image);
    tasks += fmt::format("/data/upload/3/{}.png,{},{},{}.5\n", i, 100 + i, is_ant ? "ant" : "bee", i);
    for (const char* part : {"train", "valid"}) write_file(fmt::format("parts/{}/{}.png", part, i), image);
    parts += fmt::format("{}.png, {}, {}\n", i, is_ant ? 1 : 0, is_ant ? 0 : 1);
  }
  write_file("windows/labels.csv", windows);
  write_file("studio/project-3.csv", tasks);
  for (const char* part : {"train", "valid"}) write_file(fmt::format("parts/{}/_classes.csv", part), parts);
  expect_in(trained("windows"), "image: Path\n  label: Label\n");
  expect_in(trained("studio"), "image: image\n  label: choice\n");
  expect_in(trained("parts"), "train: train/_classes.csv\n  validation: valid/_classes.csv\n");
}

TEST_F(Init, MasksThatPairWithNoImageAreNoClass) {
  for (int i = 0; i < 4; ++i) {
    write_file(fmt::format("set/images/bee{}.png", i), picture(32, 32, 3, 20));
    write_file(fmt::format("set/masks/task-{}-annotation-7-by-1-tag-ant-0.png", i), picture(32, 32, 1, 20));
  }
  refused("set", "the folders images and masks look like images and their masks, but the names do not agree");
  refused("set", "Label Studio numbers masks by tasks");
}

/// Data sets of this machine, where BANTAM_DATA names their folder.
TEST_F(Init, RealDataSets) {
  const char* folder = std::getenv("BANTAM_DATA");
  if (folder == nullptr) GTEST_SKIP() << "BANTAM_DATA is not set: skipped";
  for (const char* name : {"fashion-mnist", "imagefolder", "cifar10"})
    if (fs::exists(fs::path(folder) / name)) trained(std::string(folder) + "/" + name);
}

}  // namespace
}  // namespace bantam::cli::init_test
