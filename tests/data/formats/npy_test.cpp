// .npy files that the test writes: types and shapes, what they become, every way in which they can be wrong, and
// training on them.
#include <cmath>
#include <limits>

#include "tests/data/formats/array_files.h"
#include "tests/data/formats/short_run.h"

namespace bantam::npy_test {
namespace {

using testing::data_of;
using testing::fetched;
using testing::labels_of;
using testing::message_of;
using testing::npy;
using testing::npy_header;
using testing::open_format;
using testing::raw;
using testing::TemporaryFolder;
using testing::write_file;

template <class T>
std::vector<T> counted(std::size_t count, T first = T(0)) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(first + static_cast<T>(i));
  return values;
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class NpyTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) const { write_file(folder_.path() / name, bytes); }
  SampleSplits open(const std::string& keys) const { return open_format("npy", keys, folder_.path()); }
  /// Both splits from x.npy and y.npy.
  SampleSplits open_pair(const std::string& more = "") const {
    return open("train: {images: $/x.npy, labels: $/y.npy}, test: {images: $/x.npy, labels: $/y.npy}" + more);
  }
  std::string error(const std::string& more = "") const {
    return message_of<DataError>([&] { testing::read_all(open_pair(more)); });
  }

  TemporaryFolder folder_;
};

TEST_F(NpyTest, BytesAreImagesAndWholeNumbersLabels) {
  put("x.npy", npy("|u1", "3, 2, 2, 3", counted<std::uint8_t>(36)));
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{1, 0, 4}));
  const auto reader = open_pair().train;
  const DatasetFacts facts = reader->facts();
  EXPECT_EQ(facts.size, 3);
  EXPECT_EQ(facts.image_shape, (Shape{2, 2, 3}));
  EXPECT_EQ(facts.image_dtype, DType::uint8);
  EXPECT_EQ(facts.class_names, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_TRUE(facts.has_int32_target());
  EXPECT_EQ(fetched(*reader, 2)[0], raw(counted<std::uint8_t>(12, 24)));
  EXPECT_EQ(labels_of(*reader), (std::vector<std::int32_t>{1, 0, 4}));
  EXPECT_EQ(reader->resident_bytes(), 0u);
  EXPECT_EQ(reader->name_of(2), (folder_.path() / "x.npy").string() + ", row 2");
  EXPECT_EQ(reader->files_of(2).at(0), (folder_.path() / "x.npy").string());
}

TEST_F(NpyTest, AllOtherTypesAreFloat32InEitherByteOrder) {
  put("y.npy", npy("|u1", "2, 1", std::vector<std::uint8_t>{0, 1}));
  const std::vector<float> expected = {5, 6, 7};  // of the second row
  const auto expect_floats = [&](const std::string& descr, const std::string& file) {
    put("x.npy", file);
    const auto reader = open_pair().train;
    EXPECT_EQ(reader->facts().image_dtype, DType::float32) << descr;
    EXPECT_EQ(reader->facts().image_shape, Shape{3}) << descr;
    EXPECT_EQ(floats_of(fetched(*reader, 1)[0]), expected) << descr;
  };
  for (const std::string order : {"<", ">"}) {
    expect_floats(order + "f4", npy(order + "f4", "2, 3", counted<float>(6, 2)));
    expect_floats(order + "f8", npy(order + "f8", "2, 3", counted<double>(6, 2)));
    expect_floats(order + "i4", npy(order + "i4", "2, 3", counted<std::int32_t>(6, 2)));
    expect_floats(order + "i8", npy(order + "i8", "2, 3", counted<std::int64_t>(6, 2)));
    expect_floats(order + "u2", npy(order + "u2", "2, 3", counted<std::uint16_t>(6, 2)));
    expect_floats(order + "u4", npy(order + "u4", "2, 3", counted<std::uint32_t>(6, 2)));
    expect_floats(order + "i2", npy(order + "i2", "2, 3", counted<std::int16_t>(6, 2)));
    std::vector<std::uint16_t> halves;
    for (const float value : counted<float>(6, 2)) halves.push_back(float_to_half_bits(value));
    expect_floats(order + "f2", npy(order + "f2", "2, 3", halves));
  }
  expect_floats("|i1", npy("|i1", "2, 3", counted<std::int8_t>(6, 2)));
  put("x.npy", npy("|b1", "2, 3", std::vector<std::uint8_t>{0, 1, 1, 1, 0, 1}));
  EXPECT_EQ(fetched(*open_pair().train, 1)[0], std::string("\1\0\1", 3));
}

