// jitter: brightness and contrast of finished images, two random numbers an image, by the kernel that makes batches.
#include "bantam/data/augment/built_in.h"

namespace bantam {
namespace {

/// In [-1, 1): 2^24 values, exact in float32.
float symmetric(PhiloxSequence& random) { return 2.0f * random.uniform() - 1.0f; }

class Jitter : public Augmentation {
 public:
  Jitter(float brightness, float contrast) : brightness_(brightness), contrast_(contrast) {}

  std::string_view name() const override { return "jitter"; }
  bool has_device_form() const override { return true; }
  /// A sequence of its own, by the word that random_erasing keys another one with.
  void place(const kernels::ImageBatchShape&, const PhiloxWords& random,
             kernels::ImagePlacement& placement) const override {
    PhiloxSequence sequence(philox_key(random.v[3], RandomPurpose::augmentation, hash_name(name())));
    const float u = symmetric(sequence), v = symmetric(sequence);
    placement.offset = u * brightness_;
    // Rounded apart on every machine: 1 + v·contrast must not become one fused operation.
    const volatile float change = v * contrast_;
    placement.factor = 1.0f + change;
  }

 private:
  float brightness_, contrast_;
};

}  // namespace

bool changes_finished_values(const Augmentation& stage) { return dynamic_cast<const Jitter*>(&stage) != nullptr; }

std::shared_ptr<const Augmentation> jitter(float brightness, float contrast) {
  return std::make_shared<Jitter>(brightness, contrast);
}

std::shared_ptr<const Augmentation> read_jitter(ConfigMap& map) {
  map.describe(
      "Random brightness and contrast of finished images, in normalised units: (x + offset) · factor, "
      "one of each an image. In the kernel that makes batches, so that it works with cache: device. color_jitter "
      "changes stored pixels instead.",
      "jitter: {brightness: 0.14, contrast: 0.13}");
  const double brightness = map.number(
      {"brightness", "x: offset of -x to x, added to every value of the image, in normalised units.", "0.14"},
      {.min = 0, .max = 1e6}, 0.0);
  const double contrast = map.number({"contrast", "x: then every value of the image times 1 - x to 1 + x.", "0.13"},
                                     {.min = 0, .max = 1}, 0.0);
  return jitter(static_cast<float>(brightness), static_cast<float>(contrast));
}

}  // namespace bantam
