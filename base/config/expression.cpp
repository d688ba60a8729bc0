// Parsing by recursive descent, one function a level of precedence; evaluation of the tree.
#include "bantam/base/config/expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/text.h"

namespace bantam {
namespace {

constexpr std::array<std::string_view, 3> kFunctions = {"min", "max", "round"};
constexpr std::array<std::string_view, 5> kWords = {"and", "or", "not", "true", "false"};
/// Longer ones first: "<=" before "<".
constexpr std::array<std::string_view, 14> kSymbols = {"==", "!=", "<=", ">=", "//", "<", ">",
                                                       "+",  "-",  "*",  "/",  "%",  "(", ")"};
constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

std::string to_string(const ExpressionValue& value) {
  if (const bool* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const std::string* text = std::get_if<std::string>(&value)) return *text;
  if (const double* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return fmt::format("{}", std::get<std::int64_t>(value));
}

bool Expression::is_reserved(std::string_view word) { return is_one_of(word, kFunctions) || is_one_of(word, kWords); }

/// Reads tokens from the text and adds nodes after those of their operands.
class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, std::vector<Expression::Node>& nodes) : text_(text), nodes_(nodes) { next(); }

  int parse() {
    const int root = either();
    if (!token_.empty()) fail(fmt::format("expected an operator, got '{}'", shown(token_)));
    return root;
  }

 private:
  using Kind = Expression::Kind;
  static constexpr int kMostDepth = 64;

  [[noreturn]] void fail(const std::string& message) const { throw ExpressionError(message, at_, token_.size()); }

  /// The next token; empty at the end.
  void next() {
    at_ += token_.size();
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    token_ = text_.substr(at_, token_length());
  }

  std::size_t token_length() {
    const std::string_view rest = text_.substr(at_);
    if (rest.empty()) return 0;
    if (begins_name(rest.front()))
      return static_cast<std::size_t>(std::ranges::find_if_not(rest, continues_name) - rest.begin());
    if (std::isdigit(static_cast<unsigned char>(rest.front())) != 0 || rest.front() == '.') return number_length(rest);
    if (rest.front() == '\'') return quoted_length(rest);
    if (rest.front() == ',') return 1;
    for (const std::string_view symbol : kSymbols)
      if (rest.starts_with(symbol)) return symbol.size();
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; };  // UTF-8
    token_ = rest.substr(
        0, static_cast<std::size_t>(std::find_if_not(rest.begin() + 1, rest.end(), continues) - rest.begin()));
    fail(rest.front() == '=' ? std::string("unexpected '='; equality is written ==")
                             : fmt::format("unexpected '{}'", shown(token_)));
  }

  static std::size_t number_length(std::string_view rest) {
    std::size_t end = 0;
    const auto is_part = [&](char c) {
      const bool signs_exponent = (c == '+' || c == '-') && end > 0 && (rest[end - 1] == 'e' || rest[end - 1] == 'E');
      return continues_name(c) || c == '.' || signs_exponent;
    };
    while (end < rest.size() && is_part(rest[end])) ++end;
    return end;
  }

  std::size_t quoted_length(std::string_view rest) {
    const std::size_t end = rest.find('\'', 1);
    if (end != std::string_view::npos) return end + 1;
    token_ = rest;
    fail("this quote is never closed");
  }

  int add(Expression::Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }

  Expression::Node take(Kind kind) {
    Expression::Node node{.kind = kind, .offset = at_, .length = token_.size(), .word = std::string(token_)};
    next();
    return node;
  }

  int binary(int left, int (ExpressionParser::*right)()) {
    Expression::Node node = take(Kind::binary);
    node.operands = {left, (this->*right)()};
    return add(std::move(node));
  }

  int unary(int (ExpressionParser::*operand)()) {
    Expression::Node node = take(Kind::unary);
    if (++depth_ > kMostDepth) fail("the expression is nested too deeply");
    node.operands = {(this->*operand)()};
    --depth_;
    return add(std::move(node));
  }

  int either() {
    int left = both();
    while (token_ == "or") left = binary(left, &ExpressionParser::both);
    return left;
  }

  int both() {
    int left = negation();
    while (token_ == "and") left = binary(left, &ExpressionParser::negation);
    return left;
  }

  int negation() { return token_ == "not" ? unary(&ExpressionParser::negation) : comparison(); }

  int comparison() {
    int left = sum();
    if (!is_one_of(token_, kComparisons)) return left;
    left = binary(left, &ExpressionParser::sum);
    if (is_one_of(token_, kComparisons)) fail("comparisons do not chain: write a < b and b < c");
    return left;
  }

  int sum() {
    int left = product();
    while (token_ == "+" || token_ == "-") left = binary(left, &ExpressionParser::product);
    return left;
  }

  int product() {
    int left = factor();
    while (token_ == "*" || token_ == "/" || token_ == "//" || token_ == "%")
      left = binary(left, &ExpressionParser::factor);
    return left;
  }

