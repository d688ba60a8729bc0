// random_flip: which samples are mirrored.
#include "bantam/data/augment/built_in.h"

namespace bantam {
namespace {

class RandomFlip : public Augmentation {
 public:
  std::string_view name() const override { return "random_flip"; }
  bool has_device_form() const override { return true; }
  void place(const kernels::ImageBatchShape&, const PhiloxWords& random,
             kernels::ImagePlacement& placement) const override {
    placement.flip = static_cast<std::int32_t>(random.v[2] >> 31);
  }
};

}  // namespace

std::shared_ptr<const Augmentation> random_flip() { return std::make_shared<RandomFlip>(); }

std::shared_ptr<const Augmentation> read_random_flip(ConfigMap& options) {
  options.describe("Mirrors half of the images, left and right.", "random_flip");
  return random_flip();
}

}  // namespace bantam
