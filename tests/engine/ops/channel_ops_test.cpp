// Ops of whole channels and samples: what spatial_dropout and drop_path drop together, and what a factor a channel,
// PReLU and softmax refuse.
#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::channel_ops_test {
namespace {

class ChannelOpsTest : public testing::EngineTest {
 protected:
  /// In training, at update 5.
  Context random_context() {
    Context c = context();
    const std::int64_t update = 5;
    updates_ = c.upload({1}, &update);
    c.random.update = updates_.as<std::int64_t>();
    c.random.seed = 11;
    c.path = "drop";
    return c;
  }
  Tensor ones(const Context& c, const Shape& shape) {
    return c.upload(shape, std::vector<float>(static_cast<std::size_t>(shape.elements()), 1.0f).data());
  }

 private:
  Tensor updates_;
};
BANTAM_INSTANTIATE_ON_DEVICES(ChannelOpsTest);

using Drop = Tensor (*)(const Context&, Tensor, float);

/// Values of groups of elements that are dropped together: each is 0 or 2 for all of them.
std::vector<float> groups_of(const std::vector<float>& values, std::size_t samples, std::size_t channels) {
  std::vector<float> groups(samples * channels, -1.0f);
  const std::size_t sample = values.size() / samples;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& group = groups[i / sample * channels + i % channels];
    if (group < 0) group = values[i];
    EXPECT_EQ(group, values[i]) << i;
    EXPECT_TRUE(values[i] == 0.0f || values[i] == 2.0f) << values[i];
  }
  return groups;
}

TEST_P(ChannelOpsTest, ChannelsAndSamplesAreDroppedTogetherInEveryMicroBatch) {
  const Shape whole{20, 3, 5, 12}, half{10, 3, 5, 12};
  const Context c = random_context();
  for (const auto& [drop, channels] : {std::pair<Drop, std::size_t>{ops::spatial_dropout, 12}, {ops::drop_path, 1}}) {
    const std::vector<float> all = groups_of(to_host_floats(drop(c, ones(c, whole), 0.5f), c.stream), 20, channels);
    EXPECT_NE(std::count(all.begin(), all.end(), 0.0f), 0);
    EXPECT_NE(std::count(all.begin(), all.end(), 2.0f), 0);
    std::vector<float> halves;
    for (const std::int64_t first : {0, 10}) {
      Context part = c;
      part.random.first_sample = first;
      const auto groups = groups_of(to_host_floats(drop(part, ones(c, half), 0.5f), c.stream), 10, channels);
      halves.insert(halves.end(), groups.begin(), groups.end());
    }
    EXPECT_EQ(halves, all);
  }
}

TEST_P(ChannelOpsTest, EvaluationDropsNothing) {
  Context c = random_context();
  c.pass = Pass::evaluate;
  const Tensor x = ones(c, {4, 2, 2, 3});
  for (const Drop drop : {Drop{ops::spatial_dropout}, Drop{ops::drop_path}})
    EXPECT_EQ(drop(c, x, 0.5f).data(), x.data());
}

TEST_P(ChannelOpsTest, RefuseWhatDoesNotFit) {
  const Context c = context();
  const Tensor x = ones(c, {4, 2, 3}), three = ones(c, {3}), two = ones(c, {2});
  EXPECT_NO_THROW((void)ops::prelu(c, x, three));
  EXPECT_NO_THROW((void)ops::channel_scale(c, x, ones(c, {1})));
  EXPECT_THROW((void)ops::prelu(c, x, two), ShapeError);
  EXPECT_THROW((void)ops::channel_scale(c, x, ones(c, {1, 3})), ShapeError);
  EXPECT_THROW((void)ops::channel_scale(c, x, ops::cast(c, three, DType::float16)), DTypeError);
  EXPECT_THROW((void)ops::softmax(c, ones(c, {})), ShapeError);
  const Context random = random_context();
  EXPECT_THROW((void)ops::spatial_dropout(random, three, 0.5f), ShapeError);
  EXPECT_THROW((void)ops::drop_path(random, x, 1.0f), ShapeError);
  EXPECT_THROW((void)ops::drop_path(c, x, 0.5f), Error) << "no random state";
}

// A frozen scale needs no x: the gradient of x is dy times the scale.
TEST_P(ChannelOpsTest, ConstantFactorsKeepNothing) {
  Context c = context();
  Tape tape;
  c.tape = &tape;
  Tensor x = ones(c, {2, 3});
  x.set_value_id(runtime().new_value_id());
  const ValueRef x_ref = x;
  const std::vector<float> factors = {2, 3, 4}, seed = {1, 2, 3, 4, 5, 6};
  Tensor y = ops::channel_scale(c, x, c.upload({3}, factors.data()));
  GradientStore store = tape.backward(c, std::move(y), c.upload({2, 3}, seed.data()));
  EXPECT_EQ(to_host_floats(store.pop(x_ref.id), c.stream), (std::vector<float>{2, 6, 12, 8, 15, 24}));
}

}  // namespace
}  // namespace bantam::channel_ops_test
