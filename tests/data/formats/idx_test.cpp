// IDX from small files that the test writes, plain and .gz; every way in which they can be wrong; and training on them.
#include <fstream>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/train/trainer.h"
#include "tests/data/formats/array_files.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"
#include "tests/small_stack.h"

namespace bantam::idx_test {
namespace {

using testing::DatasetSplits;
using testing::message_of;
using testing::ramp_label;
using testing::ramp_pixel;
using testing::read_splits;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

constexpr std::int64_t kTrain = 24, kTest = 9, kHeight = 6, kWidth = 5, kClasses = 3;
constexpr std::int64_t kTestFrom = 1000;  // ramp number of the first validation image

void append_word(std::string& bytes, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

std::string images_file(std::int64_t first, std::int64_t count) {
  std::string bytes;
  for (const std::int64_t word : {std::int64_t{0x803}, count, kHeight, kWidth})
    append_word(bytes, static_cast<std::uint32_t>(word));
  for (std::int64_t i = first; i < first + count; ++i)
    for (std::int64_t p = 0; p < kHeight * kWidth; ++p) bytes.push_back(static_cast<char>(ramp_pixel(i, p)));
  return bytes;
}

std::string labels_file(std::int64_t first, std::int64_t count) {
  std::string bytes;
  append_word(bytes, 0x801);
  append_word(bytes, static_cast<std::uint32_t>(count));
  for (std::int64_t i = first; i < first + count; ++i) bytes.push_back(static_cast<char>(ramp_label(i, kClasses)));
  return bytes;
}

/// A .gz of one stored block (RFC 1951 and 1952), written without the library that reads it.
std::string zipped(const std::string& bytes) {
  const auto append_low_first = [](std::string& text, std::size_t value, int count) {
    for (int i = 0; i < count; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  };
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\xff\x01", 11);
  append_low_first(file, bytes.size(), 2);
  append_low_first(file, ~bytes.size(), 2);
  file += bytes;
  append_low_first(file, ~crc, 4);
  append_low_first(file, bytes.size(), 4);
  return file;
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream << bytes;
  ASSERT_TRUE(stream.good());
}

/// One body for plain files (false) and .gz files (true).
class IdxTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    put("train-images-idx3-ubyte", images_file(0, kTrain));
    put("train-labels-idx1-ubyte", labels_file(0, kTrain));
    put("t10k-images-idx3-ubyte", images_file(kTestFrom, kTest));
    put("t10k-labels-idx1-ubyte", labels_file(kTestFrom, kTest));
  }
  fs::path file(const std::string& name) const { return folder_.path() / (GetParam() ? name + ".gz" : name); }
  void put(const std::string& name, const std::string& bytes) const {
    write(file(name), GetParam() ? zipped(bytes) : bytes);
  }
  DataOptions options(const std::string& more = "image_size: [6, 5], train_samples: 24, test_samples: 9") const {
    return read_data_config(
        ConfigDocument::parse(fmt::format("data: {{format: idx, path: \"{}\", classes: [a, b, c], "
                                          "{}, pipeline: [cache: {}, shuffle: {{}}, normalize: "
                                          "{{scale: 0.004}}, batch: {{size: 8}}]}}",
                                          folder_.path().string(), more, GetParam() ? "ram" : "off"),
                              "test.yaml")
            .map()
            .node("data"));
  }
  DatasetSplits read() { return read_splits(runtime_, options().source); }
  std::string error() {
    return message_of<DataError>([&] { (void)read(); });
  }

  TemporaryFolder folder_;
  Runtime runtime_{{.threads = 2}};
};

INSTANTIATE_TEST_SUITE_P(Files, IdxTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "gz" : "plain"); });

void expect_ramp(const Dataset& set, std::int64_t first) {
  constexpr std::int64_t kPixels = kHeight * kWidth;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    EXPECT_EQ(set.labels()[static_cast<std::size_t>(i)], ramp_label(first + i, kClasses)) << i;
    for (std::int64_t p = 0; p < kPixels; ++p)
      ASSERT_EQ(set.images()[static_cast<std::size_t>(i * kPixels + p)], ramp_pixel(first + i, p)) << i << ", " << p;
  }
}

TEST_P(IdxTest, ImagesAndLabelsComeInTheFilesOrder) {
  const DatasetSplits splits = read();
  EXPECT_EQ(splits.train->size(), kTrain);
  EXPECT_EQ(splits.test->size(), kTest);
  EXPECT_EQ(splits.train->image_shape(), (Shape{kHeight, kWidth, 1}));
  EXPECT_EQ(splits.train->class_names(), (std::vector<std::string>{"a", "b", "c"}));
  expect_ramp(*splits.train, 0);
  expect_ramp(*splits.test, kTestFrom);
}