TEST_F(NpyTest, ShapesOfImages) {
  put("y.npy", npy("<i4", "2,", std::vector<std::int32_t>{0, 1}));
  put("x.npy", npy("|u1", "2, 2, 3", counted<std::uint8_t>(12)));
  EXPECT_EQ(open_pair().train->facts().image_shape, (Shape{2, 3, 1}));
  put("x.npy", npy("|u1", "2, 2, 1, 3", counted<std::uint8_t>(12)));
  const auto planes = open_pair(", layout: nchw").train;
  EXPECT_EQ(planes->facts().image_shape, (Shape{1, 3, 2}));
  EXPECT_EQ(fetched(*planes, 1)[0], std::string("\x06\x09\x07\x0a\x08\x0b", 6));
}

TEST_F(NpyTest, NumbersToPredictAreTargets) {
  put("x.npy", npy("<f4", "3, 2", counted<float>(6)));
  put("y.npy", npy("<f8", "3, 2", std::vector<double>{0.5, 0.5, 1, 0, 0.25, 0.75}));
  put("t.npy", npy("<i2", "3,", std::vector<std::int16_t>{-3, 5, 7}));
  const auto soft = open_pair().train;
  EXPECT_EQ(soft->facts().targets, (std::vector<SampleField>{{"targets", {2}, DType::float32}}));
  EXPECT_EQ(floats_of(fetched(*soft, 2)[1]), (std::vector<float>{0.25f, 0.75f}));
  EXPECT_TRUE(soft->facts().class_names.empty());
  const auto values = open("images: $/x.npy, targets: $/t.npy, split: 0.4").train;
  EXPECT_EQ(values->facts().targets, (std::vector<SampleField>{{"targets", {1}, DType::float32}}));
  EXPECT_EQ(values->facts().size, 2);
  put("m.npy", npy("|u1", "3, 2, 2, 1", counted<std::uint8_t>(12, 250)));
  const auto masks = open("images: $/x.npy, labels: $/m.npy, classes: [a, b], split: 0.4").whole;
  EXPECT_EQ(masks->facts().targets, (std::vector<SampleField>{{"labels", {2, 2}, DType::int32}}));
  EXPECT_EQ(fetched(*masks, 0)[1], raw(std::vector<std::int32_t>{250, 251, 252, 253}));
  const auto both = open("images: $/x.npy, labels: $/m.npy, targets: $/t.npy, classes: [a, b]").whole;
  EXPECT_EQ(fetched(*both, 1)[2], raw(std::vector<float>{5}));
  EXPECT_CONTAINS(
      message_of<DataError>([&] { (void)open("images: $/x.npy, labels: $/y.npy, targets: $/t.npy").train->facts(); }),
      "which is read as targets");
}