  int factor() { return token_ == "-" ? unary(&ExpressionParser::factor) : primary(); }

  int primary() {
    if (token_.empty()) fail("expected a value, got the end of the expression");
    if (token_ == "(") return parentheses();
    if (token_ == "true" || token_ == "false") return literal(token_ == "true");
    if (token_.front() == '\'') return literal(std::string(token_.substr(1, token_.size() - 2)));
    if (begins_name(token_.front())) return name();
    if (std::isdigit(static_cast<unsigned char>(token_.front())) == 0 && token_.front() != '.')
      fail(fmt::format("expected a value, got '{}'", token_));
    return literal(number());
  }

  int literal(ExpressionValue value) {
    Expression::Node node = take(Kind::literal);
    node.value = std::move(value);
    return add(std::move(node));
  }

  ExpressionValue number() const {
    const char *begin = token_.data(), *end = begin + token_.size();
    std::int64_t integer = 0;
    if (const auto [stop, error] = std::from_chars(begin, end, integer); error == std::errc() && stop == end)
      return integer;
    double value = 0;
    if (const auto [stop, error] = std::from_chars(begin, end, value); error == std::errc() && stop == end)
      return value;
    fail(fmt::format("'{}' is no number", shown(token_)));
  }

  int parentheses() {
    const std::size_t begin = at_;
    if (++depth_ > kMostDepth) fail("the expression is nested too deeply");
    next();
    const int inside = either();
    if (token_ != ")") throw ExpressionError("this parenthesis is never closed", begin, 1);
    --depth_;
    next();
    return inside;
  }

  int name() {
    if (is_one_of(token_, kFunctions)) return call();
    if (Expression::is_reserved(token_)) fail(fmt::format("expected a value, got '{}'", token_));
    const Expression::Node node = take(Kind::name);
    if (token_ != "(") return add(node);
    const std::vector<std::string> known(kFunctions.begin(), kFunctions.end());
    throw ExpressionError(
        fmt::format("'{}' is no function; the functions are {}", shown(node.word), join(known, ", ", " and ")),
        node.offset, node.length);
  }

  int call() {
    Expression::Node node = take(Kind::call);
    if (token_ != "(") fail(fmt::format("expected '(' after {}", node.word));
    const std::size_t begin = at_;
    if (++depth_ > kMostDepth) fail("the expression is nested too deeply");
    do {
      next();
      node.operands.push_back(either());
    } while (token_ == ",");
    if (token_ != ")") throw ExpressionError("this parenthesis is never closed", begin, 1);
    --depth_;
    if (node.word == "round" && node.operands.size() != 1)
      throw ExpressionError(fmt::format("round has one argument, got {}", node.operands.size()), node.offset,
                            node.length);
    next();
    return add(std::move(node));
  }

  std::string_view text_, token_;
  std::vector<Expression::Node>& nodes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

/// Values of nodes, from the operands up.
class ExpressionEvaluation {
 public:
  ExpressionEvaluation(const Expression& expression, const Expression::Lookup& lookup)
      : expression_(expression), lookup_(lookup) {}

  ExpressionValue value(int index) const {
    const Expression::Node& node = expression_.node(index);
    switch (node.kind) {
      case Expression::Kind::literal:
        return node.value;
      case Expression::Kind::name:
        return lookup_({node.word, node.offset});
      case Expression::Kind::call:
        return called(node);
      case Expression::Kind::unary:
        return node.word == "not" ? ExpressionValue(!truth(node, 0)) : minus(node);
      case Expression::Kind::binary:
        break;
    }
    if (node.word == "and") return truth(node, 0) && truth(node, 1);
    if (node.word == "or") return truth(node, 0) || truth(node, 1);
    return is_one_of(node.word, kComparisons) ? compared(node) : computed(node);
  }

 private:
  using Node = Expression::Node;

  [[noreturn]] static void fail(const Node& node, const std::string& message) {
    throw ExpressionError(message, node.offset, node.length);
  }

  static std::string described(const ExpressionValue& value) {
    return std::holds_alternative<std::string>(value) ? fmt::format("the text '{}'", shown(to_string(value)))
                                                      : to_string(value);
  }

  bool truth(const Node& node, std::size_t operand) const {
    const ExpressionValue value = this->value(node.operands[operand]);
    if (const bool* truth = std::get_if<bool>(&value)) return *truth;
    fail(node, fmt::format("'{}' expects true or false, got {}", node.word, described(value)));
  }

  ExpressionValue number(const Node& node, std::size_t operand) const {
    ExpressionValue value = this->value(node.operands[operand]);
    if (value.index() <= 1) return value;
    fail(node, fmt::format("'{}' expects a number, got {}", node.word, described(value)));
  }

  static double to_double(const ExpressionValue& value) {
    const std::int64_t* integer = std::get_if<std::int64_t>(&value);
    return integer ? static_cast<double>(*integer) : std::get<double>(value);
  }

  static ExpressionValue finite(const Node& node, double value) {
    if (!std::isfinite(value)) fail(node, "the result is too large");
    return value;
  }

