// Pickle: the values of a Python pickle, of the few kinds that data sets are made of.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// One value.
struct PickledValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    list,
    tuple,
    dictionary,
    name,
    dtype,
    array,
    object  ///< an object of the class that `text` names, with its parts in `items`
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  ///< the value of an integer or a boolean
  std::string_view text;     ///< a text, a name ("numpy.ndarray"), a dtype ("u1"), or an array's elements
  std::vector<PickledValue*>
      items;  ///< items of lists and tuples, a dictionary's keys and values in turn, an array's extents

  std::span<const std::uint8_t> bytes() const {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }
};

/// The values of pickles, which refer to one another, and those of their texts that do not lie in a file as they are.
struct PickledValues {
  std::deque<PickledValue> all;
  std::set<std::string, std::less<>> texts;
};

/// "a dictionary": for messages.
std::string_view kind_name(PickledValue::Kind kind);

/// Reads a pickle of protocols 2 to 5 that holds dictionaries, lists, tuples, whole numbers, texts, None, booleans and
/// NumPy arrays of uint8 in C order, which covers the files of CIFAR-10 and CIFAR-100. Nothing is executed: the names
/// that such arrays are pickled with are recognised, every other name, opcode and call is refused. Throws DataError
/// that names the file and the byte.
class Pickle {
 public:
  Pickle(std::string file, std::vector<std::uint8_t> bytes);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickledValue& root() const { return *root_; }
  /// The value of a key of the dictionary that the file is. Throws where there is none, or one of another kind.
  const PickledValue& at(std::string_view key, PickledValue::Kind kind) const;

 private:
  std::string file_;
  std::vector<std::uint8_t> bytes_;
  PickledValues values_;
  PickledValue* root_ = nullptr;
};

}  // namespace bantam
