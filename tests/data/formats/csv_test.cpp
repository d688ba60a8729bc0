// CSV files that the test writes: quoting, headers, each kind of target, standardised features, and messages with file,
// line and column; mutated files end in an error or in rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/formats/csv_cells.h"
#include "bantam/data/formats/csv_table.h"
#include "tests/cpu_seconds.h"
#include "tests/data/formats/format_files.h"
#include "tests/data/formats/short_run.h"

namespace bantam::csv_test {
namespace {

using testing::fetched;
using testing::labels_of;
using testing::message_of;
using testing::open_format;
using testing::TemporaryFolder;
using testing::write_file;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Labels = std::vector<std::int32_t>;
using Floats = std::vector<float>;

std::vector<Names> rows_of(std::string_view text, char delimiter = ',') {
  CsvCells cells(text, delimiter, "f.csv");
  std::vector<Names> rows;
  for (std::vector<std::string_view> row; cells.next(row);) rows.emplace_back(row.begin(), row.end());
  return rows;
}

TEST(CsvCells, ReadsWhatRfc4180Says) {
  const std::vector<Names> expected = {{"a", "b"}, {"1", "2"}};
  EXPECT_EQ(rows_of("a,b\n1,2\n"), expected);
  EXPECT_EQ(rows_of("a,b\r\n1,2\r\n"), expected);
  EXPECT_EQ(rows_of("\xef\xbb\xbf"
                    "a,b\n\n1,2"),
            expected);
  EXPECT_EQ(rows_of("\"a\",\"b\"\n\"1\",2\n\r\n\n"), expected);
  EXPECT_EQ(rows_of("a;b\n1;2", ';'), expected);
  EXPECT_EQ(rows_of("\"x\"\"y\",\"p,\nq\",\"\"\n,\n"), (std::vector<Names>{{"x\"y", "p,\nq", ""}, {"", ""}}));
  EXPECT_EQ(rows_of("6\" tall,\ra\n"), (std::vector<Names>{{"6\" tall", "\ra"}}));
  EXPECT_EQ(rows_of("a,"), (std::vector<Names>{{"a", ""}}));
  EXPECT_TRUE(rows_of("").empty());
  EXPECT_TRUE(rows_of("\n\r\n").empty());
}

TEST(CsvCells, CountsLinesWithinCells) {
  CsvCells cells("a,b\n\"1\n2\",3\n\n4,5\n", ',', "f.csv");
  std::vector<std::string_view> row;
  std::vector<std::int64_t> lines;
  while (cells.next(row)) lines.push_back(cells.line());
  EXPECT_EQ(lines, (std::vector<std::int64_t>{1, 2, 5}));
}

TEST(CsvCells, WrongQuotesAreNamed) {
  EXPECT_EQ(message_of<DataError>([] { rows_of("a,b\nc,\"d\n\n"); }), "f.csv:2: column 1: its quote is never closed");
  EXPECT_EQ(message_of<DataError>([] { rows_of("a,b\n\"c\"d,e\n"); }),
            "f.csv:2: column 0: there is text after its closing quote");
}

class CsvTest : public ::testing::Test {
 protected:
  void put(const std::string& name, std::string_view text) const { write_file(path() / name, text); }
  SampleSplits open(const std::string& keys) const { return open_format("csv", keys, path()); }
  template <class E = DataError>
  std::string error(const std::string& keys) const {
    return message_of<E>([&] {
      const SampleSplits splits = open(keys);
      for (const auto& reader : {splits.train, splits.validation, splits.test})
        if (reader != nullptr) (void)reader->facts();
    });
  }
  /// Field `field` of all samples.
  static Floats values(const SampleReader& reader, std::size_t field) {
    Floats values;
    for (std::int64_t i = 0; i < reader.facts().size; ++i) {
      const std::string bytes = fetched(reader, i)[field];
      Floats row(bytes.size() / sizeof(float));
      std::memcpy(row.data(), bytes.data(), bytes.size());
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }
  const fs::path& path() const { return folder_.path(); }

  TemporaryFolder folder_;
};

TEST_F(CsvTest, ImagesByPathWithClassNames) {
  put("sets/train.csv", "image,label,weight\na.jpg,dog,1\nb/c.png,cat,0.5\na.jpg,dog,2\n");
  put("sets/val.csv", "label,image,weight\ncat,a.jpg,1\n");
  put("sets/a.jpg", "A");
  put("sets/b/c.png", "C");
  const SampleSplits splits =
      open("path: $/sets, train: train.csv, validation: val.csv, image: image, label: label, weight: weight");
  const DatasetFacts facts = splits.train->facts();
  EXPECT_EQ(facts.size, 3);
  EXPECT_EQ(facts.image_shape, (Shape{0, 0, 3}));
  EXPECT_EQ(facts.class_names, (Names{"cat", "dog"}));
  EXPECT_TRUE(facts.has_int32_target());
  EXPECT_EQ(fetched(*splits.train, 1), (Names{"C", std::string("\0\0\0\0", 4)}));
  EXPECT_EQ(splits.train->name_of(1),
            (path() / "sets/b/c.png").string() + " (" + (path() / "sets/train.csv").string() + ":3)");
  EXPECT_EQ(splits.train->files_of(1),
            (Names{(path() / "sets/b/c.png").string(), (path() / "sets/train.csv").string()}));
  EXPECT_EQ(splits.train->encoded_bytes(1), 1u);
  EXPECT_EQ(labels_of(*splits.train), (Labels{1, 0, 1}));
  EXPECT_EQ(splits.train->weights(), (Floats{1, 0.5f, 2}));
  EXPECT_EQ(labels_of(*splits.validation), (Labels{0}));
  fs::remove(path() / "sets/a.jpg");
  const std::string message = message_of<DataError>([&] { (void)fetched(*splits.train, 2); });
  EXPECT_CONTAINS(message, "a.jpg: cannot be read: No such file");
  EXPECT_CONTAINS(message, "train.csv:4)");
}

TEST_F(CsvTest, ClassesThatAreNumbersAreSortedAsNumbers) {
  put("t.csv", "x.png,10\ny.png,9\nz.png,-1\nx.png,10\n");
  const auto all = open("train: $/t.csv, test: $/t.csv, image: 0, label: 1, root: elsewhere");
  EXPECT_EQ(all.train->facts().class_names, (Names{"-1", "9", "10"}));
  EXPECT_EQ(labels_of(*all.train), (Labels{2, 1, 0, 2}));
  EXPECT_EQ(all.train->name_of(0).substr(0, 15), "elsewhere/x.png");
  const auto chosen = open("train: $/t.csv, test: $/t.csv, image: 0, label: 1, classes: ['10', '9', '-1']");
  EXPECT_EQ(labels_of(*chosen.validation), (Labels{0, 1, 2, 0}));
}

TEST_F(CsvTest, SeveralLabelsFromOneColumnOrMany) {
  put("one.csv", "image,tags\na.jpg,red|round\nb.jpg,\nc.jpg, round \n");
  put("many.csv", "image,red,round\na.jpg,1,1\nb.jpg,0,0\nc.jpg,0,1.0\n");
  for (const char* keys : {"train: $/one.csv, test: $/one.csv, image: image, label: tags, separator: '|'",
                           "train: $/many.csv, test: $/many.csv, image: image, label: [red, round]"}) {
    const auto reader = open(keys).train;
    const DatasetFacts facts = reader->facts();
    EXPECT_EQ(facts.class_names, (Names{"red", "round"}));
    ASSERT_EQ(facts.targets.size(), 1u);
    EXPECT_EQ(facts.targets[0], (SampleField{"targets", {2}, DType::float32}));
    Floats presence(6);
    for (std::int64_t i = 0; i < 3; ++i) {
      const std::array<std::span<std::byte>, 1> out = {
          std::as_writable_bytes(std::span(presence).subspan(static_cast<std::size_t>(2 * i), 2))};
      reader->read_targets(i, out);
    }
    EXPECT_EQ(presence, (Floats{1, 1, 0, 0, 0, 1}));
  }
}

TEST_F(CsvTest, RowsOfNumbersAreVectors) {
  put("t.csv", "a,kind,b,price\n1,x,+2.5,10\n-3e1,y,0.25,20\n");
  const auto reader = open("train: $/t.csv, test: $/t.csv, label: kind, target: price").train;
  const DatasetFacts facts = reader->facts();
  EXPECT_EQ(facts.image_shape, (Shape{2}));
  EXPECT_EQ(facts.image_dtype, DType::float32);
  ASSERT_EQ(facts.targets.size(), 2u);
  EXPECT_EQ(facts.targets[1], (SampleField{"targets", {1}, DType::float32}));
  EXPECT_EQ(values(*reader, 0), (Floats{1, 2.5f, -30, 0.25f}));
  EXPECT_EQ(labels_of(*open("train: $/t.csv, test: $/t.csv, label: kind, features: [a]").train), (Labels{0, 1}));
  EXPECT_EQ(values(*reader, 2), (Floats{10, 20}));
  EXPECT_EQ(reader->name_of(1), (path() / "t.csv").string() + ":3");
  EXPECT_EQ(reader->files_of(1), std::vector<std::string>{(path() / "t.csv").string()});
  EXPECT_EQ(values(*open("train: $/t.csv, test: $/t.csv, features: [b, a]").train, 0), (Floats{2.5f, 1, 0.25f, -30}));
}

TEST_F(CsvTest, AHeaderIsFoundOrSaid) {
  put("plain.csv", "1,2,setosa\n3,4,virginica\n");
  put("named.csv", "1,2,kind\n3,4,virginica\n3,5,setosa\n");
  EXPECT_EQ(open("train: $/plain.csv, test: $/plain.csv, label: 2").train->facts().size, 2);
  EXPECT_EQ(open("train: $/named.csv, test: $/named.csv, label: kind").train->facts().size, 2);
  EXPECT_EQ(open("train: $/named.csv, test: $/named.csv, label: 2").train->facts().class_names.size(), 3u);
  EXPECT_EQ(open("train: $/named.csv, test: $/named.csv, label: 2, header: true").train->facts().size, 2);
  put("words.csv", "a;b;kind\n1;2;x\n3;4;y\n");
  EXPECT_EQ(open("train: $/words.csv, test: $/words.csv, label: 2, delimiter: ';'").train->facts().size, 2);
  put("t.tsv", "a\tkind\n1\tx\n3\ty\n");
  EXPECT_EQ(open("train: $/t.tsv, test: $/t.tsv, label: kind").train->facts().image_shape, (Shape{1}));
  EXPECT_CONTAINS(error("train: $/plain.csv, test: $/plain.csv, label: kind, header: false"), "has no header");
}

TEST_F(CsvTest, FeaturesAreStandardisedByTheTrainingRows) {
  std::string text = "a,b,c,y\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("{},{},7,{}\n", i * i, 1000 - i, i % 2);
  put("t.csv", text);
  const std::string keys = "path: $/t.csv, split: 0.25, label: y, features: [a, b, c]";
  const SampleSplits raw = open(keys);
  const SampleSplits splits = open(keys + ", standardize: true");
  EXPECT_EQ(splits.train->facts().size, 30);
  EXPECT_EQ(splits.validation->facts().size, 10);
  ASSERT_NE(splits.whole, nullptr);
  EXPECT_EQ(splits.whole->facts().size, 40);
  EXPECT_GE(splits.whole->resident_bytes(), 40 * 3 * sizeof(float));
  const Labels held_out = labels_of(*splits.validation);
  EXPECT_EQ(std::ranges::count(held_out, 0), 5);
  const Floats train = values(*splits.train, 0), from = values(*raw.train, 0);
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0, raw_sum = 0, raw_squares = 0;
    for (std::size_t i = c; i < train.size(); i += 3) {
      sum += train[i], squares += train[i] * train[i];
      raw_sum += from[i], raw_squares += double{from[i]} * from[i];
    }
    EXPECT_NEAR(sum / 30, 0, 1e-6) << c;  // float32 values of magnitude 1
    EXPECT_NEAR(squares / 30, c == 2 ? 0 : 1, 1e-5) << c;
    const double mean = raw_sum / 30, deviation = c == 2 ? 1 : std::sqrt(raw_squares / 30 - mean * mean);
    const Floats out = values(*splits.validation, 0), raw_out = values(*raw.validation, 0);
    for (std::size_t i = c; i < out.size(); i += 3) EXPECT_NEAR(out[i], (raw_out[i] - mean) / deviation, 1e-4) << c;
  }
}

// Columns a and b have means 2 and 20 and deviations 1 and 10 over the training rows.
constexpr std::string_view kTrainingRows = "a,b,y\n1,10,p\n3,30,q\n";
// The same columns in another order, beside one more.
constexpr std::string_view kOtherRows = "b,y,extra,a\n40,p,7,5\n20,q,8,2\n";

TEST_F(CsvTest, OtherValidationSamplesAreReadAsTheTrainingSamples) {
  put("t.csv", kTrainingRows);
  put("v.csv", kOtherRows);
  put("bare.csv", "5,40,p\n2,20,q\n");
  const auto validation = [&](const std::string& keys, const std::string& own) {
    const DataOptions options = testing::data_of(
        fmt::format("format: csv, train: $/t.csv, test: $/t.csv, label: y, {}validation: {{{}}}, pipeline: [batch: "
                    "{{size: 1}}]",
                    keys, own),
        path());
    return values(*open_splits(options, 1).validation, 0);
  };
  const Floats expected = {3, 2, 0, 0}, raw = {5, 40, 2, 20};
  const std::string standardized = "standardize: true, ";
  EXPECT_EQ(validation(standardized, "path: $/v.csv, label: y"), expected);
  EXPECT_EQ(validation(standardized, "path: $/v.csv, label: y, standardize: true"), expected);
  EXPECT_EQ(validation(standardized, "train: $/t.csv, test: $/v.csv, label: y"), expected);
  EXPECT_EQ(validation("standardize: {mean: [2, 20], std: [1, 10]}, ", "path: $/v.csv, label: y"), expected);
  EXPECT_EQ(validation(standardized, "path: $/bare.csv, label: 2, header: false, features: [0, 1]"), expected);
  EXPECT_EQ(validation(standardized, "path: $/v.csv, label: y, standardize: {mean: [0, 0], std: [1, 0]}"), raw);
  EXPECT_EQ(validation("", "path: $/v.csv, label: y"), raw);
  EXPECT_CONTAINS(message_of<DataError>([&] { validation("", "path: $/v.csv, label: y, features: [a]"); }),
                  "v.csv: has 1 features, but the training samples have 2");
  EXPECT_CONTAINS(message_of<DataError>([&] { validation("", "path: $/bare.csv, label: 2, header: false"); }),
                  "bare.csv: has no header, so that no column is called 'a'");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { validation("", "path: $/v.csv, label: y, standardize: true"); }),
                  "standardize: true, but the training samples are not standardized");
}

