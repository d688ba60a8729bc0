// The table of callbacks.
#include "bantam/engine/train/trainer.h"

namespace bantam {

Registry<Reader<CallbackMaker>>& callbacks() {
  static Registry<Reader<CallbackMaker>> table("callback", {});
  return table;
}

std::vector<CallbackMaker> read_callbacks(ConfigMap& section) {
  std::vector<CallbackMaker> makers;
  const auto list = section.find(
      {"callbacks", "Callbacks that hear of updates and epochs, by name. None is built in: a program adds its own.",
       "[]", "none"});
  if (!list) return makers;
  describe_registered(callbacks(), *list);
  for (const ConfigNode& item : list->items()) makers.push_back(read_registered(callbacks(), item));
  return makers;
}

}  // namespace bantam
