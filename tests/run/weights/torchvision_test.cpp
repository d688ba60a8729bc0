// torchvision's networks: their names and shapes, known by digests; and, where Python has torchvision, logits of the
// same weights here and there, both ways. BANTAM_TORCH_PYTHON names that Python, BANTAM_TORCHVISION_NETWORKS other
// networks.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/run/weights/torchvision_names.h"
#include "bantam/run/weights/torchvision_weights.h"
#include "tests/data/formats/array_files.h"
#include "tests/run/run_fixture.h"
#include "tests/run/weights/zoo_network.h"

namespace bantam::run::torchvision_test {
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
    {"convnext_tiny", "928f21a5fe891d8e3df81cab242d82dadc9f270a74a953561357ca1c3789dafe"},
    // torchvision 0.29.2.
    {"vit_base_16", "d8e5d51552d7e45bdd39c2e93b050f1bf87b77db4bd7922e30f61b6a862b78ed"},
    {"vit_base_32", "e325333d58e7abe493b77ebe893a9e7248c97302cc3d5f0278769a2c3036c963"},
    {"vit_large_16", "c37661a2c4f622073026aa795122d0e100290e3bf52d7c58349abbc6bb414f64"},
    {"shufflenet_v2_x1_0", "809c84127addc950339983231526d47e8b0da876def30d807f04deb75e9645dc"},
    // timm 1.0.31 and transformers 5.24.0.
    {"vit_tiny_16", "1824310114d80e67f98ee7919191f08befe584fe60a1a869481792413d8f8d4e"},
    {"vit_small_16", "fbeb36389015540e580473199dbd34b11d5a00039390651b1908aeaafe3f5de6"},
    {"deit3_small_16", "9a6afc0fec38da8f6f966ebd88c5ff216a4cd4d23e5d4f779e69bc265dda2d3f"},
    {"deit3_base_16", "78b441bdf75cbd090481628f8ac2ef743bcc40c6b77e995132cafd527d73ea66"},
    {"vit_base_16@timm", "8a2f8bb76b4fbb2070fe5340e67e027fba42e4fb8b64eff73289883e8db4a886"},
    {"vit_base_32@timm", "5b55cd89b4d708f29a49c410cfa23cfc77ce6d4b77a15173b84024fad20bd39b"},
    {"vit_large_16@timm", "89cdadd39031c43d6bc2b32c39ddf766b37acc4059d9eb28187c34b42c56ae4f"},
    {"convnextv2_atto", "84184267537cd9ca0c824d5a93daa51a0c611887af376c910f53dbb8af38db7f"},
    {"convnextv2_tiny", "794b8fab3fb0286e000a42df8ff66eda985c283a60959f033d6a43dd186cec49"},
    {"convnextv2_atto@transformers", "cffa29a3212b70234a6efb65d0642f4112b063b3032271529243db6122aea0c4"},
    {"convnextv2_tiny@transformers", "0e85e9a334c41622a3a3e454f3792bc913d0526756320696706db00757eaa202"},
    {"vgg11@timm", "5f5495230b5dd95d17d3883b4e5de230112835349fb61e511f704fce13ef2ecd"},
    {"vgg16@timm", "b95438df367d598c11d53a5574926d933d91f896e484731f5b93b944a495a12f"},
    {"mobilenet_v2@timm", "b102b9cda8d940914a61ee76d0df7fdc061b0b1a3d835bde8721281e4facc6b0"},
    {"mobilenet_v3_small@timm", "e2de210323a3fba7ca8139f1b53e9cc921f6549ec7d49ff683a077425b153623"},
    {"mobilenet_v3_large@timm", "dc3cafff1f75b96fcbd25e2e9b8634d9b26e783cf36d69051c33116e864ca1cd"},
    {"efficientnet_b0@timm", "36e638f8c8c630f15fe2c4aeafcfb81d5be1a337a494ae2b746ee505d59b947a"},
    {"convnext_tiny@timm", "cee0d41232fffcdbb539a327c9f1182169a8e1ba9c4f623d358b62e5324f0989"},
    {"resnet18@transformers", "3cd94e16ca54ba1b09adffea3669a9a6f31f398136054c2d0640277d56d768ad"},
    {"resnet34@transformers", "2f9e24202717ba6e57c89f4552ca6215eee12bb0d96926902349efe30afee3cf"},
    {"resnet50@transformers", "cdf079a380de48c6a985559238966d05533251b8e9af3311ba2ad825e0a42c5d"},
    {"resnet101@transformers", "ad8ef98be3c1bb9c73ef4fbc4fb677ab8c38b74676252b8989e2463b76c85572"},
    {"convnext_tiny@transformers", "054a354d7479dc8746efc96194f687aa40fd3948869ec67ed08e7b51b62ff3eb"}};

