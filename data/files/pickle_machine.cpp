// The opcodes of protocols 2 to 5, but for those that only the text protocols 0 and 1 write.
#include "bantam/data/files/pickle_machine.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {

using Kind = PickledValue::Kind;

namespace {

constexpr int kOldestProtocol = 2, kNewestProtocol = 5;
/// Values and entries of the memo, which have a few words each; values that wait on the stack; items of lists, tuples
/// and dictionaries. State dictionaries of 100,000 tensors have half as many.
constexpr std::size_t kMostValues = 2'500'000, kMostWaiting = std::size_t{1} << 20, kMostItems = 4'000'000;

}  // namespace

PickledValue* PickleMachine::run() {
  if (next() != 0x80) fail("it does not begin with a protocol (expected protocol 2 or later)");
  const int protocol = next();
  if (protocol < kOldestProtocol || protocol > kNewestProtocol) fail(fmt::format("protocol {}", protocol));
  for (;;) {
    opcode_at_ = at_;
    const std::uint8_t opcode = next();
    if (opcode == '.') break;
    if (!push_value(opcode) && !push_text(opcode) && !make_tuple(opcode) && !gather(opcode) && !remember(opcode) &&
        !construct(opcode))
      fail(fmt::format("opcode 0x{:02x}, which is refused", opcode));
  }
  PickledValue* root = pop();
  if (!stack_.empty() || !marks_.empty()) fail("values are left over at its end");
  return root;
}

void PickleMachine::fail(const std::string& what) const {
  throw DataError(fmt::format("{}: is no pickle that is read here: {}, at byte {}", file_, what, opcode_at_));
}

std::span<const std::uint8_t> PickleMachine::take(std::uint64_t count) {
  if (count > bytes_.size() - at_) fail("it is cut short");
  const auto taken = bytes_.subspan(at_, static_cast<std::size_t>(count));
  at_ += static_cast<std::size_t>(count);
  return taken;
}

/// Little-endian.
std::uint64_t PickleMachine::number(std::size_t bytes) {
  std::uint64_t value = 0;
  const auto taken = take(bytes);
  for (std::size_t i = taken.size(); i-- > 0;) value = value << 8 | taken[i];
  return value;
}

std::string PickleMachine::line() {
  const auto rest = bytes_.subspan(at_);
  const auto end = std::ranges::find(rest, '\n');
  if (end == rest.end()) fail("a name does not end");
  std::string text(rest.begin(), end);
  at_ += text.size() + 1;
  return text;
}

PickledValue* PickleMachine::make(Kind kind) {
  if (values_.all.size() + memo_.size() >= kMostValues)
    fail(fmt::format("more than {} values", format_count(kMostValues)));
  values_.all.emplace_back().kind = kind;
  return &values_.all.back();
}

std::string_view PickleMachine::kept(std::string text) { return *values_.texts.insert(std::move(text)).first; }

void PickleMachine::push(PickledValue* value) {
  if (stack_.size() >= kMostWaiting) fail(fmt::format("more than {} values at once", format_count(kMostWaiting)));
  stack_.push_back(value);
}

/// A value that nothing changes is made once.
void PickleMachine::push_shared(PickledValue*& shared, Kind kind, std::int64_t integer) {
  if (shared == nullptr) {
    shared = make(kind);
    shared->integer = integer;
  }
  push(shared);
}

/// Pops the top value. Fails where the last mark lies on top: values below a mark are not popped one by one.
PickledValue* PickleMachine::pop() {
  if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) fail("a value is missing");
  PickledValue* value = stack_.back();
  stack_.pop_back();
  return value;
}

PickledValue* PickleMachine::top() {
  PickledValue* value = pop();
  push(value);
  return value;
}

