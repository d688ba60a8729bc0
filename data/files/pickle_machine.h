// PickleMachine: the stack machine of Python's pickles, without what makes it dangerous. What names exist, and what
// calling them makes, is for who derives from it; nothing is executed. Source: CPython, Lib/pickletools.py.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/files/pickle.h"

namespace bantam {

/// Reads a pickle of protocols 2 to 5. Runs in time in proportion to the pickle's bytes, whatever they are, in some 250
/// MB of memory at most, and recurses over nothing. Values refer to one another and to `bytes`, and live in `values`;
/// those that nothing changes, None, booleans, numbers of one byte and the empty tuple, are one object each.
class PickleMachine {
 public:
  /// `file` stands in messages.
  PickleMachine(std::string file, std::span<const std::uint8_t> bytes, PickledValues& values)
      : file_(std::move(file)), bytes_(bytes), values_(values) {}
  virtual ~PickleMachine() = default;
  PickleMachine(const PickleMachine&) = delete;
  PickleMachine& operator=(const PickleMachine&) = delete;

  /// The value that the pickle holds. Throws DataError that names the file and the byte.
  PickledValue* run();
  /// Where the next pickle of a file of several begins: after the one that `run` has read.
  std::size_t end() const { return at_; }

 protected:
  /// Whether "module.name" may stand in the pickle.
  virtual bool knows(std::string_view name) const = 0;
  /// Calls the known name `callee`, or makes an object of this class, with a tuple's items, and returns the result;
  /// null: it is refused.
  virtual PickledValue* call(const PickledValue& callee, std::span<PickledValue* const> arguments) = 0;
  /// Sets an object's state; false: it is refused.
  virtual bool set_state(PickledValue& object, PickledValue& state) = 0;
  /// Whether an object may have entries like a list or a dictionary, which are then dropped.
  virtual bool drops_entries(const PickledValue& /*object*/) const { return false; }
  /// Returns the value for which a persistent id stands; null: it is refused.
  virtual PickledValue* persistent(PickledValue& /*id*/) { return nullptr; }

  [[noreturn]] void fail(const std::string& what) const;
  PickledValue* make(PickledValue::Kind kind);
  /// The text, which lives as long as the values.
  std::string_view kept(std::string text);
  /// Counts the bytes of the whole pickle.
  std::size_t size() const { return bytes_.size(); }

 private:
  bool push_value(std::uint8_t opcode);
  bool push_text(std::uint8_t opcode);
  bool make_tuple(std::uint8_t opcode);
  bool gather(std::uint8_t opcode);
  bool remember(std::uint8_t opcode);
  bool construct(std::uint8_t opcode);

  std::uint8_t next() { return take(1)[0]; }
  std::span<const std::uint8_t> take(std::uint64_t count);
  std::uint64_t number(std::size_t bytes);
  std::string line();
  void push(PickledValue* value);
  void push_shared(PickledValue*& shared, PickledValue::Kind kind, std::int64_t integer = 0);
  void remember_as(std::uint64_t number);
  PickledValue* pop();
  PickledValue* top();
  std::vector<PickledValue*> pop_mark();
  void push_integer(std::int64_t value, PickledValue::Kind kind = PickledValue::Kind::integer);
  void push_byte(std::uint8_t value);
  void push_real();
  void push_long(std::uint64_t bytes);
  void push_decimal();
  void push_text_of(std::uint64_t bytes);
  void push_tuple(std::vector<PickledValue*> items);
  void push_tuple_of(std::size_t count);
  void append(PickledValue::Kind kind, const std::vector<PickledValue*>& items);
  PickledValue* recall(std::uint64_t number);
  void count_items(std::size_t more);
  void push_name(const std::string& module, const std::string& name);
  void push_known(PickledValue* value, std::string_view what);
  void reduce();
  void construct_of_mark();
  void drop_keywords();
  void build();

  std::string file_;
  std::span<const std::uint8_t> bytes_;
  PickledValues& values_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::vector<PickledValue*> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickledValue*> memo_;
  PickledValue *none_ = nullptr, *false_ = nullptr, *true_ = nullptr,
               *empty_ = nullptr;                // made when they are first pushed
  std::array<PickledValue*, 256> numbers_ = {};  // from 0 on
  std::size_t items_ = 0;                        // of all lists and dictionaries
};

}  // namespace bantam