TEST_P(IdxTest, ASmallStackDoes) {
  Runtime alone({.threads = 1});
  testing::on_small_stack(128 << 10, [&] { expect_ramp(*read_splits(alone, options().source).train, 0); });
}

// What is decompressed lies beside the allocators: the limit of the CPU counts it while the data are open.
TEST_P(IdxTest, DecompressedFilesCountAgainstTheLimit) {
  const std::uint64_t kept = GetParam() ? 16 + 8 + (kTrain + kTest) * (kHeight * kWidth + 1) + 16 + 8 : 0;
  const std::uint64_t limit = std::uint64_t{8} << 20;
  {
    Runtime limited({.threads = 1, .limits = {{"cpu", limit}}});
    {
      const OpenedData data = open_data(limited, options(), Device::cpu(), 1);
      EXPECT_EQ(limited.limit(Device::cpu()), limit - kept);
      EXPECT_EQ(limited.allocator(Device::cpu()).stats().limit_bytes, limit - kept);
    }
    EXPECT_EQ(limited.limit(Device::cpu()), limit);
    {
      const OpenedData one = open_data(limited, options(), Device::cpu(), 1);
      const OpenedData other = open_data(limited, options(), Device::cpu(), 1);
      EXPECT_EQ(limited.limit(Device::cpu()), limit - 2 * kept) << "each counts";
      limited.set_limit(Device::cpu(), limit / 2);
    }
    EXPECT_EQ(limited.limit(Device::cpu()), limit / 2 + 2 * kept) << "one that is set meanwhile is the rest";
  }
  {
    Runtime limited({.threads = 1, .limits = {{"cpu", limit}}});
    const auto samples = options().source.validation;
    {
      const auto source = open_evaluated(limited, samples, options(), Device::cpu());
      EXPECT_EQ(limited.limit(Device::cpu()), limit - samples->resident_bytes());
    }
    EXPECT_EQ(limited.limit(Device::cpu()), limit);
  }
  if (!GetParam()) return;
  Runtime small({.threads = 1, .limits = {{"cpu", kept}}});
  EXPECT_CONTAINS(message_of<OutOfMemory>([&] { (void)open_data(small, options(), Device::cpu(), 1); }),
                  "unpack them, or raise the limit");
}

TEST_P(IdxTest, SizesAreThoseOfTheFiles) {
  const DataOptions found = options("verify: true");
  EXPECT_EQ(train_facts(found).size, kTrain);
  EXPECT_EQ(test_facts(found).size, kTest);
  EXPECT_EQ(test_facts(found).image_shape, (Shape{kHeight, kWidth, 1}));
  const std::uint64_t bytes = 16 + kTrain * kHeight * kWidth + 8 + kTrain;
  EXPECT_EQ(found.source.train->resident_bytes(), GetParam() ? bytes : 0);
  expect_ramp(*read_splits(runtime_, found.source).train, 0);
}

TEST_P(IdxTest, FactsNeedNoFiles) {
  for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove(entry.path());
  EXPECT_EQ(train_facts(options("limit: 100")).size, 100);
  EXPECT_EQ(train_facts(options("verify: true")).size, 60000);
  EXPECT_EQ(test_facts(options("verify: true")).size, 10000);
  EXPECT_EQ(test_facts(options("verify: true")).image_shape, (Shape{28, 28, 1}));
}

TEST_P(IdxTest, AMissingFileNamesBothSpellings) {
  fs::remove(file("t10k-labels-idx1-ubyte"));
  const std::string message = error();
  EXPECT_CONTAINS(message, (folder_.path() / "t10k-labels-idx1-ubyte").string() + ": is not there");
  EXPECT_CONTAINS(message, "neither is t10k-labels-idx1-ubyte.gz");
}

TEST_P(IdxTest, AnotherMagicNumberIsTold) {
  put("train-images-idx3-ubyte", labels_file(0, kTrain));
  EXPECT_CONTAINS(error(), file("train-images-idx3-ubyte").string() +
                               ": begins with the magic number 0x00000801, expected 0x00000803 (unsigned bytes in 3 "
                               "dimensions)");
}

TEST_P(IdxTest, CountsOfImagesAndLabelsMustAgree) {
  put("train-labels-idx1-ubyte", labels_file(0, kTrain - 1));
  EXPECT_CONTAINS(error(), file("train-images-idx3-ubyte").string() + ": holds 24 images, but " +
                               file("train-labels-idx1-ubyte").string() + " holds 23 labels");
}

TEST_P(IdxTest, OtherExtentsNameTheirKeys) {
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)read_splits(runtime_, options("image_size: 6").source); }),
                  "holds (24, 6, 5), expected (24, 6, 6): set data.train_samples and data.image_size to what");
  EXPECT_CONTAINS(message_of<DataError>([&] {
                    (void)read_splits(runtime_, options("image_size: [6, 5], train_samples: 1000000000").source);
                  }),
                  "expected (1000000000, 6, 5)");  // before memory is taken for that many
}