TEST_F(CsvTest, SettledKeysReadOtherFilesAsTheTrainingRows) {
  using Keys = std::vector<std::pair<std::string, std::string>>;
  put("t.csv", kTrainingRows);
  put("v.csv", kOtherRows);
  const Keys keys = open("train: $/t.csv, test: $/v.csv, label: y, standardize: true").train->decided_keys();
  EXPECT_EQ(keys, (Keys{{"features", "[\"a\", \"b\"]"}, {"standardize", "{mean: [2, 20], std: [1, 10]}"}}));
  const SampleSplits other = open(fmt::format("train: $/v.csv, test: $/t.csv, label: y, {}: {}, {}: {}", keys[0].first,
                                              keys[0].second, keys[1].first, keys[1].second));
  EXPECT_EQ(values(*other.train, 0), (Floats{3, 2, 0, 0}));
  EXPECT_EQ(values(*other.validation, 0), (Floats{-1, -1, 1, 1}));
  EXPECT_TRUE(other.train->decided_keys().empty()) << "what is settled stays";
  EXPECT_TRUE(open("train: $/t.csv, test: $/v.csv, label: y, features: [1, a]").train->decided_keys().empty());
  put("bare.csv", "5,40,p\n2,20,q\n");
  EXPECT_TRUE(open("path: $/bare.csv, label: 2, split: 0.5").train->decided_keys().empty()) << "no column has a name";
  EXPECT_CONTAINS(error("train: $/t.csv, test: $/t.csv, label: y, standardize: {mean: [1], std: [1]}"),
                  "t.csv: has 2 features, but data.standardize has a mean and a std for 1");
  for (const char* wrong : {"{mean: [1, 2], std: [1]}", "{mean: [], std: []}"})
    EXPECT_CONTAINS(error<ConfigError>(fmt::format("train: $/t.csv, test: $/t.csv, label: y, standardize: {}", wrong)),
                    "expected a mean and a std for each feature");
}

