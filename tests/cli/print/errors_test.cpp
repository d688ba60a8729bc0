// What goes wrong gets its own exit code, and a message that says where and what to do.
#include <utility>

#include <sys/stat.h>

#include "bantam/base/text.h"
#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"

namespace bantam::cli::errors_test {
namespace {

class Errors : public ProgramTest {
 protected:
  Errors() { write_tiny_config(); }
  /// Exit code and a part of stderr.
  void expect(const std::vector<std::string>& arguments, int code, const std::string& message) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << "a refused run leaves no folder";
  }
};

TEST_F(Errors, Usage) {
  expect({}, 2, "A subcommand is required");
  expect({"trian"}, 2, "unknown subcommand 'trian'; did you mean 'train'?");
  expect({"train"}, 2, "name a CONFIG");
  expect({"train", "tiny.yaml", "--no-such-flag"}, 2, "--no-such-flag");
  expect({"train", "tiny.yaml", "--threads", "-1"}, 2, "--threads");
  expect({"train", "tiny.yaml", "--progress", "loud", "--run-dir", "run"}, 2, "auto, bar, plain, json or none");
  expect({"bench", "step", "tiny.yaml", "--batch-sizes", "16,many"}, 2, "--batch-sizes");
  expect({"bench", "memory", "tiny.yaml", "--precision", "float64"}, 2, "unknown precision 'float64'");
  expect({"bench", "memory", "tiny.yaml", "--recompute", "midle"}, 2, "did you mean 'middle'?");
}

TEST_F(Errors, UnknownFlagsGetTheNearestOne) {
  const auto first_line = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    return outcome.err.substr(0, outcome.err.find('\n'));
  };
  const std::string begin = "bantam: error: ";
  EXPECT_EQ(first_line({"train", "tiny.yaml", "--epoch", "3"}),
            begin + "unknown flag '--epoch' of `bantam train`; did you mean '--epochs'?");
  EXPECT_EQ(first_line({"train", "--run_dir=x", "tiny.yaml"}),
            begin + "unknown flag '--run_dir' of `bantam train`; did you mean '--run-dir'?");
  EXPECT_EQ(first_line({"bench", "step", "tiny.yaml", "--batchsizes", "16"}),
            begin + "unknown flag '--batchsizes' of `bantam bench step`; did you mean '--batch-sizes'?");
  EXPECT_EQ(first_line({"plan", "tiny.yaml", "-batch-size", "16"}),
            begin + "unknown flag '-batch-size' of `bantam plan`; did you mean '--batch-size'?");
  EXPECT_EQ(first_line({"plan", "tiny.yaml", "--frobnicate"}),
            begin +
                "unknown flag '--frobnicate' of `bantam plan`; `bantam plan --help` lists its flags, and keys of the "
                "configuration are given as KEY=VALUE, without dashes");
  EXPECT_EQ(first_line({"--vresion"}), begin + "unknown flag '--vresion' of `bantam`; did you mean '--version'?");
  EXPECT_EQ(first_line({"devices", "more"}),
            begin + "unexpected argument 'more'; `bantam devices --help` lists its arguments");
  EXPECT_EQ(first_line({"summary"}), begin + "CONFIG is required");
  EXPECT_EQ(first_line({"train", "tiny.yaml", "--epochs"}).rfind(begin + "--epochs", 0), 0u);
}

TEST_F(Errors, WithoutASubcommandThereIsAList) {
  const Outcome all = run({}), bench = run({"bench"});
  EXPECT_EQ(all.code, 2);
  for (const char* verb : {"train", "summary", "plan", "devices", "bench", "profile", "help", "version"})
    EXPECT_NE(all.err.find(std::string("\n  ") + verb + " "), std::string::npos) << all.err;
  EXPECT_EQ(bench.code, 2);
  for (const char* verb : {"step", "memory", "allocator"})
    EXPECT_NE(bench.err.find(std::string("\n  ") + verb + " "), std::string::npos) << bench.err;
}

