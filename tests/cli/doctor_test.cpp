// `bantam doctor` and `bantam completion` as users run them.
#include "tests/cli/program.h"

namespace bantam::cli::doctor_test {
namespace {

class Doctor : public ProgramTest {
 protected:
  /// What bash offers for a line, its last word included.
  std::string offered(const std::string& line) const {
    write("complete.sh", "source ./bantam.bash\nCOMP_WORDS=(" + line +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_bantam\necho \"${COMPREPLY[@]}\"\n");
    EXPECT_EQ(std::system(("cd " + path("").string() + " && bash complete.sh > offered").c_str()), 0);
    return read("offered");
  }
  void expect_sound(const std::string& shell, const std::string& check) const {
    const Outcome outcome = run({"completion", shell});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    write("script", outcome.out);
    for (const char* part : {"fast-dev-run", "allocator", "completion"})
      EXPECT_NE(outcome.out.find(part), std::string::npos) << shell << " " << part;
    if (std::system(("command -v " + shell + " > /dev/null").c_str()) != 0)
      GTEST_SKIP() << shell << " is not there: its script was not run";
    EXPECT_EQ(std::system((check + " " + path("script").string()).c_str()), 0) << outcome.out;
  }
};

TEST_F(Doctor, FindsTheCpuSoundWithinSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run({"doctor", "--device", "cpu", "--json"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "10 on a machine that is idle";
  const nlohmann::json json = outcome.last_json();
  const nlohmann::json& tested = json.at("devices").at(0);
  EXPECT_EQ(tested.at("device"), "cpu");
  EXPECT_GE(tested.at("kernels").size(), 30u);
  for (const auto& kernel : tested.at("kernels")) {
    EXPECT_TRUE(kernel.at("passed")) << kernel;
    EXPECT_GT(kernel.at("error"), 0) << kernel << " computes in float32, and the reference in float64";
    EXPECT_LE(kernel.at("error"), kernel.at("tolerance")) << kernel;
  }
  EXPECT_EQ(outcome.code, json.at("sound") ? 0 : 1);
}

TEST_F(Doctor, SaysWhatItFound) {
  const Outcome outcome = run({"doctor", "--device", "cpu"});
  for (const char* part : {"cpu   ", "processors    ", "disk          ", "agree with the references", "oneDNN"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  EXPECT_EQ(run({"doctor", "--device", "tpu"}).code, 2);
}

TEST_F(Doctor, BashCompletesVerbsAndFlags) {
  write("bantam.bash", run({"completion", "bash"}).out);
  EXPECT_EQ(offered("bantam tr"), "train\n");
  EXPECT_EQ(offered("bantam bench st"), "step\n");
  EXPECT_EQ(offered("bantam train x.yaml --fast"), "--fast-dev-run\n");
  EXPECT_EQ(offered("bantam bench step --mo"), "--mode\n");
  EXPECT_EQ(offered("bantam train conf"), "\n") << "files are the shell's own";
  EXPECT_NE(offered("bantam ''").find("validate"), std::string::npos);
}

TEST_F(Doctor, BashCompletesValuesOfFlags) {
  write("bantam.bash", run({"completion", "bash"}).out);
  EXPECT_EQ(offered("bantam train x.yaml --precision mixed"), "mixed_float16 mixed_bfloat16\n");
  EXPECT_EQ(offered("bantam train --precision = flo"), "float32 float16\n") << "--precision=flo, as bash divides it";
  EXPECT_EQ(offered("bantam train --precision ="), "auto float32 mixed_float16 mixed_bfloat16 float16\n");
  EXPECT_EQ(offered("bantam bench step --precision ''"), "float32 mixed_float16 mixed_bfloat16 float16\n")
      << "no auto there";
  EXPECT_EQ(offered("bantam train --device cu"), "cuda:0\n");
  EXPECT_EQ(offered("bantam evaluate x --split t"), "training test\n");
  EXPECT_EQ(offered("bantam bench step --mode ''"), "eager planned captured\n");
  EXPECT_EQ(offered("bantam train --run-dir ''"), "\n") << "of folders the shell knows";
}

TEST_F(Doctor, ValuesOfFlagsAreAccepted) {
  write_tiny_config();
  for (const char* precision : {"auto", "float32"})
    EXPECT_EQ(run({"plan", "tiny.yaml", "--device", "cpu", "--precision", precision}).code, 0) << precision;
  for (const char* progress : {"auto", "bar", "plain", "json", "none"})
    EXPECT_EQ(run({"train", "tiny.yaml", "--device", "cpu", "--fast-dev-run", "1", "--progress", progress}).code, 0)
        << progress;
  for (const char* recompute : {"none", "inner", "cheap", "all"})
    EXPECT_EQ(run({"plan", "tiny.yaml", "--device", "cpu", "--recompute", recompute}).code, 0) << recompute;
}

TEST_F(Doctor, BashScriptIsSound) { expect_sound("bash", "bash -n"); }
TEST_F(Doctor, ZshScriptIsSound) { expect_sound("zsh", "zsh -n"); }
TEST_F(Doctor, FishScriptIsSound) { expect_sound("fish", "fish -n"); }

TEST_F(Doctor, KnowsThreeShells) { EXPECT_EQ(run({"completion", "tcsh"}).code, 2); }

}  // namespace
}  // namespace bantam::cli::doctor_test
