// Source: PyTorch, torch/_utils.py, torch/_tensor.py and torch/serialization.py.
#include "bantam/run/weights/torch_pickle.h"

#include <algorithm>
#include <array>

namespace bantam::run {

using Kind = PickledValue::Kind;

namespace {

bool is_object(const PickledValue& value, std::string_view name) {
  return value.kind == Kind::object && value.text == name;
}

struct StorageKind {
  std::string_view name, type;
  std::int64_t bytes;
};
constexpr StorageKind kStorages[] = {{"FloatStorage", "float32", 4},
                                     {"DoubleStorage", "float64", 8},
                                     {"HalfStorage", "float16", 2},
                                     {"BFloat16Storage", "bfloat16", 2},
                                     {"LongStorage", "int64", 8},
                                     {"IntStorage", "int32", 4},
                                     {"ShortStorage", "int16", 2},
                                     {"CharStorage", "int8", 1},
                                     {"ByteStorage", "uint8", 1},
                                     {"BoolStorage", "bool", 1},
                                     {"ComplexFloatStorage", "complex64", 8},
                                     {"ComplexDoubleStorage", "complex128", 16},
                                     {"QInt8Storage", "qint8", 1},
                                     {"QUInt8Storage", "quint8", 1},
                                     {"QInt32Storage", "qint32", 4},
                                     {"QUInt4x2Storage", "quint4x2", 1},
                                     {"QUInt2x4Storage", "quint2x4", 1},
                                     {"UntypedStorage", "bytes", 1}};

/// Storages of "torch.", "torch.cuda." and "torch.storage." alike: where they were does not matter.
const StorageKind* find_storage(std::string_view name) {
  if (!name.starts_with("torch.")) return nullptr;
  const auto* found = std::ranges::find(kStorages, name.substr(name.rfind('.') + 1), &StorageKind::name);
  return found == std::end(kStorages) ? nullptr : found;
}

bool is_storage_type(std::string_view name) { return name.starts_with("torch.") && name.ends_with("Storage"); }

/// Whether a call makes a dictionary, of no argument, a list of pairs (Python 2) or a type (defaultdict).
bool is_dictionary_type(std::string_view name) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"});
  return std::ranges::find(kNames, name) != kNames.end();
}

/// Classes of tensors that are made of a tensor, and functions that do it.
bool wraps_tensor(std::string_view name) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter",
       "torch.nn.parameter.Buffer", "torch.autograd.variable.Variable"});
  return std::ranges::find(kNames, name) != kNames.end();
}

constexpr std::string_view kSize = "torch.Size", kRebuild = "torch._utils._rebuild_tensor",
                           kRebuild2 = "torch._utils._rebuild_tensor_v2", kRebuild3 = "torch._utils._rebuild_tensor_v3",
                           kFromType = "torch._tensor._rebuild_from_type_v2";

/// Functions that would make tensors of other kinds.
bool rebuilds(std::string_view name) {
  return name.starts_with("torch.") && name.find("._rebuild_") != std::string_view::npos;
}

}  // namespace

bool is_tensor(const PickledValue& value) { return is_object(value, "tensor"); }
bool is_skipped_tensor(const PickledValue& value) { return is_object(value, "skipped"); }

/// The objects that are known have one word.
bool is_opaque(const PickledValue& value) {
  return value.kind == Kind::object && value.text.find('.') != std::string::npos;
}

std::string torch_type(std::string_view storage) {
  const StorageKind* found = find_storage(storage);
  return std::string(found != nullptr ? found->type : storage);
}

std::int64_t torch_element_bytes(std::string_view storage) {
  const StorageKind* found = find_storage(storage);
  return found != nullptr ? found->bytes : 0;
}

/// _rebuild_tensor(storage, offset, size, stride); _v2 has requires_grad, hooks and metadata after them, _v3 a type
/// before the last. _rebuild_from_type_v2(function, type, its arguments, state). _rebuild_parameter(tensor, …).
PickledValue* TorchPickle::call(const PickledValue& callee, std::span<PickledValue* const> given) {
  const std::string_view name = callee.text;
  if (is_dictionary_type(name)) {
    if (given.size() == 1 && given[0]->kind == Kind::list) return dictionary_of(*given[0]);
    return make(Kind::dictionary);
  }
  if (name == kSize && given.size() == 1 && (given[0]->kind == Kind::tuple || given[0]->kind == Kind::list)) {
    given[0]->kind = Kind::tuple;
    return given[0];
  }
  if (wraps_tensor(name) && !given.empty() && (is_tensor(*given[0]) || is_skipped_tensor(*given[0]))) return given[0];
  if (name == kFromType && given.size() == 4 && given[0]->kind == Kind::name && given[0]->text != kFromType &&
      given[2]->kind == Kind::tuple)
    return call(*given[0], given[2]->items);
  if (name == kRebuild || name == kRebuild2) return tensor_of(given, nullptr);
  if (name == kRebuild3)
    return given.size() >= 7 && given[6]->kind == Kind::name ? tensor_of(given, given[6]) : nullptr;
  if (rebuilds(name)) return skipped_tensor(callee, given);
  PickledValue* opaque = make(Kind::object);
  opaque->text = name;
  return opaque;
}