// Exactly: a run that goes on from its config.yaml has the bits of one that was not interrupted. Names that are no text
// of a configuration are numbers of columns.
TEST_F(CsvTest, SettledKeysHaveAnyNamesAndAllDigits) {
  std::string text = "\"1\",\"say \"\"x\\\",\"two\nlines\",all,,na\xc3\xafve,b,\xc2\x85,y\n";
  PhiloxSequence random(philox_key(23, RandomPurpose::test, hash_name("csv")));
  for (int row = 0; row < 30; ++row) {
    for (int c = 0; c < 8; ++c) text += fmt::format("{},", (random.uniform() - 0.5) * std::pow(1000.0, c - 3));
    text += row % 2 == 0 ? "p\n" : "q\n";
  }
  put("t.csv", text);
  const std::string file = "path: $/t.csv, split: 0.2, label: y";
  const SampleSplits splits = open(file + ", standardize: true");
  const auto keys = splits.train->decided_keys();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].second, "[\"1\", \"say \\\"x\\\\\", \"two\\x0alines\", \"all\", 4, \"na\xc3\xafve\", \"b\", 7]");
  std::string settled = file;
  for (const auto& [key, value] : keys) settled += fmt::format(", {}: {}", key, value);
  const SampleSplits again = open(settled);
  EXPECT_EQ(values(*again.train, 0), values(*splits.train, 0));
  EXPECT_EQ(values(*again.validation, 0), values(*splits.validation, 0));
}

