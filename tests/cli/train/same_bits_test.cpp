// Same seed, same bits: threads, workers, recompute and repetition change no weight; the seed does.
#include "tests/cli/program.h"

namespace bantam::cli::same_bits_test {
namespace {

class SameBits : public ProgramTest {
 protected:
  SameBits() { write_tiny_config(); }
  std::string weights(const std::string& name, const std::vector<std::string>& more) {
    const Outcome outcome = train(name, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? read(name + "/weights.safetensors") : name;
  }
};

// The network has batch normalisation and dropout, the data are shuffled, cropped and flipped: whatever could drift is
// there.
TEST_F(SameBits, WhateverRunsIt) {
  const std::string base = weights("base", {});
  EXPECT_EQ(weights("again", {}), base);
  EXPECT_EQ(weights("two_threads", {"--threads", "2"}), base);
  EXPECT_EQ(weights("workers_0", {"data.pipeline.prefetch.workers=0"}), base);
  EXPECT_EQ(weights("workers_4", {"data.pipeline.prefetch.workers=4", "data.pipeline.prefetch.depth=5"}), base);
  EXPECT_EQ(weights("uncached", {"data.pipeline=[{cache: off}, {shuffle: {}}, {random_crop: {padding: 2}}, "
                                 "{random_flip: {}}, {normalize: {scale: 0.00392156862745098}}, "
                                 "{batch: {size: 16, drop_last: true}}, {prefetch: {depth: 3, workers: 2}}]"}),
            base);
  EXPECT_EQ(weights("recompute_all", {"recompute=all"}), base);
  EXPECT_EQ(weights("recompute_block", {"recompute=[middle]"}), base);
  EXPECT_NE(weights("other_seed", {"--seed", "8"}), base);
}

TEST_F(SameBits, In16BitsToo) {
  for (const std::string precision : {"mixed_float16", "mixed_bfloat16"}) {
    const std::string base = weights(precision, {"--precision", precision});
    EXPECT_EQ(weights(precision + "_2", {"--precision", precision, "--threads", "2", "recompute=all"}), base)
        << precision;
  }
}

}  // namespace
}  // namespace bantam::cli::same_bits_test
