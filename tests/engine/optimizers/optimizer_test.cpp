// The optimizer against its formulas in double: rules, weight decay and who is left out of it, clipping, the loss
// scale, rates, frozen weights and state.
#include "bantam/engine/optimizers/optimizer.h"

#include <cmath>

#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::optimizer_test {
namespace {

using testing::EngineTest;

class OptimizerTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OptimizerTest);

Graph two_by_three() {
  Graph graph({3});
  graph.add("head", dense({.units = 2}));
  return graph;
}

/// Gradients of update t (from 0): six of the weight, then two of the bias.
std::vector<float> gradient_of(int t) { return testing::random_floats(8, 70 + static_cast<std::uint64_t>(t)); }

struct Trained {
  Trained(Runtime& runtime, Device device, const OptimizerOptions& options, Precision precision = {})
      : model(runtime, device, two_by_three(), {.precision = precision, .seed = 3}), optimizer(model, options) {}

  /// Weight, then bias.
  std::vector<float> values(bool gradients = false) {
    std::vector<float> all;
    for (const char* name : {"head/weight", "head/bias"}) {
      const Parameter& parameter = *model.parameters().find(name);
      const std::vector<float> part = to_host<float>(gradients ? parameter.gradient() : parameter.master(), stream());
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  void update(const std::vector<float>& gradient, int rate = 0) {
    Parameter &weight = *model.parameters().find("head/weight"), &bias = *model.parameters().find("head/bias");
    copy_bytes(weight.gradient().data(), gradient.data(), 6 * sizeof(float), stream());
    copy_bytes(bias.gradient().data(), gradient.data() + 6, 2 * sizeof(float), stream());
    synchronize(stream());
    optimizer.update(rate);
  }
  Stream stream() { return model.runtime().stream(model.device()); }

  Model model;
  Optimizer optimizer;
};

/// A case of the textbook: options of sgd with `momentum`, else of Adam.
struct Formula {
  std::string_view kind;
  float rate = 0.05f, decay = 0, momentum = 0;
  bool nesterov = false, decay_biases = true;
  float clip_norm = 0, beta1 = 0.9f, beta2 = 0.999f;

  OptimizerOptions options() const {
    OptimizerOptions o{.clip_norm = clip_norm, .decay_biases = decay_biases};
    if (kind == "sgd")
      o.rule = sgd({.learning_rate = rate, .weight_decay = decay, .momentum = momentum, .nesterov = nesterov});
    else if (kind == "adam")
      o.rule = adam({.learning_rate = rate, .weight_decay = decay, .beta1 = beta1, .beta2 = beta2});
    else
      o.rule = adamw({.learning_rate = rate, .weight_decay = decay, .beta1 = beta1, .beta2 = beta2});
    return o;
  }
};

/// Weights after some updates, in double.
std::vector<double> expected(std::vector<double> w, const Formula& o, int updates, double scale = 1) {
  std::vector<double> m(8), v(8);
  for (int t = 1; t <= updates; ++t) {
    const std::vector<float> raw = gradient_of(t - 1);
    double norm = 0;
    for (const float g : raw) norm += static_cast<double>(g) * g / scale / scale;
    const double clip = o.clip_norm > 0 ? std::min(1.0, o.clip_norm / std::sqrt(norm)) : 1.0;
    for (std::size_t i = 0; i < 8; ++i) {
      const double decay = i >= 6 && !o.decay_biases ? 0.0 : o.decay, lr = o.rate;
      double g = raw[i] / scale * clip;
      if (o.kind == "adamw")
        w[i] -= lr * decay * w[i];
      else
        g += decay * w[i];
      if (o.kind == "sgd") {
        m[i] = o.momentum * m[i] + g;
        w[i] -= lr * (o.nesterov ? g + o.momentum * m[i] : m[i]);
        continue;
      }
      m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, t)), v_hat = v[i] / (1 - std::pow(o.beta2, t));
      w[i] -= lr * m_hat / (std::sqrt(v_hat) + 1e-7f);
    }
  }
  return w;
}

