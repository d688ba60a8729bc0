// Paths of configurations: expansion, and the folders that a relative one is looked for in.
#include "bantam/base/config/config_path.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/base/config_error.h"

namespace bantam::config_path_test {
namespace {

namespace fs = std::filesystem;
using testing::config_error_of;

class ConfigPath : public ::testing::Test {
 protected:
  ConfigPath() {
    std::string pattern = (fs::temp_directory_path() / "bantam-path-XXXXXX").string();
    folder_ = fs::canonical(mkdtemp(pattern.data()));
    before_ = fs::current_path();
    for (const char* name : {"here", "configs", "old"}) fs::create_directories(folder_ / name);
    fs::current_path(folder_ / "here");
    ::setenv("HOME", folder_.c_str(), 1);
    ::setenv("BANTAM_TEST_DATA", "sets", 1);
    ::unsetenv("BANTAM_TEST_UNSET");
  }
  ~ConfigPath() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  /// A configuration in configs/ that names `path`.
  ConfigDocument naming(const std::string& path) const {
    return ConfigDocument::parse("path: '" + path + "'\n", (folder_ / "configs" / "x.yaml").string());
  }
  static FoundPath found(const ConfigDocument& document) { return find_path(document.map().node("path")); }

  fs::path folder_, before_;
};

TEST_F(ConfigPath, ExpandsAsAShellDoes) {
  const std::string home = folder_.string();
  EXPECT_EQ(expanded_path("~"), home);
  EXPECT_EQ(expanded_path("~/a b"), home + "/a b");
  EXPECT_EQ(expanded_path("~root"), "/root");
  EXPECT_EQ(expanded_path("$HOME/x"), home + "/x");
  EXPECT_EQ(expanded_path("/a/${BANTAM_TEST_DATA}.1/$BANTAM_TEST_DATA"), "/a/sets.1/sets");
  EXPECT_EQ(expanded_path("a~/b"), "a~/b");
  EXPECT_EQ(expanded_path("cost$/5$"), "cost$/5$");
  EXPECT_EQ(expanded_path("${BANTAM"), "${BANTAM");
  ::setenv("HOME", "/", 1);
  EXPECT_EQ(expanded_path("~/x"), "/x");
}

TEST_F(ConfigPath, WhatIsNotThereIsAnErrorAtTheValue) {
  EXPECT_EQ(config_error_of([] { (void)expanded_path("$BANTAM_TEST_UNSET/x"); }),
            "'$BANTAM_TEST_UNSET': the environment variable BANTAM_TEST_UNSET is not set");
  EXPECT_EQ(config_error_of([] { (void)expanded_path("~nobody.of.this.name/x"); }),
            "'~nobody.of.this.name': there is no user of that name");
  const std::string error = config_error_of([&] { (void)found(naming("${BANTAM_TEST_UNSET}/x")); });
  EXPECT_NE(error.find("x.yaml:1:7: error: '${BANTAM_TEST_UNSET}': the environment variable"), std::string::npos)
      << error;
}

TEST_F(ConfigPath, TheCurrentFolderComesBeforeTheConfigurations) {
  fs::create_directories(folder_ / "configs" / "photos");
  const ConfigDocument document = naming("photos");
  EXPECT_EQ(found(document).path, folder_ / "configs" / "photos");
  EXPECT_EQ(folders_of_found_paths(document), std::vector<fs::path>{folder_ / "configs"});
  fs::create_directories(folder_ / "here" / "photos");
  const ConfigDocument again = naming("photos");
  EXPECT_EQ(found(again).path, "photos");
  EXPECT_EQ(folders_of_found_paths(again), std::vector<fs::path>{folder_ / "here"});
}

TEST_F(ConfigPath, SearchFoldersComeLastAndAreThoseOfTheConfiguration) {
  fs::create_directories(folder_ / "old" / "photos");
  const ConfigDocument document = naming("photos");
  add_search_folders(document, {"../old"});
  EXPECT_EQ(found(document).path, folder_ / "old" / "photos");
}

TEST_F(ConfigPath, AMissingPathSaysWhereItWasLookedFor) {
  const std::string here = (folder_ / "here").string(), configs = (folder_ / "configs").string();
  const std::string error = config_error_of([&] { (void)as_folder(naming("photos").map().node("path")); });
  EXPECT_NE(error.find("there is no folder photos: neither in the current folder (" + here + ") nor in " + configs),
            std::string::npos)
      << error;
  const ConfigDocument beside = ConfigDocument::parse("path: photos\n", "x.yaml");
  EXPECT_EQ(found(beside).places(), " in the current folder (" + here + ")");
  EXPECT_EQ(found(naming("/no/photos")).places(), "");
}

TEST_F(ConfigPath, ANameThatIsThereIsNotExpanded) {
  fs::create_directories(folder_ / "here" / "$BANTAM_TEST_UNSET");
  EXPECT_EQ(found(naming("$BANTAM_TEST_UNSET")).path, "$BANTAM_TEST_UNSET");
}

}  // namespace
}  // namespace bantam::config_path_test
