// The page of runs: it never passes its size, whatever it has to show, and names of the user's are text.
#include "bantam/cli/pages/run_page.h"

#include <algorithm>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/sha256.h"
#include "bantam/cli/pages/page_parts.h"
#include "bantam/cli/pages/page_text.h"

namespace bantam::cli::run_page_test {
namespace {

using Json = nlohmann::json;

/// Noise, which no file format makes smaller.
Image noise(std::int64_t side, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Image image;
  image.reshape({side, side}, 3);
  for (std::uint8_t& pixel : image.pixels) pixel = static_cast<std::uint8_t>(random());
  return image;
}

run::RunReport report_with(std::int64_t samples, std::int64_t side, std::size_t tensors) {
  run::RunReport report{.name = "</script><b>&", .run = {.path = "runs/r"}};
  report.run.record.name = "a \"b\" <c>";
  report.run.record.metric = "accuracy";
  report.held_out.emplace();
  report.held_out->samples = report.held_out->of = samples;
  report.held_out->names = {"cat", "dog"};
  for (std::int64_t i = 0; i < samples; ++i)
    report.held_out->worst.push_back({.index = i,
                                      .name = "</script>",
                                      .said = {{"cat", 0.75}},
                                      .loss = std::numeric_limits<double>::infinity(),
                                      .image = noise(side, static_cast<std::uint64_t>(i))});
  std::mt19937_64 random(1);
  for (std::size_t t = 0; t < tensors; ++t) {
    run::ReportedHistogram& one = report.weights.emplace_back();
    one.tensor = "layer" + std::to_string(t);
    for (int e = 0; e <= 64; ++e) one.edges.push_back(e);
    for (int c = 0; c < 64; ++c) one.counts.push_back(static_cast<double>(random() % 1'000'000));
  }
  return report;
}

Json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  return Json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(PageParts, AreTheFilesInTheirOrder) {
  for (const char* name : {"theme.js", "report.html", "report.css", "report.js", "run.html", "run.css", "run.js",
                           "step_page.html", "step_page.css", "step_page.js", "data_page.html", "data_page.css"})
    EXPECT_GT(page_part(name).size(), 400u) << name;
  EXPECT_TRUE(page_part("run.html").starts_with("<!doctype html>"));
  EXPECT_TRUE(page_part("run.css").starts_with(page_part("report.css").substr(0, 3000))) << "both begin with page.css";
  EXPECT_EQ(page_part("run.js").find('\x1e'), std::string::npos) << "the mark of the next part";
  EXPECT_THROW((void)page_part("run.txt"), Error);
}

TEST(RunPage, TheHashesAreThoseOfItsScripts) {
  const std::vector reports = {report_with(1, 8, 1)};
  const std::string page = run_page(reports), begin = "<script>", hashes = run_page_script_hashes();
  std::size_t scripts = 0;
  for (std::size_t at = 0; (at = page.find(begin, at)) != std::string::npos; ++scripts) {
    at += begin.size();
    const std::string hex = sha256_of(page.substr(at, page.find("</script>", at) - at));
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    EXPECT_NE(hashes.find("'sha256-" + base64(bytes) + "'"), std::string::npos) << hashes;
  }
  EXPECT_EQ(scripts, 2u) << "the theme's and the page's";
  EXPECT_EQ(std::ranges::count(hashes, '\''), 4);
}

TEST(RunPage, PicturesAreAsLargeAsThereIsRoomFor) {
  const std::vector reports = {report_with(64, 128, 10)};
  const std::string page = run_page(reports);
  EXPECT_LE(page.size(), kMostPageBytes);
  EXPECT_GE(page.size(), kMostPageBytes / 3) << "not smaller than they need be";
  const Json one = data_of(page)["runs"][0];
  EXPECT_TRUE(one["held_out"]["worst"][0]["image"].is_string());
  EXPECT_FALSE(one["held_out"].contains("no_pictures"));
  EXPECT_TRUE(one["held_out"]["worst"][0]["loss"].is_null()) << "JSON has no infinity";
  EXPECT_EQ(one["tensors"].size(), 10u);
}

TEST(RunPage, WhatHasNoRoomIsLeftOutAndTold) {
  std::vector<run::RunReport> reports;
  for (int r = 0; r < 20; ++r) reports.push_back(report_with(64, 128, 40));
  const std::string page = run_page(reports);
  EXPECT_LE(page.size(), kMostPageBytes);
  const Json one = data_of(page)["runs"][0];
  EXPECT_FALSE(one["held_out"]["worst"][0].contains("image"));
  EXPECT_NE(one["held_out"]["no_pictures"], "");
  EXPECT_EQ(one["tensors"].size(), 40u) << "there is room for histograms without pictures";
  for (run::RunReport& report : reports) report = report_with(64, 128, 400);
  const std::string smaller = run_page(reports);
  EXPECT_LE(smaller.size(), kMostPageBytes);
  EXPECT_EQ(data_of(smaller)["runs"][0]["tensors"].size(), 0u);
  EXPECT_NE(data_of(smaller)["runs"][0]["no_weights"], "");
}

TEST(RunPage, NamesAreText) {
  const std::vector reports = {report_with(1, 8, 1)};
  const std::string page = run_page(reports);
  EXPECT_EQ(page.find("<b>&"), std::string::npos);
  EXPECT_EQ(page.find("<c>"), std::string::npos);
  EXPECT_EQ(data_of(page)["runs"][0]["name"], "</script><b>&") << "and are as they were to the script";
}

}  // namespace
}  // namespace bantam::cli::run_page_test