TEST_F(Errors, HelpAndVersionAreSubcommandsToo) {
  EXPECT_EQ(run({"help", "bench"}).out, run({"bench", "--help"}).out) << "it fits a screen";
  EXPECT_EQ(run({"version"}).out, run({"--version"}).out);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, std::vector<std::string>{"train"}, std::vector<std::string>{"bench", "step"}}) {
    std::vector<std::string> in_words = {"help"}, by_option = words;
    in_words.insert(in_words.end(), words.begin(), words.end());
    by_option.push_back("--help");
    const std::string full = run(in_words).out, brief = run(by_option).out;
    EXPECT_GT(full.size(), brief.size());
    EXPECT_EQ(full.substr(0, full.find('\n')), brief.substr(0, brief.find('\n')));
  }
  expect({"help", "trian"}, 2, "unknown subcommand 'trian'; did you mean 'train'?");
  expect({"help", "bench", "stp"}, 2, "unknown subcommand 'bench stp'; did you mean 'bench step'?");
  expect({"help", "train", "more"}, 2, "`bantam train` has no subcommands");
}

TEST_F(Errors, BatchSizeAndBatchSizesAreBothUnderstood) {
  for (const char* flag : {"--batch-size", "--batch-sizes"}) {
    const Outcome summary = run({"summary", "tiny.yaml", "--json", flag, "24"});
    EXPECT_EQ(summary.code, 0) << summary.err;
    EXPECT_EQ(summary.last_json().at("batch"), 24);
    const Outcome plan = run({"plan", "tiny.yaml", "--json", flag, "24", "--seconds", "0.01"});
    EXPECT_EQ(plan.code, 0) << plan.err;
    EXPECT_EQ(plan.last_json().at("batch"), 24);
    const Outcome bench = run({"bench", "memory", "tiny.yaml", "--json", flag, "24", "--seconds", "0.01"});
    EXPECT_EQ(bench.code, 0) << bench.err;
    EXPECT_EQ(bench.last_json().at("batch"), 24);
    EXPECT_EQ(run({"bench", "step", "tiny.yaml", flag, "2", "--seconds", "0.01"}).code, 0);
    const std::string folder = std::string("batch") + flag;
    const Outcome trained = train(folder, {flag, "32"});
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(trained.last_json().at("updates"), 256 / 32);
    EXPECT_NE(run({"profile", "memory", "tiny.yaml", flag, "0"}).err.find(flag), std::string::npos);
  }
}

TEST_F(Errors, ControlCharactersOfNamesDoNotReachTheTerminal) {
  const std::string name = "model.name=\"\\e[31mred\"";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"summary", "tiny.yaml", name},
        {"plan", "tiny.yaml", name, "--seconds", "0.01"},
        {"bench", "memory", "tiny.yaml", name, "--seconds", "0.01"},
        {"bench", "step", "tiny.yaml", name, "--seconds", "0.01"},
        {"train", "tiny.yaml", name, "--progress", "plain", "--run-dir", "trained", "--threads", "1"},
        {"summary", "no\x1b[31m.yaml"},
        {"plan", "tiny.yaml", "\x1b[31m"},
        {"\x1b[31m"},
        {"plan", "--\x1b[31m"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ((outcome.out + outcome.err).find('\x1b'), std::string::npos) << arguments.front();
    EXPECT_NE((outcome.out + outcome.err).find("\\x1b[31m"), std::string::npos) << outcome.out << outcome.err;
  }
}

TEST_F(Errors, NamesOfFilesReachNoTerminalWhateverTheirBytes) {
  for (const std::string& name : {std::string("a\x9b\x31m"), std::string("b\u202Egnp"), std::string("c\u0085"),
                                  std::string("d\u2028\u200B"), std::string("e\x07\x7f")}) {
    write(name + ".yaml", "model: {name: ok, input: [4], layers: [dense: {units: 2}]}\ndevice: cpu\n");
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"validate", name + ".yaml"},
                                                      {"validate", name + ".yaml", "--json"},
                                                      {"summary", name + ".none"},
                                                      {"inspect", name + ".yaml"},
                                                      {"init", "--data", name},
                                                      {"predict", name, name}}) {
      const Outcome outcome = run(arguments);
      const std::string text = outcome.out + outcome.err;
      EXPECT_FALSE(text.empty());
      EXPECT_EQ(printable(text), text) << arguments.front() << ": what a terminal obeys is in it";
    }
  }
  const Outcome json = run({"validate", "a\x9b\x31m.yaml", "--json"});
  EXPECT_EQ(json.last_json().at("config"), "a\\x9b1m.yaml");
  EXPECT_EQ(json.last_json().at("config_bytes"), "YZsxbS55YW1s");
}