/// Weights are below 1.5 and move by at most 0.1 an update: five updates round some ten times each to float32, by 2^-24
/// of what they round, half of which are steps.
constexpr double kTolerance = 2e-6;

TEST_P(OptimizerTest, EveryRuleIsItsFormula) {
  const Formula rules[] = {{.kind = "sgd"},
                           {.kind = "sgd", .decay = 0.1f},
                           {.kind = "sgd", .decay = 0.1f, .momentum = 0.9f},
                           {.kind = "sgd", .decay = 0.1f, .momentum = 0.9f, .nesterov = true},
                           {.kind = "adam"},
                           {.kind = "adam", .decay = 0.1f, .beta1 = 0.8f, .beta2 = 0.99f},
                           {.kind = "adamw", .decay = 0.1f},
                           {.kind = "adamw", .decay = 0.1f, .decay_biases = false},
                           {.kind = "sgd", .decay = 0.1f, .decay_biases = false},
                           {.kind = "sgd", .clip_norm = 0.25f},
                           {.kind = "adam", .decay = 0.1f, .clip_norm = 0.25f},
                           {.kind = "adam", .clip_norm = 1000.0f}};
  for (const Formula& rule : rules) {
    Trained run(runtime(), device(), rule.options());
    const std::vector<float> start = run.values();
    for (int t = 0; t < 5; ++t) run.update(gradient_of(t));
    const std::vector<double> wanted = expected({start.begin(), start.end()}, rule, 5);
    const std::vector<float> got = run.values();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], kTolerance) << "value " << i << " of rule " << &rule - rules;
    EXPECT_EQ(run.optimizer.control().updates, 5);
  }
}

TEST_P(OptimizerTest, NormAndClippingAreOfUnscaledGradients) {
  const Formula rule{.kind = "sgd", .clip_norm = 0.25f};
  OptimizerOptions options = rule.options();
  options.initial_loss_scale = 8.0f;
  Trained run(runtime(), device(), options, {PrecisionKind::mixed_float16});
  const std::vector<float> start = run.values();
  run.update(gradient_of(0));
  double norm = 0;
  for (const float g : gradient_of(0)) norm += static_cast<double>(g) * g;
  EXPECT_NEAR(run.optimizer.control().gradient_norm, std::sqrt(norm) / 8, 1e-6);
  const std::vector<double> wanted = expected({start.begin(), start.end()}, rule, 1, 8);
  const std::vector<float> got = run.values();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], kTolerance);
}

TEST_P(OptimizerTest, ARateIsOneOfThoseThatWereSet) {
  Trained run(runtime(), device(), {.rule = sgd({.learning_rate = 1.0f})});
  const float rates[] = {0.5f, 0.25f};
  run.optimizer.set_learning_rates(rates);
  EXPECT_EQ(run.optimizer.learning_rate(), 0.25f) << "the last";
  const std::vector<float> ones(8, 1.0f);
  const int asked[] = {0, 1, 7};
  const float moved[] = {0.5f, 0.25f, 0.25f};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<float> before = run.values();
    run.update(ones, asked[i]);
    EXPECT_FLOAT_EQ(run.values()[7], before[7] - moved[i]);
  }
  const std::vector<float> too_many(Optimizer::kMostRates + 1, 0.1f);
  EXPECT_THROW(run.optimizer.set_learning_rates(too_many), Error);
  EXPECT_THROW(run.optimizer.set_learning_rates({}), Error);
  EXPECT_THROW(run.optimizer.set_learning_rate(-1.0f), ConfigError);
  EXPECT_THROW(run.optimizer.set_learning_rate(std::nanf("")), ConfigError);
}

TEST_P(OptimizerTest, WhatIsNotFiniteIsSkippedAndHalvesTheScale) {
  Trained run(runtime(), device(), {.initial_loss_scale = 64.0f}, {PrecisionKind::mixed_float16});
  const std::vector<float> start = run.values();
  std::vector<float> bad(8, 1.0f);
  bad[5] = std::numeric_limits<float>::quiet_NaN();
  run.update(bad);
  EXPECT_EQ(run.values(), start);
  const kernels::UpdateControl control = run.optimizer.control();
  EXPECT_EQ(control.updates, 0);
  EXPECT_EQ(control.skipped, 1);
  EXPECT_EQ(control.loss_scale, 32.0f);
  run.update(gradient_of(0));
  EXPECT_NE(run.values(), start);
  EXPECT_EQ(run.optimizer.control().skipped_in_a_row, 0);
}

