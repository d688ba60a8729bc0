// Initial values of parameters: pure functions of (seed, parameter name, shape), computed on the host in a fixed order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/base/shape.h"

namespace bantam {

/// How many inputs feed an output and the other way round: what variance-scaling initialisers need.
struct Fans {
  double in = 1, out = 1;
};

/// Fills `values` (shape's elements). `random` is keyed by seed and name. Data-dependent initialisers capture their
/// data.
using InitializerFunction = std::function<void(std::vector<float>& values, const Shape& shape, PhiloxSequence& random)>;

/// A named way to fill a parameter.
struct Initializer {
  std::string name = "zeros";
  InitializerFunction fill;
};

Initializer zeros();
Initializer ones();
Initializer constant(float value);
/// Glorot and Bengio 2010: uniform in ±√(6/(in + out)).
Initializer glorot_uniform(Fans fans);
Initializer glorot_normal(Fans fans);
/// He et al. 2015: variance 2/in.
Initializer he_uniform(Fans fans);
Initializer he_normal(Fans fans);
/// LeCun: variance 1/in.
Initializer lecun_normal(Fans fans);
/// PyTorch's default for convolution and linear weights (and their biases): uniform in ±1/√in.
Initializer fan_in_uniform(Fans fans);
/// Normal of the given deviation, truncated at two deviations.
Initializer truncated_normal(float deviation);

/// By its name in a config: the names above. Throws ConfigError naming the text and the names allowed.
Initializer make_initializer(std::string_view name, Fans fans);
std::vector<std::string> initializer_names();

}  // namespace bantam
