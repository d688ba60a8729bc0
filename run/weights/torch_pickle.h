// TorchPickle: the names that a state_dict's pickle consists of. Nothing else exists for it.
#pragma once

#include <span>
#include <string_view>

#include "bantam/data/files/pickle_machine.h"

namespace bantam::run {

/// Makes objects "storage" (items: the storage's type, a name; its key, a text; its number of elements) and "tensor"
/// (items: storage, offset, sizes, strides), unchecked but for their kinds.
class TorchPickle : public PickleMachine {
 public:
  using PickleMachine::PickleMachine;

 private:
  bool knows(std::string_view name) const override;
  PickledValue* call(const PickledValue& callee, std::span<PickledValue* const> arguments) override;
  bool set_state(PickledValue& object, const PickledValue& state) override;
  PickledValue* persistent(PickledValue& id) override;
};

bool is_tensor(const PickledValue& value);

}  // namespace bantam::run