TEST_F(CsvTest, WrongCellsAreNamedByFileLineAndColumn) {
  const auto wrong = [&](std::string_view text, const std::string& keys) {
    put("t.csv", text);
    const std::string message = error("train: $/t.csv, test: $/t.csv, " + keys), file = (path() / "t.csv").string();
    EXPECT_TRUE(message.starts_with(file)) << message;
    return message.substr(std::min(file.size(), message.size()));
  };
  EXPECT_EQ(wrong("a,y\n1,x\nzwei,x\n", "label: y"), ":3: column 'a': expected a number, got 'zwei'");
  EXPECT_EQ(wrong("1,x\n,x\n", "label: 1"),
            ":2: column 0: expected a number, got an empty cell; 1 of 2 rows misses a value: 1 in column 0. "
            "`data.missing: drop` leaves such rows out, `data.missing: mean` puts the training samples' mean in their "
            "place");
  EXPECT_CONTAINS(wrong("1,x\nnan,x\n", "label: 1"), ":2: column 0: expected a number, got 'nan'; 1 of 2 rows misses");
  EXPECT_EQ(wrong("1,x\ninf,x\n", "label: 1, features: 0"), ":2: column 0: expected a finite float32, got 'inf'");
  EXPECT_EQ(wrong("1,x\n1e39,x\n", "label: 1"), ":2: column 0: expected a finite float32, got '1e39'");
  EXPECT_EQ(
      wrong("a,y\n1,x\n1\n", "label: y"),
      ":3: has 1 column, expected 2 as in the first row (cells end at ','; data.delimiter names another character)");
  EXPECT_EQ(wrong("a,y\n1,x\n1, \n", "label: y"),
            ":3: column 'y': expected a class name, got an empty cell; 1 of 2 rows misses a value: 1 in column 'y'. "
            "`data.missing: drop` leaves such rows out");
  EXPECT_EQ(wrong("a,lable\n1,x\n", "label: label"), ":1: has no column 'label'; did you mean 'lable'?");
  EXPECT_EQ(wrong("a,b\n1,x\n", "label: kind"), ":1: has no column 'kind'; its columns are a and b");
  EXPECT_EQ(wrong("1,x\n", "label: 2"), ":1: has no column 2; the last of its 2 columns is 1");
  EXPECT_EQ(wrong("a,a\n1,x\n", "label: a"),
            ":1: two columns are called 'a': name the one that is meant by its number, from 0");
  EXPECT_EQ(wrong("a,p,q\n1,0,2\n", "label: [p, q]"), ":2: column 'q': expected 0 or 1, got '2'");
  EXPECT_CONTAINS(wrong("i,y\n,x\n", "image: i, label: y"),
                  ":2: column 'i': expected an image's path, got an empty cell");
  EXPECT_EQ(wrong("a,w\n1,-1\n", "weight: w"), ":2: column 'w': a weight is not negative, got '-1'");
  EXPECT_EQ(wrong("a,t\n1,x|\n", "label: t, separator: '|'"),
            ":2: column 't': a class name is missing after the last '|'");
  EXPECT_EQ(wrong("y\nx\n", "label: y"), ": has no columns of features beside its labels or targets");
  EXPECT_EQ(wrong("a,y\n", "label: y"), ": has no rows after the header");
  EXPECT_EQ(wrong("\n", "label: y"), ": has no rows");
  EXPECT_EQ(wrong("a,y\n1,x\n", "label: y, classes: [p, q]"), ":2: 'x' is no class of data.classes, which are p and q");
  put("v.csv", "a,y\n1,x\n2,z\n");
  EXPECT_CONTAINS(error("train: $/t.csv, validation: $/v.csv, label: y"),
                  "v.csv:3: 'z' is no class of the training samples, which are x");
}

TEST_F(CsvTest, WrongKeysAreErrorsAtTheirPlace) {
  put("t.csv", "i,a,y\nx.png,1,p\ny.png,2,q\n");
  const std::string files = "train: $/t.csv, test: $/t.csv, ";
  EXPECT_CONTAINS(error<ConfigError>("label: y"), "name the CSV file");
  EXPECT_CONTAINS(error<ConfigError>("path: $/none.csv, label: y"), "there is no file");
  EXPECT_CONTAINS(error<ConfigError>(files + "split: 0.5"), "another file is held out");
  EXPECT_CONTAINS(error<ConfigError>(files + "image: i, features: [a]"), "samples are images");
  EXPECT_CONTAINS(error<ConfigError>(files + "image: i, standardize: true"), "images have `normalize`");
  EXPECT_CONTAINS(error<ConfigError>(files + "label: [y, a], target: a"), "both would be called 'targets'");
  EXPECT_CONTAINS(error<ConfigError>(files + "separator: '|'"), "needs `label: COLUMN`");
  EXPECT_CONTAINS(error<ConfigError>(files + "label: y, delimiter: ab"), "expected one character, tab, space or auto");
  EXPECT_CONTAINS(error<ConfigError>(files + "label: y, classes: [p, p]"), "each once");
  EXPECT_CONTAINS(error<ConfigError>(files + "label: y, classes: [p, q, '']"), "the name of class 2 is empty");
  EXPECT_CONTAINS(error<ConfigError>(files + "label: -1"), "t.yaml:1:");
}

