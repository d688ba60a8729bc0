// A log that grows: its sum follows the file whatever happens to it, and nothing outside of the folder is written.
#include "bantam/run/log/appended_file.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::appended_file_test {
namespace {

namespace fs = std::filesystem;

class AppendedFileTest : public RunTest {
 protected:
  AppendedFile log(const std::string& unit = "lines") {
    return {{path("log")}, unit, [this](std::string_view text) { warnings_.emplace_back(text); }};
  }
  FileSum of_file() const { return sum_of({path("log")}).finished(); }
  static FileSum of_text(const std::string& text) { return {.bytes = text.size(), .sha256 = sha256_of(text)}; }
  bool warned(const std::string& part) const {
    return std::ranges::any_of(warnings_,
                               [&](const std::string& text) { return text.find(part) != std::string::npos; });
  }

  std::vector<std::string> warnings_;
};

TEST_F(AppendedFileTest, ThePositionHasWhatWaits) {
  AppendedFile file = log();
  EXPECT_EQ(file.position(), of_text(""));
  file.add("one\n");
  EXPECT_EQ(file.position(), of_text("one\n"));
  file.flush();
  file.add("two\n");
  EXPECT_EQ(file.position(), of_text("one\ntwo\n"));
  file.end();
  EXPECT_EQ(file.position(), of_file());
}

TEST_F(AppendedFileTest, ThePositionFollowsTheFile) {
  AppendedFile file = log();
  file.add("one\n");
  file.flush();
  fs::rename(path("log"), path("rotated"));
  EXPECT_EQ(file.position(), of_text(""));
  file.add("two\n");
  file.flush();
  EXPECT_EQ(file.position(), of_text("two\n"));
  write_file_atomically(path("log"), "somebody's\n");  // as an editor saves
  EXPECT_EQ(file.position(), of_text("somebody's\n"));
  file.add("three\n");
  file.flush();
  fs::resize_file(path("log"), 4);
  EXPECT_EQ(file.position(), of_file());
  EXPECT_EQ(read_file(path("rotated")), "one\n");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AppendedFileTest, ACutFileGoesOn) {
  write_file_atomically(path("log"), "one\ntwo\nthree\n");
  AppendedFile file = log();
  const FileSum position = of_text("one\ntwo\n");
  EXPECT_EQ(file.difference_from(position), "");
  file.cut(position);
  EXPECT_EQ(file.position(), position);
  file.add("3\n");
  file.flush();
  EXPECT_EQ(read_file(path("log")), "one\ntwo\n3\n");
  EXPECT_EQ(file.position(), of_file());
}

TEST_F(AppendedFileTest, WhatCannotBeReadIsCutBeforeTheNextRecord) {
  fs::create_symlink("longer than the position", path("log"));  // not read, as a file of a disk that fails for a while
  AppendedFile file = log();
  file.cut(of_text("one\n"));
  EXPECT_TRUE(warned("should have 4 bytes of the updates before"));
  EXPECT_EQ(file.position(), (FileSum{.bytes = 4})) << "a sum of what was not read would be another file's";
  fs::remove(path("log"));
  write_file_atomically(path("log"), "one\ntwo\nthree\n");
  file.add("2\n");
  file.flush();
  EXPECT_EQ(read_file(path("log")), "one\n2\n");
  EXPECT_EQ(file.position(), of_file());
}

TEST_F(AppendedFileTest, AFileOfOtherBytesIsToldAndKept) {
  write_file_atomically(path("log"), "one\ntwx\nthree\n");
  AppendedFile file = log();
  const FileSum position = of_text("one\ntwo\n");
  EXPECT_NE(file.difference_from(position).find(path("log").string() + " differs from what the run has written"),
            std::string::npos);
  EXPECT_EQ(file.difference_from({.bytes = 8}), "") << "of an earlier program";
  file.cut(position);
  EXPECT_TRUE(warned("is kept as " + path("log").string() + ".kept"));
  EXPECT_EQ(read_file(path("log.kept")), "one\ntwx\nthree\n");
  EXPECT_EQ(read_file(path("log")), "one\ntwx\n") << "whole lines until there";
  EXPECT_EQ(file.position(), of_file());
  file.cut(of_text("o"));
  EXPECT_TRUE(fs::exists(path("log.kept")));
  file.cut(of_text("x"));
  EXPECT_TRUE(fs::exists(path("log.kept-2"))) << "the first one is not replaced";
  EXPECT_NE(file.difference_from(of_text("0123456789012")).find("expected at least the 13"), std::string::npos);
}

TEST_F(AppendedFileTest, AnotherNameOfTheFileKeepsWhatItHas) {
  write_file_atomically(path("log"), "one\ntwo\n");
  fs::create_hard_link(path("log"), path("theirs"));
  {
    AppendedFile file = log();
    file.cut(of_text("one\n"));
    file.add("2\n");
    file.end();
  }
  EXPECT_EQ(read_file(path("theirs")), "one\ntwo\n");
  EXPECT_EQ(read_file(path("log")), "one\n2\n");
  fs::remove(path("theirs"));
  fs::create_hard_link(path("log"), path("theirs"));
  AppendedFile file = log();
  file.cut(of_file());
  file.add("three\n");
  file.end();
  EXPECT_EQ(read_file(path("theirs")), "one\n2\n");
  EXPECT_EQ(read_file(path("log")), "one\n2\nthree\n");
}

TEST_F(AppendedFileTest, NoLinkIsFollowed) {
  write_file_atomically(path("theirs"), "theirs\n");
  fs::create_symlink(path("theirs"), path("log"));
  {
    AppendedFile file = log();
    EXPECT_NE(file.difference_from(of_text("theirs\n")).find("it is a symbolic link"), std::string::npos);
    file.cut(of_text("th"));
    file.add("one\n");
    file.end();
    EXPECT_FALSE(file.complete());
    EXPECT_TRUE(warned("it is a symbolic link, expected a regular file"));
  }
  fs::create_directories(path("elsewhere"));
  fs::create_directory_symlink(path("elsewhere"), path("tensorboard"));
  AppendedFile events({.path = path("tensorboard/train/events"), .names = 3}, "events", [](std::string_view) {});
  events.add("event");
  events.end();
  EXPECT_TRUE(fs::is_empty(path("elsewhere"))) << "no folder is made behind a link either";
  EXPECT_EQ(read_file(path("theirs")), "theirs\n");
}

TEST_F(AppendedFileTest, FoldersWithinTheRunAreMade) {
  AppendedFile events({.path = path("tensorboard/train/events"), .names = 3}, "events", [](std::string_view) {});
  events.add("event");
  events.end();
  EXPECT_EQ(read_file(path("tensorboard/train/events")), "event");
}

}  // namespace
}  // namespace bantam::run::appended_file_test