  ExpressionValue minus(const Node& node) const {
    const ExpressionValue value = number(node, 0);
    if (const std::int64_t* integer = std::get_if<std::int64_t>(&value)) return difference(node, 0, *integer);
    return -std::get<double>(value);
  }

  static std::int64_t checked(const Node& node, bool overflows, std::int64_t value) {
    if (overflows) fail(node, "the result is too large");
    return value;
  }

  static std::int64_t difference(const Node& node, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    const bool overflows = __builtin_sub_overflow(a, b, &result);
    return checked(node, overflows, result);
  }

  ExpressionValue computed(const Node& node) const {
    const ExpressionValue a = number(node, 0), b = number(node, 1);
    const bool divides = node.word == "/" || node.word == "//" || node.word == "%";
    if (divides && to_double(b) == 0) fail(node, "division by 0");
    if (node.word != "/" && a.index() == 0 && b.index() == 0)
      return integers(node, std::get<std::int64_t>(a), std::get<std::int64_t>(b));
    return numbers(node, to_double(a), to_double(b));
  }

  static ExpressionValue integers(const Node& node, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflows = false;
    if (node.word == "+") overflows = __builtin_add_overflow(a, b, &result);
    if (node.word == "-") overflows = __builtin_sub_overflow(a, b, &result);
    if (node.word == "*") overflows = __builtin_mul_overflow(a, b, &result);
    if (node.word == "//" || node.word == "%") {
      if (b == -1) return node.word == "%" ? 0 : difference(node, 0, a);
      const std::int64_t remainder = a % b, down = remainder != 0 && (remainder < 0) != (b < 0) ? 1 : 0;
      result = node.word == "%" ? remainder + down * b : a / b - down;
    }
    return checked(node, overflows, result);
  }

  static ExpressionValue numbers(const Node& node, double a, double b) {
    if (node.word == "+") return finite(node, a + b);
    if (node.word == "-") return finite(node, a - b);
    if (node.word == "*") return finite(node, a * b);
    if (node.word == "/") return finite(node, a / b);
    double rest = std::fmod(a, b);  // exact, unlike a - b·⌊a / b⌋
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    return finite(node, node.word == "%" ? rest : std::round((a - rest) / b));
  }

  static bool ordered(const std::string& symbol, auto a, auto b) {
    if (symbol == "==") return a == b;
    if (symbol == "!=") return a != b;
    if (symbol == "<") return a < b;
    if (symbol == "<=") return a <= b;
    return symbol == ">" ? a > b : a >= b;
  }

  ExpressionValue compared(const Node& node) const {
    const ExpressionValue a = value(node.operands[0]), b = value(node.operands[1]);
    if (a.index() == 0 && b.index() == 0)
      return ordered(node.word, std::get<std::int64_t>(a), std::get<std::int64_t>(b));
    if (a.index() <= 1 && b.index() <= 1) return ordered(node.word, to_double(a), to_double(b));
    if (a.index() != b.index() || (node.word != "==" && node.word != "!="))
      fail(node, fmt::format("'{}' cannot compare {} with {}", node.word, described(a), described(b)));
    return (a == b) == (node.word == "==");
  }

  ExpressionValue called(const Node& node) const {
    ExpressionValue result = number(node, 0);
    if (node.word == "round") return rounded(node, result);
    for (std::size_t i = 1; i < node.operands.size(); ++i) {
      const ExpressionValue other = number(node, i);
      if (ordered(node.word == "min" ? "<" : ">", to_double(other), to_double(result))) result = other;
    }
    return result;
  }

  static ExpressionValue rounded(const Node& node, const ExpressionValue& value) {
    if (value.index() == 0) return value;
    constexpr double kMost = 9007199254740992.0;  // 2^53: beyond, doubles skip integers
    const double number = std::get<double>(value), floor = std::floor(number), rest = number - floor;
    if (std::abs(number) > kMost) fail(node, "the result is too large");
    const auto down = static_cast<std::int64_t>(floor);
    const bool up = rest > 0.5 || (rest == 0.5 && down % 2 != 0);
    return down + (up ? 1 : 0);
  }

  const Expression& expression_;
  const Expression::Lookup& lookup_;
};

Expression::Expression(std::string_view text) {
  if (text.size() > kMostBytes)
    throw ExpressionError(fmt::format("an expression has at most {} bytes, got {}", kMostBytes, text.size()), 0, 1);
  root_ = ExpressionParser(text, nodes_).parse();
}

std::vector<Expression::Name> Expression::names() const {
  std::vector<Name> names;
  for (const Node& node : nodes_)
    if (node.kind == Kind::name) names.push_back({node.word, node.offset});
  std::ranges::sort(names, {}, &Name::offset);
  return names;
}

ExpressionValue Expression::evaluate(const Lookup& lookup) const {
  return ExpressionEvaluation(*this, lookup).value(root_);
}

}  // namespace bantam