bool any_contains(const Names& texts, std::string_view part) {
  return std::ranges::any_of(texts, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST(CsvNumbers, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(csv_number(" +2.5 "), 2.5);
  EXPECT_EQ(csv_number("1,234,567.5"), 1234567.5);
  EXPECT_EQ(csv_number("1.234,5", ','), 1234.5);
  EXPECT_EQ(csv_number("-0,25", ','), -0.25);
  EXPECT_EQ(csv_number("1 234 567"), 1234567);
  EXPECT_EQ(csv_number("1\xc2\xa0"
                       "234,5",
                       ','),
            1234.5);
  EXPECT_EQ(csv_number("45 %"), 0.45);
  EXPECT_EQ(csv_number("-12.5%"), -0.125);
  EXPECT_EQ(csv_number("$1,200"), 1200);
  EXPECT_EQ(csv_number("3,50 \xe2\x82\xac", ','), 3.5);
  EXPECT_EQ(csv_number("True"), 1);
  EXPECT_EQ(csv_number("False"), 0);
  EXPECT_EQ(csv_number("6,02e23", ','), 6.02e23);
  for (const char* wrong : {"", "1,2", "12,34,567", "1,234,56", "1..2", "12a", "%", "$", "2024-01-05", "1 23"})
    EXPECT_FALSE(csv_number(wrong)) << wrong;
  for (const char* missing : {"", " ", "NA", "nan", "NaN", "?", "null", "None", "-", "N/A", "<NA>", "NaT"})
    EXPECT_TRUE(is_missing_cell(missing)) << missing;
  EXPECT_FALSE(is_missing_cell("-1"));
}

TEST_F(CsvTest, DialectsAreFound) {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"semicolons and decimal commas", "a;b;y\n1,5;2;p\n-0,25;1.000,5;q\n"},
      {"no header", "1,5;2;p\n-0,25;1000,5;q\n"},
      {"tabs", "a\tb\ty\n1.5\t2\tp\n-0.25\t1,000.5\tq\n"},
      {"bars", "a|b|y\n1.5|2|p\n-0.25|1000.5|q\n"},
      {"blanks", "a  b   y\n1.5 2\tp\n -0.25  1000.5 q \n"},
      {"quotes", "\"a\", \"b\" ,\"y\"\n\"1.5\",\"2\",p\n\"-0.25\",\"1,000.5\",\"q\"\n"},
      {"comments", "# a table, of two\n# rows\na,b,y\n1.5,2,p\n# between\n-0.25,1000.5,q\n"},
      {"NumPy's header, with blanks", "# a b y\n1.5 2 p\n-0.25 1000.5 q\n"},
      {"NumPy's header", "# a,b,y\n1.5,2,p\n-0.25,1000.5,q\n"},
      {"Excel's first line", "sep=;\na;b;y\n1.5;2;p\n-0.25;1000.5;q\n"},
      {"old Macs", "a,b,y\r1.5,2,p\r-0.25,1000.5,q\r"},
      {"a delimiter at the end", "a,b,y,\n1.5,2,p,\n-0.25,1000.5,q,\n"},
      {"rows' ends alone", "a,b,y\n1.5,2,p,\n-0.25,1000.5,q,\n"}};
  for (const auto& [what, text] : texts) {
    put("t.csv", text);
    const auto reader = open("train: $/t.csv, test: $/t.csv, features: [0, 1], label: 2").train;
    EXPECT_EQ(values(*reader, 0), (Floats{1.5f, 2, -0.25f, 1000.5f})) << what;
    EXPECT_EQ(reader->facts().class_names, (Names{"p", "q"})) << what;
  }
  put("t.csv", "a,b\n\"1,5\",x\n\"2,25\",y\n");
  EXPECT_EQ(values(*open("train: $/t.csv, test: $/t.csv, label: b").train, 0), (Floats{1.5f, 2.25f}));
  EXPECT_EQ(values(*open("train: $/t.csv, test: $/t.csv, label: b, decimal: ','").train, 0), (Floats{1.5f, 2.25f}));
  put("t.csv", "\"x\",\"y\"\n\"r1\",1.5,\"p\"\n\"r2\",2.5,\"q\"\n");  // as R writes it
  EXPECT_EQ(values(*open("train: $/t.csv, test: $/t.csv, label: y, features: [x]").train, 0), (Floats{1.5f, 2.5f}));
  put("pokemon.csv", "#,Name,HP\n1,Bulbasaur,45\n2,Ivysaur,60\n");
  EXPECT_EQ(open("path: $/pokemon.csv, split: 0.5, image: Name, target: HP").whole->facts().size, 2);
}

TEST_F(CsvTest, EncodingsAndCompressionsAreRead) {
  const auto utf16 = [](std::string_view text, bool big, bool mark) {
    std::string bytes = mark ? (big ? "\xfe\xff" : "\xff\xfe") : "";
    for (const char c : text) {
      if (big) bytes += '\0';
      bytes += c;
      if (!big) bytes += '\0';
    }
    return bytes;
  };
  const std::string text = "a,y\n1.5,Z\xe9ro\n2.5,p\n", keys = "train: $/t.csv, test: $/t.csv, label: y";
  const Names names = {"Z\xc3\xa9ro", "p"};
  for (const std::string& bytes :
       {text, utf16(text, false, true), utf16(text, true, true), utf16(text, false, false)}) {
    put("t.csv", bytes);
    const auto reader = open(keys).train;
    EXPECT_EQ(reader->facts().class_names, names);
    EXPECT_EQ(values(*reader, 0), (Floats{1.5f, 2.5f}));
  }
  put("t.csv", text);
  EXPECT_TRUE(any_contains(open(keys).train->notes(), "read as Latin-1"));
  EXPECT_FALSE(any_contains(open(keys + ", encoding: latin-1").train->notes(), "Latin-1"));
  EXPECT_CONTAINS(error(keys + ", encoding: utf-8"), "t.csv: is no UTF-8");
  EXPECT_CONTAINS(error(keys + ", encoding: utf-8"), "`encoding: latin-1`");
  fs::remove(path() / "t.csv");
  gzFile file = gzopen((path() / "t.csv.gz").c_str(), "wb");
  gzputs(file, "a;y\n1;p\n2;q\n");
  gzclose(file);
  EXPECT_EQ(open("train: $/t.csv.gz, test: $/t.csv.gz, label: y").train->facts().size, 2);
  EXPECT_EQ(open("path: $/t.csv, split: 0.5, label: y").whole->facts().size, 2) << "where the plain file is not there";
  put("t.parquet", "PAR1....");
  EXPECT_CONTAINS(error("path: $/t.parquet, label: y"), "t.parquet: is a Parquet file, which is not read");
  EXPECT_CONTAINS(error("path: $/t.parquet, label: y"), "save it as CSV");
}

// Columns of numbers that are no features are left out, and told.
TEST_F(CsvTest, FeaturesAllLeavesOutWhatNumbersTheRows) {
  std::string text = ",PassengerId,Name,Age,Empty,Label\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("{},{},Mr {},{},,{}\n", i, 1000 + 7 * i, i, i % 11, i % 2);
  put("t.csv", text);
  const auto reader = open("path: $/t.csv, label: Label").whole;
  EXPECT_EQ(reader->facts().image_shape, (Shape{1}));
  EXPECT_EQ(reader->decided_keys()[0].second, "[\"Age\"]");
  const Names notes = reader->notes();
  EXPECT_TRUE(any_contains(notes,
                           "`features: all` leaves out column 0 and 'PassengerId' (they number or name the rows), "
                           "'Name' (it is text) and 'Empty' (it is empty)"))
      << fmt::format("{}", fmt::join(notes, "\n"));
  put("t.csv", "x,y\n0,p\n1,q\n2,p\n3,q\n4,p\n5,q\n");
  EXPECT_EQ(open("path: $/t.csv, label: y").whole->facts().image_shape, (Shape{1})) << "the last column stays";
  std::string times = "timestamp,b,y\n";
  for (int i = 0; i < 30; ++i) times += fmt::format("{},{},{}\n", 1700000000 + i, i % 7, i % 2);
  put("t.csv", times);
  EXPECT_EQ(open("path: $/t.csv, label: y").whole->facts().image_shape, (Shape{2})) << "times are measurements";
  put("t.csv", ",a,y\n7,1.5,p\n31,2.5,q\n2,3.5,q\n");
  EXPECT_EQ(open("path: $/t.csv, label: y").whole->facts().image_shape, (Shape{1})) << "pandas' index, sampled";
}

