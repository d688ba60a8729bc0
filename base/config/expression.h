// Small expressions over named values, as configurations have them in $(…): parsed once, evaluated for given values.
// Internal to base/config, models/yaml and data/pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bantam/base/error.h"

namespace bantam {

/// Python's int, float, bool and str. Integers and numbers mix; the others stay apart.
using ExpressionValue = std::variant<std::int64_t, double, bool, std::string>;

/// "12", "2.5", "true", "relu".
std::string to_string(const ExpressionValue& value);

/// A part of an expression that is wrong: bytes [offset, offset + length) of its text.
class ExpressionError : public Error {
 public:
  ExpressionError(const std::string& message, std::size_t at, std::size_t bytes)
      : Error(message), offset(at), length(bytes) {}
  std::size_t offset, length;
};

/// Python's operators with Python's precedence: or, and, not; == != < <= > >=, which do not chain; + - * / // %; unary
/// minus; parentheses; min(…), max(…), round(x), which rounds halves to the even integer; numbers, true, false, 'text'
/// and names. `/` is exact division and returns a number, `//` and `%` round down. `and` and `or` expect true or false
/// and evaluate their right side only where it counts.
class Expression {
 public:
  /// Where a name stands.
  struct Name {
    std::string name;
    std::size_t offset = 0;
  };
  using Lookup = std::function<ExpressionValue(const Name& name)>;

  /// Parses `text`, of at most kMostBytes bytes. Throws ExpressionError.
  explicit Expression(std::string_view text);

  /// Every name in the order of the text, once for each time that it is there.
  std::vector<Name> names() const;
  /// Whether it is a name and nothing else.
  bool is_name() const { return node(root_).kind == Kind::name; }
  /// Throws ExpressionError: a value of the wrong type, a division by 0, an integer beyond 64 bits, what `lookup`
  /// throws.
  ExpressionValue evaluate(const Lookup& lookup) const;

  /// Words that no name may be: operators, literals and functions.
  static bool is_reserved(std::string_view word);

  static constexpr std::size_t kMostBytes = 1000;

 private:
  friend class ExpressionParser;
  friend class ExpressionEvaluation;
  enum class Kind : std::uint8_t { literal, name, call, unary, binary };
  struct Node {
    Kind kind = Kind::literal;
    std::size_t offset = 0, length = 1;  ///< bytes of the name, operator or literal in the text
    std::string word;                    ///< the name, function or operator
    ExpressionValue value;               ///< the value of a literal
    std::vector<int> operands;           ///< indices of nodes
  };
  const Node& node(int index) const { return nodes_[static_cast<std::size_t>(index)]; }

  std::vector<Node> nodes_;
  int root_ = 0;
};

}  // namespace bantam
