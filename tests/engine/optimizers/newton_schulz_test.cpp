// Muon's Newton-Schulz steps in every precision: by hand, against float64, their singular values, and that neither
// batches nor threads change a matrix.
#include <algorithm>
#include <cmath>

#include "bantam/engine/optimizers/muon.h"
#include "bantam/kernels/update/muon.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/message_of.h"

namespace bantam::newton_schulz_test {
namespace {

using testing::EngineTest;

constexpr PrecisionKind kPrecisions[] = {PrecisionKind::float32, PrecisionKind::mixed_float16,
                                         PrecisionKind::mixed_bfloat16};

/// Half a unit in the last place of what the products are stored as, relative.
double unit(PrecisionKind kind) {
  return kind == PrecisionKind::float32 ? 0x1p-24 : kind == PrecisionKind::mixed_float16 ? 0x1p-11 : 0x1p-8;
}

/// What steps differ by from exact ones, relative to the norm of a matrix whose singular values, divided by its norm,
/// are at least 0.1. X, its Gram matrix G, G² and P = a·I + b·G + c·G² are rounded in each step. Where s is near 1 that
/// moves P by 7, 4.4, 8.7 (G's rounding in G²) and 3.5 times a rounding of each element, 12.5 as a root of squares,
/// X (norm 0.8√n) by 1.2·12.5·0.41/0.8 = 8 units, 0.41 being the root mean square of a rounding in units u. A step
/// multiplies relative errors by at most 1.6, |s·p'(s)/p(s)| at the fixed point 0.868, and three come near it: 8·√(1 +
/// 1.6² + 1.6⁴) = 25. The steps before, with s and G small, add less than a unit. The float32 sums of at most 144
/// products in each add √144 of their roundings.
double tolerance(PrecisionKind kind) { return 25 * (unit(kind) + std::sqrt(144.0) * 0x1p-24); }

/// A matrix, its rows one after another.
struct Values {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> x;
};

/// XXᵀ.
std::vector<double> gram_of(const Values& m) {
  std::vector<double> gram;
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = 0; j < m.rows; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < m.columns; ++k)
        sum += m.x[static_cast<std::size_t>(i * m.columns + k)] * m.x[static_cast<std::size_t>(j * m.columns + k)];
      gram.push_back(sum);
    }
  }
  return gram;
}

/// Five steps in float64 (Jordan 2024), by products from the left for tall matrices, too: (XXᵀ)X = X(XᵀX).
Values newton_schulz(Values m) {
  double norm = 0;
  for (const double value : m.x) norm += value * value;
  for (double& value : m.x) value /= std::sqrt(norm) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const std::vector<double> gram = gram_of(m);
    const auto times_gram = [&](const std::vector<double>& x) {
      std::vector<double> y(x.size());
      for (std::int64_t i = 0; i < m.rows; ++i) {
        for (std::int64_t j = 0; j < m.rows; ++j) {
          const double factor = gram[static_cast<std::size_t>(i * m.rows + j)];
          for (std::int64_t k = 0; k < m.columns; ++k)
            y[static_cast<std::size_t>(i * m.columns + k)] += factor * x[static_cast<std::size_t>(j * m.columns + k)];
        }
      }
      return y;
    };
    const std::vector<double> cubed = times_gram(m.x), fifth = times_gram(cubed);
    for (std::size_t i = 0; i < m.x.size(); ++i) m.x[i] = 3.4445 * m.x[i] - 4.7750 * cubed[i] + 2.0315 * fifth[i];
  }
  return m;
}

/// Singular values of a matrix with no more rows than columns: roots of the eigenvalues of XXᵀ, by Jacobi's rotations.
std::vector<double> singular_values(const Values& m) {
  const std::int64_t n = m.rows;
  std::vector<double> a = gram_of(m);
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& { return a[static_cast<std::size_t>(i * n + j)]; };
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        const double angle = 0.5 * std::atan2(2 * at(p, q), at(q, q) - at(p, p));
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::int64_t k = 0; k < n; ++k) {
          const double left = at(k, p), right = at(k, q);
          at(k, p) = c * left - s * right;
          at(k, q) = s * left + c * right;
        }
        for (std::int64_t k = 0; k < n; ++k) {
          const double left = at(p, k), right = at(q, k);
          at(p, k) = c * left - s * right;
          at(q, k) = s * left + c * right;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(std::sqrt(std::max(0.0, at(i, i))));
  return values;
}