TEST_P(OptimizerTest, KeepsAsManyMomentsAsItsRuleNeeds) {
  EXPECT_EQ(adam()->slots(), 2);
  EXPECT_EQ(adamw()->slots(), 2);
  EXPECT_EQ(sgd()->slots(), 0);
  EXPECT_EQ(sgd({.momentum = 0.5f})->slots(), 1);
  EXPECT_EQ(sgd({.scheduled_momentum = true})->slots(), 1);
  Trained two(runtime(), device(), {}), plain(runtime(), device(), {.rule = sgd()});
  const auto names = [](Optimizer& optimizer) {
    StateRegistry state;
    optimizer.register_state(state);
    std::vector<std::string> names;
    for (const StateEntry& entry : state.tensors()) names.push_back(entry.name.substr(0, entry.name.find('/', 10)));
    names.erase(std::unique(names.begin(), names.end()), names.end());  // one a parameter
    return names;
  };
  EXPECT_EQ(names(two.optimizer),
            (std::vector<std::string>{"optimizer/control", "optimizer/moment1", "optimizer/moment2"}));
  EXPECT_EQ(names(plain.optimizer), (std::vector<std::string>{"optimizer/control"}));
}

TEST_P(OptimizerTest, OptionsOutOfTheirRangesAreRefused) {
  EXPECT_THROW((void)adam({.learning_rate = -1.0f}), ConfigError);
  EXPECT_THROW((void)adam({.weight_decay = -0.1f}), ConfigError);
  EXPECT_THROW((void)sgd({.momentum = 1.0f}), ConfigError);
  EXPECT_THROW((void)adam({.beta1 = 1.0f}), ConfigError);
  EXPECT_THROW((void)adam({.beta2 = -0.1f}), ConfigError);
  EXPECT_THROW((void)adam({.epsilon = 0.0f}), ConfigError);
  EXPECT_THROW((void)adam({.learning_rate = std::nanf("")}), ConfigError);
  EXPECT_THROW(Trained(runtime(), device(), {.clip_norm = -1.0f}), ConfigError);
  EXPECT_THROW(Trained(runtime(), device(), {.initial_loss_scale = 0.5f}), ConfigError);
}

TEST_P(OptimizerTest, RmspropHasMomentumFromTheBeginningOrNever) {
  const auto options = [](float momentum) {
    return OptimizerOptions{.rule = rmsprop({.learning_rate = 0.01f, .momentum = momentum})};
  };
  Trained without(runtime(), device(), options(0.0f)), with(runtime(), device(), options(0.9f));
  UpdateValues values = without.optimizer.values();
  values.momentum = 0.5f;
  EXPECT_THROW(without.optimizer.set_values({&values, 1}), ConfigError);
  // A momentum of 0 for one update leaves the velocity that update's step.
  values = with.optimizer.values();
  const auto train = [&](int update, float momentum) {
    values.momentum = momentum;
    with.optimizer.set_values({&values, 1});
    const std::vector<float> before = with.values();
    with.update(gradient_of(update));
    std::vector<float> step = with.values();
    for (std::size_t i = 0; i < step.size(); ++i) step[i] = before[i] - step[i];
    return step;
  };
  const std::vector<float> first = train(0, 0.9f), alone = train(1, 0.0f), next = train(2, 0.5f);
  Trained plain(runtime(), device(), options(0.0f));
  for (int update = 0; update < 2; ++update) plain.update(gradient_of(update));
  const std::vector<float> before = plain.values();
  plain.update(gradient_of(2));
  const std::vector<float> after = plain.values();
  for (std::size_t i = 0; i < next.size(); ++i)
    EXPECT_NEAR(next[i], 0.5f * alone[i] + (before[i] - after[i]), kTolerance) << i;
  EXPECT_NE(first, alone);
}

}  // namespace
}  // namespace bantam::optimizer_test