PickledValue* TorchPickle::dictionary_of(const PickledValue& pairs) {
  // A list that is referred to again and again has more entries than the pickle has bytes, without end.
  pairs_ += pairs.items.size();
  if (pairs_ > size()) fail("dictionaries of more entries than the file has");
  PickledValue* made = make(Kind::dictionary);
  for (const PickledValue* pair : pairs.items) {
    if ((pair->kind != Kind::list && pair->kind != Kind::tuple) || pair->items.size() != 2)
      fail("a dictionary of what are no pairs");
    made->items.insert(made->items.end(), pair->items.begin(), pair->items.end());
  }
  return made;
}

/// Null unless the first four arguments are a tensor's.
PickledValue* TorchPickle::tensor_of(std::span<PickledValue* const> given, PickledValue* type) {
  if (given.size() < 4 || !is_object(*given[0], "storage") || given[1]->kind != Kind::integer ||
      given[2]->kind != Kind::tuple || given[3]->kind != Kind::tuple)
    return nullptr;
  PickledValue* made = make(Kind::object);
  made->text = "tensor";
  made->items.assign(given.begin(), given.begin() + 4);
  if (type != nullptr) made->items.push_back(type);
  return made;
}

/// The sizes stand third, as those of other tensors do, if they do not stand elsewhere.
PickledValue* TorchPickle::skipped_tensor(const PickledValue& callee, std::span<PickledValue* const> given) {
  PickledValue* name = make(Kind::name);
  name->text = callee.text;
  PickledValue* made = make(Kind::object);
  made->text = "skipped";
  made->items.push_back(name);
  if (given.size() > 2 && given[2]->kind == Kind::tuple) made->items.push_back(given[2]);
  return made;
}

/// Keeps an opaque object's members, or the first of a pair of them and of those in slots. Drops what an OrderedDict
/// has beside its entries: a state_dict's `_metadata`, versions of modules. False: the object cannot have a state.
bool TorchPickle::set_state(PickledValue& object, PickledValue& state) {
  if (is_opaque(object)) {
    const bool pair = state.kind == Kind::tuple && state.items.size() == 2;
    object.items = {pair ? state.items[0] : &state};
    return true;
  }
  return is_tensor(object) || is_skipped_tensor(object) || object.kind == Kind::dictionary;
}

/// ("storage", type, key, location, number of elements), with a view of it, (key, offset, elements), or None after them
/// in the form before PyTorch 1.6; there also ("module", class, file, source), which stands for the class.
PickledValue* TorchPickle::persistent(PickledValue& id) {
  const std::vector<PickledValue*>& parts = id.items;
  if (id.kind != Kind::tuple || parts.empty() || parts[0]->kind != Kind::text) return nullptr;
  if (parts[0]->text == "module") return parts.size() == 4 && parts[1]->kind == Kind::name ? parts[1] : nullptr;
  if (parts.size() != 5 && parts.size() != 6) return nullptr;
  const bool known = parts[0]->text == "storage" && parts[1]->kind == Kind::name && is_storage_type(parts[1]->text) &&
                     parts[2]->kind == Kind::text && parts[3]->kind == Kind::text && parts[4]->kind == Kind::integer;
  if (!known) return nullptr;
  PickledValue* made = make(Kind::object);
  made->text = "storage";
  made->items = {parts[1], parts[2], parts[4]};
  storages_.try_emplace(std::string(parts[2]->text), TorchStorage{std::string(parts[1]->text), parts[4]->integer});
  if (parts.size() == 5 || parts[5]->kind == Kind::none) return made;
  const std::vector<PickledValue*>& view = parts[5]->items;
  if (parts[5]->kind != Kind::tuple || view.size() != 3 || view[1]->kind != Kind::integer ||
      view[2]->kind != Kind::integer)
    return nullptr;
  made->items.insert(made->items.end(), {view[1], view[2]});
  return made;
}

}  // namespace bantam::run
