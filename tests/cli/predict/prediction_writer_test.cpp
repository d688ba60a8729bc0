// Lines of predictions, of each task in each format.
#include "bantam/cli/predict/prediction_writer.h"

#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/json.h"

namespace bantam::cli::prediction_writer_test {
namespace {

PredictionWriter writer(PredictionFormat format, Task task, std::vector<std::string> names, std::int64_t top = 5) {
  return PredictionWriter({.format = format, .task = task, .names = std::move(names), .top = top});
}

TEST(PredictionWriterTest, ClassesAreSortedAndEqualOnesKeepTheirOrder) {
  const Prediction found{.file = "a.png", .values = {0.1f, 0.3f, 0.3f, 0.3f}};
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  EXPECT_EQ(writer(PredictionFormat::text, Task::classes, names, 2).line(found), "a.png: b 0.3000, c 0.3000\n");
  EXPECT_EQ(writer(PredictionFormat::text, Task::classes, names, 9).line(found),
            "a.png: b 0.3000, c 0.3000, d 0.3000, a 0.1000\n");
  const PredictionWriter csv = writer(PredictionFormat::csv, Task::classes, names, 2);
  EXPECT_EQ(csv.header(), "file,class,probability,class_2,probability_2\n");
  EXPECT_EQ(csv.line(found), "a.png,b,0.3,c,0.3\n");
  const auto json = nlohmann::json::parse(writer(PredictionFormat::json, Task::classes, names, 2).line(found));
  EXPECT_EQ(json["class"], "b");
  EXPECT_EQ(json["index"], 1);
  EXPECT_EQ(json["probability"].dump(), "0.3") << "a float's shortest text";
  EXPECT_EQ(json["top"][1]["class"], "c");
}

TEST(PredictionWriterTest, ANaNIsTheLeastProbableAndNullInJson) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Prediction found{.file = "a.png", .values = {0.25f, kNaN, 0.5f, kNaN, 0.125f}};
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  EXPECT_TRUE(
      writer(PredictionFormat::csv, Task::classes, names, 4).line(found).starts_with("a.png,c,0.5,a,0.25,e,0.125,b,"));
  const auto json = nlohmann::json::parse(writer(PredictionFormat::json, Task::classes, names).line(found));
  EXPECT_EQ(json["class"], "c");
  EXPECT_TRUE(json["top"][4]["probability"].is_null());
}

TEST(PredictionWriterTest, CellsAreQuotedWhereTheyMustBe) {
  EXPECT_EQ(csv_cell("plain name.png"), "plain name.png");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(csv_cell("two\nlines"), "\"two\nlines\"");
  const Prediction found{.file = "a,1.png", .values = {1.0f}};
  EXPECT_EQ(writer(PredictionFormat::csv, Task::classes, {"cat, wild"}).line(found), "\"a,1.png\",\"cat, wild\",1\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::values, {"x,y", "z"}).header(), "file,\"value_x,y\",value_z\n");
}

TEST(PredictionWriterTest, NamesReachNoTerminal) {
  const std::string file = "a\x1b[31m\u202E\xFF.png", name = "c\x9B\u2066t";
  const Prediction found{.file = file, .values = {1.0f}};
  EXPECT_EQ(writer(PredictionFormat::text, Task::classes, {name}).line(found),
            "a\\x1b[31m\\u202e\\xff.png: c\\x9b\\u2066t 1.0000\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::classes, {name}).line(found),
            "a\\x1b[31m\\u202e\\xff.png,c\\x9b\\u2066t,1\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::values, {"x\x1b", "y"}).header(), "file,value_x\\x1b,value_y\n");
  const auto json = nlohmann::json::parse(writer(PredictionFormat::json, Task::classes, {name}).line(found));
  EXPECT_EQ(json["file"], "a\\x1b[31m\\u202e\\xff.png");
  EXPECT_EQ(json["file_bytes"], "YRtbMzFt4oCu/y5wbmc=");
  EXPECT_EQ(json["class_bytes"], "Y5vigaZ0");
  EXPECT_EQ(csv_cell("=1+1"), "=1+1") << "as tables of other programs have it";
  EXPECT_EQ(csv_cell("größe 👩‍🔬"), "größe 👩‍🔬");
}

TEST(PredictionWriterTest, SeveralLabelsAreThoseFromTheThresholdOn) {
  const Prediction found{.file = "a.png", .values = {0.5f, 0.25f, 0.75f}},
      none{.file = "b.png", .values = {0.1f, 0.2f, 0.0f}};
  const std::vector<std::string> names = {"cat", "dog", "bird"};
  const PredictionWriter text = writer(PredictionFormat::text, Task::multi_label, names);
  EXPECT_EQ(text.line(found), "a.png: cat 0.5000, bird 0.7500\n");
  EXPECT_EQ(text.line(none), "b.png: none (the most probable: dog 0.2000)\n");
  const PredictionWriter csv = writer(PredictionFormat::csv, Task::multi_label, names);
  EXPECT_EQ(csv.header(), "file,classes,cat,dog,bird\n");
  EXPECT_EQ(csv.line(found), "a.png,cat|bird,0.5,0.25,0.75\n");
  EXPECT_EQ(csv.line(none), "b.png,,0.1,0.2,0\n");
  const auto json = nlohmann::json::parse(writer(PredictionFormat::json, Task::multi_label, names).line(found));
  EXPECT_EQ(json["classes"], nlohmann::json({"cat", "bird"}));
  EXPECT_EQ(json["probabilities"]["dog"], 0.25);
}

TEST(PredictionWriterTest, NumbersAndMasks) {
  const Prediction one{.file = "a.png", .values = {2.5f}}, two{.file = "a.png", .values = {2.5f, -1.0f}};
  EXPECT_EQ(writer(PredictionFormat::text, Task::values, {"0", "1"}).line(two), "a.png: 2.5, -1\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::values, {"0"}).header(), "file,value\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::values, {"0"}).line(one), "a.png,2.5\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::values, {"0", "1"}).header(), "file,value_0,value_1\n");
  const Prediction mask{.file = "a.png", .counts = {12, 0, 4}};
  const std::vector<std::string> names = {"grass", "sky", "road"};
  EXPECT_EQ(writer(PredictionFormat::text, Task::segmentation, names).line(mask), "a.png: grass 12, road 4 pixels\n");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::segmentation, names).line(mask), "a.png,12,0,4\n");
  EXPECT_EQ(writer(PredictionFormat::text, Task::masks, names).line({.file = "a.png", .counts = {0, 0, 0}}),
            "a.png: no pixels\n");
  EXPECT_EQ(nlohmann::json::parse(writer(PredictionFormat::json, Task::masks, names).line(mask))["pixels"]["road"], 4);
}

TEST(PredictionWriterTest, ABrokenFileHasALineInJsonAlone) {
  const Prediction broken{.file = "a.png", .error = "a.png: cannot be read"};
  EXPECT_EQ(writer(PredictionFormat::text, Task::classes, {"a"}).line(broken), "");
  EXPECT_EQ(writer(PredictionFormat::csv, Task::classes, {"a"}).line(broken), "");
  EXPECT_EQ(writer(PredictionFormat::json, Task::classes, {"a"}).line(broken),
            "{\"file\":\"a.png\",\"error\":\"a.png: cannot be read\"}\n");
}

}  // namespace
}  // namespace bantam::cli::prediction_writer_test
