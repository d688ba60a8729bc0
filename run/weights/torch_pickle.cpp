// Source: PyTorch, torch/_utils.py and torch/serialization.py.
#include "bantam/run/weights/torch_pickle.h"

#include <algorithm>
#include <array>

namespace bantam::run {

using Kind = PickledValue::Kind;

namespace {

constexpr std::string_view kOrderedDict = "collections.OrderedDict", kSize = "torch.Size",
                           kTensor = "torch._utils._rebuild_tensor_v2", kParameter = "torch._utils._rebuild_parameter";

bool is_object(const PickledValue& value, std::string_view name) {
  return value.kind == Kind::object && value.text == name;
}

bool is_storage_type(std::string_view name) {
  constexpr auto kTypes = std::to_array<std::string_view>(
      {"torch.FloatStorage", "torch.DoubleStorage", "torch.HalfStorage", "torch.BFloat16Storage", "torch.LongStorage",
       "torch.IntStorage", "torch.ShortStorage", "torch.CharStorage", "torch.ByteStorage", "torch.BoolStorage",
       "torch.storage.UntypedStorage"});
  return std::ranges::find(kTypes, name) != kTypes.end();
}

bool is_known(std::string_view name) {
  return name == kOrderedDict || name == kSize || name == kTensor || name == kParameter || is_storage_type(name);
}

/// What tensors are made of and by.
bool makes_tensors(std::string_view name) {
  return name.starts_with("torch.") && (name.find("._rebuild_") != std::string_view::npos || name.ends_with("Storage"));
}

}  // namespace

bool is_tensor(const PickledValue& value) { return is_object(value, "tensor"); }

/// The objects that are known have one word.
bool is_opaque(const PickledValue& value) {
  return value.kind == Kind::object && value.text.find('.') != std::string::npos;
}

bool TorchPickle::knows(std::string_view name) const { return is_known(name) || !makes_tensors(name); }

/// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]), _rebuild_parameter(tensor,
/// requires_grad, hooks), Size(extents), OrderedDict().
PickledValue* TorchPickle::call(const PickledValue& callee, std::span<PickledValue* const> given) {
  if (!is_known(callee.text)) {
    PickledValue* opaque = make(Kind::object);
    opaque->text = callee.text;
    return opaque;
  }
  if (callee.text == kOrderedDict && given.empty()) return make(Kind::dictionary);
  if (callee.text == kSize && given.size() == 1 && given[0]->kind == Kind::tuple) return given[0];
  if (callee.text == kParameter && given.size() == 3 && is_tensor(*given[0])) return given[0];
  if (callee.text != kTensor || (given.size() != 6 && given.size() != 7)) return nullptr;
  if (!is_object(*given[0], "storage") || given[1]->kind != Kind::integer || given[2]->kind != Kind::tuple ||
      given[3]->kind != Kind::tuple)
    return nullptr;
  PickledValue* made = make(Kind::object);
  made->text = "tensor";
  made->items.assign(given.begin(), given.begin() + 4);
  return made;
}

/// What an OrderedDict has beside its entries: a state_dict's `_metadata`, versions of modules. The members of an
/// opaque object.
bool TorchPickle::set_state(PickledValue& object, const PickledValue& state) {
  return is_opaque(object) || (object.kind == Kind::dictionary && state.kind == Kind::dictionary);
}

/// ("storage", type, key, location, number of elements)
PickledValue* TorchPickle::persistent(PickledValue& id) {
  if (id.kind != Kind::tuple || id.items.size() != 5) return nullptr;
  const std::vector<PickledValue*>& parts = id.items;
  const bool known = parts[0]->kind == Kind::text && text_of(*parts[0]) == "storage" && parts[1]->kind == Kind::name &&
                     is_storage_type(parts[1]->text) && parts[2]->kind == Kind::text && parts[3]->kind == Kind::text &&
                     parts[4]->kind == Kind::integer;
  if (!known) return nullptr;
  PickledValue* made = make(Kind::object);
  made->text = "storage";
  made->items = {parts[1], parts[2], parts[4]};
  return made;
}

}  // namespace bantam::run
