// Where Python has torchvision, timm and transformers: logits of the same weights here and there; with torchvision, and
// with timm where torchvision has no such network, both ways. BANTAM_TORCH_PYTHON names that Python,
// BANTAM_TORCHVISION_NETWORKS other networks (resnet18, resnet18@timm). Else it is skipped.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

#include "bantam/engine/model/model.h"
#include "bantam/run/weights/torchvision_names.h"
#include "bantam/run/weights/torchvision_weights.h"
#include "tests/run/run_fixture.h"
#include "tests/run/weights/zoo_network.h"

namespace bantam::run::torchvision_logits_test {
namespace {

constexpr std::size_t kClasses = 7;  // as the script has them

class TorchvisionLogitsTest : public RunTest {
 protected:
  std::vector<float> floats(const std::string& name) const {
    const std::string bytes = read_file(path(name));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
};

/// Python with torchvision; empty: there is none.
std::string python_with_torchvision() {
  const char* named = std::getenv("BANTAM_TORCH_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  return std::system((python + " -c 'import torchvision, timm, transformers' > /dev/null 2>&1").c_str()) == 0 ? python
                                                                                                              : "";
}

/// "resnet18" of "resnet18@timm".
std::string zoo_name(const std::string& name) { return name.substr(0, name.find('@')); }

/// NETWORK:FUNCTION:SIZE, for the script. VGG has half a gigabyte of weights: it is asked for by name.
std::string logits_networks() {
  const char* named = std::getenv("BANTAM_TORCHVISION_NETWORKS");
  std::string specs;
  const std::string names = named != nullptr
                                ? named
                                : "resnet18_cifar resnet18 resnet50 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large "
                                  "efficientnet_b0 densenet121 convnext_tiny resnet18@timm resnet50@timm "
                                  "mobilenet_v2@timm mobilenet_v3_small@timm mobilenet_v3_large@timm "
                                  "efficientnet_b0@timm densenet121@timm convnext_tiny@timm resnet18@transformers "
                                  "resnet50@transformers convnext_tiny@transformers shufflenet_v2_x1_0 convnextv2_atto "
                                  "convnextv2_atto@transformers vit_tiny_16 vit_tiny_16@transformers vit_base_32 "
                                  "vit_base_32@timm deit3_small_16 mobilevit_s";
  std::istringstream words(names);
  for (std::string name; words >> name;)
    if (const std::string zoo = zoo_name(name); models::find_zoo_model(zoo) != nullptr)
      specs += fmt::format(" {}:{}:{}", name, torchvision_function(zoo), name.starts_with("vgg") ? 224 : 64);
  return specs;
}

std::vector<float> logits_of(Model& model, const std::vector<float>& images) {
  const Context context = model.context(Pass::evaluate);
  const Shape input = model.graph().input_shape();
  const auto batch = static_cast<std::int64_t>(images.size()) / input.elements();
  const Tensor y = model.forward(context, context.upload(input.prepend(batch), images.data()));
  return to_host<float>(y, context.stream);
}

TEST_F(TorchvisionLogitsTest, LogitsAreTorchvisionsAndComeBack) {
  const std::string python = python_with_torchvision();
  if (python.empty()) GTEST_SKIP() << "no torchvision: skipped";
  const std::string script = std::string(BANTAM_SOURCE_DIR) + "/tests/oracles/torchvision_weights.py";
  const std::string specs = logits_networks();
  const auto run_script = [&](const std::string& verb) {
    return std::system(fmt::format("{} '{}' {} '{}'{}", python, script, verb, path("").string(), specs).c_str());
  };
  ASSERT_EQ(run_script("make"), 0);
  Runtime runtime;
  std::istringstream words(specs);
  std::vector<std::string> names;
  for (std::string spec; words >> spec;) {
    const std::string name = names.emplace_back(spec.substr(0, spec.find(':')));
    const ConvertedWeights imported = import_torchvision(path(name + ".pth"));
    EXPECT_EQ(imported.model, zoo_name(name)) << name;
    write_safetensors(path(name + ".safetensors"), imported.file);
    Model model(runtime, Device::cpu(),
                zoo_network(imported.model, std::stoll(spec.substr(spec.rfind(':') + 1)), imported.classes), {});
    load_weights(model, path(name + ".safetensors"));
    const std::vector<float> ours = logits_of(model, floats(name + ".images")), theirs = floats(name + ".logits");
    ASSERT_EQ(ours.size(), theirs.size());
    float spread = 0, difference = 0;  // between images, and between programs
    for (std::size_t i = 0; i < ours.size(); ++i) {
      spread = std::max(spread, std::abs(theirs[i] - theirs[i % kClasses]));
      difference = std::max(difference, std::abs(ours[i] - theirs[i]));
    }
    EXPECT_GT(spread, 0.01f) << name << ": logits that depend on no image would be equal, too";
    EXPECT_LT(difference, 1e-3f * spread) << name;
    EXPECT_LT(difference, 1e-4f) << name;
    std::printf("%s: logits of images differ by up to %g, those of programs by %g\n", name.c_str(), spread, difference);
    if (name.find('@') == std::string::npos)
      write_safetensors(path(name + ".exported.safetensors"),
                        export_torchvision(path(name + ".safetensors"), {.model = name}).file);
  }
  ASSERT_EQ(run_script("check"), 0);
  std::erase_if(names, [](const std::string& name) { return name.find('@') != std::string::npos; });
  for (const std::string& name : names) EXPECT_EQ(floats(name + ".again"), floats(name + ".logits")) << name;
}

}  // namespace
}  // namespace bantam::run::torchvision_logits_test