TEST_F(CsvTest, MissingNumbersAreDroppedOrTheMean) {
  put("t.csv", "a,b,y\n1,10,p\n,20,q\n3,NA,p\n5,60,\n4,?,q\n");
  const std::string keys = "train: $/t.csv, test: $/t.csv, label: y, ";
  const auto dropped = open(keys + "missing: drop").train;
  EXPECT_EQ(values(*dropped, 0), (Floats{1, 10}));
  EXPECT_TRUE(any_contains(dropped->notes(),
                           "4 of 5 rows miss a value: 1 in column 'a', 2 in column 'b' and 1 in "
                           "column 'y': left out"));
  const SampleSplits filled = open(keys + "missing: mean");
  const float mean = static_cast<float>((1.0 + 3 + 4) / 3);  // the row without a label is left out
  EXPECT_EQ(values(*filled.train, 0), (Floats{1, 10, mean, 20, 3, 15, 4, 15}));
  const auto settled = filled.train->decided_keys();
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[1].first, "missing");
  EXPECT_EQ(settled[1].second, fmt::format("{{mean: [{}, 15]}}", (1.0 + 3 + 4) / 3));
  EXPECT_EQ(values(*open(keys + "missing: {mean: [7, 8]}").train, 0), (Floats{1, 10, 7, 20, 3, 8, 4, 8}));
  const auto standard = values(*open(keys + "missing: mean, standardize: true").train, 0);
  EXPECT_FLOAT_EQ(standard[5], 0);
  EXPECT_CONTAINS(error(keys + "missing: {mean: [7]}"), "has 2 features, but data.missing has a mean for 1");
  put("t.csv", "a,b,y\n,1,p\n,2,q\n");
  EXPECT_CONTAINS(error(keys + "missing: drop, features: [a, b]"), "`missing: drop` leaves no row");
  EXPECT_CONTAINS(message_of<DataError>([&] { values(*open(keys + "missing: mean, features: [a, b]").train, 0); }),
                  "no training sample has a number in column 'a'");
}

TEST_F(CsvTest, TimestampsKeepTheirDigitsUntilStandardised) {
  std::string text = "time,y\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("{}.5,{}\n", 1700000000 + 3 * i, i % 2);
  put("t.csv", text);
  const auto plain = open("train: $/t.csv, test: $/t.csv, label: y").train;
  EXPECT_TRUE(any_contains(plain->notes(), "differ in digits that float32 does not have: `standardize: true`"));
  const Floats scaled = values(*open("train: $/t.csv, test: $/t.csv, label: y, standardize: true").train, 0);
  const double deviation = std::sqrt((40.0 * 40 - 1) / 12);  // of 0, 1, … 39
  for (int i = 0; i < 40; ++i) EXPECT_NEAR(scaled[static_cast<std::size_t>(i)], (i - 19.5) / deviation, 1e-6);
}

TEST_F(CsvTest, OneHotColumnsAreOneClass) {
  put("t.csv", "image,MEL,NV,BCC\na.jpg,0.0,1.0,0.0\nb.jpg,1.0,0.0,0.0\nc.jpg,0,0,True\n");
  const std::string keys = "train: $/t.csv, test: $/t.csv, image: image, label: {one_hot: [MEL, NV, BCC]}";
  const auto reader = open(keys).train;
  EXPECT_TRUE(reader->facts().has_int32_target());
  EXPECT_EQ(reader->facts().class_names, (Names{"MEL", "NV", "BCC"}));
  EXPECT_EQ(labels_of(*reader), (Labels{1, 0, 2}));
  put("t.csv", "image,MEL,NV,BCC\na.jpg,1,1,0\n");
  EXPECT_CONTAINS(error(keys), "t.csv:2: column 'NV': a second 1 in the columns of label.one_hot, after that of 'MEL'");
  put("t.csv", "image,MEL,NV,BCC\na.jpg,0,0,0\n");
  EXPECT_CONTAINS(error(keys), "t.csv:2: column 'MEL': no column of label.one_hot holds 1");
}

TEST_F(CsvTest, ImagesAreFoundByTheirNames) {
  put("set/train_images/a1.jpg", "A");
  put("set/train_images/a2.png", "B");
  put("set/test_images/a1.jpg", "T");
  put("set/train.csv", "id,label\na1,x\na2,y\n");
  const auto bare = open("path: $/set/train.csv, image: id, label: label, split: 0.5").whole;
  EXPECT_EQ(fetched(*bare, 0)[0], "A");
  EXPECT_EQ(fetched(*bare, 1)[0], "B");
  EXPECT_TRUE(any_contains(bare->notes(), "train.csv: 2 of 2 images are found in " +
                                              (path() / "set/train_images").string() +
                                              " with the suffix .jpg and .png"));
  EXPECT_TRUE(any_contains(bare->notes(), "; for 1 of them there are files of that name in other folders, too"));
  put("numbers/images/00017.jpg", "N");
  put("numbers/t.csv", "id,label\n17,x\n18,y\n");
  EXPECT_EQ(fetched(*open("path: $/numbers/t.csv, image: id, label: label, split: 0.5").whole, 0)[0], "N");
  put("set/labels/all.csv",
      "id,label\na2.png,x\n/kaggle/input/set/test_images/a1.jpg,y\nC:\\me\\train_images\\a1.jpg,y\n");
  const auto others = open("path: $/set/labels/all.csv, image: id, label: label, split: 0.5").whole;
  EXPECT_EQ(fetched(*others, 0)[0], "B");
  EXPECT_EQ(fetched(*others, 1)[0], "T");
  EXPECT_EQ(fetched(*others, 2)[0], "A");
  put("set/win.csv", "id,label\ntrain_images\\a1.jpg,x\ntrain_images\\a2.png,y\n");
  EXPECT_EQ(fetched(*open("path: $/set/win.csv, image: id, label: label, split: 0.5").whole, 1)[0], "B");
  put("set/some.csv", "id,label\na1,x\nb7,y\na1,y\n");
  const auto some =
      open("path: $/set/some.csv, image: id, label: label, split: 0.5, root: $/set/train_images, suffix: jpg").whole;
  EXPECT_EQ(fetched(*some, 0)[0], "A");
  EXPECT_TRUE(any_contains(some->notes(), "1 of 3 images are not there, such as b7.jpg"));
  EXPECT_TRUE(any_contains(some->notes(),
                           "some.csv: 1 row names the image of an earlier row, the first in line 4 that "
                           "in line 2"));
}