/// The values above the last mark, which goes.
std::vector<PickledValue*> PickleMachine::pop_mark() {
  if (marks_.empty()) fail("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<PickledValue*> values(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return values;
}

void PickleMachine::count_items(std::size_t more) {
  items_ += more;
  if (items_ > kMostItems) fail(fmt::format("lists of more than {} items in all", format_count(kMostItems)));
}

void PickleMachine::push_byte(std::uint8_t value) { push_shared(numbers_[value], Kind::integer, value); }

void PickleMachine::push_integer(std::int64_t value, Kind kind) {
  PickledValue* made = make(kind);
  made->integer = value;
  push(made);
}

/// No tensor has one: it is not kept which number it is.
void PickleMachine::push_real() {
  (void)take(8);
  push(make(Kind::real));
}

/// Two's complement of any number of bytes. More than 64 bits have the states of random generators: they count as a
/// real number.
void PickleMachine::push_long(std::uint64_t bytes) {
  if (bytes > 8) {
    (void)take(bytes);
    return push(make(Kind::real));
  }
  std::uint64_t value = number(static_cast<std::size_t>(bytes));
  if (bytes > 0 && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0) value |= ~std::uint64_t{0} << 8 * bytes;
  push_integer(static_cast<std::int64_t>(value));
}

/// Python 2 writes whole numbers of more than 32 bits as text, and booleans as 00 and 01.
void PickleMachine::push_decimal() {
  const std::string text = line();
  if (text == "00") return push_shared(false_, Kind::boolean, 0);
  if (text == "01") return push_shared(true_, Kind::boolean, 1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail("a whole number that is none");
  push_integer(value);
}

void PickleMachine::push_text_of(std::uint64_t bytes) {
  PickledValue* made = make(Kind::text);
  const auto taken = take(bytes);
  made->text = {reinterpret_cast<const char*>(taken.data()), taken.size()};
  push(made);
}

void PickleMachine::push_tuple(std::vector<PickledValue*> items) {
  if (items.empty()) return push_shared(empty_, Kind::tuple);
  count_items(items.size());
  PickledValue* made = make(Kind::tuple);
  made->items = std::move(items);
  push(made);
}

void PickleMachine::push_tuple_of(std::size_t count) {
  std::vector<PickledValue*> items(count);
  for (std::size_t i = items.size(); i-- > 0;) items[i] = pop();
  push_tuple(std::move(items));
}

bool PickleMachine::push_value(std::uint8_t opcode) {
  switch (opcode) {
    case 'N':
      push_shared(none_, Kind::none);
      return true;
    case 0x88:
      push_shared(true_, Kind::boolean, 1);
      return true;
    case 0x89:
      push_shared(false_, Kind::boolean, 0);
      return true;
    case 'J':
      push_integer(static_cast<std::int32_t>(number(4)));
      return true;
    case 'K':
      push_byte(next());
      return true;
    case 'M':
      push_integer(static_cast<std::int64_t>(number(2)));
      return true;
    case 'G':
      push_real();
      return true;
    case 'I':
      push_decimal();
      return true;
    case 0x8a:
      push_long(number(1));
      return true;
    case 0x8b:
      push_long(number(4));
      return true;
    case 0x95:
      (void)number(8);
      return true;  // a frame's length
    default:
      return false;
  }
}

/// str, bytes, bytearray and unicode, with lengths of one, four and eight bytes.
bool PickleMachine::push_text(std::uint8_t opcode) {
  switch (opcode) {
    case 'U':
    case 'C':
    case 0x8c:
      push_text_of(number(1));
      return true;
    case 'T':
    case 'B':
    case 'X':
      push_text_of(number(4));
      return true;
    case 0x8e:
    case 0x8d:
    case 0x96:
      push_text_of(number(8));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::make_tuple(std::uint8_t opcode) {
  if (opcode == ')')
    push_tuple({});
  else if (opcode == 't')
    push_tuple(pop_mark());
  else if (opcode >= 0x85 && opcode <= 0x87)
    push_tuple_of(opcode - 0x84);
  else
    return false;
  return true;
}

bool PickleMachine::gather(std::uint8_t opcode) {
  switch (opcode) {
    case '(':
      if (marks_.size() >= kMostWaiting) fail(fmt::format("more than {} marks", format_count(kMostWaiting)));
      marks_.push_back(stack_.size());
      return true;
    case ']':
    case 0x8f:  // a set
      push(make(Kind::list));
      return true;
    case 'l':
    case 0x91: {  // a frozen set
      std::vector<PickledValue*> items = pop_mark();
      count_items(items.size());
      push(make(Kind::list));
      stack_.back()->items = std::move(items);
      return true;
    }
    case 'd': {
      std::vector<PickledValue*> items = pop_mark();
      if (items.size() % 2 != 0) fail("a key without a value");
      count_items(items.size());
      push(make(Kind::dictionary));
      stack_.back()->items = std::move(items);
      return true;
    }
    case '}':
      push(make(Kind::dictionary));
      return true;
    case 'a':
      append(Kind::list, {pop()});
      return true;
    case 'e':
    case 0x90:  // to a set
      append(Kind::list, pop_mark());
      return true;
    case 's': {
      PickledValue* value = pop();
      PickledValue* key = pop();
      append(Kind::dictionary, {key, value});
      return true;
    }
    case 'u':
      append(Kind::dictionary, pop_mark());
      return true;
    default:
      return false;
  }
}

void PickleMachine::append(Kind kind, const std::vector<PickledValue*>& items) {
  PickledValue* to = pop();
  if (to->kind == Kind::object && drops_entries(*to)) return push(to);
  if (to->kind != kind) fail(fmt::format("{} in place of {}", kind_name(to->kind), kind_name(kind)));
  if (kind == Kind::dictionary && items.size() % 2 != 0) fail("a key without a value");
  count_items(items.size());
  to->items.insert(to->items.end(), items.begin(), items.end());
  push(to);
}

bool PickleMachine::remember(std::uint8_t opcode) {
  switch (opcode) {
    case 'q':
      remember_as(number(1));
      return true;
    case 'r':
      remember_as(number(4));
      return true;
    case 0x94:
      remember_as(memo_.size());
      return true;
    case '0':
      // The popped item may be a mark.
      if (!marks_.empty() && stack_.size() == marks_.back())
        marks_.pop_back();
      else
        (void)pop();
      return true;
    case '1':
      (void)pop_mark();
      return true;
    case '2':
      push(top());
      return true;
    case 'h':
      push(recall(number(1)));
      return true;
    case 'j':
      push(recall(number(4)));
      return true;
    default:
      return false;
  }
}

void PickleMachine::remember_as(std::uint64_t number) {
  if (values_.all.size() + memo_.size() >= kMostValues)
    fail(fmt::format("more than {} values", format_count(kMostValues)));
  memo_[number] = top();
}

PickledValue* PickleMachine::recall(std::uint64_t number) {
  const auto found = memo_.find(number);
  if (found == memo_.end()) fail("a value that it refers to is missing");
  return found->second;
}

bool PickleMachine::construct(std::uint8_t opcode) {
  switch (opcode) {
    case 'c': {
      const std::string module = line();
      push_name(module, line());
      return true;
    }
    case 0x93: {
      const PickledValue* name = pop();
      const PickledValue* module = pop();
      if (name->kind != Kind::text || module->kind != Kind::text) fail("a name that is no text");
      push_name(std::string(module->text), std::string(name->text));
      return true;
    }
    case 'Q':
      push_known(persistent(*pop()), "a persistent id that is refused");
      return true;
    case 0x92:
      drop_keywords();
      reduce();
      return true;
    case 0x81:  // of a class instead of a function
    case 'R':
      reduce();
      return true;
    case 'o':  // of an old class of Python 2
      construct_of_mark();
      return true;
    case 'b':
      build();
      return true;
    default:
      return false;
  }
}

void PickleMachine::push_name(const std::string& module, const std::string& name) {
  const std::string whole = module + "." + name;
  if (!knows(whole)) fail(fmt::format("the name '{}', which is refused (nothing is executed)", shown(whole)));
  PickledValue* made = make(Kind::name);
  made->text = kept(whole);
  push(made);
}

void PickleMachine::push_known(PickledValue* value, std::string_view what) {
  if (value == nullptr) fail(std::string(what));
  push(value);
}

void PickleMachine::reduce() {
  const PickledValue* arguments = pop();
  const PickledValue* callee = pop();
  if (arguments->kind != Kind::tuple) fail("a call without arguments");
  push_known(callee->kind == Kind::name ? call(*callee, arguments->items) : nullptr,
             "a call that is refused (nothing is executed)");
}

/// The class and its arguments lie above a mark.
void PickleMachine::construct_of_mark() {
  const std::vector<PickledValue*> items = pop_mark();
  if (items.empty()) fail("a class is missing");
  push_known(items[0]->kind == Kind::name ? call(*items[0], std::span(items).subspan(1)) : nullptr,
             "a call that is refused (nothing is executed)");
}

/// Drops the arguments by name with which an object of a class is made.
void PickleMachine::drop_keywords() {
  if (pop()->kind != Kind::dictionary) fail("arguments by name that are no dictionary");
}

void PickleMachine::build() {
  PickledValue* state = pop();
  if (!set_state(*top(), *state)) fail("a state that is refused");
}

}  // namespace bantam
