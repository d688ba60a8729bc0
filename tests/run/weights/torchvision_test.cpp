// torchvision's networks: their names and shapes, known by digests; and, where Python has torchvision, logits of the
// same weights here and there, both ways. BANTAM_TORCH_PYTHON names that Python, BANTAM_TORCHVISION_NETWORKS other
// networks.
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/run/weights/torchvision_names.h"
#include "bantam/run/weights/torchvision_weights.h"
#include "tests/run/run_fixture.h"
#include "tests/run/weights/zoo_network.h"

namespace bantam::run {
namespace {

class TorchvisionTest : public RunTest {
 protected:
  /// A file of weights 0, 1, 2, …, over all tensors in the order of their names.
  std::filesystem::path write_counted(const std::string& name, std::int64_t classes) {
    SafetensorsFile file;
    for (const TorchvisionTensor& tensor : torchvision_tensors(name, zoo_network(name, 0, classes)))
      file.tensors[tensor.own].shape = tensor.own_shape;
    float next = 0;
    for (auto& [tensor, host] : file.tensors) {
      host.bytes.resize(static_cast<std::size_t>(host.shape.elements()) * sizeof(float));
      for (std::size_t i = 0; i < host.bytes.size(); i += sizeof(float), next += 1)
        std::memcpy(host.bytes.data() + i, &next, sizeof(float));
    }
    write_safetensors(path(name + ".safetensors"), file);
    return path(name + ".safetensors");
  }
  std::string write(const SafetensorsFile& file) {
    write_safetensors(path("w.safetensors"), file);
    return "w.safetensors";
  }
  template <class Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

struct Digest {
  const char* network;
  const char* sha256;
};
/// `torchvision_weights.py names`, of torchvision 0.20.1.
constexpr Digest kDigests[] = {
    {"resnet18", "09ce7e9e01846250ca72a3be9e335bb7f6905b89a11905e73f4f584127a7c0fa"},
    {"resnet18_cifar", "2e3b11a73c76c93f1de5999972cbe03a51028c5248821b0048e920190a71d108"},
    {"resnet34", "bc79fc43acd9f853011263fdc971785e0f8d1badc7d63f8670c0d18b93d32ee2"},
    {"resnet50", "c67ecaef75aaf0f7ff01240e17727e9642664d14f9f2337cd070db9f0a218e26"},
    {"resnet101", "8ab21a42b16f2c7ef7b70f13cdb622fae8639e5d04a15886b2204e72ad2cb9c8"},
    {"vgg11", "7b34c0a0371eac0f51ef37eed97f1c28b9157fbf826f916a82430120aa280d10"},
    {"vgg16", "ecaf0e7c26c17e125af5afaf7e93a347ac6f5773d6061cc11905ab2052a30b3b"},
    {"mobilenet_v2", "9d75a56bf145f32f8faca753d7beb2b877229be102f50ce3ab4780f5355ba355"},
    {"mobilenet_v3_small", "4f8a5bf85a086152f10d21903c1120570a36466c8c4724ffe24e4eccaa8d2db9"},
    {"mobilenet_v3_large", "6df20e48e1e3485c7aec979382f9f5b1d299ce772a8d3c63c37f15f931ad2284"},
    {"efficientnet_b0", "9f6ee8613b46e4d87f94d14391f454204a982284054dddac0a16f4b2369ca92d"},
    {"densenet121", "39811e74a0dfa0c7600274b19c5db8b573da301e8ad4d08efd3d4605eb4f745f"},
    {"convnext_tiny", "928f21a5fe891d8e3df81cab242d82dadc9f270a74a953561357ca1c3789dafe"}};

TEST_F(TorchvisionTest, NamesAndShapesAreTorchvisions) {
  for (const auto& [name, sha256] : kDigests) {
    std::vector<std::string> lines;
    for (const TorchvisionTensor& tensor : torchvision_tensors(name, zoo_network(name, 0, 1000))) {
      std::string extents;
      for (const std::int64_t extent : tensor.torch_shape.extents())
        extents += fmt::format("{}{}", extents.empty() ? "" : ",", extent);
      lines.push_back(fmt::format("{} {}\n", tensor.torch, extents));
    }
    std::ranges::sort(lines);
    EXPECT_EQ(sha256_of(std::accumulate(lines.begin(), lines.end(), std::string())), sha256) << name;
  }
}

/// What torchvision's layouts are, by hand: convolutions (filters, C, rows, columns), depthwise (C, 1, rows, columns).
TEST_F(TorchvisionTest, LayoutsAreTransposed) {
  const TorchvisionTensor conv{
      .own_shape = {2, 1, 2, 3}, .torch_shape = {2, 3, 1, 2}, .own_axes = {2, 1, 2, 3}, .to = {0, 3, 1, 2}};
  std::vector<float> own(12);
  std::iota(own.begin(), own.end(), 0.0f);
  std::vector<std::byte> bytes(own.size() * sizeof(float));
  std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<float> torch(12);
  std::memcpy(torch.data(), torch_order(conv, bytes).data(), bytes.size());
  EXPECT_EQ(torch, (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  EXPECT_EQ(own_order(conv, torch_order(conv, bytes)), bytes);
}

TEST_F(TorchvisionTest, ADenseLayerAfterAnImageReadsItInTorchvisionsOrder) {
  const std::vector<TorchvisionTensor> tensors = torchvision_tensors("vgg11", zoo_network("vgg11", 0, 10));
  const auto hidden = std::ranges::find(tensors, "hidden1/weight", &TorchvisionTensor::own);
  ASSERT_NE(hidden, tensors.end());
  EXPECT_EQ(hidden->torch, "classifier.0.weight");
  EXPECT_EQ(hidden->torch_shape, (Shape{4096, 25088}));
  EXPECT_EQ(hidden->own_axes, (Shape{4096, 7, 7, 512}));
  EXPECT_EQ(hidden->to, (std::vector<int>{0, 3, 1, 2}));
}

TEST_F(TorchvisionTest, ExportAndImportAreInverse) {
  for (const char* name : {"resnet18_cifar", "mobilenet_v2"}) {
    const std::filesystem::path own = write_counted(name, 5);
    const ConvertedWeights exported = export_torchvision(own);
    EXPECT_EQ(exported.model, name);
    EXPECT_EQ(exported.classes, 5);
    write_safetensors(path("torch.safetensors"), exported.file);
    const ConvertedWeights imported = import_torchvision(path("torch.safetensors"));
    EXPECT_EQ(imported.model, name);
    const SafetensorsFile before = read_safetensors(own);
    ASSERT_EQ(imported.file.tensors.size(), before.tensors.size());
    for (const auto& [tensor, host] : before.tensors) {
      EXPECT_EQ(imported.file.tensors.at(tensor).bytes, host.bytes) << tensor;
      EXPECT_EQ(imported.file.tensors.at(tensor).shape, host.shape) << tensor;
    }
  }
}

/// The lengths of its header begin as a pickle and as a zip archive do (ModelWeightsTest).
TEST_F(TorchvisionTest, ASafetensorsFileIsReadWhateverTheLengthOfItsHeader) {
  const SafetensorsFile file = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  for (const std::uint64_t header : {65536 + 640, 19280}) {
    write_with_header_of(path("t.safetensors"), file, header);
    EXPECT_EQ(import_torchvision(path("t.safetensors")).classes, 5) << header;
  }
}

TEST_F(TorchvisionTest, NamesOfParallelModulesAndOtherHeads) {
  SafetensorsFile file = export_torchvision(write_counted("resnet18_cifar", 5)).file, parallel;
  for (auto& [name, tensor] : file.tensors) parallel.tensors["module." + name] = std::move(tensor);
  parallel.tensors["module.bn1.num_batches_tracked"] = {DType::int64, {}, std::vector<std::byte>(8)};
  write_safetensors(path("p.safetensors"), parallel);
  const ConvertedWeights imported = import_torchvision(path("p.safetensors"), {.classes = 2});
  EXPECT_EQ(imported.prefix, "module.");
  EXPECT_EQ(imported.classes, 5);
  EXPECT_EQ(imported.ignored, std::vector<std::string>{"bn1.num_batches_tracked"});
  EXPECT_EQ(imported.left_out, (std::vector<std::string>{"classifier/bias", "classifier/weight"}));
  EXPECT_FALSE(imported.file.tensors.contains("classifier/weight"));
}

/// As self-supervised training and wrappers save networks: under a prefix, without the classifier or with another.
TEST_F(TorchvisionTest, PrefixesOtherHeadsAndNone) {
  const SafetensorsFile whole = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  const ConvertedWeights right = import_torchvision(path(write(whole)));
  const auto imported = [&](const std::string& prefix, bool head, const std::vector<std::string>& more) {
    SafetensorsFile file;
    for (const auto& [name, tensor] : whole.tensors)
      if (head || !name.starts_with("fc.")) file.tensors[prefix + name] = tensor;
    for (const std::string& name : more) file.tensors[name] = whole.tensors.at("bn1.bias");
    return import_torchvision(path(write(file)));
  };
  for (const char* prefix : {"backbone.", "model.", "encoder.", "module.model.backbone."}) {
    const ConvertedWeights all = imported(prefix, true, {}), body = imported(prefix, false, {});
    EXPECT_EQ(all.prefix, prefix);
    EXPECT_EQ(all.classes, 5);
    EXPECT_EQ(all.file.tensors.size(), right.file.tensors.size());
    EXPECT_EQ(body.prefix, prefix);
    EXPECT_EQ(body.model, "resnet18_cifar");
    EXPECT_EQ(body.classes, 0);
    EXPECT_EQ(body.left_out, (std::vector<std::string>{"classifier/bias", "classifier/weight"}));
    for (const auto& [name, tensor] : body.file.tensors) EXPECT_EQ(tensor.bytes, right.file.tensors.at(name).bytes);
    EXPECT_EQ(body.file.tensors.size() + 2, right.file.tensors.size());
  }
  EXPECT_EQ(imported("", false, {}).classes, 0) << "without a prefix";
  const ConvertedWeights other = imported("backbone.", false, {"head.0.bias", "queue"});
  EXPECT_EQ(other.prefix, "backbone.");
  EXPECT_EQ(other.ignored, (std::vector<std::string>{"head.0.bias", "queue"}));
  EXPECT_EQ(imported("", false, {"fc.0.weight", "fc.2.weight"}).ignored.size(), 2u) << "another head in its place";
  EXPECT_NE(error_of([&] { (void)imported("", false, {"layer4.2.bn1.bias"}); }).find("unexpected: layer4.2.bn1.bias"),
            std::string::npos)
      << "of a larger network";
  EXPECT_NE(error_of([&] { (void)imported("", true, {"layer4.2.bn1.bias"}); }).find("unexpected: layer4.2.bn1.bias"),
            std::string::npos);
}

TEST_F(TorchvisionTest, ValuesThatAreNotFiniteAreRefused) {
  SafetensorsFile file = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  const float infinite = std::numeric_limits<float>::infinity(), none = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte>& bytes = file.tensors.at("bn1.running_var").bytes;
  std::memcpy(bytes.data(), &infinite, sizeof(float));
  std::memcpy(bytes.data() + 8, &none, sizeof(float));
  const std::string name = write(file);
  EXPECT_EQ(error_of([&] { (void)import_torchvision(path(name)); }),
            path(name).string() +
                ": tensor 'bn1.running_var' has 2 values that are not finite, of 64: no run can begin with it");
}

TEST_F(TorchvisionTest, WhatDoesNotFitIsNamed) {
  SafetensorsFile file = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  const std::string name = path("t.safetensors").string();
  const auto error = [&](const TorchvisionOptions& options) {
    write_safetensors(name, file);
    return error_of([&] { (void)import_torchvision(name, options); });
  };
  file.tensors.erase("layer1.0.conv1.weight");
  file.tensors["layer9"] = file.tensors.at("bn1.bias");
  EXPECT_EQ(error({.model = "resnet18_cifar"}),
            name + ": has other tensors than resnet18_cifar\n  missing: layer1.0.conv1.weight\n  unexpected: layer9");
  EXPECT_EQ(error({}), name +
                           ": has the tensors of no network that torchvision and the zoo both have; the nearest is "
                           "resnet18_cifar\n  missing: layer1.0.conv1.weight\n  unexpected: layer9");
  EXPECT_NE(error({.model = "resnet18"}).find("conv1.weight is (64, 3, 3, 3), expected (64, 3, 7, 7)"),
            std::string::npos);
  EXPECT_NE(error({.model = "resnet51"}).find("--model: unknown network 'resnet51'; did you mean 'resnet50'?"),
            std::string::npos);
  EXPECT_EQ(error({.model = "resnet18", .width = 0.5}), "--width: torchvision's resnet18 has no width");
  EXPECT_EQ(error({.width = 0}), "--width: expected a number above 0 and up to 64, got 0");
  EXPECT_NE(error({.width = 0.5}).find("both have with a width of 0.5; the nearest is mobilenet_v"), std::string::npos);
  file.tensors["fc.weight"] = {DType::float32, Shape{std::int64_t{1} << 50, 0}, {}};
  EXPECT_NE(error({.model = "resnet18_cifar"}).find("fc.weight is (1125899906842624, 0), expected (16777216, 512)"),
            std::string::npos);
  EXPECT_NE(error({.model = "separable_cnn"}).find("torchvision has no 'separable_cnn'"), std::string::npos);
}

}  // namespace
}  // namespace bantam::run