TEST_F(CsvTest, CopiesOfRowsAreTold) {
  const auto notes = [&](int rows, int different) {
    std::string text = "a,b,y\n";
    for (int i = 0; i < rows; ++i) text += fmt::format("{},{},p\n", (i % different) * 0.5, (i % different) * 0.25);
    put("t.csv", text);
    return open("path: $/t.csv, label: y").whole->notes();
  };
  EXPECT_TRUE(
      any_contains(notes(50, 48), "t.csv: 2 rows are copies of an earlier row, the first in line 50 that in line 2"));
  EXPECT_TRUE(notes(50, 50).empty());
  EXPECT_TRUE(notes(300, 299).empty()) << "by chance";
  EXPECT_TRUE(notes(50, 4).empty()) << "few values";
}

TEST_F(CsvTest, AFolderOfTablesHasItsPartsByName) {
  put("train.csv", "id,a,y\n1,1.5,p\n2,2.5,q\n3,0.5,p\n4,3.5,q\n");
  put("test.csv", "id,a\n5,1\n");
  put("gender_submission.csv", "id,y\n5,p\n");
  const SampleSplits splits = open("path: $, label: y");
  EXPECT_EQ(splits.whole->facts().size, 4);
  EXPECT_TRUE(any_contains(splits.train->notes(), "test.csv: has no column y, so that nothing can be evaluated on it"));
  EXPECT_EQ(open("path: $, train: train.csv, test: test.csv, label: y").validation->facts().size, 1);
  put("test.csv", "id,a,y\n5,1,p\n");
  EXPECT_EQ(open("path: $, label: y").validation->facts().size, 1);
  fs::remove(path() / "train.csv");
  EXPECT_CONTAINS(error<ConfigError>("path: $, label: y"), "holds gender_submission.csv and test.csv: name the one");
}

// Patients whose samples are all of one class, some with many.
TEST_F(CsvTest, GroupsStayTogether) {
  std::string text = "x,patient,y\n";
  for (int i = 0; i < 400; ++i) text += fmt::format("{},p{},{}\n", i * 0.37, i % 40, i % 4 == 0 ? "ill" : "well");
  put("t.csv", text);
  const auto groups_in = [](const SampleReader& reader) {
    const Labels groups = reader.groups();
    return std::set<std::int32_t>(groups.begin(), groups.end());
  };
  const auto check = [&](const SampleSplits& splits) {
    const std::set<std::int32_t> in = groups_in(*splits.train), out = groups_in(*splits.validation);
    EXPECT_EQ(in.size() + out.size(), 40u) << "no group is on both sides";
    EXPECT_NEAR(static_cast<double>(splits.validation->facts().size), 80, 10);
    const Labels labels = labels_of(*splits.validation);
    EXPECT_NEAR(static_cast<double>(std::ranges::count(labels, 0)), 20, 10);
  };
  check(open("path: $/t.csv, label: y, features: x, group: patient, split: 0.2"));
  const DataOptions options = testing::data_of(
      "format: csv, train: $/t.csv, test: $/t.csv, label: y, features: x, group: patient, validation: {split: 0.2}, "
      "pipeline: [batch: {size: 4}]",
      path());
  const SampleSplits splits = open_splits(options, 5);
  check(splits);
  EXPECT_EQ(train_facts(options).size, splits.train->facts().size);
  EXPECT_EQ(validation_facts(options).size, splits.validation->facts().size);
  put("t.csv", "x,patient,y\n1.5,a,p\n2,a,q\n");
  EXPECT_CONTAINS(error("path: $/t.csv, label: y, group: patient"), "all are of one group");
}

TEST_F(CsvTest, AValidationSplitIsStratifiedAndStandardizedByWhatRemains) {
  std::string text = "x,y\n";
  for (int i = 0; i < 100; ++i) text += fmt::format("{},{}\n", i * i * 0.25, i % 10 == 0 ? "rare" : "usual");
  put("t.csv", text);
  const DataOptions options = testing::data_of(
      "format: csv, train: $/t.csv, test: $/t.csv, label: y, standardize: true, validation: {split: 0.2}, "
      "pipeline: [batch: {size: 4}]",
      path());
  const SampleSplits splits = open_splits(options, 5);
  const Labels held_out = labels_of(*splits.validation);
  EXPECT_EQ(held_out.size(), 20u);
  EXPECT_EQ(std::ranges::count(held_out, 0), 2);
  double sum = 0, squares = 0;
  for (const float x : values(*splits.train, 0)) sum += x, squares += double{x} * x;
  EXPECT_NEAR(sum / 80, 0, 1e-6);  // float32 values of magnitude 1
  EXPECT_NEAR(squares / 80, 1, 1e-5);
}

TEST_F(CsvTest, InspectionSaysWhatColumnsHold) {
  std::string text = "id;photo;size;kind\n";
  for (int i = 0; i < 50; ++i)
    text += fmt::format("{};p{}.jpg;{},5;{}\n", i, i, i % 9, i == 3 ? "" : i % 2 == 0 ? "a" : "b");
  put("t.csv", text);
  const CsvFacts facts = inspect_csv(path() / "t.csv");
  EXPECT_TRUE(facts.has_header);
  EXPECT_EQ(facts.rows, 50);
  EXPECT_EQ(facts.dialect.delimiter, ';');
  EXPECT_EQ(facts.dialect.decimal, ',');
  ASSERT_EQ(facts.columns.size(), 4u);
  EXPECT_TRUE(facts.columns[0].is_index());
  EXPECT_EQ(facts.columns[1].images, 50);
  EXPECT_TRUE(facts.columns[2].is_numeric());
  EXPECT_EQ(facts.columns[2].most, 8.5);
  EXPECT_EQ(facts.columns[3].distinct, 2);
  EXPECT_EQ(facts.columns[3].missing, 1);
  EXPECT_EQ(inspect_csv(path() / "t.csv", {}, 7).rows, 7);
}

/// A text with a few bytes changed, dropped or doubled.
std::string mutated(std::string text, PhiloxSequence& random) {
  constexpr std::string_view kBytes = "\",\n\r;|0.e-\xef\0x";
  for (std::uint64_t edit = 0, edits = 1 + random.below(6); edit < edits && !text.empty(); ++edit) {
    const std::size_t at = random.below(text.size());
    const char byte = kBytes[random.below(kBytes.size())];
    switch (random.below(4)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, 1 + random.below(4));
        break;
      default:
        text.insert(at, text.substr(random.below(text.size()), random.below(20)));
    }
  }
  return text;
}

