// Initial values, drawn one after another from a generator keyed by seed and name.
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

Initializer normal(std::string name, double deviation) {
  return {std::move(name), [deviation](std::vector<float>& values, const Shape&, PhiloxSequence& random) {
            NormalSequence normals(random);
            for (float& value : values) value = static_cast<float>(deviation) * normals.next();
          }};
}

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
    {"truncated_normal", [](Fans) { return truncated_normal(0.05f); }},
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
Initializer glorot_normal(Fans fans) { return normal("glorot_normal", std::sqrt(2.0 / (fans.in + fans.out))); }
Initializer he_uniform(Fans fans) { return uniform("he_uniform", std::sqrt(6.0 / fans.in)); }
Initializer he_normal(Fans fans) { return normal("he_normal", std::sqrt(2.0 / fans.in)); }
Initializer lecun_normal(Fans fans) { return normal("lecun_normal", std::sqrt(1.0 / fans.in)); }
Initializer fan_in_uniform(Fans fans) { return uniform("fan_in_uniform", 1.0 / std::sqrt(fans.in)); }

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

Initializer make_initializer(std::string_view name, Fans fans) {
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