/// Some equal convolutions of (16, 144), then two of (64, 16) and two of (16, 64) in turn.
Graph network(int equal) {
  Graph graph({4, 4, 16});
  for (int i = 0; i < equal; ++i)
    graph.add("conv" + std::to_string(i),
              conv2d({.filters = 16, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  for (const char* name : {"1", "2"}) {
    graph.add("tall" + std::string(name), conv2d({.filters = 64, .kernel = {1, 1}, .bias = false}));
    graph.add("wide" + std::string(name), conv2d({.filters = 16, .kernel = {1, 1}, .bias = false}));
  }
  return graph;
}

/// By how much one update by `gradients` moves each weight, in the graph's order: in units of the learning rate, the
/// other way.
std::vector<std::vector<float>> step_of(Runtime& runtime, Device device, Graph graph, PrecisionKind kind,
                                        const std::vector<std::vector<float>>& gradients, MuonOptions options = {}) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < graph.nodes().size(); ++i) names.push_back(graph.nodes()[i].name + "/weight");
  Model model(runtime, device, std::move(graph), {.precision = {.kind = kind}});
  options.learning_rate = 1.0f;
  Optimizer optimizer(model, {.rule = muon(options)});
  const Stream stream = runtime.stream(device);
  for (std::size_t i = 0; i < names.size(); ++i) {
    Parameter& parameter = *model.parameters().find(names[i]);
    const std::vector<float> zeros(gradients[i].size());
    copy_bytes(parameter.master().data(), zeros.data(), zeros.size() * sizeof(float), stream);
    copy_bytes(parameter.gradient().data(), gradients[i].data(), zeros.size() * sizeof(float), stream);
    synchronize(stream);
  }
  optimizer.update();
  EXPECT_EQ(optimizer.control().updates, 1);
  std::vector<std::vector<float>> moved;
  for (const std::string& name : names) {
    moved.push_back(to_host<float>(model.parameters().find(name)->master(), stream));
    for (float& value : moved.back()) value = -value;
  }
  return moved;
}

std::vector<std::vector<float>> gradients_of(int equal) {
  std::vector<std::vector<float>> all;
  for (int i = 0; i < equal; ++i) all.push_back(testing::random_floats(16 * 144, 10 + static_cast<std::uint64_t>(i)));
  for (const std::uint64_t seed : {5, 6, 7, 8}) all.push_back(testing::random_floats(64 * 16, seed));
  return all;
}

constexpr int kEqual = 18;  // more than a batch has at most
static_assert(kEqual > kernels::MuonMatrices::kMost);

class MuonStepTest : public EngineTest {
 protected:
  std::vector<std::vector<float>> step(int equal, PrecisionKind kind,
                                       const std::vector<std::vector<float>>& gradients) {
    return step_of(runtime(), device(), network(equal), kind, gradients);
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(MuonStepTest);

// Of a diagonal matrix the steps are those of its elements: 3/5 and 4/5 at first. All products of zeros are zeros.
TEST_P(MuonStepTest, ADiagonalMatrixByHand) {
  double expected[] = {0.6, 0.8};
  for (double& s : expected) {
    for (int step = 0; step < 5; ++step) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  }
  for (const PrecisionKind kind : kPrecisions) {
    Graph graph({2});
    graph.add("dense", dense({.units = 2, .bias = false}));
    const std::vector<float> moved = step_of(runtime(), device(), std::move(graph), kind, {{3, 0, 0, 4}})[0];
    EXPECT_NEAR(moved[0], expected[0], tolerance(kind));
    EXPECT_NEAR(moved[3], expected[1], tolerance(kind));
    EXPECT_EQ(moved[1], 0.0f);
    EXPECT_EQ(moved[2], 0.0f);
  }
}

// Odd and even counts: X ends in another place. Several equal matrices are a batch in half types.
TEST_P(MuonStepTest, StepsAndCoefficientsAreTheOnesAskedFor) {
  for (const PrecisionKind kind : kPrecisions) {
    for (const int steps : {1, 2, 3, 4}) {
      double expected[] = {0.6, 0.8};
      for (double& s : expected) {
        for (int step = 0; step < steps; ++step) s = 1.875 * s - 1.25 * std::pow(s, 3) + 0.375 * std::pow(s, 5);
      }
      for (const int equal : {1, 3}) {
        Graph graph({2});
        for (int i = 0; i < equal; ++i) graph.add(dense({.units = 2, .bias = false}));
        const auto moved = step_of(runtime(), device(), std::move(graph), kind,
                                   std::vector<std::vector<float>>(static_cast<std::size_t>(equal), {3, 0, 0, 4}),
                                   {.steps = steps, .coefficients = {1.875f, -1.25f, 0.375f}});
        for (const std::vector<float>& matrix : moved) {
          EXPECT_NEAR(matrix[0], expected[0], tolerance(kind)) << steps;
          EXPECT_NEAR(matrix[3], expected[1], tolerance(kind)) << steps;
          EXPECT_EQ(matrix[1], 0.0f);
        }
      }
    }
  }
}

// [2, 0; 0, 0] has the norm 2; rows 2, so it becomes √2 before the first step moves it.
TEST_P(MuonStepTest, WeightsAreScaledBeforeTheUpdateWhereAsked) {
  for (const std::int64_t every : {0, 1, 2}) {
    Graph graph({2});
    graph.add("dense", dense({.units = 2, .bias = false}));
    Model model(runtime(), device(), std::move(graph), {});
    Optimizer optimizer(model, {.rule = muon({.learning_rate = 0.0f, .normalize_every = every})});
    const Stream stream = runtime().stream(device());
    Parameter& weight = *model.parameters().find("dense/weight");
    const std::vector<float> gradient = {1, 2, 3, 4};
    for (int update = 0; update < 2; ++update) {
      const std::vector<float> values = {2, 0, 0, 0};
      copy_bytes(weight.master().data(), values.data(), 4 * sizeof(float), stream);
      copy_bytes(weight.gradient().data(), gradient.data(), 4 * sizeof(float), stream);
      synchronize(stream);
      optimizer.update();
      const bool due = every == 1 || (every == 2 && update == 0);
      EXPECT_NEAR(to_host<float>(weight.master(), stream)[0], due ? std::sqrt(2.0) : 2.0, 1e-6) << every;
    }
  }
}

TEST(MuonOptionsTest, CoefficientsThatGrowAreRefused) {
  // p(1.05) = 0.68 for Jordan's; the largest is p(0.5545) = 1.2024, which the fifth step does not pass.
  EXPECT_NEAR(largest_singular_value({}, 1.05), 1.2024, 1e-4);
  // 1.2188, 1.2396, 1.3598, 2.476: worked out with a pocket calculator.
  MuonOptions steep{.steps = 3, .coefficients = {3.4576f, -4.7391f, 2.0843f}};
  EXPECT_NEAR(largest_singular_value(steep, 1.05), 1.3598, 2e-3);
  EXPECT_NE(muon(steep), nullptr);
  steep.steps = 4;
  EXPECT_NE(testing::message_of([&] { (void)muon(steep); }).find("singular values up to 1.05 to 2.4"),
            std::string::npos);
  EXPECT_NE(testing::message_of([&] { (void)muon(steep); }).find("in 4 steps; at most 2 is accepted"),
            std::string::npos);
  EXPECT_NE(testing::message_of([] { (void)muon({.steps = 11}); }).find("muon's steps must be 1 to 10, got 11"),
            std::string::npos);
  EXPECT_NE(testing::message_of([] {
              (void)muon({.steps = 2, .coefficients = {3, 0, 0}});
            }).find("singular values up to 1.05 to 9.45 in 2 steps"),
            std::string::npos);
  EXPECT_NEAR(largest_singular_value({.steps = 1, .coefficients = {1, -1, 0}}, 1.05), 2 / std::sqrt(27.0), 1e-9);
}

TEST_P(MuonStepTest, EveryPrecisionIsFloat64WithinItsRoundings) {
  const auto gradients = gradients_of(kEqual);
  for (const PrecisionKind kind : kPrecisions) {
    const auto moved = step(kEqual, kind, gradients);
    double most = 0;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const bool tall = i == kEqual || i == kEqual + 2;
      const std::int64_t rows = tall ? 64 : 16, columns = static_cast<std::int64_t>(gradients[i].size()) / rows;
      const Values exact = newton_schulz({rows, columns, {gradients[i].begin(), gradients[i].end()}});
      double difference = 0, norm = 0;
      for (std::size_t k = 0; k < exact.x.size(); ++k) {
        difference += std::pow(moved[i][k] / (tall ? 2 : 1) - exact.x[k], 2);  // √(64/16) = 2
        norm += std::pow(exact.x[k], 2);
      }
      most = std::max(most, std::sqrt(difference / norm));
    }
    EXPECT_LE(most, tolerance(kind));
    if (kind != PrecisionKind::float32) {
      EXPECT_GT(most, unit(kind) / 8) << "the products are not of the half type";
    }
  }
}

// p's smallest value above 0.1 after some steps is p(1.05) = 0.68, its largest p(0.55) = 1.20 (NewtonSchulz).
TEST_P(MuonStepTest, SingularValuesComeNearOne) {
  const auto gradients = gradients_of(3);
  for (const PrecisionKind kind : kPrecisions) {
    const auto moved = step(3, kind, gradients);
    for (std::size_t i = 0; i < 3; ++i) {
      for (const double s : singular_values({16, 144, {moved[i].begin(), moved[i].end()}})) {
        EXPECT_GE(s, 0.68 - tolerance(kind));
        EXPECT_LE(s, 1.21 + tolerance(kind));
      }
    }
  }
}

// One product's order of sums is the same in a batch on the CPU; cuBLASLt may choose another algorithm.
TEST_P(MuonStepTest, AMatrixMovesAsAlone) {
  const auto gradients = gradients_of(kEqual);
  for (const PrecisionKind kind : kPrecisions) {
    const auto together = step(kEqual, kind, gradients);
    for (const std::size_t i : {std::size_t{0}, std::size_t{15}, std::size_t{17}}) {
      std::vector<std::vector<float>> of_one(gradients.begin() + kEqual - 1, gradients.end());
      of_one[0] = gradients[i];
      const std::vector<float> alone = step(1, kind, of_one)[0];
      if (device().is_cpu()) {
        EXPECT_EQ(together[i], alone) << i;
      } else {
        double difference = 0;
        for (std::size_t k = 0; k < alone.size(); ++k) difference += std::pow(together[i][k] - alone[k], 2);
        EXPECT_LE(std::sqrt(difference), 2 * tolerance(kind) * std::sqrt(16.0)) << i;
      }
    }
  }
}

// Spans of (3, 27), together, and of (5, 3), alone: products write nothing of the padding, which is not read then.
TEST_P(MuonStepTest, PaddingStaysZero) {
  for (const PrecisionKind kind : kPrecisions) {
    Graph graph({4, 4, 3});
    for (const char* name : {"a", "b"})
      graph.add(name, conv2d({.filters = 3, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
    graph.add("c", conv2d({.filters = 5, .kernel = {1, 1}, .bias = false}));
    Model model(runtime(), device(), graph, {.precision = {.kind = kind}});
    Optimizer optimizer(model, {.rule = muon({.learning_rate = 1.0f, .momentum = 0.95f})});
    const Stream stream = runtime().stream(device());
    for (int update = 0; update < 2; ++update) {
      for (Parameter* parameter : model.parameters().spans()) {
        const std::vector<float> gradient = testing::random_floats(parameter->shape().elements(), 3);
        copy_bytes(parameter->gradient().data(), gradient.data(), gradient.size() * sizeof(float), stream);
        synchronize(stream);
      }
      optimizer.update();
    }
    const std::vector<float> all = to_host<float>(model.parameters().master(), stream);
    std::vector<bool> padding(all.size(), true);
    for (const Parameter* parameter : model.parameters().spans()) {
      const auto begin = padding.begin() + parameter->offset();
      std::fill(begin, begin + parameter->shape().elements(), false);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i] == 0.0f, padding[i]) << i;
    }
  }
}

TEST(MuonThreadsTest, BitsDoNotDependOnTheNumberOfThreads) {
  const auto gradients = gradients_of(kEqual);
  for (const PrecisionKind kind : kPrecisions) {
    Runtime one({.threads = 1}), five({.threads = 5});
    EXPECT_EQ(step_of(one, Device::cpu(), network(kEqual), kind, gradients),
              step_of(five, Device::cpu(), network(kEqual), kind, gradients));
  }
}

}  // namespace
}  // namespace bantam::newton_schulz_test
