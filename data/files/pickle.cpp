// The stack machine of Python's pickles, without what makes it dangerous. Source: CPython, Lib/pickletools.py.
#include "bantam/data/files/pickle.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {

using Kind = PickledValue::Kind;

namespace {

constexpr int kOldestProtocol = 2, kNewestProtocol = 4;
constexpr std::size_t kMostValues = std::size_t{1} << 24;

std::string_view kind_name(Kind kind) {
  constexpr std::array<std::string_view, 10> kNames = {"None",    "a boolean", "a whole number", "a text",
                                                       "a list",  "a tuple",   "a dictionary",   "a name",
                                                       "a dtype", "an array"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view text_of(const PickledValue& value) {
  if (!value.bytes.empty()) return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
  return value.text;
}

bool is_whole(const PickledValue& value) { return value.kind == Kind::integer || value.kind == Kind::boolean; }
bool is_text(const PickledValue& value, std::string_view text) {
  return value.kind == Kind::text && text_of(value) == text;
}
bool is_name(const PickledValue& value, std::string_view name) {
  return value.kind == Kind::name && value.text == name;
}

}  // namespace

class PickleMachine {
 public:
  explicit PickleMachine(Pickle& pickle) : pickle_(pickle), bytes_(pickle.bytes_) {}

  PickledValue* run() {
    if (next() != 0x80) fail("it does not begin with a protocol (expected protocol 2 or later)");
    const int protocol = next();
    if (protocol < kOldestProtocol || protocol > kNewestProtocol) fail(fmt::format("protocol {}", protocol));
    for (;;) {
      opcode_at_ = at_;
      const std::uint8_t opcode = next();
      if (opcode == '.') break;
      if (!push_value(opcode) && !make_tuple(opcode) && !gather(opcode) && !remember(opcode) && !construct(opcode))
        fail(fmt::format("opcode 0x{:02x}, which is refused", opcode));
    }
    PickledValue* root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("values are left over at its end");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{}: is no pickle that is read here: {}, at byte {}", pickle_.file_, what, opcode_at_));
  }

  std::uint8_t next() { return take(1)[0]; }
  std::span<const std::uint8_t> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("it is cut short");
    const auto taken = bytes_.subspan(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }
  std::uint64_t number(int count) {
    std::uint64_t value = 0;
    const auto taken = take(static_cast<std::uint64_t>(count));
    for (std::size_t i = taken.size(); i-- > 0;) value = value << 8 | taken[i];
    return value;
  }
  std::string line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::ranges::find(rest, '\n');
    if (end == rest.end()) fail("a name does not end");
    std::string text(rest.begin(), end);
    at_ += text.size() + 1;
    return text;
  }

  PickledValue* make(Kind kind) {
    if (pickle_.values_.size() >= kMostValues) fail("too many values");
    pickle_.values_.emplace_back().kind = kind;
    return &pickle_.values_.back();
  }
  void push(PickledValue* value) { stack_.push_back(value); }
  /// What a mark guards cannot be popped one by one.
  PickledValue* pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) fail("a value is missing");
    PickledValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  /// The values above the last mark, which goes.
  std::vector<PickledValue*> pop_mark() {
    if (marks_.empty()) fail("a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickledValue*> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }

  void push_integer(std::int64_t value, Kind kind = Kind::integer) {
    PickledValue* made = make(kind);
    made->integer = value;
    push(made);
  }
  void push_text(std::uint64_t size) {
    PickledValue* made = make(Kind::text);
    made->bytes = take(size);
    push(made);
  }
  void push_tuple(std::vector<PickledValue*> items) {
    PickledValue* made = make(Kind::tuple);
    made->items = std::move(items);
    push(made);
  }
  void push_tuple_of(int count) {
    std::vector<PickledValue*> items(static_cast<std::size_t>(count));
    for (std::size_t i = items.size(); i-- > 0;) items[i] = pop();
    push_tuple(std::move(items));
  }

  bool push_value(std::uint8_t opcode) {
    switch (opcode) {
      case 'N':
        push(make(Kind::none));
        return true;
      case 0x88:
        push_integer(1, Kind::boolean);
        return true;
      case 0x89:
        push_integer(0, Kind::boolean);
        return true;
      case 'J':
        push_integer(static_cast<std::int32_t>(number(4)));
        return true;
      case 'K':
        push_integer(static_cast<std::int64_t>(number(1)));
        return true;
      case 'M':
        push_integer(static_cast<std::int64_t>(number(2)));
        return true;
      case 'U':
      case 'C':
      case 0x8c:
        push_text(number(1));
        return true;  // short str, bytes and unicode
      case 'T':
      case 'B':
      case 'X':
        push_text(number(4));
        return true;
      case 0x8e:
      case 0x8d:
        push_text(number(8));
        return true;
      case 0x95:
        (void)number(8);
        return true;  // a frame's length
      default:
        return false;
    }
  }

  bool make_tuple(std::uint8_t opcode) {
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

  bool gather(std::uint8_t opcode) {
    switch (opcode) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ']':
        push(make(Kind::list));
        return true;
      case '}':
        push(make(Kind::dictionary));
        return true;
      case 'a':
        append(Kind::list, {pop()});
        return true;
      case 'e':
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
  void append(Kind kind, const std::vector<PickledValue*>& items) {
    PickledValue* to = pop();
    if (to->kind != kind) fail(fmt::format("{} in place of {}", kind_name(to->kind), kind_name(kind)));
    if (kind == Kind::dictionary && items.size() % 2 != 0) fail("a key without a value");
    to->items.insert(to->items.end(), items.begin(), items.end());
    push(to);
  }

  bool remember(std::uint8_t opcode) {
    switch (opcode) {
      case 'q':
        memo_[number(1)] = top();
        return true;
      case 'r':
        memo_[number(4)] = top();
        return true;
      case 0x94:
        memo_[memo_.size()] = top();
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
  PickledValue* top() {
    PickledValue* value = pop();
    push(value);
    return value;
  }
  PickledValue* recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail("a value that it refers to is missing");
    return found->second;
  }

  bool construct(std::uint8_t opcode) {
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
        push_name(std::string(text_of(*module)), std::string(text_of(*name)));
        return true;
      }
      case 'R':
        reduce();
        return true;
      case 'b':
        build();
        return true;
      default:
        return false;
    }
  }
  void push_name(const std::string& module, const std::string& name) {
    constexpr std::array<std::string_view, 5> kKnown = {"numpy.core.multiarray._reconstruct",
                                                        "numpy._core.multiarray._reconstruct", "numpy.ndarray",
                                                        "numpy.dtype", "_codecs.encode"};
    const std::string whole = module + "." + name;
    if (std::ranges::find(kKnown, whole) == kKnown.end())
      fail(fmt::format("the name '{}', which is refused (nothing is executed)", shown(whole)));
    PickledValue* made = make(Kind::name);
    made->text = whole;
    push(made);
  }
  /// The three calls that arrays and Python 3's bytes are pickled with.
  void reduce() {
    const PickledValue* arguments = pop();
    const PickledValue* callee = pop();
    if (arguments->kind != Kind::tuple) fail("a call without arguments");
    const std::vector<PickledValue*>& given = arguments->items;
    if (callee->kind == Kind::name && callee->text.ends_with("_reconstruct") && given.size() == 3 &&
        is_name(*given[0], "numpy.ndarray")) {
      push(make(Kind::array));
    } else if (is_name(*callee, "numpy.dtype") && given.size() == 3 && given[0]->kind == Kind::text) {
      PickledValue* made = make(Kind::dtype);
      made->text = std::string(text_of(*given[0]));
      push(made);
    } else if (is_name(*callee, "_codecs.encode") && given.size() == 2 && given[0]->kind == Kind::text &&
               is_text(*given[1], "latin1")) {
      push(encoded(*given[0]));
    } else {
      fail("a call that is refused (nothing is executed)");
    }
  }
  /// Characters below 256 to bytes.
  PickledValue* encoded(const PickledValue& text) {
    PickledValue* made = make(Kind::text);
    const std::string_view utf8 = text_of(text);
    // Each text is encoded once by what writes pickles. One that refers to a text many times has more bytes than it is
    // long, without end.
    encoded_bytes_ += utf8.size();
    if (encoded_bytes_ > bytes_.size()) fail("texts of more bytes than the file has");
    for (std::size_t i = 0; i < utf8.size(); ++i) {
      auto value = static_cast<std::uint8_t>(utf8[i]);
      if (value >= 0x80) {
        if ((value & 0xfc) != 0xc0 || i + 1 == utf8.size()) fail("a text that is no latin1");
        value = static_cast<std::uint8_t>(value << 6 | (static_cast<std::uint8_t>(utf8[++i]) & 0x3f));
      }
      made->text.push_back(static_cast<char>(value));
    }
    return made;
  }
  /// The state of an array, (1, shape, dtype, Fortran order, bytes), or of a dtype, which says no more than its name.
  void build() {
    const PickledValue* state = pop();
    PickledValue* object = top();
    if (state->kind != Kind::tuple || (object->kind != Kind::array && object->kind != Kind::dtype))
      fail("a state that is refused");
    if (object->kind == Kind::dtype) return;
    const std::vector<PickledValue*>& given = state->items;
    if (given.size() != 5 || given[1]->kind != Kind::tuple || given[2]->kind != Kind::dtype || !is_whole(*given[3]) ||
        given[4]->kind != Kind::text)
      fail("an array of another kind");
    if (given[2]->text != "u1" || given[3]->integer != 0)
      fail(fmt::format("an array of {}{}; expected u1 in C order", shown(given[2]->text),
                       given[3]->integer != 0 ? " in Fortran order" : ""));
    set_array(*object, *given[1], *given[4]);
  }
  void set_array(PickledValue& array, const PickledValue& shape, const PickledValue& elements) {
    const std::string_view bytes = text_of(elements);
    std::uint64_t count = 1;
    array.extents.clear();
    for (const PickledValue* extent : shape.items) {
      if (!is_whole(*extent) || extent->integer < 0) fail("an array's extent that is no whole number");
      array.extents.push_back(extent->integer);
      count *= static_cast<std::uint64_t>(extent->integer);
      if (count > bytes.size()) break;
    }
    if (count != bytes.size())
      fail(fmt::format("an array of {} bytes, which are not those of its shape", bytes.size()));
    array.bytes = {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }

  Pickle& pickle_;
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0, opcode_at_ = 0, encoded_bytes_ = 0;
  std::vector<PickledValue*> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickledValue*> memo_;
};

Pickle::Pickle(std::string file, std::vector<std::uint8_t> bytes) : file_(std::move(file)), bytes_(std::move(bytes)) {
  root_ = PickleMachine(*this).run();
}

const PickledValue& Pickle::at(std::string_view key, PickledValue::Kind kind) const {
  if (root_->kind != Kind::dictionary)
    throw DataError(fmt::format("{}: holds {}, expected a dictionary", file_, kind_name(root_->kind)));
  for (std::size_t i = 0; i < root_->items.size(); i += 2) {
    if (!is_text(*root_->items[i], key)) continue;
    const PickledValue& value = *root_->items[i + 1];
    if (value.kind != kind)
      throw DataError(
          fmt::format("{}: its key '{}' holds {}, expected {}", file_, key, kind_name(value.kind), kind_name(kind)));
    return value;
  }
  throw DataError(fmt::format("{}: has no key '{}'", file_, key));
}

}  // namespace bantam