TEST_F(Errors, ALineEndInAFilesNameBeginsNoLine) {
  const std::string name = "a\nbantam: all is well";
  for (const std::string& folder : {"photos/" + name, std::string("photos/other")}) {
    std::filesystem::create_directories(path(folder));
    write(folder + "/" + name + ".png", "no image");
    write(folder + "/b.png", "no image");
  }
  const std::string config =
      "version: 1\ndevice: cpu\ndata: {format: image_folder, path: photos, pipeline: [{resize: {size: [4, 4]}}, "
      "{batch: {size: 1}}]}\nmodel: {input: [4, 4, 3], layers: [flatten, {dense: {units: 2}}]}\n"
      "train: {epochs: 1, optimizer: adam}\n";
  write("photos.yaml", config);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"data", "photos.yaml", "--check"}, {"train", "photos.yaml", "--threads", "1"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_NE(outcome.code, 0);
    EXPECT_EQ((outcome.out + outcome.err).find("\nbantam: all is well"), std::string::npos)
        << outcome.out << outcome.err;
    EXPECT_NE((outcome.out + outcome.err).find("\\nbantam: all is well"), std::string::npos)
        << outcome.out << outcome.err;
  }
}

TEST_F(Errors, AMissingTemporaryFolderIsNamed) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("TMPDIR", "/nowhere/at/all", 1);
  const Outcome outcome = run({"train", "tiny.yaml", "--fast-dev-run", "2", "--threads", "1"});
  before != nullptr ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("/nowhere/at/all: is no folder"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("TMPDIR"), std::string::npos) << outcome.err;
}

TEST_F(Errors, ReadingAnswersInSeconds) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  expect({"plan", "/dev/zero"}, 2, "cannot read /dev/zero: it is a device; expected a file or a pipe");
  expect({"plan", "--trace", "/dev/zero"}, 3, "cannot read /dev/zero: it is a device");
  expect({"plan", "fifo"}, 2, "cannot read fifo: it is a FIFO that nobody writes to");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST_F(Errors, ConfigurationIsShownWithACaret) {
  std::string text = read("tiny.yaml");
  text.replace(text.find("learning_rate"), 13, "learning_rat");
  write("bad.yaml", text);
  const Outcome outcome = run({"train", "bad.yaml", "--run-dir", "run"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err.rfind("bad.yaml:27:22: error: unknown key 'learning_rat' in train.optimizer.adam; did you mean "
                              "'learning_rate'?\n",
                              0),
            0u)
      << outcome.err;
  EXPECT_NE(outcome.err.find("^~~~~~~~~~~~"), std::string::npos) << outcome.err;
}

TEST_F(Errors, OverridesAreChecked) {
  expect({"train", "tiny.yaml", "--run-dir", "run", "train.epoch=3"}, 2,
         "command line: error: unknown key 'epoch' in train; did you mean 'epochs'?");
  expect({"train", "tiny.yaml", "--run-dir", "run", "--epochs", "none"}, 2,
         "command line: error: train.epochs: expected an integer");
  expect({"train", "tiny.yaml", "--run-dir", "run", "--precision", "quarter"}, 2,
         "command line: error: precision: expected auto");
  expect({"train", "tiny.yaml", "--run-dir", "run", "epochs"}, 2, "epochs");
}

TEST_F(Errors, DevicesThatAreNotThere) {
  expect({"train", "tiny.yaml", "--run-dir", "run", "--device", "tpu"}, 2, "unknown device 'tpu'");
  expect({"train", "tiny.yaml", "--run-dir", "run", "--device", "cuda:77"}, 2, "device cuda:77 was asked for, but");
}

TEST_F(Errors, ModelsThatDoNotFitTheData) {
  expect({"train", "tiny.yaml", "--run-dir", "run", "model.layers.5.dense.units=9"}, 2,
         "the model's output is (9), but the data have 10 classes");
  expect({"train", "tiny.yaml", "--run-dir", "run", "model.input=[28, 28, 3]"}, 2,
         "the model expects (28, 28, 3), but the data's images are (32, 32, 3)");
  expect({"summary", "tiny.yaml", "model.input=[3, 32, 32]", "model.layers=[flatten, dense: {units: 10}]"}, 2,
         "images are (32, 32, 3) after the pipeline's stages: input is [height, width, channels], write input: [32, "
         "32, 3]");
  expect({"summary", "tiny.yaml", "model.input=[3, 64, 64]", "model.layers=[flatten, dense: {units: 10}]"}, 2,
         "it is [height, width, channels] here:\n  input: [64, 64, 3]");
  expect({"summary", "tiny.yaml", "model.layers.5.dense.units=9"}, 2,
         "the model's output is (9), but the data have 10 classes");
  expect({"summary", "tiny.yaml", "model.input=[28, 28, 3]"}, 2,
         "the model expects (28, 28, 3), but the data's images are (32, 32, 3)");
  expect({"train", "tiny.yaml", "--run-dir", "run", "recompute=[block9]"}, 2, "no layer or block is named 'block9'");
  const std::string text = read("tiny.yaml");
  const std::size_t data = text.find("data:"), model = text.find("model:");
  write("no_data.yaml", text.substr(0, data) + text.substr(model));
  expect({"train", "no_data.yaml", "--run-dir", "run"}, 2, "missing key 'data'");
  const std::size_t head = text.find("    - flatten");
  write("no_head.yaml", text.substr(0, head) + text.substr(text.find("train:")));
  expect({"summary", "no_head.yaml"}, 2, "one value a class");
}

TEST_F(Errors, MemorySettings) {
  expect({"train", "tiny.yaml", "--run-dir", "run", "memory.limits={cpu: 4 parsecs}"}, 2, "4 parsecs");
  expect({"train", "tiny.yaml", "--run-dir", "run", "memory.limits={tpu: 4GiB}"}, 2, "unknown device 'tpu'");
  expect({"train", "tiny.yaml", "--run-dir", "run", "device=cpu/1", "memory.logical={cpu: [64MiB]}"}, 2,
         "memory.logical splits cpu into 1");
  expect({"devices", "--measure", "--device", "cpu"}, 2, "a GPU is needed");
}

TEST_F(Errors, GpusThatAreNotThere) {
  const std::vector<std::string> train = {"train", "tiny.yaml", "--run-dir", "run"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), train.begin(), train.end());
    return more;
  };
  expect(with({"--gpus", "two"}), 2, "--gpus: expected how many, as 4, or a list of their numbers");
  expect(with({"--gpus", "0,,1"}), 2, "got \"0,,1\"");
  expect(with({"--gpus", "2", "--ranks", "2"}), 2, "--ranks excludes --gpus");
  expect(with({"--gpus", "2", "--device", "cpu"}), 2, "--device excludes --gpus");
  expect({"bench", "step", "tiny.yaml", "--gpus", "1,3"}, 2, "powers of two");
  if (cuda_device_count() > 0) GTEST_SKIP() << "there are some";
  for (const char* gpus : {"1", "2", "0,0"})
    expect(with({"--gpus", gpus}), 2, "--gpus: this machine has no GPU that can be used: " + cuda_unavailable_reason());
  expect({"bench", "step", "tiny.yaml", "--gpus", "1,2"}, 2, "--gpus: this machine has no GPU that can be used");
}