TEST_F(NpyTest, NumbersThatAreNotFiniteAreNamedByFileAndRow) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> images = counted<float>(12);
  images[9] = kNan;
  put("x.npy", npy("<f4", "6, 2", images));
  put("y.npy", npy("<f8", "6,", std::vector<double>{0, 1, 2, 1e300, 4, 5}));
  put("t.npy", npy("<f4", "6, 1", std::vector<float>{0, -kInfinity, 2, 3, 4, 5}));
  const auto reader = open("images: $/x.npy, labels: $/y.npy").whole;
  const auto refused = [&](const SampleReader& from, std::int64_t index) {
    return message_of<DataError>([&] { (void)fetched(from, index); });
  };
  EXPECT_CONTAINS(refused(*reader, 3), "y.npy: row 3: value 0 of 1 is inf as float32; expected a finite number");
  EXPECT_CONTAINS(refused(*chosen_samples(reader, {0, 4}), 1), "x.npy: row 4: value 1 of 2 is nan");
  EXPECT_EQ(floats_of(fetched(*reader, 5)[1]), (std::vector<float>{5}));
  const auto targets = open("images: $/x.npy, targets: $/t.npy").whole;
  EXPECT_CONTAINS(refused(*targets, 1), "t.npy: row 1: value 0 of 1 is -inf");
  put("x.npy", npy("<f4", "1, 3, 2, 2", images));
  put("y.npy", npy("<i4", "1,", std::vector<std::int32_t>{0}));
  EXPECT_CONTAINS(refused(*open_pair(", layout: nchw").train, 0), "x.npy: row 0: value 9 of 12 is nan");
}

TEST_F(NpyTest, ASampleThatIsNotFiniteIsReplacedWhereItIsAsked) {
  std::vector<float> images = counted<float>(40);
  images[4] = std::numeric_limits<float>::quiet_NaN();
  put("x.npy", npy("<f4", "20, 2", images));
  put("y.npy", npy("<i4", "20,", std::vector<std::int32_t>(20, 0)));
  const std::string keys =
      "format: npy, train: {images: $/x.npy, labels: $/y.npy}, test: {images: $/x.npy, labels: $/y.npy}, "
      "pipeline: [batch: {size: 4}]";
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)testing::train_two_epochs(data_of(keys, folder_.path()), 1); }),
                  "x.npy: row 2: value 0 of 2 is nan");
  for (const double loss : testing::train_two_epochs(data_of(keys + ", on_error: skip", folder_.path()), 1))
    EXPECT_TRUE(std::isfinite(loss));
}

TEST_F(NpyTest, ASplitHoldsOutAShareOfEachClass) {
  put("x.npy", npy("<f4", "20, 1", counted<float>(20)));
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(i < 10 ? 0 : 1);
  put("y.npy", npy("<i4", "20,", labels));
  const SampleSplits splits = open("images: $/x.npy, labels: $/y.npy, split: 0.2");
  EXPECT_EQ(splits.train->facts().size, 16);
  EXPECT_EQ(labels_of(*splits.validation), (std::vector<std::int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(splits.whole->facts().size, 20);
}

TEST_F(NpyTest, ValidationMayHaveFilesOfItsOwn) {
  put("x.npy", npy("<f4", "20, 1", counted<float>(20)));
  put("y.npy", npy("<i4", "20,", std::vector<std::int32_t>(20, 1)));
  put("v.npy", npy("<f4", "7, 1", counted<float>(7)));
  put("w.npy", npy("<i4", "7,", std::vector<std::int32_t>(7, 1)));
  const DataOptions options = data_of(
      "format: npy, images: $/x.npy, labels: $/y.npy, split: 0.5, validation: {images: $/v.npy, labels: $/w.npy}, "
      "pipeline: [batch: {size: 4}]",
      folder_.path());
  EXPECT_EQ(train_facts(options).size, 10);
  EXPECT_EQ(validation_facts(options).size, 7);
  EXPECT_EQ(test_facts(options).size, 10);
}

TEST_F(NpyTest, CompressedFilesAreReadFromMemory) {
  const std::string images = npy("|u1", "3, 2, 2, 3", counted<std::uint8_t>(36));
  put("x.npy", testing::gzipped(images));
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{1, 0, 4}));
  const auto reader = open_pair().train;
  EXPECT_EQ(fetched(*reader, 2)[0], raw(counted<std::uint8_t>(12, 24)));
  EXPECT_EQ(reader->resident_bytes(), images.size());
}

