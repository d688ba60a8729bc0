// Partial sums: added up by themselves against the reference in double, and by the update to the same bits.
#include "bantam/kernels/update/partial_sums.h"

#include <array>
#include <cmath>
#include <string>

#include "bantam/base/error.h"
#include "tests/kernels/update/update_arena.h"

namespace bantam::testing::partial_sums_test {
namespace {

using kernels::PartialSums;
using kernels::UpdateControl;
using kernels::UpdateKind;

class PartialSumsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PartialSumsTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// Arrays of these lengths, one after the other in each part as a kernel writes them.
struct Parts {
  Parts(KernelDevice& device, std::vector<std::int32_t> lengths, std::int32_t parts)
      : elements(std::move(lengths)), count(parts) {
    for (const std::int32_t n : elements) stride += n;
    values = random_values(std::max<std::int64_t>(std::int64_t{1} * stride * parts, 1), 17);
    memory = std::make_unique<DeviceBuffer>(device, values, DType::float32);
  }
  PartialSums::Array array(std::size_t which, float* to, bool accumulate) const {
    return {.from = memory->as<float>() + begin(which),
            .to = to,
            .parts = count,
            .stride = stride,
            .elements = elements[which],
            .accumulate = accumulate};
  }
  /// The sums of an array in double.
  std::vector<double> sums(std::size_t which) const {
    std::vector<double> all(static_cast<std::size_t>(elements[which]));
    for (std::int32_t part = 0; part < count; ++part) {
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] += values[static_cast<std::size_t>(part) * static_cast<std::size_t>(stride) +
                         static_cast<std::size_t>(begin(which)) + i];
    }
    return all;
  }
  std::int32_t begin(std::size_t which) const {
    std::int32_t at = 0;
    for (std::size_t i = 0; i < which; ++i) at += elements[i];
    return at;
  }
  std::vector<std::int32_t> elements;
  std::int32_t count, stride = 0;
  std::vector<float> values;
  std::unique_ptr<DeviceBuffer> memory;
};

TEST_P(PartialSumsTest, AreTheReferencesSums) {
  for (const std::int32_t count : {0, 1, 2, 31, 32, 33, 128, 264, 700}) {
    SCOPED_TRACE(count);
    const Parts parts(device(), {1, 7, 8, 300, 2048}, count);
    for (const bool accumulate : {false, true}) {
      const DeviceBuffer to(device(), std::vector<float>(static_cast<std::size_t>(parts.stride), 2.0f), DType::float32);
      PartialSums partial;
      for (std::size_t i = 0; i < parts.elements.size(); ++i)
        partial.add(parts.array(i, to.as<float>() + parts.begin(i), accumulate));
      BANTAM_KERNEL(device().exec(), add_up_parts, partial);
      const std::vector<float> sums = to.download();
      for (std::size_t i = 0; i < parts.elements.size(); ++i) {
        std::vector<double> expected = parts.sums(i);
        for (double& v : expected) v += accumulate ? 2 : 0;
        // Of at most 700 terms below 1, in any order: each addition rounds by half a unit of a sum below 700.
        expect_close({sums.begin() + parts.begin(i), sums.begin() + parts.begin(i) + parts.elements[i]}, expected,
                     std::max(count, 1) * 0x1p-24 * std::sqrt(std::max(count, 1)));
      }
    }
  }
}

TEST_P(PartialSumsTest, HoldNoMoreThanTheyHaveRoomFor) {
  PartialSums partial;
  for (int i = 0; i < PartialSums::kMost; ++i) partial.add({});
  EXPECT_THROW(partial.add({}), Error);
}

/// An arena of a dense weight and a block's three gradients, which wait, with a frozen span between.
struct Update {
  explicit Update(KernelDevice& on, std::int32_t count)
      : device(on),
        arena(on,
              {{5000, {.compute_copy = 1}},
               {2048, {.compute_copy = 1}},
               {70, {.frozen = 1, .compute_copy = 1}},
               {288, {.compute_copy = 1}},
               {27, {.compute_copy = 0}}},
              {{.learning_rate = 0.1f, .weight_decay = 0.1f}}),
        parts(on, {2048, 288, 27}, count) {
    arena.control.upload({{.loss_scale = 8, .growth_interval = 5, .updates = 3, .clip_norm = 0.5f}});
    arena.master.upload(arena.random_padded(1));
    arena.moment1.upload(arena.random_padded(4));
    arena.moment2.upload(arena.random_padded(7, 0, 1));
    arena.gradient.upload(arena.random_padded(10));
  }
  PartialSums partial_sums(bool accumulate) const {
    constexpr std::array<std::size_t, 3> kSpans = {1, 3, 4};
    PartialSums all;
    for (std::size_t i = 0; i < kSpans.size(); ++i)
      all.add(parts.array(i, arena.gradient.as<float>() + arena.offset(kSpans[i]), accumulate));
    return all;
  }
  std::vector<std::vector<std::uint8_t>> state() const {
    return {arena.master.download_bytes(), arena.moment1.download_bytes(), arena.moment2.download_bytes(),
            arena.compute.download_bytes(), arena.gradient.download_bytes()};
  }