TEST_F(Errors, FlagsAreNamed) {
  write("trace.csv", "id,lower,upper,size\na,0,2,100\n");
  expect({"bench", "stp"}, 2, "unknown subcommand 'bench stp'; did you mean 'bench step'?");
  expect({"profile", "foo"}, 2, "unknown subcommand 'profile foo'; there are memory");
  expect({"plan", "tiny.yaml", "--memory", "2Gib"}, 2, "--memory: '2Gib' is not a byte size");
  expect({"plan", "--trace", "trace.csv", "--capacity", "abc"}, 2, "--capacity: 'abc' is not a byte size");
  expect({"bench", "step", "tiny.yaml", "--mode", "turbo"}, 2, "--mode: expected a mode");
  expect({"bench", "allocator", "--device", "cuda0"}, 2, "--device: unknown device 'cuda0'");
  // An empty value is a slip, not the same as none.
  expect({"plan", "tiny.yaml", "--memory", ""}, 2, "--memory: expected a value");
  expect({"plan", "--trace", "trace.csv", "--capacity", ""}, 2, "--capacity: expected a value");
  expect({"bench", "step", "tiny.yaml", "--mode", ""}, 2, "--mode: expected a value");
}

TEST_F(Errors, NothingIsPrintedBeforeAnErrorOfTheInput) {
  write("trace.csv", "id,lower,upper,size,size\na,0,2,100,7\n");
  const std::string classes = "model.layers.5.dense.units=11";
  const std::vector<std::pair<std::vector<std::string>, int>> commands = {
      {{"plan", "tiny.yaml", classes}, 2},
      {{"bench", "memory", "tiny.yaml", classes}, 2},
      {{"profile", "memory", "tiny.yaml", classes}, 2},
      {{"bench", "allocator", "--device", "cpu", "--trace", "trace.csv"}, 3},
      {{"plan", "--trace", "trace.csv"}, 3}};
  for (const auto& [arguments, code] : commands) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments.front() << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments.front();
    EXPECT_NE(outcome.err.find(code == 2 ? "but the data have 10 classes" : "two columns are called 'size'"),
              std::string::npos)
        << outcome.err;
  }
}