TEST_F(TorchvisionTest, NamesAndShapesAreThoseOfOtherPrograms) {
  for (const auto& [key, sha256] : kDigests) {
    std::vector<std::string> lines;
    const std::string whole = key, name = whole.substr(0, whole.find('@'));
    const std::string program = name == whole ? std::string(naming_program(name)) : whole.substr(name.size() + 1);
    const std::string prefix = program != "transformers"         ? ""
                               : name == "convnext_tiny"         ? "convnext."
                               : name.starts_with("convnextv2_") ? "convnextv2."
                                                                 : "resnet.";
    for (const TorchvisionTensor& tensor : torchvision_tensors(name, zoo_network(name, 0, 1000), program)) {
      std::string extents;
      for (const std::int64_t extent : tensor.torch_shape.extents())
        extents += fmt::format("{}{}", extents.empty() ? "" : ",", extent);
      lines.push_back(
          fmt::format("{}{} {}\n", tensor.own.starts_with("classifier") ? "" : prefix, tensor.torch, extents));
    }
    std::ranges::sort(lines);
    EXPECT_EQ(sha256_of(std::accumulate(lines.begin(), lines.end(), std::string())), sha256) << key;
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

/// More tensors than the network has do not cost it its classifier: they are named.
TEST_F(TorchvisionTest, TensorsBesideTheNetworkLeaveItWhole) {
  const SafetensorsFile whole = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  const HostTensor count{DType::int64, {}, std::vector<std::byte>(8)}, one = host_tensor({}, std::vector<float>(1));
  const HostTensor weight = host_tensor({5}, std::vector<float>(5));
  const auto imported = [&](const std::string& prefix, const std::map<std::string, HostTensor>& more) {
    SafetensorsFile file;
    for (const auto& [name, tensor] : whole.tensors) file.tensors[prefix + name] = tensor;
    for (const auto& [name, tensor] : more) file.tensors[name] = tensor;
    const ConvertedWeights found = import_torchvision(path(write(file)));
    EXPECT_EQ(found.model, "resnet18_cifar");
    EXPECT_EQ(found.classes, 5);
    EXPECT_TRUE(found.left_out.empty());
    EXPECT_EQ(found.file.tensors.size(), 102u);
    return join(found.ignored, ",", ",");
  };
  EXPECT_EQ(imported("module.", {{"n_averaged", count}}), "n_averaged");
  EXPECT_EQ(imported("model.", {{"criterion.weight", weight}, {"train_acc.tp", count}}),
            "criterion.weight,train_acc.tp");
  EXPECT_EQ(imported("", {{"total_ops", one}, {"layer1.0.conv1.total_ops", one}, {"layer1.total_params", one}}),
            "layer1.0.conv1.total_ops,layer1.total_params,total_ops");
  EXPECT_EQ(imported("net.", {{"ema.decay", one}, {"aux.fc.weight", weight}}), "aux.fc.weight,ema.decay");
}

/// A classifier that training programs put in the place of torchvision's, or beside a backbone.
TEST_F(TorchvisionTest, TheClassifierIsFoundUnderOtherNames) {
  const SafetensorsFile whole = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  const ConvertedWeights right = import_torchvision(path(write(whole)));
  const auto imported = [&](const std::string& prefix, const std::string& head) {
    SafetensorsFile file;
    for (const auto& [name, tensor] : whole.tensors)
      file.tensors[name.starts_with("fc.") ? head + name.substr(2) : prefix + name] = tensor;
    return import_torchvision(path(write(file)));
  };
  for (const auto& [prefix, head] : {std::pair<std::string, std::string>{"", "fc.1"},
                                     {"", "linear"},
                                     {"backbone.", "head"},
                                     {"model.", "classifier"},
                                     {"encoder.", "fc"}}) {
    const ConvertedWeights found = imported(prefix, head);
    EXPECT_EQ(found.classes, 5) << head;
    EXPECT_EQ(found.head, head == "fc" ? "" : head);
    EXPECT_EQ(found.file.tensors.at("classifier/weight").bytes, right.file.tensors.at("classifier/weight").bytes);
  }
}

/// Of copies of a network that are averages of another (EMA, teachers, momentum encoders) the other is read; --key
/// names them.
TEST_F(TorchvisionTest, OneOfSeveralCopiesOfANetwork) {
  const SafetensorsFile whole = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  const auto file_of = [&](const std::vector<std::string>& prefixes) {
    SafetensorsFile file;
    for (std::size_t i = 0; i < prefixes.size(); ++i)
      for (const auto& [name, tensor] : whole.tensors)
        file.tensors[prefixes[i] + name] =
            i == 0 ? tensor
                   : host_tensor(tensor.shape, std::vector<float>(static_cast<std::size_t>(tensor.shape.elements())));
    return path(write(file));
  };
  const ConvertedWeights student = import_torchvision(file_of({"student.", "teacher."}));
  EXPECT_EQ(student.prefix, "student.");
  ASSERT_EQ(student.notes.size(), 1u);
  EXPECT_NE(student.notes[0].find("also under 'teacher.': --key teacher"), std::string::npos) << student.notes[0];
  const ConvertedWeights teacher = import_torchvision(file_of({"student.", "teacher."}), {.key = "teacher"});
  EXPECT_EQ(teacher.prefix, "teacher.");
  EXPECT_NE(teacher.file.tensors.at("stem/weight").bytes, student.file.tensors.at("stem/weight").bytes);
  EXPECT_EQ(import_torchvision(file_of({"model.", "ema_model.module."})).prefix, "model.");
  EXPECT_NE(error_of([&] {
              (void)import_torchvision(file_of({"a.", "b."}));
            }).find("has resnet18_cifar 2 times, under 'a.' and 'b.': name one with --key"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              (void)import_torchvision(file_of({"a."}), {.key = "c"});
            }).find("has no tensor whose name begins with 'c.'"),
            std::string::npos);
}

/// Only a tensor that the network needs must be of a type that converts.
TEST_F(TorchvisionTest, TypesMatterWhereTheyAreNeeded) {
  SafetensorsFile file = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  file.tensors["mask"] = {DType::uint8, {2}, std::vector<std::byte>(2)};
  const std::string name = write(file);
  std::string bytes = read_file(path(name));
  const auto change = [&](const std::string& from, const std::string& to) {
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    const std::size_t sum = bytes.find("bantam.checksum");
    if (sum != std::string::npos) bytes.replace(sum, 6, "somebo");  // another program's file has none
    write_file_atomically(path("t.safetensors"), bytes);
  };
  change(R"("mask":{"dtype":"U8")", R"("mask":{"dtype":"I8")");
  const ConvertedWeights found = import_torchvision(path("t.safetensors"));
  EXPECT_EQ(found.classes, 5);
  EXPECT_EQ(found.ignored, std::vector<std::string>{"mask"});
  change(R"("fc.bias":{"dtype":"F32")", R"("fc.bias":{"dtype":"U32")");
  EXPECT_NE(error_of([&] {
              (void)import_torchvision(path("t.safetensors"));
            }).find("tensor 'fc.bias' is U32, expected floating-point numbers"),
            std::string::npos);
}

/// DenseNet's names of old, weights that are saved in parts, and images of one channel.
TEST_F(TorchvisionTest, NamesThatTorchRenamesAndWeightsInParts) {
  const SafetensorsFile dense = export_torchvision(write_counted("densenet121", 3)).file;
  SafetensorsFile old;
  for (const auto& [name, tensor] : dense.tensors) {
    std::string before = name;
    for (const std::string module : {"norm1", "norm2", "conv1", "conv2"})
      if (const std::size_t at = name.find(module + ".");
          name.find("denselayer") != std::string::npos && at != std::string::npos)
        before.insert(at + 4, ".");
    old.tensors[before] = tensor;
  }
  ASSERT_TRUE(old.tensors.contains("features.denseblock1.denselayer1.norm.1.weight"));
  EXPECT_EQ(import_torchvision(path(write(old))).classes, 3);

  SafetensorsFile parts = export_torchvision(write_counted("resnet18_cifar", 2)).file;
  const HostTensor kernel = parts.tensors.at("conv1.weight");
  parts.tensors.erase("conv1.weight");
  parts.tensors["conv1.weight_orig"] = kernel;
  std::vector<float> mask(static_cast<std::size_t>(kernel.shape.elements()), 1.0f);
  mask[1] = 0;
  parts.tensors["conv1.weight_mask"] = host_tensor(kernel.shape, mask);
  const HostTensor head = parts.tensors.at("fc.weight");
  parts.tensors.erase("fc.weight");
  parts.tensors["fc.parametrizations.weight.original0"] = host_tensor({2, 1}, std::vector<float>{3, 4});
  parts.tensors["fc.parametrizations.weight.original1"] = head;
  const ConvertedWeights joined = import_torchvision(path(write(parts)));
  EXPECT_EQ(joined.classes, 2);
  EXPECT_EQ(joined.notes.size(), 2u);
  const std::span<const float> row = float_values(joined.file.tensors.at("classifier/weight"));
  double squares = 0;
  for (std::size_t i = 0; i < 512; ++i) squares += static_cast<double>(row[i]) * row[i];
  EXPECT_NEAR(squares, 9, 1e-4) << "the length is weight_g's";

  SafetensorsFile grey = export_torchvision(write_counted("resnet18_cifar", 2)).file;
  grey.tensors["conv1.weight"] = host_tensor({64, 1, 3, 3}, std::vector<float>(576));
  const ConvertedWeights one = import_torchvision(path(write(grey)));
  EXPECT_EQ(one.channels, 1);
  EXPECT_EQ(one.file.tensors.at("stem/weight").shape, (Shape{64, 3, 3, 1}));
}

/// Weights as weight_norm and spectral_norm keep them, each under its names of old (utils.weight_norm) and those of
/// parametrizations: the product is what PyTorch computes with.
TEST_F(TorchvisionTest, WeightsOfNormsAreComputed) {
  const SafetensorsFile whole = export_torchvision(write_counted("resnet18_cifar", 2)).file;
  const HostTensor head = whole.tensors.at("fc.weight");  // (2, 512)
  const std::span<const float> v = float_values(head);
  std::vector<float> u = {0.6f, 0.8f}, right(512, 0.0f), wrong(3, 1.0f);
  right[2] = 1;
  const auto weight = [&](const std::map<std::string, HostTensor>& parts, std::string_view note) {
    SafetensorsFile file = whole;
    file.tensors.erase("fc.weight");
    for (const auto& [name, tensor] : parts) file.tensors[name] = tensor;
    const ConvertedWeights found = import_torchvision(path(write(file)));
    EXPECT_EQ(found.classes, 2) << note;
    EXPECT_EQ(found.notes, std::vector<std::string>{fmt::format("1 tensor was put together: {}", note)});
    EXPECT_TRUE(found.ignored.empty()) << join(found.ignored, ", ", ", ");
    const std::span<const float> values = float_values(found.file.tensors.at("classifier/weight"));
    return std::vector<float>(values.begin(), values.end());
  };

  const HostTensor lengths = host_tensor({2, 1}, std::vector<float>{3, 4});
  for (const auto& [g, direction] :
       {std::pair{"fc.weight_g", "fc.weight_v"},
        {"fc.parametrizations.weight.original0", "fc.parametrizations.weight.original1"}}) {
    const std::vector<float> made = weight({{g, lengths}, {direction, head}}, "weight_norm");
    for (std::size_t row = 0; row < 2; ++row) {
      double squares = 0;
      for (std::size_t i = 0; i < 512; ++i) squares += std::pow(static_cast<double>(v[row * 512 + i]), 2);
      for (std::size_t i = 0; i < 512; ++i)
        EXPECT_FLOAT_EQ(made[row * 512 + i],
                        static_cast<float>((row == 0 ? 3 : 4) * v[row * 512 + i] / std::sqrt(squares)));
    }
  }

  const double sigma = 0.6 * v[2] + 0.8 * v[512 + 2];  // u^T W v, of a v that picks the third column
  const HostTensor left = host_tensor({2}, u), picked = host_tensor({512}, right);
  for (const auto& [orig, name_u, name_v] : {std::array{"fc.weight_orig", "fc.weight_u", "fc.weight_v"},
                                             {"fc.parametrizations.weight.original", "fc.parametrizations.weight.0._u",
                                              "fc.parametrizations.weight.0._v"}}) {
    const std::vector<float> made = weight({{orig, head}, {name_u, left}, {name_v, picked}}, "spectral_norm");
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_FLOAT_EQ(made[i], static_cast<float>(v[i] / sigma)) << i;
  }

  SafetensorsFile other = whole;  // parts that are not of one weight stay as they are, and are named
  other.tensors.erase("fc.weight");
  other.tensors["fc.weight_v"] = head;
  other.tensors["fc.weight_g"] = host_tensor({3}, wrong);
  const ConvertedWeights left_over = import_torchvision(path(write(other)));
  EXPECT_EQ(left_over.classes, 0);
  EXPECT_EQ(left_over.ignored, (std::vector<std::string>{"fc.bias", "fc.weight_g", "fc.weight_v"}));
}

/// A batch norm with another epsilon: the running variance, else the scale, makes up for it.
TEST_F(TorchvisionTest, AnotherEpsilonChangesNoOutput) {
  SafetensorsFile file;
  for (const TorchvisionTensor& tensor :
       torchvision_tensors("mobilenet_v3_small", zoo_network("mobilenet_v3_small", 0, 2), "timm"))
    file.tensors[tensor.torch] = host_tensor(
        tensor.torch_shape, std::vector<float>(static_cast<std::size_t>(tensor.torch_shape.elements()), 2.0f));
  std::vector<float> variances(16, 2.0f);
  variances[1] = 1e-4f;  // less than the difference
  file.tensors.at("bn1.running_var") = host_tensor({16}, variances);
  const ConvertedWeights found = import_torchvision(path(write(file)));
  EXPECT_EQ(found.program, "timm");
  const std::span<const float> variance = float_values(found.file.tensors.at("stem_norm/running_variance")),
                               scale = float_values(found.file.tensors.at("stem_norm/scale"));
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_GE(variance[i], 0.0f);
    EXPECT_NEAR(scale[i] / std::sqrt(variance[i] + 1e-3f), 2 / std::sqrt(variances[i] + 1e-5f), 1e-3f);
  }
}

