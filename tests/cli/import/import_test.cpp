// `bantam import` and `bantam export`: from a run to torchvision's names and back, and exit codes.
#include "tests/cli/program.h"

namespace bantam::cli::import_test {
namespace {

using ImportTest = ProgramTest;

std::string fixture(const std::string& name) {
  return std::string(BANTAM_SOURCE_DIR) + "/tests/run/weights/files/" + name;
}

TEST_F(ImportTest, ARunsWeightsGoOutAndComeBack) {
  write("net.yaml", R"(device: cpu
data: {format: generated, train_samples: 4, test_samples: 4, pipeline: [{batch: {size: 4}}]}
model: {zoo: resnet18_cifar, classes: 10, input: [32, 32, 3]}
train: {epochs: 1, evaluate: false}
)");
  ASSERT_EQ(run({"train", "net.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"}).code, 0);
  const Outcome exported = run({"export", "r", "-o", "out.safetensors", "--json"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(exported.last_json().at("model"), "resnet18_cifar");
  EXPECT_EQ(exported.last_json().at("torchvision"), "resnet18");
  EXPECT_EQ(exported.last_json().at("tensors"), 102);
  const Outcome text = run({"export", "r", "-o", "out.safetensors"});
  EXPECT_NE(text.out.find("model = torchvision.models.resnet18(num_classes=10)\n  model.conv1, model.maxpool = "),
            std::string::npos)
      << text.out;
  const Outcome imported = run({"import", "out.safetensors", "--classes", "2", "-o", "in.safetensors", "--json"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(imported.last_json().at("model"), "resnet18_cifar");
  EXPECT_EQ(imported.last_json().at("tensors"), 100);
  EXPECT_EQ(imported.last_json().at("left_out").size(), 2u);
  const Outcome several = run({"export", "r", "-o", "several.safetensors", "--json"});
  ASSERT_EQ(several.code, 0) << several.err;
  const Outcome plain = run({"import", "several.safetensors", "-o", "plain.safetensors"});
  EXPECT_EQ(plain.out.find("not used"), std::string::npos) << plain.out;
  EXPECT_EQ(run({"import", "several.safetensors", "-o", "k.safetensors", "--key", "a"}).err,
            "bantam: error: --key: several.safetensors has no tensor whose name begins with 'a.'\n");
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"export", "r", "--to", "torchvision"},
                                               {"import", "r-torchvision.safetensors", "--from", "torchvision"}}) {
    const Outcome first = run(verb), again = run(verb);
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(again.code, 2) << again.out;
    EXPECT_NE(again.err.find("is there already: -o "), std::string::npos) << again.err;
  }
  EXPECT_TRUE(std::filesystem::exists(path("r-torchvision-bantam.safetensors")));
}

TEST_F(ImportTest, ARunsWidthIsKnown) {
  write("net.yaml", R"(device: cpu
data: {format: generated, train_samples: 4, test_samples: 4, pipeline: [{batch: {size: 4}}]}
model: {zoo: mobilenet_v2, classes: 10, width: 0.25, input: [32, 32, 3]}
train: {epochs: 1, evaluate: false}
)");
  ASSERT_EQ(run({"train", "net.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"}).code, 0);
  const Outcome exported = run({"export", "r"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_NE(exported.out.find("mobilenet_v2(num_classes=10, width_mult=0.25)"), std::string::npos) << exported.out;
}

TEST_F(ImportTest, PlansNeedTheFileOfTheWeights) {
  write("net.yaml",
        "device: cpu\nmodel: {zoo: mobilenet_v2, width: 0.25, input: [32, 32, 3], weights: gone.safetensors}\n");
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"plan", "net.yaml", "--batch-sizes", "1"}, {"summary", "net.yaml"}}) {
    const Outcome outcome = run(verb);
    EXPECT_EQ(outcome.code, 3) << verb[0];
    EXPECT_EQ(outcome.err, "bantam: error: model.weights: cannot read gone.safetensors: No such file or directory\n");
  }
}

TEST_F(ImportTest, WhatIsWrongHasAnExitCode) {
  const auto fails = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  fails({"import", "gone.pt", "-o", "x.safetensors"}, 3, "gone.pt");
  fails({"import", fixture("old.pt"), "-o", "x.safetensors"}, 3, "the tensors of no network");
  fails({"import", fixture("module.pt"), "-o", "x.safetensors"}, 3, "`bantam import FILE.onnx`");
  fails({"import", fixture("views.pt"), "-o", "x.safetensors"}, 3, "the tensors of no network");
  fails({"import", fixture("several.pt"), "-o", "x.safetensors"}, 3, "('a' and 'b'): name one with --key");
  fails({"import", fixture("several.pt"), "-o", "x.safetensors", "--key", "b"}, 3, "the tensors of no network");
  fails({"import", fixture("views.pt"), "-o", "x.safetensors", "--from", "timm"}, 2, "--from: unknown 'timm'");
  fails({"import", fixture("views.pt"), "-o", "x.safetensors", "--model", "resnet5"}, 2, "did you mean 'resnet50'?");
  fails({"import", fixture("views.pt"), "-o", fixture("views.pt")}, 2, "-o names the file that is read");
  EXPECT_FALSE(std::filesystem::exists(path("x.safetensors")));
}

}  // namespace
}  // namespace bantam::cli::import_test