TEST_F(Errors, SharesThatTheirDeviceCannotGive) {
  const std::vector<std::string> shares = {"tiny.yaml", "device=cpu/0", "memory.logical={cpu: [8GiB, 8GiB]}",
                                           "memory.limits={cpu: 4GiB}"};
  std::vector<std::string> plan = {"plan"}, train = {"train", "--run-dir", "run"};
  plan.insert(plan.end(), shares.begin(), shares.end());
  train.insert(train.end(), shares.begin(), shares.end());
  expect(plan, 4, "memory.logical: the shares of cpu need 16.0 GiB, and of 4.00 GiB only 4.00 GiB are available");
  expect(train, 4, "memory.logical: the shares of cpu need 16.0 GiB");
  EXPECT_EQ(run(train).err.find("Each of these fits"), std::string::npos) << "none of them would";
  expect({"plan", "tiny.yaml", "--device", "h200", "memory.logical={\"cuda:0\": [200GiB]}"}, 4,
         "the shares of cuda:0 need 200 GiB");
  expect({"plan", "tiny.yaml", "--device", "cuda:0", "memory.logical={\"cuda:0\": [2GiB, 3GiB]}",
          "memory.limits={\"cuda:0\": 3GiB}"},
         4, "the shares of cuda:0 need 5.00 GiB, and of 3.00 GiB only");
}

TEST_F(Errors, FilesAreWrittenWhereTheyWereAskedFor) {
  write("trace.csv", "id,lower,upper,size\na,0,2,100\n");
  expect({"plan", "--trace", "trace.csv", "--offsets", "missing/x.csv"}, 3,
         "cannot write missing/x.csv: missing does not exist");
  EXPECT_FALSE(std::filesystem::exists(path("missing")));
  const Outcome outcome = run({"plan", "--trace", "trace.csv", "--offsets", "/dev/fd/1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.rfind("id,lower,upper,size,offset\na,0,2,100,0\ntrace.csv: 1 buffer\n", 0), 0u) << outcome.out;
}

TEST_F(Errors, ABatchThatHasNoRoomLeavesNoRun) {
  const std::vector<std::string> arguments = {"data.train_samples=2000", "data.pipeline.batch.size=256",
                                              "recompute=none", "memory.limits={cpu: 7.5MiB}",
                                              "memory.on_oom=accumulate_with_batch_norm"};
  const Outcome outcome = train("run", arguments);
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(path("run"))) << outcome.err;
}

TEST_F(Errors, DataThatAreNotThereExitWith3) {
  expect(
      {"train", "tiny.yaml", "--run-dir", "run", "data={format: cifar10, path: nowhere, pipeline: [batch: {size: 4}]}"},
      3, "nowhere/data_batch_1.bin");
  expect({"train", "--resume", "nowhere"}, 3, "nowhere holds no run");
}

TEST_F(Errors, WhatDoesNotFitExitsWith4) {
  expect({"train", "tiny.yaml", "--run-dir", "run", "memory.limits={cpu: 512KiB}"}, 4, "limit");
  expect({"train", "tiny.yaml", "--run-dir", "run", "device=cpu/0", "memory.logical={cpu: [512KiB]}"}, 4,
         "the share of cpu/0 is too small");
  const Outcome bench =
      run({"bench", "memory", "tiny.yaml", "--batch-sizes", "4096", "--seconds", "0.01", "memory.limits={cpu: 1MiB}"});
  EXPECT_EQ(bench.code, 4) << "no row fitted: " << bench.out;
}

TEST_F(Errors, LostGradientsExitWith5) {
  // A step of 1e30 makes the weights infinite; from then on no gradient is finite, and 50 updates are left out.
  const Outcome outcome =
      train("run5", {"train.epochs=8", "train.optimizer.adam.learning_rate=1e30", "train.evaluate=false"});
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("not finite"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace bantam::cli::errors_test