TEST_F(NpyTest, ArraysInFortranOrderAreReadAsThoseInCOrder) {
  // Element (row, h, w) is 100 row + 10 h + w; in the file the row changes fastest. More rows than a band of the copy.
  constexpr int kRows = 130, kHeight = 9, kWidth = 11;
  std::vector<float> stored, expected;
  for (int w = 0; w < kWidth; ++w)
    for (int h = 0; h < kHeight; ++h)
      for (int row = 0; row < kRows; ++row) stored.push_back(static_cast<float>(1000 * row + 20 * h + w));
  for (int h = 0; h < kHeight; ++h)
    for (int w = 0; w < kWidth; ++w) expected.push_back(static_cast<float>(1000 * 128 + 20 * h + w));
  put("y.npy", npy("|u1", "130,", std::vector<std::uint8_t>(kRows, 0)));
  for (const bool big : {false, true}) {
    put("x.npy", npy_header(big ? ">f4" : "<f4", "130, 9, 11", "True") + raw(stored, big));
    const auto reader = open_pair().train;
    EXPECT_EQ(floats_of(fetched(*reader, 128)[0]), expected);
    EXPECT_EQ(reader->resident_bytes(), 4u * kRows * kHeight * kWidth);
  }
  put("x.npy", npy_header("|u1", "130, 2", "True") + std::string(130, 'a') + std::string(130, 'b'));
  EXPECT_EQ(fetched(*open_pair().train, 7)[0], "ab");
  put("x.npy", npy_header("|u1", "130, 2", "True") + std::string(259, 'a'));
  EXPECT_CONTAINS(error(), "expected 388");
}

TEST_F(NpyTest, LabelsThatAreTextAreClasses) {
  const std::u32string kept = std::u32string(U"rose\0\0", 6) + std::u32string(U"M\u00fcll\0\0", 6) +
                              std::u32string(U"rose\0\0", 6) + std::u32string(U"\U0001F41D\0\0\0\0\0", 6);
  put("x.npy", npy("|u1", "4, 3", counted<std::uint8_t>(12)));
  put("y.npy", npy_header("<U6", "4,") + std::string(reinterpret_cast<const char*>(kept.data()), kept.size() * 4));
  const auto reader = open_pair().train;
  EXPECT_EQ(reader->facts().class_names, (std::vector<std::string>{"M\xc3\xbcll", "rose", "\xf0\x9f\x90\x9d"}));
  EXPECT_EQ(labels_of(*reader), (std::vector<std::int32_t>{1, 0, 1, 2}));
  EXPECT_EQ(labels_of(*open_pair(", classes: [rose, 'M\xc3\xbcll', '\xf0\x9f\x90\x9d']").train),
            (std::vector<std::int32_t>{0, 1, 0, 2}));
  put("y.npy", npy_header("|S3", "4, 1") + std::string("b\0\0aabb\0\0aab", 12));
  EXPECT_EQ(labels_of(*open_pair().train), (std::vector<std::int32_t>{1, 0, 1, 0}));
  EXPECT_CONTAINS(error(", classes: [aab, c]"), "row 0 has the label 'b', which is none of the classes aab and c");
  put("z.npy", npy_header("|S3", "4, 1") + std::string("b\0\0aabb\0\0new", 12));
  const SampleSplits both = open("train: {images: $/x.npy, labels: $/y.npy}, test: {images: $/x.npy, labels: $/z.npy}");
  EXPECT_CONTAINS(message_of<DataError>([&] { labels_of(*both.validation); }), "row 3 has the label 'new'");
  EXPECT_CONTAINS(error(", label_form: values"), "is (4, 1) text of 3 characters; expected one class a sample");
}

