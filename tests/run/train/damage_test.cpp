// Runs whose files were flipped, cut, exchanged or replaced while nobody looked: whoever goes on from one, or uses its
// weights, gets the bits and lines of an undisturbed run, or is told which file is wrong. BANTAM_DAMAGES says how many
// are tried, BANTAM_DAMAGE_SEED which (both are printed): others at each time, where the number is asked for.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <sys/stat.h>

#include "bantam/base/error.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/train.h"
#include "bantam/run/train/training_run.h"
#include "bantam/run/trained/trained_model.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::damage_test {
namespace {

namespace fs = std::filesystem;

std::int64_t number_from(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// Runs sync their files often: in memory, where that is possible.
[[maybe_unused]] const bool g_in_memory = [] {
  const bool can = std::getenv("TMPDIR") == nullptr && fs::is_directory("/dev/shm");
  return can && ::setenv("TMPDIR", "/dev/shm", 1) == 0;
}();

struct Warnings : RunObserver {
  void on_warning(std::string_view text) override { all += std::string(text) + "\n"; }
  std::string all;
};

using Contents = std::map<std::string, std::string>;  // by the path within the folder

class DamageTest : public RunTest {
 protected:
  DamageTest() {
    const std::vector<std::string> common = {
        "checkpoint={every: 3updates, min_interval: 0s, keep_last: 10, best: {metric: loss, mode: min}}",
        "log={histograms: 4, tensorboard: true}", "train.ema={decay: 0.9}", "train.epochs=3", "data.train_samples=64"};
    const auto half = [&](std::vector<std::string> more) {
      more.insert(more.begin(), common.begin(), common.end());
      more.emplace_back("train.max_updates=7");
      return more;
    };
    begin("whole", common);
    begin("half", half({}));
    begin("again", half({}));  // the same bits, logged at other times
    begin("other", half({"train.optimizer.sgd.learning_rate=0.04"}));
    expected_ = contents("whole");
    for (const char* file : {"weights.safetensors", "weights-best.safetensors", "weights-ema.safetensors"})
      sound_.insert(tensors_of(path("half") / file));
    // One configuration: the same run, which one of them has taken further.
    sound_.insert(tensors_of(path("whole") / "weights-ema.safetensors"));
    for (const char* run : {"half", "again", "whole"})
      for (const Checkpoint& checkpoint : CheckpointFolder(path(run)).list())
        sound_.insert(tensors_of(checkpoint.weights()));
    for (const auto& [file, text] : contents("half")) files_.push_back(file);
  }

  void begin(const std::string& name, const std::vector<std::string>& overrides) const {
    train(tiny(overrides), {.threads = 1, .folder = path(name)});
  }
  Contents contents(const std::string& run) const {
    Contents found;
    for (const auto& entry : fs::recursive_directory_iterator(path(run)))
      if (entry.is_regular_file() && !entry.is_symlink())
        found[entry.path().lexically_relative(path(run))] = read_file(entry.path());
    return found;
  }
  void copy_half() const {
    fs::remove_all(path("r"));
    fs::copy(path("half"), path("r"), fs::copy_options::recursive);
  }

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }
  /// Chooses a place in a file of any kind: in its first 8 bytes, its beginning (a header), its end, or anywhere.
  std::size_t place_in(const std::string& text) {
    const std::size_t size = text.size(), kind = below(4);
    if (kind == 0) return below(std::min<std::size_t>(size, 8));
    if (kind == 1) return below(std::min<std::size_t>(size, 800));
    if (kind == 2) return size - 1 - below(std::min<std::size_t>(size, 64));
    return below(size);
  }
  std::string changed(std::string text, std::string& what) {
    const std::size_t at = text.empty() ? 0 : place_in(text);
    switch (text.empty() ? 4 : below(8)) {
      case 0:
        text.resize(at);
        what = "cut to " + std::to_string(at);
        break;
      case 1:
        text.replace(at, std::min<std::size_t>(text.size() - at, 512), std::min<std::size_t>(text.size() - at, 512),
                     '\0');
        what = "zeros from " + std::to_string(at);
        break;
      case 4:
        text += std::string(1 + below(100), static_cast<char>(below(256)));
        what = "bytes after its end";
        break;
      default: {
        const int bit = static_cast<int>(below(8));
        text[at] = static_cast<char>(text[at] ^ (1 << bit));
        what = "bit " + std::to_string(bit) + " of byte " + std::to_string(at);
      }
    }
    return text;
  }
  /// Any other file of the same kind: of another run, or of another checkpoint.
  fs::path other_of(const fs::path& file) {
    const char* const runs[] = {"other", "again", "whole", "half"};
    const fs::path run = path(runs[below(4)]);
    if (file.string().starts_with("checkpoints")) {
      const std::vector<Checkpoint> all = CheckpointFolder(run).list();
      return all[below(all.size())].path / file.filename();
    }
    if (file.filename() == "weights.safetensors" && below(2) == 0) {
      const std::vector<Checkpoint> all = CheckpointFolder(run).list();
      return all[below(all.size())].weights();
    }
    return run / file;
  }
  /// One damage of the run `r`; says which, and of which file.
  std::string damage(std::string& file) {
    file = files_[below(files_.size())];
    const fs::path target = path("r") / file;
    std::string what;
    switch (below(12)) {
      case 0: {
        const fs::path from = other_of(file);
        fs::copy_file(from, target, fs::copy_options::overwrite_existing);
        return file + ": that of " + from.lexically_relative(path("")).string();
      }
      case 1:
        fs::remove(target);
        return file + ": removed";
      case 2: {
        fs::copy_file(target, path("outside"), fs::copy_options::overwrite_existing);
        fs::remove(target);
        fs::create_symlink(path("outside"), target);
        return file + ": a link out of the folder";
      }
      case 3:
        fs::remove(target);
        if (mkfifo(target.c_str(), 0600) != 0) ADD_FAILURE() << "no FIFO";
        return file + ": a FIFO";
      case 4: {  // whole checkpoints
        file = "checkpoints";
        const std::vector<Checkpoint> all = CheckpointFolder(path("r")).list();
        const Checkpoint &a = all[below(all.size())], &b = all[below(all.size())];
        if (below(2) == 0 && a.updates != b.updates) {
          fs::rename(a.path, path("r/a"));
          fs::rename(b.path, a.path);
          fs::rename(path("r/a"), b.path);
          return "checkpoints: " + a.path.filename().string() + " exchanged with " + b.path.filename().string();
        }
        const std::string run = below(2) == 0 ? "other" : "again";
        const std::vector<Checkpoint> others = CheckpointFolder(path(run)).list();
        const fs::path from = others[below(others.size())].path;
        fs::remove_all(a.path);
        fs::copy(from, a.path, fs::copy_options::recursive);
        return "checkpoints: " + a.path.filename().string() + " is " + from.filename().string() + " of " + run;
      }
      default: {
        const std::string damaged = changed(read_file(target), what);
        fs::remove(target);
        write_file_atomically(target, damaged);
        return file + ": " + what;
      }
    }
  }
  /// Checks that an error names a path in the damaged folder, in no library's words. One of memory may be right: a bit
  /// of config.yaml asks for another budget.
  void check_message(const Error& error, const std::string& damage) const {
    const std::string message = error.what();
    if (dynamic_cast<const OutOfMemory*>(&error) == nullptr) {
      EXPECT_NE(message.find(path("r").string()), std::string::npos) << damage << ": " << message;
    }
    for (const char* words :
         {"json.exception", "filesystem error", "yaml-cpp", "basic_string", "stoi", "stod", "vector::"})
      EXPECT_EQ(message.find(words), std::string::npos) << damage << ": " << message;
  }
  /// The weights that `evaluate` and `predict` would use.
  void use(const TrainedModelOptions& options, const std::string& damage) {
    try {
      const TrainedModel model = open_trained_model(path("r"), options);
      std::map<std::string, std::vector<std::byte>> tensors;
      for (const auto& [name, tensor] : model.weights.tensors) tensors.emplace(name, tensor.bytes);
      EXPECT_TRUE(sound_.contains(tensors)) << damage << ": other weights are used (" << options.checkpoint << ")";
    } catch (const Error& error) {
      check_message(error, damage);
    }
  }
  std::string difference() const {
    const Contents found = contents("r");
    const auto text = [](const Contents& of, const std::string& file) {
      const auto at = of.find(file);
      return at == of.end() ? std::string("not there") : at->second;
    };
    for (const char* file : {"weights.safetensors", "weights-best.safetensors", "weights-ema.safetensors",
                             "histograms.jsonl", "checkpoints/update-00000012/state.safetensors"})
      if (text(found, file) != text(expected_, file)) return file;
    if (lines_without_clock(text(found, "metrics.jsonl")) != lines_without_clock(text(expected_, "metrics.jsonl")))
      return "metrics.jsonl";
    return "";
  }
  enum class Outcome { identical, refused, told };
  Outcome go_on(const std::string& file, const std::string& damage) {
    const Contents before = contents("r");
    Warnings warnings;
    try {
      RunDirectory folder = RunDirectory::open(path("r"));
      const std::vector<std::string> overrides = {"train.max_updates=0", "checkpoint.every=off"};
      train(read_run_config(folder.config(), overrides), {.threads = 1}, {},
            {.observer = &warnings, .resume = &folder});
    } catch (const Error& error) {
      check_message(error, damage);
      Contents after = contents("r");
      EXPECT_EQ(after.size(), before.size()) << damage;
      for (const auto& [name, text] : before) EXPECT_TRUE(after[name] == text) << damage << ": " << name << " is lost";
      return Outcome::refused;
    }
    EXPECT_EQ(warnings.all.find("json.exception"), std::string::npos) << damage << ": " << warnings.all;
    const std::string different = difference();
    if (different.empty()) return Outcome::identical;
    // The run tells what somebody may have changed on purpose, and that a best is not known any more.
    static const std::set<std::string> kTold = {"config.yaml", "run.json", "weights-best.safetensors"};
    EXPECT_TRUE(kTold.contains(file) && !warnings.all.empty()) << damage << ": SILENT: " << different << " differs\n"
                                                               << warnings.all;
    return Outcome::told;
  }

  std::mt19937_64 random_;
  Contents expected_;
  std::set<std::map<std::string, std::vector<std::byte>>> sound_;
  std::vector<std::string> files_;
};

TEST_F(DamageTest, NoneIsSilent) {
  const std::int64_t count = number_from("BANTAM_DAMAGES", 300);
  const bool asked = std::getenv("BANTAM_DAMAGES") != nullptr;
  const std::int64_t seed = number_from("BANTAM_DAMAGE_SEED", asked ? std::random_device()() : 1);
  std::printf("BANTAM_DAMAGES=%ld BANTAM_DAMAGE_SEED=%ld\n", static_cast<long>(count), static_cast<long>(seed));
  std::map<Outcome, std::int64_t> outcomes;
  std::map<std::string, std::int64_t> of_files;
  for (std::int64_t i = 0; i < count; ++i) {
    random_.seed(static_cast<std::uint64_t>(seed + i));  // BANTAM_DAMAGES=1 with this seed is this one
    copy_half();
    std::string file;
    const std::string damaged = damage(file) + " (BANTAM_DAMAGE_SEED=" + std::to_string(seed + i) + ")";
    for (const char* checkpoint : {"", "last", "best"}) use({.checkpoint = checkpoint, .with_data = false}, damaged);
    use({.ema = true, .with_data = false}, damaged);
    ++outcomes[go_on(file, damaged)];
    ++of_files[file];
  }
  for (const auto& [file, damages] : of_files) std::printf("%6ld %s\n", static_cast<long>(damages), file.c_str());
  std::printf("%ld damages: %ld went on to identical files, %ld were refused, %ld were told\n",
              static_cast<long>(count), static_cast<long>(outcomes[Outcome::identical]),
              static_cast<long>(outcomes[Outcome::refused]), static_cast<long>(outcomes[Outcome::told]));
}

}  // namespace
}  // namespace bantam::run::damage_test
