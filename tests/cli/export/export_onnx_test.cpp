// `bantam export --onnx`: files of runs and weights, what is said of them, and exit codes.
#include "tests/cli/program.h"

namespace bantam::cli::export_onnx_test {
namespace {

class ExportOnnxTest : public ProgramTest {
 protected:
  ExportOnnxTest() {
    write("net.yaml", R"(device: cpu
data:
  format: generated
  train_samples: 8
  test_samples: 4
  pipeline: [{normalize: {scale: 0.00392156862745098, mean: [0.5], std: [0.25]}}, {batch: {size: 4}}]
model:
  name: small
  input: [32, 32, 3]
  layers: [conv2d: {filters: 4, kernel: 3, stride: 8, bias: false}, batch_norm: {activation: relu}, flatten, dense: {units: 10}]
train: {epochs: 2, ema: {decay: 0.5}}
)");
    const Outcome trained = run({"train", "net.yaml", "--run-dir", "r", "--progress", "none", "--threads", "1"});
    EXPECT_EQ(trained.code, 0) << trained.err;
  }

  nlohmann::json exported(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "export");
    arguments.insert(arguments.end(), {"--onnx", "out.onnx", "--json"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.last_json() : nlohmann::json();
  }

  void fails(std::vector<std::string> arguments, int code, const std::string& part) {
    arguments.insert(arguments.begin(), "export");
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
};

TEST_F(ExportOnnxTest, WritesARunAndTellsWhatIsInIt) {
  const nlohmann::json json = exported({"r"});
  EXPECT_EQ(json.at("model"), "small");
  EXPECT_EQ(json.at("weights"), "r/weights.safetensors");
  EXPECT_EQ(json.at("opset"), 17);
  EXPECT_EQ(json.at("nodes"), 5);  // Conv, BatchNormalization, Relu, Flatten, Gemm
  EXPECT_EQ(json.at("tensors"), 7);
  EXPECT_EQ(json.at("bytes"), std::filesystem::file_size(path("out.onnx")));
  EXPECT_EQ(json.at("input").dump(), R"({"name":"input","shape":["batch",3,32,32],"type":"float32"})");
  EXPECT_EQ(json.at("output").dump(), R"({"name":"output","shape":["batch",10],"type":"float32"})");
  const Outcome text = run({"export", "r", "--onnx", "out.onnx"});
  EXPECT_EQ(text.out.substr(0, text.out.find(',')), "out.onnx: small") << text.out;
  EXPECT_NE(text.out.find("input float32 (batch, 3, 32, 32)"), std::string::npos) << text.out;
  EXPECT_NE(
      text.out.find(
          "by decode (RGB, upright), resize (32 x 32), normalize (scale 0.00392156862745098, mean 0.5, std 0.25)\n"),
      std::string::npos)
      << text.out;
}

TEST_F(ExportOnnxTest, WhatImagesPassBeforeTheInputIsToldAndInTheFile) {
  std::string config = read("net.yaml");
  config.replace(config.find("[{normalize"), 1, "[{random_resized_crop: {size: 32}}, ");
  config.replace(config.find("generated"), 9, "image_folder\n  path: gone");
  for (const std::string line : {"  train_samples: 8\n", "  test_samples: 4\n"})
    config.erase(config.find(line), line.size());
  write("crop.yaml", config);
  const Outcome outcome = run({"export", "r/weights.safetensors", "--config", "crop.yaml", "--onnx", "crop.onnx"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(
      outcome.out.find("by decode (RGB, upright), resize (shorter side 36), center_crop (32 x 32), normalize (scale"),
      std::string::npos)
      << outcome.out;
  EXPECT_NE(
      read("crop.onnx")
          .find(
              R"([{"stage":"decode","channels":3,"exif":true},{"stage":"resize","shorter_side":36},{"stage":"center_crop","height":32,)"),
      std::string::npos);
}

TEST_F(ExportOnnxTest, WhatRowsOfATablePassIsToldAndInTheFile) {
  std::string table = "id,width,length,kind\n";
  for (int i = 0; i < 40; ++i)
    table += std::to_string(i) + "," + (i == 3 ? "" : std::to_string(i % 4)) + "," + std::to_string(i % 5 * 10) +
             (i % 2 == 0 ? ",a\n" : ",b\n");
  write("table.csv", table);
  write("table.yaml", R"(device: cpu
data: {format: csv, path: table.csv, label: kind, features: [length, width], standardize: true, missing: mean, pipeline: [shuffle, batch: {size: 8}]}
model: {input: [2], layers: [dense: {units: 2}]}
train: {epochs: 1}
)");
  ASSERT_EQ(run({"train", "table.yaml", "--run-dir", "t", "--progress", "none"}).code, 0);
  const Outcome text = run({"export", "t", "--onnx", "t.onnx"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("a row becomes the input by columns (length and width), means of training in place of "),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find(", rows of numbers, as the run's samples are"), std::string::npos) << text.out;
  const nlohmann::ordered_json stages = run({"export", "t", "--onnx", "u.onnx", "--json"}).last_json()["input_stages"];
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0]["names"], nlohmann::ordered_json({"length", "width"}));
  EXPECT_EQ(stages[0]["missing"].size(), 2u);
  EXPECT_NEAR(stages[1]["mean"][0].get<double>(), 20, 2);
  EXPECT_NEAR(stages[1]["std"][0].get<double>(), 14.1, 1.5);
  EXPECT_NE(read("t.onnx").find(R"([{"stage":"columns","names":["length","width"],"missing":[)"), std::string::npos);
}

TEST_F(ExportOnnxTest, AnotherWayToAskForAFileIsToldTheFlag) {
  fails({"r", "-o", "net.onnx"}, 2, "an ONNX file is written by --onnx net.onnx");
  fails({"r", "--to", "onnx"}, 2, "an ONNX file is written by --onnx FILE");
  fails({"r"}, 3, "--onnx FILE writes any network");
  fails({"r", "--onnx"}, 2, "--onnx needs a value");
}

TEST_F(ExportOnnxTest, FlagsChangeTheFile) {
  const nlohmann::json folded = exported({"r", "--fold-batch-norm"});
  EXPECT_EQ(folded.at("folded"), 1);
  EXPECT_EQ(folded.at("nodes"), 4);
  const nlohmann::json half = exported({"r", "--float16", "--fold-batch-norm"});
  EXPECT_EQ(half.at("float16"), true);
  EXPECT_LT(half.at("bytes"), folded.at("bytes"));
  EXPECT_EQ(exported({"r", "--opset", "13"}).at("opset"), 13);
  const nlohmann::json pixels = exported({"r", "--preprocessing", "--input", "nhwc", "--batch", "2"});
  EXPECT_EQ(pixels.at("input").dump(), R"({"name":"input","shape":[2,32,32,3],"type":"uint8"})");
}

TEST_F(ExportOnnxTest, SameInputsMakeTheSameFile) {
  exported({"r"});
  const std::string first = read("out.onnx");
  exported({"r"});
  EXPECT_EQ(read("out.onnx"), first);
}

TEST_F(ExportOnnxTest, CheckpointsAveragesAndWeightsFilesAreFound) {
  const std::string last = newest("r", "weights.safetensors").string();
  EXPECT_NE(last.find(exported({"r", "--checkpoint", "last"}).at("weights").get<std::string>()), std::string::npos);
  EXPECT_EQ(exported({"r", "--ema"}).at("weights"), "r/weights-ema.safetensors");
  std::filesystem::copy_file(path("r/weights.safetensors"), path("alone.safetensors"));
  EXPECT_EQ(exported({"alone.safetensors", "--config", "net.yaml"}).at("model"), "small");
  fails({"alone.safetensors", "--onnx", "x.onnx"}, 2, "configuration");
}

TEST_F(ExportOnnxTest, WhatIsWrongHasAnExitCode) {
  fails({"gone", "--onnx", "x.onnx"}, 3, "gone");
  fails({"r", "--opset", "17"}, 2, "--opset goes with --onnx FILE");
  fails({"r", "--onnx", "x.onnx", "--to", "torchvision"}, 2, "--to does not go with --onnx");
  fails({"r", "--onnx", "x.onnx", "--opset", "9"}, 2, "13 to 24");
  fails({"r", "--onnx", "x.onnx", "--opset", "25"}, 2, "13 to 24");
  EXPECT_EQ(exported({"r", "--opset", "24"}).at("opset"), 24);
  fails({"r", "--onnx", "x.onnx", "--input", "hwcn"}, 2, "--input: expected nchw or nhwc, got 'hwcn'");
  fails({"r", "--onnx", "no/x.onnx"}, 3, "no/x.onnx");
  fails({"r/weights.safetensors", "--onnx", "r/weights.safetensors"}, 2, "--onnx names the file that is read");
  fails({"r", "--onnx", "x.onnx", "--checkpoint", "best"}, 3, "weights-best.safetensors");
  EXPECT_FALSE(std::filesystem::exists(path("x.onnx")));
}

/// Also by another name of the file, and of a file of weights with its configuration.
TEST_F(ExportOnnxTest, WhatIsReadIsNotReplaced) {
  std::filesystem::create_symlink(path("r"), path("link"));
  std::filesystem::copy_file(path("r/weights.safetensors"), path("alone.safetensors"));
  for (const std::string file : {"weights.safetensors", "config.yaml", "run.json"}) {
    const std::string before = read("r/" + file);
    fails({"r", "--onnx", "r/" + file}, 2, "--onnx names a file that is read: r/" + file);
    fails({"r", "--onnx", "link/" + file}, 2, "--onnx names a file that is read: r/" + file);
    EXPECT_EQ(read("r/" + file), before);
  }
  const std::string before = read("net.yaml");
  fails({"alone.safetensors", "--config", "net.yaml", "--onnx", "net.yaml"}, 2, "--onnx names a file that is read");
  EXPECT_EQ(read("net.yaml"), before);
}

}  // namespace
}  // namespace bantam::cli::export_onnx_test
