// A recording made by hand, added up: operations, kernels, gaps, threads, and the sentence.
#include "bantam/run/profile/step_profile.h"

#include <gtest/gtest.h>

namespace bantam::run::step_profile_test {
namespace {

using kernels::KernelPhase;

StepSlice slice(const std::string& owner, KernelPhase phase, const std::string& kernel, std::int64_t begin,
                std::int64_t end) {
  return {.owner = owner, .phase = phase, .kernel = kernel, .work = {.bytes = 1000}, .begin_ns = begin, .end_ns = end};
}

/// Two updates of 1,000,000 ns: conv 400 µs forward and 200 µs backward, norm 100 µs, gaps of 50, 50 and 200 µs.
StepProfile made_profile() {
  StepRecording recording{.method = RecordingMethod::driver_trace, .plain_seconds = 0.99e-3};
  for (const std::int64_t at : {0, 1'000'000})
    recording.updates.push_back(
        {.begin_ns = at,
         .end_ns = at + 1'000'000,
         .slices = {slice("stage1_block1/conv", KernelPhase::forward, "conv2d_forward", at, at + 400'000),
                    slice("stage1_block1/norm", KernelPhase::forward, "batch_norm", at + 450'000, at + 550'000),
                    slice("stage1_block1/conv", KernelPhase::backward, "conv2d_weights", at + 600'000, at + 800'000)}});
  recording.threads = {{.thread = 0, .waits = true, .begin_ns = 0, .end_ns = 500'000},
                       {.thread = 1, .begin_ns = 0, .end_ns = 1'000'000}};
  Explanation explanation;
  explanation.nodes = {{.name = "stage1_block1/conv", .runs = "conv2d"},
                       {.name = "stage1_block1/norm", .runs = "norm"}};
  StepProfile profile = summarize(explanation, std::move(recording));
  profile.device = Device::cuda(0);
  profile.rates = MeasuredRates{.copy_bytes_per_s = 1e7, .flops_per_s = 1e9, .kernel_seconds = 1e-6};
  return profile;
}

TEST(StepProfile, OperationsAndGapsAddUpToTheStep) {
  const StepProfile profile = made_profile();
  EXPECT_DOUBLE_EQ(profile.step_seconds, 1e-3);
  EXPECT_DOUBLE_EQ(profile.gap_seconds, 0.3e-3);
  double sum = profile.gap_seconds, kernels = profile.gap_seconds;
  for (const ProfiledNode& node : profile.nodes) sum += node.total().seconds;
  for (const ProfiledKernel& kernel : profile.kernels) kernels += kernel.work.seconds;
  EXPECT_NEAR(sum, profile.step_seconds, 1e-12);
  EXPECT_NEAR(kernels, profile.step_seconds, 1e-12);
  ASSERT_EQ(profile.nodes.size(), 2u);
  EXPECT_NEAR(profile.nodes[0].total().seconds, 0.6e-3, 1e-12);
  EXPECT_NEAR(profile.nodes[0].by_phase[static_cast<std::size_t>(KernelPhase::backward)].seconds, 0.2e-3, 1e-12);
  EXPECT_DOUBLE_EQ(profile.nodes[0].total().calls, 2);
  EXPECT_EQ(profile.kernels[0].kernel, "conv2d_forward") << "longest first";
}

/// A call of 1,000 bytes that is a memset of 10 µs and a product of 90 µs, and one of another phase.
TEST(StepProfile, KernelsOfACallShareItsWorkByTheirTimes) {
  StepRecording recording{.method = RecordingMethod::driver_trace, .plain_seconds = 1e-4};
  StepSlice memset = slice("conv", KernelPhase::backward, "conv2d_grad_input", 0, 10'000), product = memset;
  memset.device_kernel = "memset";
  product.device_kernel = "product";
  product.begin_ns = 10'000;
  product.end_ns = 100'000;
  product.work = {};
  product.begins_call = false;
  recording.updates = {
      {.begin_ns = 0,
       .end_ns = 150'000,
       .slices = {memset, product, slice("conv", KernelPhase::forward, "conv2d_forward", 100'000, 150'000)}}};
  Explanation explanation;
  explanation.nodes = {{.name = "conv", .runs = "conv2d"}};
  const StepProfile profile = summarize(explanation, std::move(recording));
  ASSERT_EQ(profile.kernels.size(), 3u);
  EXPECT_EQ(profile.kernels[0].device_kernel, "product");
  EXPECT_DOUBLE_EQ(profile.kernels[0].work.bytes, 900);
  EXPECT_DOUBLE_EQ(profile.kernels[1].work.bytes, 1000) << "another call's";
  EXPECT_DOUBLE_EQ(profile.kernels[2].work.bytes, 100);
}

TEST(StepProfile, GapsAreNamedByTheirNeighbours) {
  const StepProfile profile = made_profile();
  ASSERT_EQ(profile.gaps.size(), 3u);
  EXPECT_EQ(profile.gaps[0].after, "stage1_block1/conv");
  EXPECT_EQ(profile.gaps[0].before, "");
  EXPECT_TRUE(profile.gaps[0].between_updates());
  EXPECT_NEAR(profile.gaps[0].seconds, 0.2e-3, 1e-12);
  EXPECT_FALSE(profile.gaps[1].between_updates());
}

TEST(StepProfile, ThreadsWorkWhereTheyDoNotWait) {
  const StepProfile profile = made_profile();
  ASSERT_EQ(profile.threads.size(), 2u);
  EXPECT_NEAR(profile.threads[0].busy_share, 0.75, 1e-9);
  EXPECT_NEAR(profile.threads[1].busy_share, 0.5, 1e-9);
}

TEST(StepProfile, TheFloorIsTheLongerOfBytesAndOperations) {
  const MeasuredRates rates{.copy_bytes_per_s = 100, .flops_per_s = 1000};
  EXPECT_DOUBLE_EQ((TimedWork{.bytes = 200, .flops = 1000}).floor_seconds(rates), 2);
  EXPECT_DOUBLE_EQ((TimedWork{.bytes = 200, .flops = 5000}).floor_seconds(rates), 5);
}

TEST(StepHeadline, NamesTheLargestPartTheGapsAndTheChanges) {
  StepProfile profile = made_profile();
  profile.threads.clear();
  profile.changes = {{.words = "precision: mixed_float16", .predicted_share = 0.6, .peak_bytes = 1 << 20},
                     {.words = "a batch of 4", .predicted_share = 0.995, .peak_bytes = 1 << 21}};
  EXPECT_EQ(
      step_headline(profile),
      "60 % of a step is conv2d in stage1, which moves data at 33 % of the device's copying speed. For 30 % of a step "
      "the GPU is idle. "
      "With precision: mixed_float16 a sample would need 40 % less time (predicted; peak 1.00 MiB).");
  profile.rates->copy_bytes_per_s /= 10;
  EXPECT_NE(step_headline(profile).find("conv2d in stage1, whose data are in a cache."), std::string::npos);
  profile.rates->copy_bytes_per_s *= 10;
  profile.changes[0].measured_share = 0.7;
  EXPECT_NE(step_headline(profile).find("a sample needed 30 % less time (measured; peak 1.00 MiB)"), std::string::npos);
  profile.changes[0].measured_share.reset();
  profile.device = Device::cpu();
  EXPECT_NE(step_headline(profile).find(" --try measures precision: mixed_float16 and a batch of 4."),
            std::string::npos);
  profile.device = Device::cuda(0);
  profile.changes[0].fits = false;
  EXPECT_EQ(step_headline(profile).find("mixed_float16"), std::string::npos) << "there is no memory for it";
  profile.changes.clear();
  EXPECT_NE(step_headline(profile).find("No setting is predicted to save 2 % of it."), std::string::npos);
}

TEST(ReadableKernel, HasNoNamespacesAndArguments) {
  EXPECT_EQ(readable_kernel("_ZN6bantam7kernels4cuda12_GLOBAL__N_14rowsIfLi4EEEvPfi"), "rows<float, 4>");
  EXPECT_EQ(readable_kernel("sm90_xmma_gemm_f16f16_f32"), "sm90_xmma_gemm_f16f16_f32");
  EXPECT_EQ(readable_kernel("copy"), "copy");
  EXPECT_EQ(readable_kernel(""), "");
}

}  // namespace
}  // namespace bantam::run::step_profile_test