  KernelDevice& device;
  TestArena arena;
  Parts parts;
};

TEST_P(PartialSumsTest, AnUpdateThatAddsThemUpIsTheUpdateOfTheirSums) {
  for (const std::int32_t count : {0, 1, 32, 264}) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(std::to_string(count) + (accumulate ? " accumulated" : ""));
      Update before(device(), count), within(device(), count);
      BANTAM_KERNEL(device().exec(), add_up_parts, before.partial_sums(accumulate));
      before.arena.step(UpdateKind::adam);
      within.arena.begin(within.partial_sums(accumulate));
      EXPECT_EQ(within.arena.gradient.download_bytes(), before.arena.gradient.download_bytes());
      const UpdateControl a = before.arena.control_now(), b = within.arena.control_now();
      EXPECT_EQ(b.updates, 4);
      EXPECT_EQ(b.found_nonfinite, 0);
      EXPECT_FLOAT_EQ(b.gradient_norm, a.gradient_norm);  // summed in double, in another order
      EXPECT_FLOAT_EQ(b.gradient_factor, a.gradient_factor);
      within.arena.control.upload({a});  // now to the bit
      within.arena.apply(UpdateKind::adam);
      EXPECT_EQ(within.state(), before.state());
    }
  }
}

TEST_P(PartialSumsTest, AnUpdateThatAddsThemUpComputesTheSameBitsEveryTime) {
  Update first(device(), 128), second(device(), 128);
  for (Update* update : {&first, &second}) {
    update->arena.begin(update->partial_sums(true));
    update->arena.apply(UpdateKind::adamw);
  }
  EXPECT_EQ(first.state(), second.state());
  EXPECT_EQ(bits_of({first.arena.control_now().gradient_norm}), bits_of({second.arena.control_now().gradient_norm}));
}

TEST_P(PartialSumsTest, WhatIsNotFiniteInAPartIsFound) {
  for (const float bad : {INFINITY, NAN}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{2047}, std::size_t{2048}, std::size_t{2362}}) {
      Update update(device(), 40);
      update.parts.values[39u * 2363u + at] = bad;
      update.parts.memory->upload(update.parts.values);
      auto before = update.state();
      update.arena.begin(update.partial_sums(false));
      update.arena.apply(UpdateKind::adam);
      const UpdateControl c = update.arena.control_now();
      EXPECT_EQ(c.found_nonfinite, 1) << bad << " at " << at;
      EXPECT_EQ(c.skipped, 1);
      EXPECT_EQ(c.updates, 3);
      EXPECT_EQ(c.loss_scale, 4);
      auto after = update.state();
      before.pop_back();  // gradients are written all the same
      after.pop_back();
      EXPECT_EQ(after, before);
    }
  }
}

TEST_P(PartialSumsTest, MustBelongToTheArena) {
  Update update(device(), 2);
  const auto refused = [&](float* to) {
    PartialSums partial;
    partial.add(update.parts.array(0, to, false));
    EXPECT_THROW(update.arena.begin(partial), Error);
  };
  float* gradient = update.arena.gradient.as<float>();
  refused(update.arena.master.as<float>() > gradient ? gradient - 128 : gradient + update.arena.elements());
  refused(gradient + 64);
  refused(gradient + update.arena.elements() - 128);  // begins there, ends beyond
}

}  // namespace
}  // namespace bantam::testing::partial_sums_test
