// Shared by the tests of models that cannot be: a text, and where in it which mistake is reported.
#pragma once

#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models {

struct Case {
  std::string name, yaml;
  std::string position;  // "line:column"
  std::string message;   // a part of it
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

inline std::string error_of(const std::string& yaml) {
  try {
    (void)model_from(yaml);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "was accepted";
}

inline void expect_reported(const Case& c) {
  const std::string text = error_of(c.yaml);
  EXPECT_EQ(text.substr(0, text.find(": error: ")), "test.yaml:" + c.position) << text;
  EXPECT_NE(text.find(c.message), std::string::npos) << text;
  EXPECT_NE(text.find("\n"), std::string::npos) << "the line with a caret is missing: " << text;
}

}  // namespace bantam::models
