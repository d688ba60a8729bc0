// Pickles of data sets: NumPy's arrays.
#include "bantam/data/files/pickle.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/pickle_machine.h"

namespace bantam {

using Kind = PickledValue::Kind;

std::string_view kind_name(Kind kind) {
  constexpr std::array<std::string_view, 12> kNames = {"None",   "a boolean", "a whole number", "a number",
                                                       "a text", "a list",    "a tuple",        "a dictionary",
                                                       "a name", "a dtype",   "an array",       "an object"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace {

bool is_whole(const PickledValue& value) { return value.kind == Kind::integer || value.kind == Kind::boolean; }
bool is_text(const PickledValue& value, std::string_view text) {
  return value.kind == Kind::text && value.text == text;
}
bool is_name(const PickledValue& value, std::string_view name) {
  return value.kind == Kind::name && value.text == name;
}

class ArrayPickle : public PickleMachine {
 public:
  using PickleMachine::PickleMachine;

 private:
  bool knows(std::string_view name) const override {
    constexpr std::array<std::string_view, 5> kKnown = {"numpy.core.multiarray._reconstruct",
                                                        "numpy._core.multiarray._reconstruct", "numpy.ndarray",
                                                        "numpy.dtype", "_codecs.encode"};
    return std::ranges::find(kKnown, name) != kKnown.end();
  }
  /// The three calls that arrays and Python 3's bytes are pickled with.
  PickledValue* call(const PickledValue& callee, std::span<PickledValue* const> given) override {
    if (callee.text.ends_with("_reconstruct") && given.size() == 3 && is_name(*given[0], "numpy.ndarray"))
      return make(Kind::array);
    if (callee.text == "numpy.dtype" && given.size() == 3 && given[0]->kind == Kind::text) {
      PickledValue* made = make(Kind::dtype);
      made->text = given[0]->text;
      return made;
    }
    if (callee.text == "_codecs.encode" && given.size() == 2 && given[0]->kind == Kind::text &&
        is_text(*given[1], "latin1"))
      return encoded(*given[0]);
    return nullptr;
  }
  /// Characters below 256 to bytes.
  PickledValue* encoded(const PickledValue& text) {
    PickledValue* made = make(Kind::text);
    const std::string_view utf8 = text.text;
    std::string bytes;
    // Each text is encoded once by what writes pickles. One that refers to a text many times has more bytes than it is
    // long, without end.
    encoded_bytes_ += utf8.size();
    if (encoded_bytes_ > size()) fail("texts of more bytes than the file has");
    for (std::size_t i = 0; i < utf8.size(); ++i) {
      auto value = static_cast<std::uint8_t>(utf8[i]);
      if (value >= 0x80) {
        if ((value & 0xfc) != 0xc0 || i + 1 == utf8.size()) fail("a text that is no latin1");
        value = static_cast<std::uint8_t>(value << 6 | (static_cast<std::uint8_t>(utf8[++i]) & 0x3f));
      }
      bytes.push_back(static_cast<char>(value));
    }
    made->text = kept(std::move(bytes));
    return made;
  }
  /// The state of an array, (1, shape, dtype, Fortran order, bytes), or of a dtype, which says no more than its name.
  bool set_state(PickledValue& object, PickledValue& state) override {
    if (state.kind != Kind::tuple || (object.kind != Kind::array && object.kind != Kind::dtype)) return false;
    if (object.kind == Kind::dtype) return true;
    const std::vector<PickledValue*>& given = state.items;
    if (given.size() != 5 || given[1]->kind != Kind::tuple || given[2]->kind != Kind::dtype || !is_whole(*given[3]) ||
        given[4]->kind != Kind::text)
      fail("an array of another kind");
    if (given[2]->text != "u1" || given[3]->integer != 0)
      fail(fmt::format("an array of {}{}; expected u1 in C order", shown(given[2]->text),
                       given[3]->integer != 0 ? " in Fortran order" : ""));
    set_array(object, *given[1], *given[4]);
    return true;
  }
  void set_array(PickledValue& array, const PickledValue& shape, const PickledValue& elements) {
    const std::string_view bytes = elements.text;
    std::uint64_t count = 1;
    for (const PickledValue* extent : shape.items) {
      if (!is_whole(*extent) || extent->integer < 0) fail("an array's extent that is no whole number");
      count *= static_cast<std::uint64_t>(extent->integer);
      if (count > bytes.size()) break;
    }
    if (count != bytes.size())
      fail(fmt::format("an array of {} bytes, which are not those of its shape", bytes.size()));
    array.items = shape.items;
    array.text = bytes;
  }

  std::size_t encoded_bytes_ = 0;
};

}  // namespace

Pickle::Pickle(std::string file, std::vector<std::uint8_t> bytes) : file_(std::move(file)), bytes_(std::move(bytes)) {
  root_ = ArrayPickle(file_, bytes_, values_).run();
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