/// Files of other programs are named for what they are, by their bytes, with the way that they come here.
TEST_F(TorchvisionTest, FilesOfOtherProgramsAreNamed) {
  using namespace std::string_literals;
  const auto error = [&](const std::string& name, const std::string& bytes) {
    write_file_atomically(path(name), bytes);
    return error_of([&] { (void)import_torchvision(path(name)); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(error("m.h5", "\x89HDF\r\n\x1a\n and more"),
           "m.h5: holds no weights that are read: it is an HDF5 file, as Keras");
  contains(error("weights.pth", "\x89HDF\r\n\x1a\n and more"), "it is an HDF5 file");
  contains(error("m.h5", "\x89HDF\r\n\x1a\n"), "`bantam import FILE.onnx`");
  contains(error("m.tflite", "\x1c\0\0\0TFL3 and more"s), "a model of TensorFlow Lite");
  contains(error("saved_model.pb", "\x08\x01\x12 and more"), "a SavedModel of TensorFlow");
  contains(error("m.gguf", "GGUF\3\0\0\0 and more"s), "a model of llama.cpp (.gguf)");
  contains(error("m.engine", "ftrt and more"), "an engine of TensorRT");
  contains(error("m.pkl", "\x80\2csklearn.linear_model\nLogisticRegression\nq\1."),
           "(it begins with a sklearn.linear_model.");
  contains(error("m.pt", "<!DOCTYPE html><html>"), "it is a web page (HTML)");
  contains(error("m.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1"), "a pointer of Git LFS");
  contains(error("config.json", "{\"architectures\": []}"), "it is JSON");
  contains(error("m.pth", ""), "it is empty");
  contains(error("m.pth.gz", "\x1f\x8b\x08 and more"), "compressed by gzip");
  std::string tar(512, '\0');
  tar.replace(0, 8, "sys_info").replace(257, 5, "ustar");
  contains(error("m.pth", tar), "in the form that PyTorch wrote before 0.1.10 (a tar archive), which is not read");
  tar.replace(0, 8, "data.pth");
  contains(error("m.tar", tar), "a tar archive");
  contains(error("m.mlmodel", "\x08\x04\x12 and more"), "a model of Core ML");
  contains(error("m.keras", testing::zip_archive({{"config.json", "{}"}, {"model.weights.h5", "x"}}, false)),
           "a model of Keras 3 (.keras)");
  contains(error("m.npz", testing::zip_archive({{"a.npy", "x"}, {"b.npy", "y"}}, false)), "an archive of NumPy arrays");
  contains(error("m.bin", "nothing that is known"), "neither a file of PyTorch nor safetensors");
  contains(error_of([&] { (void)import_torchvision(path("")); }), "a SavedModel of TensorFlow, a folder");
  std::filesystem::remove(path("saved_model.pb"));
  contains(error_of([&] { (void)import_torchvision(path("")); }), "is a folder; expected a file: ");
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

/// As torchvision's VGG16 for detectors: every value of its classifier is NaN. The rest is a network to begin with.
TEST_F(TorchvisionTest, AClassifierThatIsNotFiniteIsLeftOut) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  SafetensorsFile file = export_torchvision(write_counted("resnet18_cifar", 5)).file;
  std::memcpy(file.tensors.at("fc.weight").bytes.data() + 4, &none, sizeof(float));
  const ConvertedWeights found = import_torchvision(path(write(file)));
  EXPECT_EQ(found.classes, 0);
  EXPECT_EQ(found.left_out, (std::vector<std::string>{"classifier/bias", "classifier/weight"}));
  EXPECT_FALSE(found.file.tensors.contains("classifier/bias"));
  EXPECT_EQ(found.notes, std::vector<std::string>{"fc.weight has 1 value that is not finite, and is left out: the rest "
                                                  "is a network without its classifier"});

  SafetensorsFile vgg;  // small: nothing here depends on the values
  for (const TorchvisionTensor& tensor :
       torchvision_tensors("mobilenet_v3_small", zoo_network("mobilenet_v3_small", 0, 2)))
    vgg.tensors[tensor.torch] =
        host_tensor(tensor.torch_shape, std::vector<float>(static_cast<std::size_t>(tensor.torch_shape.elements()),
                                                           tensor.torch.starts_with("classifier.") ? none : 1.0f));
  const ConvertedWeights features = import_torchvision(path(write(vgg)));
  EXPECT_EQ(features.classes, 0);
  EXPECT_EQ(features.left_out,
            (std::vector<std::string>{"classifier/bias", "classifier/weight", "hidden/bias", "hidden/weight"}));
  ASSERT_EQ(features.notes.size(), 1u);
  EXPECT_NE(features.notes[0].find(" and 1 more have "), std::string::npos) << features.notes[0];
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
  const std::string road =
      "\n  any network comes as an ONNX model, which torch.onnx.export writes: `bantam import FILE.onnx`";
  EXPECT_EQ(error({}),
            name +
                ": has the tensors of no network that the zoo and torchvision or timm have; the nearest is "
                "resnet18_cifar, of which it has 101 of 102\n  missing: layer1.0.conv1.weight\n  unexpected: "
                "layer9" +
                road);
  EXPECT_NE(error({.model = "resnet18"}).find("conv1.weight is (64, 3, 3, 3), expected (64, 3, 7, 7)"),
            std::string::npos);
  EXPECT_NE(error({.model = "resnet51"}).find("--model: unknown network 'resnet51'; did you mean 'resnet50'?"),
            std::string::npos);
  EXPECT_EQ(error({.model = "resnet18", .width = 0.5}), "--width: torchvision's resnet18 has no width");
  EXPECT_EQ(error({.width = 0}), "--width: expected a number above 0 and up to 64, got 0");
  EXPECT_NE(
      error({.width = 0.5}).find("timm have with a width of 0.5: 102 tensors, bn1.bias (64), bn1.running_mean (64), "),
      std::string::npos)
      << "no network of that width has half of the tensors: none is the nearest";
  file.tensors["fc.weight"] = {DType::float32, Shape{std::int64_t{1} << 50, 0}, {}};
  EXPECT_NE(error({.model = "resnet18_cifar"}).find("fc.weight is (1125899906842624, 0), expected (16777216, 512)"),
            std::string::npos);
  EXPECT_NE(error({.model = "separable_cnn"}).find("torchvision has no 'separable_cnn'"), std::string::npos);
}

}  // namespace
}  // namespace bantam::run::torchvision_test
