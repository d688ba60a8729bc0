// Ops of tokens: dense over the last axis and vectors of several axes beside double, the class token's values and
// gradients, and what a frozen one leaves out.
#include "bantam/base/error.h"
#include "bantam/kernels/common/kernel_log.h"
#include "tests/engine/finite_differences.h"
#include "tests/kernels/arrays.h"

namespace bantam::token_ops_test {
namespace {

using testing::expect_close;
using testing::leaf;
using testing::random_floats;
using Values = std::vector<float>;

class TokenOpsTest : public testing::EngineTest {
 protected:
  /// An op of two operands in float32: its output, and the gradients of both for the output's gradient `dy`.
  struct Results {
    Shape shape;
    Values y, da, db;
  };
  template <class Op>
  Results run(const Shape& a_shape, const Values& a, const Shape& b_shape, const Values& b, const Values& dy, Op&& op) {
    Tape tape;
    Context c = context();
    c.tape = &tape;
    Tensor left = leaf(c, a_shape, a);
    const Tensor right = leaf(c, b_shape, b);
    const ValueRef left_id = left;
    const Tensor y = op(c, std::move(left), right);
    Results results{.shape = y.shape(), .y = to_host<float>(y, c.stream)};
    GradientStore store = tape.backward(c, y, c.upload(y.shape(), dy.data()));
    results.da = to_host<float>(store.pop(left_id.id), c.stream);
    results.db = testing::gradient_of(c, store, right);
    return results;
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(TokenOpsTest);

Tensor dense(const Context& context, Tensor x, const Tensor& w) { return ops::dense(context, x, w); }

TEST_P(TokenOpsTest, DenseByHand) {
  const Results r = run({1, 2, 2}, {1, 2, 3, 4}, {1, 2}, {1, 10}, {1, 2}, dense);
  EXPECT_EQ(r.shape, (Shape{1, 2, 1}));
  EXPECT_EQ(r.y, (Values{21, 43}));
  EXPECT_EQ(r.da, (Values{1, 10, 2, 20}));
  EXPECT_EQ(r.db, (Values{7, 10}));
}

// Sums of at most 42 products of numbers below 1: 42 roundings of 2^-24 of sums below 42 are 1e-4, and their random
// walk a tenth of it.
TEST_P(TokenOpsTest, DenseOfImagesIsItsProductInDouble) {
  constexpr std::int64_t kRows = 3 * 2 * 7, kInputs = 9, kUnits = 5;
  const Values x = random_floats(kRows * kInputs, 1), w = random_floats(kUnits * kInputs, 2),
               dy = random_floats(kRows * kUnits, 3);
  const Results r = run({3, 2, 7, kInputs}, x, {kUnits, kInputs}, w, dy, dense);
  std::vector<double> y(kRows * kUnits), dx(x.size()), dw(w.size());
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      for (std::size_t input = 0; input < kInputs; ++input) {
        const double x_value = x[row * kInputs + input], w_value = w[unit * kInputs + input];
        y[row * kUnits + unit] += x_value * w_value;
        dx[row * kInputs + input] += static_cast<double>(dy[row * kUnits + unit]) * w_value;
        dw[unit * kInputs + input] += static_cast<double>(dy[row * kUnits + unit]) * x_value;
      }
  EXPECT_EQ(r.shape, (Shape{3, 2, 7, kUnits}));
  expect_close(r.y, y, 1e-5);
  expect_close(r.da, dx, 1e-5);
  expect_close(r.db, dw, 1e-5);
}

TEST_P(TokenOpsTest, AnEmbeddingIsAddedToEachSample) {
  const Results r =
      run({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, {2, 2}, {10, 20, 30, 40}, {1, 2, 3, 4, 50, 60, 70, 80}, ops::bias_add);
  EXPECT_EQ(r.y, (Values{11, 22, 33, 44, 15, 26, 37, 48}));
  EXPECT_EQ(r.da, (Values{1, 2, 3, 4, 50, 60, 70, 80}));
  EXPECT_EQ(r.db, (Values{51, 62, 73, 84}));
}

TEST_P(TokenOpsTest, AnEmbeddingIsAddedInPlace) {
  const Context c = context();
  const Tensor embedding = testing::random_tensor(c, {7, 4}, 1);
  Tensor x = testing::random_tensor(c, {3, 7, 4}, 2);
  const void* memory = x.data();
  EXPECT_EQ(ops::bias_add(c, std::move(x), embedding).data(), memory);
}

TEST_P(TokenOpsTest, RefuseWhatDoesNotFit) {
  const Context c = context();
  const auto tensor = [&](const Shape& shape) { return testing::random_tensor(c, shape, 1); };
  EXPECT_THROW((void)ops::dense(c, tensor({9}), tensor({4, 9})), ShapeError);
  EXPECT_THROW((void)ops::dense(c, tensor({2, 3, 8}), tensor({4, 9})), ShapeError);
  EXPECT_THROW((void)ops::bias_add(c, tensor({2, 3, 4}), tensor({4, 4})), ShapeError);
  EXPECT_THROW((void)ops::bias_add(c, tensor({3, 4}), tensor({1, 3, 4})), ShapeError);
  EXPECT_THROW((void)ops::bias_add(c, tensor({3, 4}), tensor({})), ShapeError);
  EXPECT_THROW((void)ops::permute(c, tensor({3, 4}), std::vector<int>{0, 0}), ShapeError);
  EXPECT_THROW((void)ops::permute(c, tensor({3, 4}), std::vector<int>{0}), ShapeError);
  EXPECT_THROW((void)ops::permute(c, tensor({3, 4}), std::vector<int>{0, 2}), ShapeError);
}

TEST_P(TokenOpsTest, APermutationThatMovesNothingIsAView) {
  const Context c = context();
  const Tensor x = testing::random_tensor(c, {3, 1, 4}, 1);
  const Tensor y = ops::permute(c, x, std::vector<int>{0, 2, 1});
  EXPECT_EQ(y.shape(), (Shape{3, 4, 1}));
  EXPECT_EQ(y.data(), x.data());
  EXPECT_EQ(ops::permute(c, testing::random_tensor(c, {3, 0, 4}, 1), std::vector<int>{2, 1, 0}).shape(),
            (Shape{4, 0, 3}));
}

/// Two tokens before three of a sample.
Graph with_tokens() {
  Graph graph({3, 2});
  graph.add("tokens", class_token({.count = 2, .initializer = {"normal", 1.0f}}));
  return graph;
}

TEST_P(TokenOpsTest, AClassTokenStandsBeforeEachSample) {
  Model model(runtime(), device(), with_tokens(), {.seed = 4});
  Context c = model.context(Pass::train);
  Tape tape;
  c.tape = &tape;
  model.parameters().begin_accumulation();
  const Parameter& token = *std::as_const(model).parameters().find("tokens/token");
  const Values values = to_host<float>(token.master(), c.stream), x = random_floats(2 * 3 * 2, 1),
               dy = random_floats(2 * 5 * 2, 2);
  const Tensor input = leaf(c, {2, 3, 2}, x);
  const Tensor y = model.forward(c, input);
  Values expected, dx, dtoken;
  for (std::size_t sample = 0; sample < 2; ++sample) {
    expected.insert(expected.end(), values.begin(), values.end());
    expected.insert(expected.end(), x.data() + sample * 6, x.data() + sample * 6 + 6);
    dx.insert(dx.end(), dy.data() + sample * 10 + 4, dy.data() + sample * 10 + 10);
  }
  for (std::size_t i = 0; i < 4; ++i) dtoken.push_back(dy[i] + dy[10 + i]);
  EXPECT_EQ(y.shape(), (Shape{2, 5, 2}));
  EXPECT_EQ(to_host<float>(y, c.stream), expected);
  GradientStore store = tape.backward(c, y, c.upload(y.shape(), dy.data()));
  EXPECT_EQ(testing::gradient_of(c, store, input), dx);
  EXPECT_EQ(to_host<float>(token.gradient(), c.stream), dtoken);
}

/// Kernels of a backward pass of the tokens and an embedding, with groups.
std::vector<std::string> kernels_of_backward(Runtime& runtime, Device device, std::vector<ParameterGroup> groups) {
  Graph graph = with_tokens();
  graph.add("positions", position_embedding());
  Model model(runtime, device, graph, {.groups = std::move(groups)});
  kernels::KernelLog log;
  Context c = model.context(Pass::train);
  Tape tape;
  c.tape = &tape;
  model.parameters().begin_accumulation();
  const Tensor x = leaf(c, {2, 3, 2}, random_floats(12, 1));
  const Tensor y = model.forward(c, x);
  c.exec.log = &log;
  (void)tape.backward(c, y, c.upload(y.shape(), random_floats(20, 2).data()));
  std::vector<std::string> names;
  for (const kernels::KernelEntry& entry : log.entries()) names.emplace_back(entry.kernel);
  return names;
}

TEST_P(TokenOpsTest, FrozenTokensAndEmbeddingsHaveNoSums) {
  using Names = std::vector<std::string>;
  const ParameterGroup token{.match = "tokens/*", .freeze = true}, embedding{.match = "positions/*", .freeze = true};
  EXPECT_EQ(kernels_of_backward(runtime(), device(), {}), (Names{"bias_grad", "split", "bias_grad"}));
  EXPECT_EQ(kernels_of_backward(runtime(), device(), {token}), (Names{"bias_grad", "split"}));
  EXPECT_EQ(kernels_of_backward(runtime(), device(), {embedding}), (Names{"split", "bias_grad"}));
}

}  // namespace
}  // namespace bantam::token_ops_test