TEST_F(NpyTest, DamagedHeadersAreToldByNameAndPlace) {
  put("y.npy", npy("<i4", "2,", std::vector<std::int32_t>{0, 1}));
  const std::string name = (folder_.path() / "x.npy").string();
  const auto told = [&](const std::string& bytes, const std::string& part) {
    put("x.npy", bytes);
    const std::string message = error();
    EXPECT_CONTAINS(message, name + ": ");
    EXPECT_CONTAINS(message, part);
  };
  const std::string data(6, 'x');
  told("PK", "is no .npy file");
  told("", "is no .npy file");
  told(npy_header("|u1", "2, 3") + "xxxxx", "has 133 bytes, expected 134: a header of 128, then (2, 3) uint8");
  told(npy_header("|u1", "2, 3") + data + "x", "has more than 134 bytes");
  told(npy_header("|O", "2, 3") + data, "elements of type '|O'; expected bool, integers");
  told(npy_header("<U5", "2, 3") + std::string(120, '\0'), "is (2, 3) text of 5 characters; expected numbers");
  told(npy_header("|O", "2, 3") + data, "a CSV file with a column of labels is read by `format: csv`");
  told(npy_header("<c8", "2, 3") + data, "elements of type '<c8'");
  told(npy_header("|u1", "2, 3", "Maybe") + data, "expected True or False, at byte 34 of its dictionary");
  told(npy_header("|u1", "2, -3") + data, "expected a whole number from 0 on");
  told(npy_header("|u1", "2, 9223372036854775807, 9223372036854775807") + data, "more than can be read");
  told(npy_header("|u1', 'x': '", "2, 3") + data, "the key 'x' is unknown");
  told(npy_header("|u1', 'descr': '", "2, 3") + data, "the key 'descr' comes twice");
  told(npy_header("|u1", "2, 0") + data, "expected (samples, height, width, channels)");
  told(npy_header("|u1", "6,") + data, "(6,) uint8; expected (samples, height, width, channels)");
  std::string version = npy_header("|u1", "2, 3") + data;
  version[6] = 4;
  told(version, "is of version 4.0");
  version[6] = 2;
  told(version, "is cut short");
}

TEST_F(NpyTest, SplitsAndLabelsThatDoNotFitAreTold) {
  put("x.npy", npy("|u1", "3, 2, 2, 3", counted<std::uint8_t>(36)));
  put("y.npy", npy("<i8", "2,", std::vector<std::int64_t>{1, 0}));
  EXPECT_CONTAINS(error(), "y.npy: is (2,) int64, but");
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{1, 0, 5}));
  EXPECT_CONTAINS(error(", classes: [a, b]"), "y.npy: row 2 has the label 5; expected one of 2 classes, 0 to 1");
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{1, 0, -1}));
  EXPECT_CONTAINS(error(), "row 2 has the label -1");
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{1, 0, std::int64_t{1} << 40}));
  EXPECT_CONTAINS(error(), "has the label 1099511627776");
  std::filesystem::remove(folder_.path() / "y.npy");
  EXPECT_CONTAINS(error(), "y.npy: cannot be read: No such file");
  EXPECT_CONTAINS(error(", layout: nchw"), "y.npy: cannot be read");
  const auto config_error = [&](const std::string& keys) { return message_of<ConfigError>([&] { (void)open(keys); }); };
  EXPECT_CONTAINS(config_error("images: $/x.npy, labels: $/y.npy, classes: [a, b, b]"),
                  "classes 1 and 2 are both called 'b'");
  EXPECT_CONTAINS(config_error("images: $/x.npy, labels: $/y.npy, classes: []"), "at least one class name");
  EXPECT_CONTAINS(config_error("images: $/x.npy"), "expected the key 'labels' or 'targets' beside 'images'");
  EXPECT_CONTAINS(config_error("train: {images: a, labels: b}, test: {images: a, labels: b}, split: 0.2"), "t.yaml:1:");
  EXPECT_CONTAINS(config_error("train: {images: a, label: b}"), "label");
}

