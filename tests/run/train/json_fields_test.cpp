// Errors of JSON files: place, key, what was expected and what is there, in words of ours.
#include "bantam/run/train/json_fields.h"

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::run::json_fields_test {
namespace {

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonFields, AreReadByTypeAndPath) {
  const auto json = parse_json(R"({"a": {"b": 3, "c": -1.5}, "t": "x", "l": ["p", "q"], "n": [1, 2.5], "big": 1e3})");
  EXPECT_EQ(field<std::int64_t>(json, "a.b"), 3);
  EXPECT_EQ(field<double>(json, "a.b"), 3);
  EXPECT_EQ(field<double>(json, "a.c"), -1.5);
  EXPECT_EQ(field<std::string>(json, "t"), "x");
  EXPECT_EQ(field<std::vector<std::string>>(json, "l"), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(field<std::vector<double>>(json, "n"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(field_or(json, "none", 7), 7);
  EXPECT_EQ(error_of([&] { (void)field<std::int64_t>(json, "a.d"); }), "a.d: the key is missing");
  EXPECT_EQ(error_of([&] { (void)field<std::uint64_t>(json, "a.c"); }),
            "a.c: expected a whole number that is not negative, found -1.5");
  EXPECT_EQ(error_of([&] { (void)field<int>(json, "big"); }), "big: expected a whole number, found 1000.0");
  EXPECT_EQ(error_of([&] { (void)field<std::string>(json, "a"); }), R"(a: expected a text, found {"b":3,"c":-1.5})");
  EXPECT_EQ(error_of([&] { (void)field<double>(json, "t.b"); }), R"(t: expected an object, found "x")");
  EXPECT_EQ(error_of([&] { (void)field<std::vector<double>>(json, "l"); }),
            R"(l: expected a list of numbers, found "p")");
  EXPECT_EQ(error_of([&] { (void)field_or(json, "t", 7); }), R"(t: expected a whole number, found "x")");
  EXPECT_EQ(error_of([] { (void)field<int>(parse_json("[1]"), "a"); }), "the whole: expected an object, found [1]");
}

TEST(JsonFields, WhatIsNoJsonIsNamedByItsPlace) {
  EXPECT_EQ(error_of([] { (void)parse_json("{\n \"a\": x}"); }), "line 2, column 7: it is no JSON from here on");
  EXPECT_EQ(error_of([] { (void)parse_json(""); }).rfind("line 1, column ", 0), 0u);
  EXPECT_EQ(error_of([] { (void)parse_json("{\"a\": \"\xff\"}"); }).find("json.exception"), std::string::npos);
  EXPECT_NE(error_of([] { (void)parse_json("{\"a\": 1e999}"); }), "no error");
}

}  // namespace
}  // namespace bantam::run::json_fields_test
