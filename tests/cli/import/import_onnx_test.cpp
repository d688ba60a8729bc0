// `bantam import MODEL.onnx` and `bantam inspect MODEL.onnx`: from a run to ONNX and back, and exit codes.
#include "bantam/base/text.h"
#include "tests/cli/program.h"

namespace bantam::cli::import_onnx_test {
namespace {

class ImportOnnxTest : public ProgramTest {
 protected:
  ImportOnnxTest() {
    write("net.yaml", R"(device: cpu
data: {format: generated, train_samples: 16, test_samples: 8, pipeline: [{batch: {size: 8}}]}
model:
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, activation: relu, name: first}
    - flatten
    - dense: {units: 10, name: head}
train: {epochs: 1}
)");
    EXPECT_EQ(run({"train", "net.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"}).code, 0);
    EXPECT_EQ(run({"export", "r", "--onnx", "net.onnx"}).code, 0);
  }
};

const std::string kNet = R"(model:
  weights: back.safetensors
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, activation: relu, name: first}
    - flatten
    - dense: {units: 10, name: head}
)";

TEST_F(ImportOnnxTest, ARunGoesOutAndComesBack) {
  const Outcome imported = run({"import", "net.onnx", "-o", "back"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_NE(imported.out.find("back.yaml: 3 layers of (32, 32, 3) to (10)\nback.safetensors: 4 tensors, "),
            std::string::npos)
      << imported.out;
  const std::string text = read("back.yaml");
  EXPECT_EQ(text.substr(text.find("model:")), kNet);
  EXPECT_NE(text.find("# net.onnx (bantam"), std::string::npos) << text;
  EXPECT_EQ(run({"inspect", "back.safetensors", "--json"}).last_json()["files"][0]["tensors"],
            run({"inspect", "r/weights.safetensors", "--json"}).last_json()["files"][0]["tensors"]);
  EXPECT_EQ(run({"summary", "back.yaml"}).code, 0);
  const Outcome trained =
      run({"train", "back.yaml",
           "data={format: generated, train_samples: 16, test_samples: 8, pipeline: [{batch: {size: 8}}]}",
           "train.epochs=1", "device=cpu", "--run-dir", "again", "--threads", "1"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE((trained.out + trained.err).find("weights: 4 of 4 tensors from back.safetensors"), std::string::npos)
      << trained.out << trained.err;
}

/// Another program's file may name classes in any encoding.
TEST_F(ImportOnnxTest, ClassNamesThatAreNotUtf8) {
  std::string bytes = read("net.onnx");
  const std::size_t names = bytes.find("[\"", bytes.find("class_names"));
  ASSERT_NE(names, std::string::npos);
  bytes[names + 2] = '\xe9';
  write("net.onnx", bytes);
  const Outcome imported = run({"import", "net.onnx", "-o", "back"});
  EXPECT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(run({"inspect", "back.safetensors"}).code, 0);
}

TEST_F(ImportOnnxTest, OtherClassesLeaveTheHeadOut) {
  const Outcome imported = run({"import", "net.onnx", "-o", "three.yaml", "--classes", "3", "--json"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  const nlohmann::json json = imported.last_json();
  EXPECT_EQ(json.at("config"), "three.yaml");
  EXPECT_EQ(json.at("weights"), "three.safetensors");
  EXPECT_EQ(json.at("tensors"), 2);
  EXPECT_EQ(json.at("output"), std::vector<int>{3});
  EXPECT_EQ(json.at("left_out"), (std::vector<std::string>{"head/bias", "head/weight"}));
  const std::string text = read("three.yaml");
  EXPECT_NE(text.find("weights: {file: three.safetensors, skip: [\"head/*\"]}"), std::string::npos) << text;
}

TEST_F(ImportOnnxTest, FilesThatAreThereStay) {
  const Outcome there = run({"import", "net.onnx"});
  EXPECT_EQ(there.code, 2) << there.out;
  EXPECT_NE(there.err.find("net.yaml is there already: -o net replaces it"), std::string::npos) << there.err;
}

TEST_F(ImportOnnxTest, AModelIsInspected) {
  const Outcome words = run({"inspect", "net.onnx"});
  ASSERT_EQ(words.code, 0) << words.err;
  for (const char* part : {"  ONNX        opset 17, IR version 8, by bantam",
                           "  input       input float32 (batch, 3, 32, 32)", "  output      output float32 (batch, 10)",
                           "  nodes       1 Conv, 1 Flatten, 1 Gemm, 1 Relu\n", "head/weight", "sha256  "})
    EXPECT_NE(words.out.find(part), std::string::npos) << part << "\n" << words.out;
  std::istringstream lines(words.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;
  const nlohmann::json json = run({"inspect", "net.onnx", "--json"}).last_json();
  EXPECT_EQ(json.at("onnx")["opset"], 17);
  EXPECT_EQ(json["onnx"]["ops"]["Conv"], 1);
  EXPECT_EQ(json["files"][0]["tensors"].size(), 4u);
}

TEST_F(ImportOnnxTest, WhatIsWrongHasAnExitCode) {
  const auto fails = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  write("bad.onnx", "no model");
  fails({"import", "gone.onnx", "-o", "x"}, 3, "gone.onnx");
  fails({"import", "bad.onnx", "-o", "x"}, 3, "bad.onnx: not an ONNX model that can be read: ");
  fails({"inspect", "bad.onnx"}, 3, "bad.onnx: not an ONNX model that can be read: ");
  fails({"import", "net.onnx", "-o", "x", "--model", "resnet18"}, 2,
        "--model and --width are of torchvision's networks");
  fails({"import", "net.onnx", "-o", "x", "--size", "8,8"}, 3,
        "net.onnx: the input 'input' has the extents (batch, 3, 32, 32)");
  fails({"import", "r/weights.safetensors", "-o", "x", "--size", "8,8"}, 2, "--size is of ONNX models");
  EXPECT_FALSE(std::filesystem::exists(path("x.yaml")));
}

}  // namespace
}  // namespace bantam::cli::import_onnx_test
