// Vision transformers of torchvision, timm and transformers: their names of old and of new, images of other sizes, what
// is refused, and timm's factors of learning rates.
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/graph/layer_depth.h"
#include "bantam/run/weights/torchvision_names.h"
#include "bantam/run/weights/torchvision_weights.h"
#include "tests/run/run_fixture.h"
#include "tests/run/weights/layer_rates.h"
#include "tests/run/weights/zoo_network.h"

namespace bantam::run::vit_test {
namespace {

constexpr std::int64_t kClasses = 3;

class VitTest : public RunTest {
 protected:
  /// A file's tensors of vit_tiny_16, or another network, with the program's names; each has values of its own.
  static SafetensorsFile named(const std::string& program, const std::string& network = "vit_tiny_16",
                               std::int64_t size = 0) {
    SafetensorsFile file;
    float next = 1;
    for (const TorchvisionTensor& tensor :
         torchvision_tensors(network, zoo_network(network, size, kClasses), program)) {
      std::vector<float> values(static_cast<std::size_t>(tensor.torch_shape.elements()));
      for (float& value : values) value = next++;
      file.tensors[tensor.torch] = host_tensor(tensor.torch_shape, values);
    }
    return file;
  }
  static void rename(SafetensorsFile& file, const std::string& from, const std::string& to) {
    std::map<std::string, HostTensor> renamed;
    for (auto& [name, tensor] : file.tensors) {
      std::string now = name;
      if (const std::size_t at = now.find(from); at != std::string::npos) now.replace(at, from.size(), to);
      renamed.emplace(now, std::move(tensor));
    }
    file.tensors = std::move(renamed);
  }
  ConvertedWeights imported(const SafetensorsFile& file, const TorchvisionOptions& options = {}) {
    write_safetensors(path("w.safetensors"), file);
    return import_torchvision(path("w.safetensors"), options);
  }
  std::string error_of(const SafetensorsFile& file) {
    try {
      (void)imported(file);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  static void expect_same(const ConvertedWeights& found, const ConvertedWeights& right) {
    EXPECT_EQ(found.model, right.model);
    EXPECT_EQ(found.classes, kClasses);
    ASSERT_EQ(found.file.tensors.size(), right.file.tensors.size());
    for (const auto& [name, tensor] : right.file.tensors) {
      EXPECT_EQ(found.file.tensors.at(name).shape, tensor.shape) << name;
      EXPECT_EQ(found.file.tensors.at(name).bytes, tensor.bytes) << name;
    }
  }
  static bool notes(const ConvertedWeights& weights, std::string_view text) {
    return std::ranges::any_of(weights.notes,
                               [&](const std::string& note) { return note.find(text) != std::string::npos; });
  }
};

TEST_F(VitTest, TokensAndRowsLieAsInOtherPrograms) {
  const ConvertedWeights found = imported(named("timm"));
  EXPECT_EQ(found.model, "vit_tiny_16");
  EXPECT_EQ(found.side, 0);
  EXPECT_EQ(found.file.tensors.at("class_token/token").shape, (Shape{1, 192}));
  EXPECT_EQ(found.file.tensors.at("position_embedding/embedding").shape, (Shape{197, 192}));
  EXPECT_EQ(found.file.tensors.at("block12/qkv/weight").shape, (Shape{576, 192}));
  EXPECT_EQ(found.file.tensors.at("stem/weight").shape, (Shape{192, 16, 16, 3}));
  EXPECT_EQ(found.file.tensors.at("block12/qkv/weight").bytes,
            named("timm").tensors.at("blocks.11.attn.qkv.weight").bytes);
  const ConvertedWeights deit3 = imported(named("timm", "deit3_small_16"));
  EXPECT_EQ(deit3.model, "deit3_small_16");
  EXPECT_EQ(deit3.file.tensors.at("position_embedding/embedding").shape, (Shape{14, 14, 384}));
  EXPECT_EQ(deit3.file.tensors.at("block1/layer_scale2/scale").shape, (Shape{384}));
  const SafetensorsFile torchvision = named("torchvision", "vit_base_32");
  EXPECT_TRUE(torchvision.tensors.contains("encoder.layers.encoder_layer_11.self_attention.in_proj_weight"));
  EXPECT_EQ(imported(torchvision).model, "vit_base_32");
}

/// Names of tensors as transformers 4 and 5 write them, with "vit." before all but the classifier.
TEST_F(VitTest, QueriesKeysAndValuesArePutTogether) {
  const ConvertedWeights right = imported(named("timm"));
  for (const bool old : {true, false}) {
    const std::string program = old ? "transformers 4" : "transformers";
    const std::map<std::string, std::string> parts =
        old ? std::map<std::string, std::string>{{"0", "query"}, {"1", "key"}, {"2", "value"}}
            : std::map<std::string, std::string>{{"0", "q_proj"}, {"1", "k_proj"}, {"2", "v_proj"}};
    SafetensorsFile file;
    for (const auto& [name, tensor] : named(program).tensors) {
      const std::string whole = (name.starts_with("classifier") ? "" : "vit.") + name;
      const std::size_t at = whole.find(".qkv.");
      if (at == std::string::npos) {
        file.tensors[whole] = tensor;
        continue;
      }
      const std::size_t bytes = tensor.bytes.size() / 3;
      for (std::size_t i = 0; i < 3; ++i) {
        HostTensor& part =
            file.tensors[whole.substr(0, at + 1) + parts.at(fmt::format("{}", i)) + whole.substr(at + 4)];
        part.shape = tensor.shape.with(0, tensor.shape[0] / 3);
        part.bytes.assign(tensor.bytes.begin() + static_cast<std::ptrdiff_t>(i * bytes),
                          tensor.bytes.begin() + static_cast<std::ptrdiff_t>((i + 1) * bytes));
      }
    }
    const ConvertedWeights found = imported(file);
    EXPECT_EQ(found.program, program);
    EXPECT_EQ(found.prefix, "vit.");
    EXPECT_TRUE(notes(found, "24 tensors were put together: queries, keys and values"));
    expect_same(found, right);
    file.tensors["vit.pooler.dense.bias"] = file.tensors.at("vit.layernorm.bias");
    EXPECT_EQ(imported(file).ignored, std::vector<std::string>{"vit.pooler.dense.bias"});
  }
}

TEST_F(VitTest, NamesOfOldAreRead) {
  SafetensorsFile torchvision = named("torchvision", "vit_base_32");
  const ConvertedWeights right = imported(torchvision);
  rename(torchvision, ".mlp.0.", ".mlp.linear_1.");
  rename(torchvision, ".mlp.3.", ".mlp.linear_2.");
  const ConvertedWeights found = imported(torchvision);
  EXPECT_TRUE(notes(found, "48 tensors have names of torchvision's first vision transformers"));
  expect_same(found, right);
  SafetensorsFile deit3 = named("timm", "deit3_small_16");
  const ConvertedWeights of_timm = imported(deit3);
  rename(deit3, ".ls1.gamma", ".gamma_1");
  rename(deit3, ".ls2.gamma", ".gamma_2");
  const ConvertedWeights of_authors = imported(deit3);
  EXPECT_TRUE(notes(of_authors, "rotary position embeddings"));
  expect_same(of_authors, of_timm);
}

TEST_F(VitTest, PositionsOfOtherSquareImagesAreOfTheNetwork) {
  for (const char* network : {"vit_tiny_16", "deit3_small_16"}) {
    const ConvertedWeights found = imported(named("timm", network, 384));
    EXPECT_EQ(found.model, network);
    EXPECT_EQ(found.side, 384);
    const bool deit3 = found.model == "deit3_small_16";
    EXPECT_EQ(found.file.tensors.at("position_embedding/embedding").shape,
              deit3 ? (Shape{24, 24, 384}) : (Shape{577, 192}));
    write_safetensors(path("own.safetensors"), found.file);
    const ConvertedWeights back = export_torchvision(path("own.safetensors"));
    EXPECT_EQ(back.side, 384);
    for (const auto& [name, tensor] : named("timm", network, 384).tensors)
      EXPECT_EQ(back.file.tensors.at(name).bytes, tensor.bytes) << name;
  }
  SafetensorsFile wide = named("timm");
  wide.tensors.at("pos_embed") = host_tensor({1, 1 + 14 * 15, 192}, std::vector<float>(211 * 192, 1.0f));
  EXPECT_NE(error_of(wide).find("pos_embed is (1, 211, 192), expected (1, 197, 192)"), std::string::npos);
}

TEST_F(VitTest, OtherFunctionsWithLikeNamesAreRefused) {
  const auto with = [](const std::string& name, const std::string& prefix = "") {
    SafetensorsFile file = named("timm"), prefixed;
    file.tensors[name] = file.tensors.at("norm.bias");
    for (auto& [each, tensor] : file.tensors) prefixed.tensors[prefix + each] = std::move(tensor);
    return prefixed;
  };
  for (const auto& [name, text] :
       std::map<std::string, std::string>{{"dist_token", "a distilled DeiT"},
                                          {"norm_pre.weight", "as CLIP's networks have"},
                                          {"attn_pool.latent", "as SigLIP's networks have"},
                                          {"reg_token", "register tokens"},
                                          {"fc_norm.weight", "mean of all tokens"},
                                          {"rope.freqs", "rotary position embeddings (RoPE)"}})
    for (const std::string prefix : {"", "model."}) {
      const std::string error = error_of(with(name, prefix));
      EXPECT_NE(error.find(text), std::string::npos) << error;
      EXPECT_NE(error.find(fmt::format("'{}{}'", prefix, name)), std::string::npos) << error;
    }
  EXPECT_EQ(error_of(with("ema_decay")), "no error");
}

TEST_F(VitTest, LayerDecayIsTimms) {
  const Graph graph = zoo_network("vit_tiny_16", 0, 1000);
  std::vector<std::string> names;
  std::map<std::string, float> by_timm;
  const std::vector<TorchvisionTensor> tensors = torchvision_tensors("vit_tiny_16", graph, "timm");
  for (const TorchvisionTensor& tensor : tensors) names.push_back(tensor.own);
  const std::vector<float> scales = layer_decay_scales(graph, names, 0.75f);
  for (std::size_t i = 0; i < tensors.size(); ++i) by_timm[tensors[i].torch] = scales[i];
  EXPECT_EQ(by_timm.size(), std::size(testing::kLayerRates));
  for (const testing::LayerRate& rate : testing::kLayerRates)
    EXPECT_NEAR(by_timm.at(std::string(rate.name)), rate.rate, 1e-7) << rate.name;
}

}  // namespace
}  // namespace bantam::run::vit_test