TEST_P(IdxTest, MissingAndSpareBytesAreTold) {
  const std::string bytes = images_file(kTestFrom, kTest);
  put("t10k-images-idx3-ubyte", bytes.substr(0, bytes.size() - 1));
  EXPECT_CONTAINS(error(), "has 285 bytes, expected 286 (a header of 16 and 9 of 30)");
  put("t10k-images-idx3-ubyte", bytes + std::string(100, 'x'));
  EXPECT_CONTAINS(error(), "has more than 286 bytes, expected 286");
  put("t10k-images-idx3-ubyte", bytes.substr(0, 7));
  EXPECT_CONTAINS(error(), "it ends before byte 8");
  put("t10k-images-idx3-ubyte", "");
  EXPECT_CONTAINS(error(), "it ends before byte 4");
}

TEST_P(IdxTest, ALabelOutsideTheClassesNamesItsItem) {
  std::string bytes = labels_file(0, kTrain);
  bytes[8 + 11] = 3;
  put("train-labels-idx1-ubyte", bytes);
  EXPECT_CONTAINS(error(), file("train-labels-idx1-ubyte").string() +
                               ": item 11 is the label 3, but data.classes names 3 classes, 0 to 2");
}

TEST_P(IdxTest, DamagedFilesAreRefused) {
  const fs::path path = file("train-images-idx3-ubyte");
  const std::string whole = GetParam() ? zipped(images_file(0, kTrain)) : images_file(0, kTrain);
  // Every place where a download may have ended.
  for (std::size_t end = 0; end < whole.size(); end += end < 40 || end + 20 > whole.size() ? 1 : 57) {
    write(path, whole.substr(0, end));
    EXPECT_CONTAINS(error(), path.string());
  }
  if (!GetParam()) return;
  write(path, whole.substr(0, 300));
  EXPECT_CONTAINS(error(),
                  path.string() + ": cannot be decompressed: unexpected end of file, after 16 decompressed bytes");
  for (const std::size_t place : {std::size_t{200}, whole.size() - 6}) {  // a pixel, the checksum
    std::string other = whole;
    other[place] = static_cast<char>(other[place] ^ 1);
    write(path, other);
    EXPECT_CONTAINS(error(), path.string() + ": cannot be decompressed: ");
  }
}

TEST_P(IdxTest, MutatedFilesAreReadOrRefused) {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    std::ifstream stream(file(name), std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(stream), {}};
    const int refused = testing::read_damaged(
        file(name), whole, 1000, [&] { testing::read_all(options("verify: true").source); }, folder_.path().string());
    EXPECT_GT(refused, 300) << name;
  }
}

TEST_P(IdxTest, AFolderInPlaceOfAFileIsRefused) {
  fs::remove(file("train-images-idx3-ubyte"));
  fs::create_directory(file("train-images-idx3-ubyte"));
  EXPECT_CONTAINS(error(), file("train-images-idx3-ubyte").string() + ": cannot be");
}

TEST_P(IdxTest, NoClassesOrTwoOfOneNameAreRefusedAtTheirPlace) {
  const auto error = [](const std::string& classes) {
    const std::string yaml = "data: {format: idx, path: x, classes: [" + classes + "], pipeline: [batch: {size: 8}]}";
    const ConfigNode data = ConfigDocument::parse(yaml, "test.yaml").map().node("data");
    return message_of<ConfigError>([&] { (void)read_data_config(data); });
  };
  EXPECT_CONTAINS(error(""), "expected 1 to 256");
  EXPECT_CONTAINS(error("a, b, c, b"), "test.yaml:1:39: error: classes 1 and 3 are both called 'b': name each once");
  EXPECT_CONTAINS(error("a, ''"), "the name of class 1 is empty");
}

struct Losses : Callback {
  void on_epoch_end(const EpochEvent& event) override { values.push_back(event.train.loss); }
  std::vector<double> values;
};

// The ramps of an image's number tell its class only to a network that learns them by heart: 24 images, and it does.
TEST_P(IdxTest, ANetworkLearnsFromThem) {
  OpenedData data = open_data(runtime_, options(), Device::cpu(), 5);
  Graph graph({kHeight, kWidth, 1});
  graph.add(flatten());
  graph.add("hidden", dense({.units = 32, .activation = {Activation::relu}}));
  graph.add("head", dense({.units = kClasses}));
  Model model(runtime_, Device::cpu(), graph, {.seed = 7});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 5e-3f})});
  TrainingStep step(model, optimizer, {});
  Losses losses;
  Trainer trainer(step, *data.train, data.validation.get(), {.epochs = 2});
  trainer.add(losses);
  (void)trainer.run();
  ASSERT_EQ(losses.values.size(), 2u);
  EXPECT_LT(losses.values[1], losses.values[0]);
}

}  // namespace
}  // namespace bantam::idx_test
