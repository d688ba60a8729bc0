// Looks back from a product or a quotient to the values that it is of.
#include "bantam/models/onnx/import/composites.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

#include "bantam/models/onnx/import/node.h"

namespace bantam::onnx {
namespace {

bool near(double value, double expected) { return std::abs(value - expected) <= 1e-5 * std::abs(expected); }

class Composites {
 public:
  Composites(std::vector<Node> nodes, const Constants& constants) : nodes_(std::move(nodes)), constants_(constants) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const std::string& input : nodes_[i].inputs) ++uses_[input];
      for (const std::string& output : nodes_[i].outputs) makers_.emplace(output, i);
    }
  }

  std::vector<Node> replaced() {
    for (Node& node : nodes_)
      for (const auto& match : {&Composites::product, &Composites::layer_norm, &Composites::global_response_norm,
                                &Composites::chosen_channels, &Composites::clip, &Composites::softplus})
        if (auto found = (this->*match)(node)) {
          found->name = node.name;
          found->module = node.module;
          found->outputs = node.outputs;
          node = std::move(*found);
          break;
        }
    return std::move(nodes_);
  }

 private:
  /// A product's factors that are no constants, and the product of those that are.
  struct Product {
    double constant = 1;
    std::vector<std::string> factors;
  };

  const Node* maker(const std::string& value, std::string_view op) const {
    const auto found = makers_.find(value);
    if (found == makers_.end()) return nullptr;
    const Node& node = nodes_[found->second];
    return node.op == op && node.domain.empty() && node.outputs.size() == 1 && !node.inputs.empty() ? &node : nullptr;
  }

  std::optional<double> scalar(const std::string& value) const {
    const Tensor* tensor = constants_.find(value);
    if (tensor == nullptr || tensor->elements() != 1 || tensor->type == Type::int64) return std::nullopt;
    if (tensor->type != Type::float32 && tensor->type != Type::float16 && tensor->type != Type::float64)
      return std::nullopt;
    return tensor->as_floats()[0];
  }

  /// A value read more than once is a factor as it stands: so is x of x · f(x).
  void expand(const std::string& value, int depth, Product& product) const {
    const Node *mul = maker(value, "Mul"), *div = maker(value, "Div");
    const Node* node = mul != nullptr ? mul : div;
    const auto uses = uses_.find(value);
    if (const auto constant = scalar(value)) {
      product.constant *= *constant;
    } else if (node == nullptr || node->inputs.size() != 2 || depth == 0 ||
               (depth < 4 && uses != uses_.end() && uses->second > 1) || (div != nullptr && !scalar(div->inputs[1]))) {
      product.factors.push_back(value);
    } else {
      expand(node->inputs[0], depth - 1, product);
      if (mul != nullptr)
        expand(node->inputs[1], depth - 1, product);
      else
        product.constant /= *scalar(node->inputs[1]);
    }
  }
  Product product_of(const std::string& value) const {
    Product product;
    expand(value, 4, product);
    return product;
  }

  /// x of x + `constant`.
  std::optional<std::string> before_add(const std::string& value, double constant) const {
    const Node* add = maker(value, "Add");
    if (add == nullptr || add->inputs.size() != 2) return std::nullopt;
    for (const std::size_t i : {0u, 1u})
      if (const auto term = scalar(add->inputs[i]); term && near(*term, constant)) return add->inputs[1 - i];
    return std::nullopt;
  }

  /// x of min(max(x + 3, 0), 6).
  std::optional<std::string> before_shifted_clip(const std::string& value) const {
    const Node* clip = maker(value, "Clip");
    if (clip == nullptr) return std::nullopt;
    const auto bound = [&](std::size_t input, const char* attribute) -> std::optional<double> {
      if (clip->inputs.size() > input) return scalar(clip->inputs[input]);
      const auto found = clip->attributes.find(attribute);
      if (found == clip->attributes.end() || !std::holds_alternative<float>(found->second)) return std::nullopt;
      return std::get<float>(found->second);
    };
    const auto low = bound(1, "min"), high = bound(2, "max");
    if (!low || !high || *low != 0 || *high != 6) return std::nullopt;
    return before_add(clip->inputs[0], 3);
  }

  /// x of 1 + erf(x / √2).
  std::optional<std::string> before_erf(const std::string& value) const {
    const auto inner = before_add(value, 1);
    const Node* erf = inner ? maker(*inner, "Erf") : nullptr;
    if (erf == nullptr) return std::nullopt;
    const Product scaled = product_of(erf->inputs[0]);
    if (scaled.factors.size() != 1 || !near(scaled.constant, 1 / std::numbers::sqrt2)) return std::nullopt;
    return scaled.factors[0];
  }

  /// x of 1 + tanh(√(2/π) · (x + 0.044715 · x³)).
  std::optional<std::string> before_tanh_gelu(const std::string& value) const {
    const auto inner = before_add(value, 1);
    const Node* tanh = inner ? maker(*inner, "Tanh") : nullptr;
    if (tanh == nullptr) return std::nullopt;
    const Product scaled = product_of(tanh->inputs[0]);
    const Node* sum = scaled.factors.size() == 1 ? maker(scaled.factors[0], "Add") : nullptr;
    if (sum == nullptr || sum->inputs.size() != 2 || !near(scaled.constant, std::sqrt(2 / std::numbers::pi)))
      return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const std::string& x = sum->inputs[i];
      const Product cubic = product_of(sum->inputs[1 - i]);
      if (near(cubic.constant, 0.044715) && is_cube(cubic.factors, x)) return x;
    }
    return std::nullopt;
  }

  /// Whether the factors' product is x³: x three times, or Pow.
  bool is_cube(const std::vector<std::string>& factors, const std::string& x) const {
    if (factors.size() == 1)
      if (const Node* pow = maker(factors[0], "Pow"); pow != nullptr && pow->inputs.size() == 2)
        return pow->inputs[0] == x && scalar(pow->inputs[1]) == 3.0;
    if (factors.size() == 2)
      return (factors[0] == x && is_square(factors[1], x)) || (factors[1] == x && is_square(factors[0], x));
    return factors == std::vector<std::string>{x, x, x};
  }

  /// The op of x · `gate` · constant.
  std::optional<Node> gated(const std::string& x, const std::string& gate, double constant) const {
    const auto found = [&](const char* op) { return Node{.op = op, .inputs = {x}}; };
    if (const Node* node = maker(gate, "Sigmoid"); node != nullptr && node->inputs[0] == x && near(constant, 1))
      return found("Swish");
    if (const Node* node = maker(gate, "HardSigmoid"); node != nullptr && node->inputs[0] == x && near(constant, 1)) {
      const auto alpha = node->attributes.find("alpha"), beta = node->attributes.find("beta");
      const float* factor = alpha == node->attributes.end() ? nullptr : std::get_if<float>(&alpha->second);
      const float* term = beta == node->attributes.end() ? nullptr : std::get_if<float>(&beta->second);
      if (factor != nullptr && near(*factor, 1.0 / 6) && (term == nullptr || *term == 0.5f)) return found("HardSwish");
    }
    if (const Node* tanh = maker(gate, "Tanh"); tanh != nullptr && near(constant, 1))
      if (const Node* node = maker(tanh->inputs[0], "Softplus"); node != nullptr && node->inputs[0] == x)
        return found("Mish");
    if (before_shifted_clip(gate) == x && near(constant, 1.0 / 6)) return found("HardSwish");
    if (before_erf(gate) == x && near(constant, 0.5)) return found("Gelu");
    if (near(constant, 0.5) && before_tanh_gelu(gate) == x)
      return Node{.op = "Gelu", .inputs = {x}, .attributes = {{"approximate", std::string("tanh")}}};
    return std::nullopt;
  }

  std::optional<Node> product(const Node& node) const {
    if ((node.op != "Mul" && node.op != "Div") || node.outputs.size() != 1) return std::nullopt;
    const Product product = product_of(node.outputs[0]);
    const std::vector<std::string>& factors = product.factors;
    if (factors.size() == 1 && near(product.constant, 1.0 / 6))
      if (const auto x = before_shifted_clip(factors[0]))
        return Node{.op = "HardSigmoid", .inputs = {*x}, .attributes = {{"alpha", 1.0f / 6}, {"beta", 0.5f}}};
    if (factors.size() != 2) return std::nullopt;
    if (auto found = gated(factors[0], factors[1], product.constant)) return found;
    return gated(factors[1], factors[0], product.constant);
  }

  /// The axes that a reduction `op` is over, which it keeps, and what it reads.
  struct Reduction {
    std::string of;
    std::vector<std::int64_t> axes;
  };
  std::optional<Reduction> reduction(const std::string& value, std::string_view op) const {
    const Node* node = maker(value, op);
    if (node == nullptr || integer(*node, "keepdims", 1) == 0) return std::nullopt;
    Reduction found{.of = node->inputs[0], .axes = {}};
    if (const auto axes = node->attributes.find("axes"); axes != node->attributes.end())
      if (const auto* values = std::get_if<std::vector<std::int64_t>>(&axes->second)) found.axes = *values;
    if (node->inputs.size() > 1)
      if (const Tensor* tensor = constants_.find(node->inputs[1]); tensor != nullptr && tensor->type == Type::int64)
        found.axes = tensor->as_integers();
    return found;
  }

  /// The only axis that a ReduceMean is over, which keeps it, and what it reads.
  std::optional<std::pair<std::string, std::int64_t>> mean_of(const std::string& value) const {
    const auto mean = reduction(value, "ReduceMean");
    if (!mean || mean->axes.size() != 1) return std::nullopt;
    return std::pair(mean->of, mean->axes[0]);
  }

  bool is_square(const std::string& value, const std::string& of) const {
    if (const Node* pow = maker(value, "Pow"); pow != nullptr && pow->inputs.size() == 2)
      return pow->inputs[0] == of && scalar(pow->inputs[1]) == 2.0;
    const Node* mul = maker(value, "Mul");
    return mul != nullptr && mul->inputs == std::vector<std::string>{of, of};
  }

  /// (x - mean) / √(variance + epsilon).
  std::optional<Node> layer_norm(const Node& node) const {
    if (node.op != "Div" || node.inputs.size() != 2) return std::nullopt;
    const std::string& centred = node.inputs[0];
    const Node *sub = maker(centred, "Sub"), *root = maker(node.inputs[1], "Sqrt");
    const Node* sum = root != nullptr ? maker(root->inputs[0], "Add") : nullptr;
    if (sub == nullptr || sub->inputs.size() != 2 || sum == nullptr || sum->inputs.size() != 2) return std::nullopt;
    const auto mean = mean_of(sub->inputs[1]);
    if (!mean || mean->first != sub->inputs[0]) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const auto epsilon = scalar(sum->inputs[i]);
      const auto variance = mean_of(sum->inputs[1 - i]);
      if (epsilon && variance && variance->second == mean->second && is_square(variance->first, centred))
        return Node{.op = "LayerNormalization",
                    .inputs = {mean->first},
                    .attributes = {{"axis", mean->second}, {"epsilon", static_cast<float>(*epsilon)}}};
    }
    return std::nullopt;
  }

  /// The attributes of norm / (mean of the norms + epsilon), where the norm is x's over some axes.
  std::optional<std::map<std::string, Attribute>> response_to(const std::string& x, const std::string& value) const {
    const Node* div = maker(value, "Div");
    const Node* sum = div != nullptr && div->inputs.size() == 2 ? maker(div->inputs[1], "Add") : nullptr;
    const auto norm = sum != nullptr && sum->inputs.size() == 2 ? reduction(div->inputs[0], "ReduceL2") : std::nullopt;
    if (!norm || norm->of != x) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const auto epsilon = scalar(sum->inputs[i]);
      const auto mean = mean_of(sum->inputs[1 - i]);
      if (epsilon && mean && mean->first == div->inputs[0])
        return std::map<std::string, Attribute>{
            {"axes", norm->axes}, {"axis", mean->second}, {"epsilon", static_cast<float>(*epsilon)}};
    }
    return std::nullopt;
  }

  /// Adds the factors of a product to `factors`: values of other ops than Mul, and `x` whatever op computes it.
  void add_factors(const std::string& value, const std::string& x, int depth, std::vector<std::string>& factors) const {
    const Node* mul = value == x || depth == 0 ? nullptr : maker(value, "Mul");
    if (mul == nullptr || mul->inputs.size() != 2) return factors.push_back(value);
    for (const std::string& input : mul->inputs) add_factors(input, x, depth - 1, factors);
  }

  /// scale · x · response, in any order, as the response's attributes and the scale; factors of 1 are passed over.
  std::optional<Node> scaled_response(const std::string& x, const std::string& value) const {
    std::vector<std::string> factors;
    add_factors(value, x, 3, factors);
    std::erase_if(factors, [&](const std::string& factor) { return factors.size() > 3 && scalar(factor) == 1.0; });
    if (factors.size() != 3 || std::ranges::count(factors, x) != 1) return std::nullopt;
    std::erase(factors, x);
    for (const std::size_t i : {0u, 1u})
      if (auto attributes = response_to(x, factors[i]); attributes && constants_.find(factors[1 - i]) != nullptr)
        return Node{.inputs = {factors[1 - i]}, .attributes = std::move(*attributes)};
    return std::nullopt;
  }

  /// x + shift + scale · x · norm / (mean of the norms + epsilon): two sums, in any order.
  std::optional<Node> global_response_norm(const Node& node) const {
    if (node.op != "Add" || node.inputs.size() != 2) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const Node* inner = maker(node.inputs[i], "Add");
      if (inner == nullptr || inner->inputs.size() != 2) continue;
      std::vector<std::string> terms{node.inputs[1 - i], inner->inputs[0], inner->inputs[1]};
      const auto shift =
          std::ranges::find_if(terms, [&](const auto& term) { return constants_.find(term) != nullptr; });
      if (shift == terms.end()) continue;
      const std::string constant = *shift;
      terms.erase(shift);
      for (const std::size_t k : {0u, 1u})
        if (auto found = scaled_response(terms[k], terms[1 - k])) {
          found->op = "GlobalResponseNormalization";
          found->inputs = {terms[k], found->inputs[0], constant};
          return found;
        }
    }
    return std::nullopt;
  }

  /// Min(Max(x, low), high), or the other way around.
  std::optional<Node> clip(const Node& node) const {
    if ((node.op != "Min" && node.op != "Max") || node.inputs.size() != 2) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const Node* inner = maker(node.inputs[1 - i], node.op == "Min" ? "Max" : "Min");
      if (!scalar(node.inputs[i]) || inner == nullptr || inner->inputs.size() != 2) continue;
      for (const std::size_t j : {0u, 1u}) {
        if (!scalar(inner->inputs[j])) continue;
        const std::string &outer_bound = node.inputs[i], &inner_bound = inner->inputs[j];
        const bool least = node.op == "Max";
        return Node{
            .op = "Clip",
            .inputs = {inner->inputs[1 - j], least ? outer_bound : inner_bound, least ? inner_bound : outer_bound}};
      }
    }
    return std::nullopt;
  }

  /// PyTorch's Where(beta * x > threshold, x, Softplus(beta * x) / beta): from 15 on both are equal to 3e-7.
  std::optional<Node> softplus(const Node& node) const {
    if (node.op != "Where" || node.inputs.size() != 3) return std::nullopt;
    const std::string &x = node.inputs[1], &curve = node.inputs[2];
    const Node *greater = maker(node.inputs[0], "Greater"), *div = maker(curve, "Div");
    const Node* inner = maker(div == nullptr ? curve : div->inputs[0], "Softplus");
    if (greater == nullptr || greater->inputs.size() != 2 || inner == nullptr || greater->inputs[0] != inner->inputs[0])
      return std::nullopt;
    const auto threshold = scalar(greater->inputs[1]);
    if (!threshold || *threshold < 15) return std::nullopt;
    const Node* mul = maker(inner->inputs[0], "Mul");
    if (inner->inputs[0] == x && div == nullptr) return Node{.op = "Softplus", .inputs = {x}};
    if (mul == nullptr || mul->inputs.size() != 2 || mul->inputs[0] != x || div == nullptr || div->inputs.size() != 2)
      return std::nullopt;
    const auto beta = scalar(mul->inputs[1]), divisor = scalar(div->inputs[1]);
    if (!beta || !divisor || !near(*divisor, *beta)) return std::nullopt;
    return *beta == 1 ? Node{.op = "Softplus", .inputs = {x}} : Node{.op = "Div", .inputs = div->inputs};
  }

  static bool swaps_batch(const Node& node) {
    const std::vector<std::int64_t> perm = integers(node, "perm");
    if (perm.size() < 2 || perm[0] != 1 || perm[1] != 0) return false;
    for (std::size_t i = 2; i < perm.size(); ++i)
      if (perm[i] != static_cast<std::int64_t>(i)) return false;
    return true;
  }

  /// x[:, indices], as PyTorch's exporter writes it: the channels are moved to the front, chosen and moved back.
  std::optional<Node> chosen_channels(const Node& node) const {
    if (node.op != "Transpose" || node.inputs.size() != 1 || !swaps_batch(node)) return std::nullopt;
    const Node* choice = maker(node.inputs[0], "GatherND");
    const Node* front =
        choice != nullptr && choice->inputs.size() == 2 ? maker(choice->inputs[0], "Transpose") : nullptr;
    if (front == nullptr || !swaps_batch(*front) || integer(*choice, "batch_dims", 0) != 0) return std::nullopt;
    const Tensor* indices = constants_.find(choice->inputs[1]);
    if (indices == nullptr || indices->dims.size() != 2 || indices->dims[1] != 1) return std::nullopt;
    return Node{
        .op = "GatherND", .inputs = {front->inputs[0], choice->inputs[1]}, .attributes = {{"axis", std::int64_t{1}}}};
  }

  std::vector<Node> nodes_;
  const Constants& constants_;
  std::map<std::string, int> uses_;
  std::map<std::string, std::size_t> makers_;
};

}  // namespace

std::vector<Node> with_composites(std::vector<Node> nodes, const Constants& constants) {
  return Composites(std::move(nodes), constants).replaced();
}

}  // namespace bantam::onnx
