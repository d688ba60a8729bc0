// A network of the zoo with other classes, and other square images where a size is given.
#pragma once

#include <cstdint>
#include <string>

#include "bantam/models/zoo/zoo.h"

namespace bantam::run {

/// `size` 0: the network's own.
inline Graph zoo_network(const std::string& name, std::int64_t size, std::int64_t classes) {
  const models::ZooModel& model = *models::find_zoo_model(name);
  models::ZooOptions options = model.defaults;
  options.classes = classes;
  if (size > 0) options.input = Shape{size, size, 3};
  return model.build(options);
}

}  // namespace bantam::run