TEST_F(NpyTest, LabelsThatCountFromOneAreFloatingPointOrOneHot) {
  put("x.npy", npy("|u1", "3, 2, 2, 3", counted<std::uint8_t>(36)));
  const auto labels = [&](const std::string& keys) {
    const SampleSplits splits = open("images: $/x.npy, labels: $/y.npy" + keys);
    std::string text;
    for (std::int64_t i = 0; i < 3; ++i) {
      std::int32_t label = -1;
      const std::array field = {std::as_writable_bytes(std::span(&label, 1))};
      splits.whole->read_targets(i, field);
      text += fmt::format("{} ", splits.whole->facts().class_names.at(static_cast<std::size_t>(label)));
    }
    return text + fmt::format("of {}", splits.whole->facts().class_names.size());
  };
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{1, 3, 2}));
  EXPECT_EQ(labels(", first_label: 1"), "1 3 2 of 3");
  EXPECT_EQ(labels(", first_label: 1, classes: [a, b, c]"), "a c b of 3");
  EXPECT_EQ(labels(""), "1 3 2 of 4");
  put("y.npy", npy("<f4", "3, 1", std::vector<float>{0, 2, 1}));
  EXPECT_EQ(labels(", label_form: classes"), "0 2 1 of 3");
  put("y.npy", npy("<f4", "3, 2", std::vector<float>{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(labels(", label_form: one_hot"), "1 0 1 of 2");
  EXPECT_EQ(open("images: $/x.npy, labels: $/y.npy").whole->facts().targets[0].name, "targets");
  put("y.npy", npy("<f4", "3, 2", std::vector<float>{0, 1, 1, 1, 0, 1}));
  EXPECT_CONTAINS(error(", label_form: one_hot"), "y.npy: row 1 has 2 ones and 0 zeros of 2 values; expected one 1");
  put("y.npy", npy("<f4", "3,", std::vector<float>{0, 0.5F, 1}));
  EXPECT_CONTAINS(error(", label_form: classes"), "y.npy: row 1 has the label 0.5; expected a whole number");
  put("y.npy", npy("<i8", "3,", std::vector<std::int64_t>{30, 41, 28}));
  EXPECT_EQ(open("images: $/x.npy, labels: $/y.npy, label_form: values").whole->facts().targets[0].name, "targets");
}

TEST_F(NpyTest, MutatedFilesAreReadOrRefused) {
  put("x.npy", npy("<i4", "5, 2, 3", counted<std::int32_t>(30)));
  const std::string labels = npy(">i2", "5,", std::vector<std::int16_t>{1, 0, 4, 2, 3});
  put("y.npy", labels);
  const auto read = [&] { testing::read_all(open_pair()); };
  EXPECT_GT(testing::read_damaged(folder_.path() / "y.npy", labels, 1000, read, folder_.path().string()), 500);
  const std::string images = npy("<i4", "5, 2, 3", counted<std::int32_t>(30));
  EXPECT_GT(testing::read_damaged(folder_.path() / "x.npy", images, 1000, read, folder_.path().string()), 500);
}

// Two classes of vectors, and a sum to predict: a network learns both, from files read in place and from memory.
TEST_F(NpyTest, ANetworkLearnsFromThem) {
  std::vector<float> rows;
  std::vector<std::int32_t> labels;
  std::vector<double> sums;
  for (int i = 0; i < 64; ++i) {
    const float a = std::sin(static_cast<float>(i)), b = std::cos(static_cast<float>(3 * i));
    rows.insert(rows.end(), {a, b, a * b});
    labels.push_back(a > b ? 1 : 0);
    sums.push_back(a + b);
  }
  put("x.npy", npy("<f4", "64, 3", rows));
  put("y.npy", npy("<i4", "64,", labels));
  put("t.npy", npy("<f8", "64,", sums));
  for (const std::string cache : {"ram", "off"}) {
    const std::string pipeline = "pipeline: [cache: " + cache + ", shuffle, batch: {size: 8}]";
    const auto losses = testing::train_two_epochs(
        data_of("format: npy, images: $/x.npy, labels: $/y.npy, " + pipeline, folder_.path()), 2);
    EXPECT_LT(losses.at(1), losses.at(0));
    const auto errors = testing::train_two_epochs(
        data_of("format: npy, images: $/x.npy, targets: $/t.npy, " + pipeline, folder_.path()), 1,
        {.loss = mse_loss()});
    EXPECT_LT(errors.at(1), errors.at(0));
  }
}

}  // namespace
}  // namespace bantam::npy_test
