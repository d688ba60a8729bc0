// TorchPickle: the names that a state_dict's pickle consists of. Whatever else a training program has saved beside it
// is opaque.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "bantam/data/files/pickle_machine.h"

namespace bantam::run {

/// A tensor: items are its storage (items: the storage's type, a name; its key, a text; its number of elements; for a
/// view of it also where that begins and how many elements it has), offset, sizes, strides, and, where the storage does
/// not say, its type, a name.
bool is_tensor(const PickledValue& value);
/// A tensor of a kind that is not read, quantised or sparse: items are the name of what would rebuild it and, where
/// they are known, its sizes, a tuple.
bool is_skipped_tensor(const PickledValue& value);
/// An object of a class that is not known. Its only item, if any, is its state.
bool is_opaque(const PickledValue& value);

/// "float32" for "torch.FloatStorage" and "torch.cuda.FloatStorage"; the name itself where it is not known.
std::string torch_type(std::string_view storage);
/// Bytes of an element of such a storage; 0 where its type is not known.
std::int64_t torch_element_bytes(std::string_view storage);

/// The type and size that a pickle has of a storage.
struct TorchStorage {
  std::string type;  ///< a name: "torch.FloatStorage"
  std::int64_t elements = 0;
};

/// A value of any other class (argparse.Namespace, a NumPy scalar) is an object that `text` names: it is never made,
/// nothing is called for it, and all that is kept of it is its state, which a module's tensors are in. Of PyTorch's
/// tensors none is lost in silence: those of kinds that are not read are objects of their own. Tensors are unchecked
/// but for the kinds of their items.
class TorchPickle : public PickleMachine {
 public:
  using PickleMachine::PickleMachine;

  /// By their keys, as the first tensor of each says.
  std::map<std::string, TorchStorage, std::less<>>& storages() { return storages_; }

 private:
  bool knows(std::string_view /*name*/) const override { return true; }
  PickledValue* call(const PickledValue& callee, std::span<PickledValue* const> arguments) override;
  bool set_state(PickledValue& object, PickledValue& state) override;
  bool drops_entries(const PickledValue& object) const override { return is_opaque(object); }
  PickledValue* persistent(PickledValue& id) override;

  PickledValue* dictionary_of(const PickledValue& pairs);
  PickledValue* tensor_of(std::span<PickledValue* const> arguments, PickledValue* type);
  PickledValue* skipped_tensor(const PickledValue& callee, std::span<PickledValue* const> arguments);

  std::map<std::string, TorchStorage, std::less<>> storages_;
  std::size_t pairs_ = 0;  // of all dictionaries that were made of lists
};

}  // namespace bantam::run