TEST_F(CsvTest, MutatedFilesAreRowsOrAnError) {
  const std::string numbers = "a,\"b\"\"q\",tags\r\n1,2.5,red|round\r\n\"-3\",4e2,\"red\"\r\n5,6,round\r\n";
  PhiloxSequence random(philox_key(17, RandomPurpose::test, hash_name("csv")));
  int errors = 0, rows = 0;
  for (int i = 0; i < 2000; ++i) {
    put("t.csv", mutated(numbers, random));
    try {
      const auto reader = open(i % 2 == 0 ? "train: $/t.csv, test: $/t.csv, label: 2, separator: '|'"
                                          : "train: $/t.csv, test: $/t.csv, label: tags")
                              .train;
      const std::int64_t size = reader->facts().size;
      for (std::int64_t s = 0; s < size; ++s)
        for (const float value : values(*first_samples(reader, s + 1), 0)) ASSERT_TRUE(std::isfinite(value));
      ++rows;
    } catch (const DataError& error) {
      EXPECT_CONTAINS(std::string(error.what()), "t.csv");
      ++errors;
    }
  }
  EXPECT_GT(errors, 200);
  EXPECT_GT(rows, 200);
}

// A table with a class, or a set of classes, for each row takes no memory and time of rows times classes.
TEST_F(CsvTest, AsManyClassesAsRows) {
  constexpr int kRows = 20'000;
  std::string one = "x,label\n", sets = one;
  for (int row = 0; row < kRows; ++row) {
    one += fmt::format("1,c{}\n", row);
    sets += fmt::format("1,c{}|d\n", row);
  }
  put("one.csv", one);
  put("sets.csv", sets);
  const auto classes = open("path: $/one.csv, label: label").train;
  const double seconds = testing::cpu_seconds([&] {
    std::vector<std::vector<std::byte>> fields(2);
    for (std::int64_t row = 0; row < kRows; ++row) classes->fetch(row, fields);
  });
  EXPECT_LT(seconds, 1) << "the names of all classes are not copied for each row";
  const auto many = open("path: $/sets.csv, label: label, separator: '|'").train;
  EXPECT_EQ(many->facts().class_names.size(), kRows + 1u);
  EXPECT_LT(many->resident_bytes(), std::uint64_t{16} << 20) << "zeros and ones would be 1.6 GB";
  const std::vector<std::string> first = testing::fetched(*many, 0);
  ASSERT_EQ(first[1].size(), (kRows + 1) * sizeof(float));
  float sum = 0;
  for (int c = 0; c <= kRows; ++c) {
    float value = 0;
    std::memcpy(&value, first[1].data() + static_cast<std::size_t>(c) * sizeof value, sizeof value);
    sum += value;
  }
  EXPECT_EQ(sum, 2);
}

// Rows that stand class after class are spread, as those of an image folder; others are the first ones.
TEST(CsvLimit, KeepsRowsOfAllClassesOfASortedFile) {
  const TemporaryFolder folder;
  std::string sorted = "x,label\n", mixed = sorted, of_one = sorted;
  for (int row = 0; row < 12; ++row) {
    sorted += fmt::format("{},{}\n", row, row < 4 ? "bee" : row < 8 ? "ant" : "cat");
    mixed += fmt::format("{},{}\n", row, row == 11 ? "bee" : row < 8 ? "ant" : "bee");
    of_one += fmt::format("{},ant\n", row);
  }
  mixed += "12,ant\n";
  write_file(folder.path() / "sorted.csv", sorted);
  write_file(folder.path() / "mixed.csv", mixed);
  write_file(folder.path() / "one.csv", of_one);
  const auto limited = [&](const std::string& name, const std::string& parts) {
    const DataOptions options = testing::data_of(
        fmt::format("format: csv, path: $, train: {0}.csv, {1}, label: label, limit: 6, pipeline: [batch: {{size: 2}}]",
                    name, parts),
        folder.path());
    return labels_of(*open_splits(options, 1).train);
  };
  EXPECT_EQ(limited("sorted", "test: one.csv"), (Labels{1, 1, 0, 0, 2, 2}));
  EXPECT_EQ(limited("mixed", "test: one.csv"), (Labels{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(limited("one", "test: one.csv"), (Labels{0, 0, 0, 0, 0, 0}));
  Labels split = limited("sorted", "split: 0.25");
  EXPECT_EQ(split, (Labels{1, 1, 0, 0, 2, 2})) << "also after a split";
}

TEST(CsvLimit, EvaluatesRowsOfAllClassesOfASortedFile) {
  const TemporaryFolder folder;
  std::string sorted = "x,label\n", mixed = sorted;
  for (int row = 0; row < 12; ++row) {
    sorted += fmt::format("{},{}\n", row, row < 4 ? "bee" : row < 8 ? "ant" : "cat");
    mixed += fmt::format("{},{}\n", row, row % 3 == 2 ? "bee" : "cat");
  }
  write_file(folder.path() / "sorted.csv", sorted);
  write_file(folder.path() / "mixed.csv", mixed);
  const auto evaluated = [&](const std::string& keys, const EvaluationOptions& limit) {
    DataOptions options = testing::data_of(
        "format: csv, path: $, train: sorted.csv, label: label, pipeline: [batch: {size: 2}], " + keys, folder.path());
    options.evaluation = limit;
    const SampleSplits splits = open_splits(options, 1);
    EXPECT_EQ(validation_facts(options).size, splits.validation->facts().size);
    return labels_of(*splits.validation);
  };
  EXPECT_EQ(evaluated("test: sorted.csv", {.samples = 6}), (Labels{1, 1, 0, 0, 2, 2}));
  EXPECT_EQ(evaluated("test: sorted.csv", {.batches = 2}), (Labels{1, 1, 0, 2}));
  EXPECT_EQ(evaluated("test: sorted.csv", {.samples = 30}), (Labels{1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2}));
  EXPECT_EQ(evaluated("test: mixed.csv", {.samples = 4}), (Labels{2, 2, 1, 2}));
  const Labels seen = evaluated("test: mixed.csv, validation: {split: 0.75}", {.samples = 5});
  EXPECT_EQ(std::set<std::int32_t>(seen.begin(), seen.end()).size(), 3u) << "also of a split";
  EXPECT_EQ(evaluated("test: mixed.csv, validation: {path: $/sorted.csv, label: label}", {.samples = 3}),
            (Labels{1, 0, 2}))
      << "also of another set";
}

}  // namespace
}  // namespace bantam::csv_test
