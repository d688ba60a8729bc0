// TorchPickle: the names that a state_dict's pickle consists of. Whatever else a training program has saved beside it
// is opaque.
#pragma once

#include <span>
#include <string_view>

#include "bantam/data/files/pickle_machine.h"

namespace bantam::run {

bool is_tensor(const PickledValue& value);
/// Of a class that is not known.
bool is_opaque(const PickledValue& value);

/// A value of any other class (argparse.Namespace, a NumPy scalar) is an object that `text` names, without parts: it is
/// never made, nothing is called for it, and what it consists of is dropped. Names of PyTorch's own storages and
/// functions that rebuild tensors are refused where they are not known: a tensor must not be lost in silence.
///
/// Makes objects "storage" (items: the storage's type, a name; its key, a text; its number of elements) and "tensor"
/// (items: storage, offset, sizes, strides), unchecked but for their kinds.
class TorchPickle : public PickleMachine {
 public:
  using PickleMachine::PickleMachine;

 private:
  bool knows(std::string_view name) const override;
  PickledValue* call(const PickledValue& callee, std::span<PickledValue* const> arguments) override;
  bool set_state(PickledValue& object, const PickledValue& state) override;
  bool drops_entries(const PickledValue& object) const override { return is_opaque(object); }
  PickledValue* persistent(PickledValue& id) override;
};

}  // namespace bantam::run
