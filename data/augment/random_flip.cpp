// random_flip and random_vertical_flip: which samples are mirrored.
#include <cmath>

#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"

namespace bantam {
namespace {

class RandomFlip : public Augmentation {
 public:
  explicit RandomFlip(double share) : least_(static_cast<std::uint64_t>(std::ldexp(1.0 - share, 32))) {}

  std::string_view name() const override { return "random_flip"; }

  bool has_region_form() const override { return true; }
  Sampling region(ImageSize size, PhiloxSequence& random) const override {
    return {.window = size, .size = size, .mirrored = random.next() >= least_};
  }

  bool has_device_form() const override { return true; }
  void place(const kernels::ImageBatchShape&, const PhiloxWords& random,
             kernels::ImagePlacement& placement) const override {
    placement.flip = random.v[2] >= least_ ? 1 : 0;
  }

 private:
  std::uint64_t least_;  // words from it on mirror
};

/// Its coin is the sample's own, whatever the epoch; so an image is seen both ways in any two epochs.
class AlternatingFlip : public Augmentation {
 public:
  std::string_view name() const override { return "random_flip"; }

  bool has_region_form() const override { return true; }
  Sampling region_at(const SampleVisit& visit, ImageSize size, PhiloxSequence&) const override {
    return {.window = size, .size = size, .mirrored = mirrors(visit)};
  }

  bool has_device_form() const override { return true; }
  void place_at(const SampleVisit& visit, const kernels::ImageBatchShape&, const PhiloxWords&,
                kernels::ImagePlacement& placement) const override {
    placement.flip = mirrors(visit) ? 1 : 0;
  }

 private:
  static bool mirrors(const SampleVisit& visit) {
    const std::uint64_t what = mix64(hash_name("alternating flip") ^ mix64(static_cast<std::uint64_t>(visit.sample)));
    PhiloxSequence random(philox_key(visit.seed, RandomPurpose::augmentation, what));
    return (random.next() >> 31 != 0) != (visit.epoch % 2 != 0);
  }
};

class RandomVerticalFlip : public Augmentation {
 public:
  explicit RandomVerticalFlip(float share) : share_(share) {}

  std::string_view name() const override { return "random_vertical_flip"; }
  void check_images(const Shape& images, DType dtype) const override { check_pixels(name(), images, dtype); }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    if (!happens(share_, random)) return;
    mirror_rows(image_of(sample, name()));
    for_each_mask(sample, [](const MaskView& mask) { mirror_rows(mask); });
  }

 private:
  float share_;
};

}  // namespace

std::shared_ptr<const Augmentation> random_flip(double share) { return std::make_shared<RandomFlip>(share); }

std::shared_ptr<const Augmentation> alternating_flip() { return std::make_shared<AlternatingFlip>(); }

std::shared_ptr<const Augmentation> read_random_flip(ConfigMap& options) {
  options.describe("Mirrors images, left and right: half of them, or a share of `p`.", "random_flip");
  const double share =
      options.number({"p", "Share of the images that are mirrored.", "0.3"}, {.min = 0, .max = 1}, 0.5);
  const auto given = options.find(
      {"alternate",
       "An image is mirrored in every other epoch: in even ones (from 0) half of the images, by the seed and their "
       "place in the data set alone, in odd ones the other half. Needs no `p`.",
       "true", "false"});
  const bool alternate = given && given->as_boolean();
  if (alternate && share != 0.5 && !options.self().is_described())
    options.node("p").fail(
        "with alternate: true half of the images are mirrored in each epoch: leave p out, or make it 0.5");
  return alternate ? alternating_flip() : random_flip(share);
}

std::shared_ptr<const Augmentation> read_random_vertical_flip(ConfigMap& options) {
  options.describe("Mirrors images, top and bottom: half of them, or a share of `p`.", "random_vertical_flip");
  return std::make_shared<RandomVerticalFlip>(read_share(options, 0.5));
}

}  // namespace bantam
