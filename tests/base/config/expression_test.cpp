// Expressions: Python's values and precedence, and the place of every mistake.
#include "bantam/base/config/expression.h"

#include <map>

#include <gtest/gtest.h>

namespace bantam::expression_test {
namespace {

const std::map<std::string, ExpressionValue> kValues = {{"channels", std::int64_t{96}},
                                                        {"stride", std::int64_t{2}},
                                                        {"rate", 0.25},
                                                        {"mode", std::string("same")},
                                                        {"wide", true},
                                                        {"zero", std::int64_t{0}}};

ExpressionValue look_up(const Expression::Name& name) {
  const auto found = kValues.find(name.name);
  if (found == kValues.end()) throw ExpressionError("no " + name.name, name.offset, name.name.size());
  return found->second;
}

std::string value_of(const std::string& text) { return to_string(Expression(text).evaluate(look_up)); }

struct Case {
  std::string text, value;  // as Python prints it, true and false in small letters
};

TEST(Expressions, HavePythonsValues) {
  for (const Case& c : std::vector<Case>{{"1 + 2 * 3", "7"},
                                         {"(1 + 2) * 3", "9"},
                                         {"2 - 3 - 4", "-5"},
                                         {"-2 * -3", "6"},
                                         {"- - 2", "2"},
                                         {"7 // 2", "3"},
                                         {"-7 // 2", "-4"},
                                         {"7 // -2", "-4"},
                                         {"-7 % 3", "2"},
                                         {"7 % -3", "-2"},
                                         {"-6 // 2", "-3"},
                                         {"6 % -1", "0"},
                                         {"7 / 2", "3.5"},
                                         {"8 / 2", "4"},
                                         {"7.5 // 2", "3"},
                                         {"-7.5 % 2", "0.5"},
                                         {"1 // 0.1", "9"},  // 0.1 is more than a tenth
                                         {"0.7 // 0.1", "6"},
                                         {"1e300 % 7", "1"},
                                         {"-1e17 % 3.0", "2"},
                                         {"1e3 + .5", "1000.5"},
                                         {"2e-1", "0.2"},
                                         {"channels // 4 * stride", "48"},
                                         {"channels * rate", "24"},
                                         {"min(3, 1, 2)", "1"},
                                         {"max(8, (channels + 4) // 8 * 8)", "96"},
                                         {"max(1, 0.5)", "1"},
                                         {"max(2)", "2"},
                                         {"round(2.5)", "2"},
                                         {"round(3.5)", "4"},
                                         {"round(-2.5)", "-2"},
                                         {"round(2.4999)", "2"},
                                         {"round(7)", "7"},
                                         {"9223372036854775807", "9223372036854775807"}})
    EXPECT_EQ(value_of(c.text), c.value) << c.text;
}

TEST(Expressions, CompareAndDecideAsPython) {
  for (const Case& c :
       std::vector<Case>{{"stride == 2 and channels == 96", "true"},
                         {"stride == 1 or channels != 96", "false"},
                         {"not stride == 1", "true"},
                         {"not wide or wide", "true"},
                         {"1 < 1.5", "true"},
                         {"2 <= 1", "false"},
                         {"3 > 2 and 3 >= 3", "true"},
                         {"2 == 2.0", "true"},
                         {"mode == 'same'", "true"},
                         {"mode != 'same'", "false"},
                         {"wide == true", "true"},
                         {"zero != 0 and channels // zero > 1", "false"},  // the right side is not asked
                         {"zero == 0 or channels // zero > 1", "true"},
                         {"mode", "same"},
                         {"'a text'", "a text"},
                         {"false", "false"}})
    EXPECT_EQ(value_of(c.text), c.value) << c.text;
}

struct Mistake {
  std::string text;
  std::size_t offset, length;
  std::string message;  // a part of it
};

TEST(Expressions, MistakesHaveAPlace) {
  for (const Mistake& m : std::vector<Mistake>{{"", 0, 0, "expected a value, got the end"},
                                               {"1 +", 3, 0, "expected a value, got the end"},
                                               {"1 2", 2, 1, "expected an operator, got '2'"},
                                               {"(1 + 2", 0, 1, "never closed"},
                                               {"max(1, 2", 3, 1, "never closed"},
                                               {"1 + 2)", 5, 1, "expected an operator, got ')'"},
                                               {"max 1", 4, 1, "expected '(' after max"},
                                               {"round(1, 2)", 0, 5, "one argument, got 2"},
                                               {"sqrt(2)", 0, 4, "'sqrt' is no function"},
                                               {"stride = 1", 7, 1, "equality is written =="},
                                               {"1 ? 2", 2, 1, "unexpected '?'"},
                                               {"1 é", 2, 2, "unexpected 'é'"},
                                               {"1 < 2 < 3", 6, 1, "do not chain"},
                                               {"1.2.3", 0, 5, "'1.2.3' is no number"},
                                               {"3x", 0, 2, "'3x' is no number"},
                                               {"mode == 'same", 8, 5, "quote is never closed"},
                                               {"1 + and", 4, 3, "expected a value, got 'and'"},
                                               {"channels // zero", 9, 2, "division by 0"},
                                               {"channels % zero", 9, 1, "division by 0"},
                                               {"1 / 0.0", 2, 1, "division by 0"},
                                               {"mode + 1", 5, 1, "'+' expects a number, got the text 'same'"},
                                               {"wide * 2", 5, 1, "'*' expects a number, got true"},
                                               {"stride and wide", 7, 3, "'and' expects true or false, got 2"},
                                               {"not 1", 0, 3, "'not' expects true or false, got 1"},
                                               {"mode == 1", 5, 2, "cannot compare the text 'same' with 1"},
                                               {"mode < 'z'", 5, 1, "cannot compare"},
                                               {"min(1, mode)", 0, 3, "'min' expects a number"},
                                               {"2 + chanels", 4, 7, "no chanels"},
                                               {"9223372036854775807 + 1", 20, 1, "too large"},
                                               {"-(0 - 9223372036854775807 - 1)", 0, 1, "too large"},
                                               {"(0 - 9223372036854775807 - 1) // -1", 30, 2, "too large"},
                                               {"1e308 * 10.0", 6, 1, "too large"},
                                               {"round(1e300)", 0, 5, "too large"}}) {
    try {
      (void)value_of(m.text);
      ADD_FAILURE() << "was accepted: " << m.text;
    } catch (const ExpressionError& error) {
      EXPECT_NE(std::string(error.what()).find(m.message), std::string::npos) << m.text << ": " << error.what();
      EXPECT_EQ(error.offset, m.offset) << m.text << ": " << error.what();
      EXPECT_EQ(error.length, m.length) << m.text << ": " << error.what();
    }
  }
}

TEST(Expressions, AreBounded) {
  EXPECT_THROW(Expression(std::string(1001, '1')), ExpressionError);
  EXPECT_THROW(Expression(std::string(100, '(') + "1" + std::string(100, ')')), ExpressionError);
  EXPECT_THROW(Expression(std::string(900, '-') + "1"), ExpressionError);
  std::string sum = "1";
  for (int i = 1; i < 490; ++i) sum += "+1";
  EXPECT_EQ(value_of(sum), "490");
}

TEST(Expressions, SayTheirNames) {
  std::vector<std::pair<std::string, std::size_t>> names;
  const Expression expression("max(a, b * a) + c_1");
  for (const Expression::Name& name : expression.names()) names.emplace_back(name.name, name.offset);
  EXPECT_EQ(names, (std::vector<std::pair<std::string, std::size_t>>{{"a", 4}, {"b", 7}, {"a", 11}, {"c_1", 16}}));
  EXPECT_FALSE(expression.is_name());
  EXPECT_TRUE(Expression(" stride ").is_name());
  EXPECT_FALSE(Expression("true").is_name());
  EXPECT_TRUE(Expression::is_reserved("max"));
  EXPECT_FALSE(Expression::is_reserved("stride"));
}

}  // namespace
}  // namespace bantam::expression_test
