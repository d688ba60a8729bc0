// Initial values, drawn one after another from a generator keyed by seed and name.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/parameters.h"

namespace bantam {
namespace {

/// Two standard normals a pair of uniforms (Box and Muller 1958); the second is kept for the next call.
class NormalSequence {
 public:
  explicit NormalSequence(PhiloxSequence& random) : random_(random) {}
  float next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double u = 1.0 - static_cast<double>(random_.uniform());  // (0, 1]: the logarithm is finite
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(random_.uniform());
    const double radius = std::sqrt(-2.0 * std::log(u));
    spare_ = static_cast<float>(radius * std::sin(angle));
    has_spare_ = true;
    return static_cast<float>(radius * std::cos(angle));
  }

 private:
  PhiloxSequence& random_;
  float spare_ = 0.0f;
  bool has_spare_ = false;
};

Initializer uniform(std::string name, double limit) {
  const float bound = static_cast<float>(limit);
  return {std::move(name), [bound](std::vector<float>& values, const Shape&, PhiloxSequence& random) {
            for (float& value : values) value = random.uniform(-bound, bound);
          }};
}

Initializer scaled_normal(std::string name, double deviation) {
  return {std::move(name), [deviation](std::vector<float>& values, const Shape&, PhiloxSequence& random) {
            NormalSequence normals(random);
            for (float& value : values) value = static_cast<float>(deviation) * normals.next();
          }};
}

/// The first filters pass the inputs on: 1 at the kernel's middle, where filter and channel have one number, else 0.
/// The others are as fan_in_uniform. A depthwise kernel (kH, kW, C) passes every channel on.
Initializer dirac(Fans fans) {
  const InitializerFunction rest = fan_in_uniform(fans).fill;
  return {"dirac", [rest](std::vector<float>& values, const Shape& shape, PhiloxSequence& random) {
            rest(values, shape, random);
            if (shape.rank() < 2) return;
            const bool depthwise = shape.rank() == 3, kernel = shape.rank() == 4;
            const std::int64_t depth = shape[shape.rank() - 1];
            const std::int64_t filters = depthwise ? 1 : shape[0], size = shape.elements() / filters;
            const std::int64_t height = depthwise ? shape[0] : kernel ? shape[1] : 1;
            const std::int64_t width = depthwise ? shape[1] : kernel ? shape[2] : 1;
            const std::int64_t middle = (height / 2 * width + width / 2) * depth;
            const std::int64_t passing = depthwise ? 1 : std::min(filters, depth);
            std::fill_n(values.begin(), passing * size, 0.0f);
            for (std::int64_t i = 0; i < (depthwise ? depth : passing); ++i)
              values[static_cast<std::size_t>((depthwise ? 0 : i * size) + middle + i)] = 1.0f;
          }};
}

constexpr float kDeviation = 0.05f;  // Keras' RandomNormal and TruncatedNormal

struct NamedInitializer {
  std::string_view name;
  Initializer (*make)(Fans);
};

constexpr NamedInitializer kNamed[] = {
    {"zeros", [](Fans) { return zeros(); }},
    {"ones", [](Fans) { return ones(); }},
    {"glorot_uniform", glorot_uniform},
    {"glorot_normal", glorot_normal},
    {"he_uniform", he_uniform},
    {"he_normal", he_normal},
    {"lecun_normal", lecun_normal},
    {"fan_in_uniform", fan_in_uniform},
    {"normal", [](Fans) { return normal(kDeviation); }},
    {"truncated_normal", [](Fans) { return truncated_normal(kDeviation); }},
    {"unit_uniform", [](Fans) { return uniform("unit_uniform", std::sqrt(3.0)); }},
    {"dirac", dirac},
};

}  // namespace

Initializer zeros() { return constant(0.0f); }
Initializer ones() { return constant(1.0f); }

Initializer constant(float value) {
  return {"constant", [value](std::vector<float>& values, const Shape&, PhiloxSequence&) {
            for (float& v : values) v = value;
          }};
}

Initializer glorot_uniform(Fans fans) { return uniform("glorot_uniform", std::sqrt(6.0 / (fans.in + fans.out))); }
Initializer glorot_normal(Fans fans) { return scaled_normal("glorot_normal", std::sqrt(2.0 / (fans.in + fans.out))); }
Initializer he_uniform(Fans fans) { return uniform("he_uniform", std::sqrt(6.0 / fans.in)); }
Initializer he_normal(Fans fans) { return scaled_normal("he_normal", std::sqrt(2.0 / fans.in)); }
Initializer lecun_normal(Fans fans) { return scaled_normal("lecun_normal", std::sqrt(1.0 / fans.in)); }
Initializer fan_in_uniform(Fans fans) { return uniform("fan_in_uniform", 1.0 / std::sqrt(fans.in)); }

Initializer normal(float deviation) { return scaled_normal("normal", static_cast<double>(deviation)); }

Initializer truncated_normal(float deviation) {
  return {"truncated_normal", [deviation](std::vector<float>& values, const Shape&, PhiloxSequence& random) {
            NormalSequence normals(random);
            for (float& value : values) {
              float draw = normals.next();
              while (std::abs(draw) > 2.0f) draw = normals.next();
              value = deviation * draw;
            }
          }};
}

Initializer make_initializer(const InitializerOptions& options, Fans fans) {
  const auto& [name, deviation] = options;
  if (deviation && name != "normal" && name != "truncated_normal")
    throw ConfigError(
        fmt::format("initializer '{}' has no deviation; expected normal or truncated_normal, which have one", name));
  if (deviation) return name == "normal" ? normal(*deviation) : truncated_normal(*deviation);
  for (const NamedInitializer& known : kNamed)
    if (known.name == name) return known.make(fans);
  throw ConfigError(
      fmt::format("unknown initializer '{}'; expected one of {}", name, fmt::join(initializer_names(), ", ")));
}

std::vector<std::string> initializer_names() {
  std::vector<std::string> names;
  for (const NamedInitializer& known : kNamed) names.emplace_back(known.name);
  return names;
}

}  // namespace bantam
