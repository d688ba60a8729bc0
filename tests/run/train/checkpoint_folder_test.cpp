// Checkpoints on the disk: written whole, found again, replaced, removed, and damaged.
#include "bantam/run/train/checkpoint_folder.h"

#include <cmath>
#include <fstream>
#include <functional>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/sha256.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::checkpoint_folder_test {
namespace {

namespace fs = std::filesystem;

class CheckpointFolderTest : public RunTest {
 protected:
  CheckpointFacts facts(std::int64_t updates) const {
    return {.updates = updates,
            .epoch = 2,
            .update = 3,
            .loss = 0.25,
            .accuracy = 0.5,
            .samples = 48,
            .metrics = {.bytes = 1234, .sha256 = "m"},
            .histograms = {.bytes = 5678, .sha256 = "h"},
            .events = {.bytes = 91, .sha256 = "e"},
            .validation_events = {.bytes = 47, .sha256 = "v"},
            .seconds = 7.5,
            .schedule_epochs = 9,
            .schedule_updates = 33,
            .best_metric = "accuracy",
            .best_weights = "averages",
            .best_sha256 = "b",
            .fingerprint = {{"seed", "7"}},
            .config_sha256 = "abc",
            .run_id = "0123"};
  }
  void save(std::int64_t updates, const std::string& text = "w") const {
    folder_.write(facts(updates), [&](AtomicFile& weights, AtomicFile& state) {
      weights.write(text);
      state.write(text + "s");
    });
  }
  std::vector<std::int64_t> listed() const {
    std::vector<std::int64_t> updates;
    for (const Checkpoint& checkpoint : folder_.list()) updates.push_back(checkpoint.updates);
    return updates;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path("checkpoints"))) found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
  }
  std::string error_of(const std::function<void()>& call) const {
    try {
      call();
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  CheckpointFolder folder_{path("")};
};

TEST_F(CheckpointFolderTest, WhatIsWrittenIsReadAgain) {
  EXPECT_TRUE(folder_.list().empty()) << "without a folder there is none";
  save(123);
  const std::vector<Checkpoint> all = folder_.list();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].path, path("checkpoints/update-00000123"));
  EXPECT_TRUE(is_checkpoint(all[0].path));
  EXPECT_FALSE(is_checkpoint(path("checkpoints")));
  const CheckpointFacts read = all[0].read(), wrote = facts(123);
  EXPECT_EQ(read.updates, 123);
  EXPECT_EQ(read.epoch, wrote.epoch);
  EXPECT_EQ(read.update, wrote.update);
  EXPECT_EQ(read.loss, wrote.loss);
  EXPECT_EQ(read.accuracy, wrote.accuracy);
  EXPECT_EQ(read.samples, wrote.samples);
  EXPECT_EQ(read.metrics, wrote.metrics);
  EXPECT_EQ(read.histograms, wrote.histograms);
  EXPECT_EQ(read.events, wrote.events);
  EXPECT_EQ(read.validation_events, wrote.validation_events);
  EXPECT_EQ(read.weights, (FileSum{.bytes = 1, .sha256 = sha256_of("w")}));
  EXPECT_EQ(read.state, (FileSum{.bytes = 2, .sha256 = sha256_of("ws")}));
  EXPECT_EQ(read.run_id, wrote.run_id);
  EXPECT_EQ(read.best_sha256, wrote.best_sha256);
  EXPECT_EQ(read.seconds, wrote.seconds);
  EXPECT_EQ(read.schedule_epochs, wrote.schedule_epochs);
  EXPECT_EQ(read.schedule_updates, wrote.schedule_updates);
  EXPECT_EQ(read.best_metric, wrote.best_metric);
  EXPECT_EQ(read.best_weights, wrote.best_weights);
  EXPECT_EQ(read.fingerprint, wrote.fingerprint);
  EXPECT_EQ(read.config_sha256, wrote.config_sha256);
  EXPECT_EQ(read.program.rfind("bantam ", 0), 0u);
  EXPECT_EQ(read.written.back(), 'Z');
}

TEST_F(CheckpointFolderTest, OfAnEarlierProgramWhatItLacksIsZero) {
  save(5);
  const Checkpoint checkpoint = folder_.list().at(0);
  nlohmann::json json = nlohmann::json::parse(read_file(checkpoint.facts()));
  for (const char* key : {"histograms_bytes", "events_bytes", "validation_events_bytes", "schedule_updates", "best",
                          "run", "sha256", "metrics_sha256", "histograms_sha256"})
    EXPECT_EQ(json.erase(key), 1u) << key;
  json["version"] = 1;
  for (auto& [file, sum] : json["files"].items()) sum.erase("sha256");
  std::ofstream(checkpoint.facts()) << json;
  EXPECT_EQ(checkpoint.read().histograms.bytes, 0u);
  EXPECT_EQ(checkpoint.read().events.bytes, 0u);
  EXPECT_EQ(checkpoint.read().metrics, (FileSum{.bytes = 1234}));
  EXPECT_EQ(checkpoint.read().run_id, "");
  EXPECT_EQ(checkpoint.read_file(checkpoint.state(), checkpoint.read().state), "ws") << "its length is what is known";
  EXPECT_EQ(checkpoint.read().schedule_updates, 0);
  EXPECT_EQ(checkpoint.read().best_metric, "");
}

TEST_F(CheckpointFolderTest, ALossThatIsNotFiniteIsNoNumber) {
  CheckpointFacts diverged = facts(1);
  diverged.loss = std::numeric_limits<double>::infinity();
  folder_.write(diverged, [&](AtomicFile& weights, AtomicFile& state) {
    weights.write("w");
    state.write("s");
  });
  EXPECT_TRUE(std::isnan(folder_.list().at(0).read().loss));
}

TEST_F(CheckpointFolderTest, TheNewestComesFirstAndIsKept) {
  for (const std::int64_t updates : {5, 100'000'000, 20, 7}) save(updates);
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{100'000'000, 20, 7, 5})) << "by number, not by name";
  folder_.keep_newest(3);
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{100'000'000, 20, 7}));
  folder_.remove_after(7);
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{7}));
  folder_.keep_newest(3);
  EXPECT_EQ(names(), std::vector<std::string>{"update-00000007"}) << "nothing temporary stays";
}

TEST_F(CheckpointFolderTest, ACheckpointOfAnotherNumberIsTheNewest) {
  for (const std::int64_t updates : {4, 10, 20, 40}) save(updates, std::to_string(updates));
  const Checkpoint fewer = folder_.renumber(folder_.list().at(0), 10);
  EXPECT_EQ(fewer.path, path("checkpoints/update-00000010"));
  EXPECT_EQ(fewer.updates, 10);
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{10, 4})) << "20 would be taken for the newest";
  EXPECT_EQ(read_file(fewer.weights()), "40");
  CheckpointFacts facts = fewer.read();
  EXPECT_EQ(facts.updates, 10);
  EXPECT_EQ(facts.epoch, 2);
  EXPECT_EQ(facts.fingerprint, this->facts(40).fingerprint);

  save(15);
  save(100);
  const Checkpoint more = folder_.renumber(fewer, 60);
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{60, 4})) << "15 is not older, though its number is less";
  EXPECT_EQ(read_file(more.weights()), "40");
  EXPECT_EQ(names(), (std::vector<std::string>{"update-00000004", "update-00000060"})) << "nothing temporary stays";
}

/// Between any two steps: what is left is made up for when the run is resumed again, whichever number it asks for.
TEST_F(CheckpointFolderTest, ARenumberingThatWasInterruptedIsDoneOnceMore) {
  save(40, "forty");
  const Checkpoint ten = folder_.renumber(folder_.list().at(0), 10);
  fs::rename(ten.path, path("checkpoints/update-00000040"));  // killed before the folder was renamed
  EXPECT_EQ(folder_.list().at(0).read().updates, 10) << "it is sound";
  write_file_atomically(path("checkpoints/update-00000040/.checkpoint.json.0a.tmp"), "half");
  folder_.remove_temporaries();
  EXPECT_FALSE(fs::exists(path("checkpoints/update-00000040/.checkpoint.json.0a.tmp")));
  const Checkpoint same = folder_.renumber(folder_.list().at(0), 40);
  EXPECT_EQ(same.read().updates, 40);
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{40}));
  EXPECT_EQ(read_file(same.weights()), "forty");
  EXPECT_EQ(folder_.renumber(same, 10).read().updates, 10);
}

TEST_F(CheckpointFolderTest, OneOfTheSameNumberIsReplaced) {
  save(5, "old");
  save(5, "newer");
  EXPECT_EQ(names(), std::vector<std::string>{"update-00000005"});
  EXPECT_EQ(read_file(folder_.list().at(0).weights()), "newer");
  EXPECT_NO_THROW((void)folder_.list().at(0).read());
}

TEST_F(CheckpointFolderTest, AWriteThatFailsChangesNothing) {
  save(5, "old");
  EXPECT_EQ(error_of([&] {
              folder_.write(facts(5), [](AtomicFile& weights, AtomicFile&) {
                weights.write("half");
                throw DataError("no room");
              });
            }),
            "no room");
  EXPECT_EQ(names(), std::vector<std::string>{"update-00000005"});
  EXPECT_EQ(read_file(folder_.list().at(0).weights()), "old");
}

TEST_F(CheckpointFolderTest, TemporariesOfKilledProcessesAreRemoved) {
  save(5);
  save(6);
  fs::create_directory(path("checkpoints/.update-00000007.tmp"));
  write_file_atomically(path("checkpoints/.update-00000007.tmp/weights.safetensors"), "half");
  fs::rename(path("checkpoints/update-00000006"), path("checkpoints/.update-00000006.replaced.tmp"));
  fs::copy(path("checkpoints/update-00000005"), path("checkpoints/.update-00000005.replaced.tmp"));
  write_file_atomically(path("checkpoints/notes.tmp"), "mine");
  EXPECT_EQ(listed(), (std::vector<std::int64_t>{5})) << "what is temporary is no checkpoint";
  folder_.remove_temporaries();
  EXPECT_EQ(names(), (std::vector<std::string>{"notes.tmp", "update-00000005", "update-00000006"}));
  EXPECT_NO_THROW((void)folder_.list().at(0).read()) << "the one that was moved aside is back";
  folder_.remove_temporaries();
  EXPECT_EQ(names().size(), 3u);
}

TEST_F(CheckpointFolderTest, DamageIsNamed) {
  save(5);
  const Checkpoint checkpoint = folder_.list().at(0);
  const std::string sound = read_file(checkpoint.facts());
  const auto read = [&] { (void)checkpoint.read(); };
  const auto expect = [&](const std::string& file, const std::string& what) {
    const std::string error = error_of(read);
    EXPECT_NE(error.find(file), std::string::npos) << error;
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
  };
  for (std::size_t length = 0; length + 2 < sound.size(); length += 40) {
    std::ofstream(checkpoint.facts()) << sound.substr(0, length);
    expect("checkpoint.json", "damaged");
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(sound);
  for (const auto& [key, value] : json.items()) {
    nlohmann::ordered_json lacks = json;
    lacks.erase(key);
    std::ofstream(checkpoint.facts()) << lacks;
    expect("checkpoint.json", key == "version" || key == "sha256" ? key + ": the key is missing" : "SHA-256");
    if (key == "version" || key == "run" || key.find("s_sha256") != std::string::npos ||
        key.find("events_bytes") != std::string::npos || key == "histograms_bytes" || key == "schedule_updates" ||
        key == "best" || key == "sha256")
      continue;  // the test above
    lacks["version"] = 1;
    std::ofstream(checkpoint.facts()) << lacks;
    expect("checkpoint.json", key);
    lacks[key] = nlohmann::ordered_json::array({true});
    std::ofstream(checkpoint.facts()) << lacks;
    expect("checkpoint.json", key);
  }
  json["version"] = 3;
  std::ofstream(checkpoint.facts()) << json;
  expect("checkpoint.json", "its version is 3; this program reads versions 1 and 2");
  std::ofstream(checkpoint.facts()) << sound;
  EXPECT_NO_THROW(read());
  fs::resize_file(checkpoint.weights(), 0);
  expect("weights.safetensors", "it has 0 bytes, and was written with 1");
  fs::resize_file(checkpoint.weights(), 1);
  fs::remove(checkpoint.state());
  expect("state.safetensors", "No such file");
  fs::remove(checkpoint.facts());
  expect("checkpoint.json", "No such file");
}

/// Same length, another content: of each file, at each place, and of files that were exchanged.
TEST_F(CheckpointFolderTest, EveryByteIsCovered) {
  save(5, "first");
  save(6, "later");
  const Checkpoint checkpoint = folder_.list().at(0), other = folder_.list().at(1);
  const auto read_all = [&] {
    const CheckpointFacts facts = checkpoint.read();
    checkpoint.check_file(checkpoint.weights(), facts.weights);
    (void)checkpoint.read_file(checkpoint.state(), facts.state);
  };
  read_all();
  for (const fs::path& file : {checkpoint.weights(), checkpoint.state()}) {
    const std::string sound = read_file(file);
    for (std::size_t i = 0; i < sound.size(); ++i) {
      std::string flipped = sound;
      flipped[i] = static_cast<char>(flipped[i] ^ 1);
      std::ofstream(file, std::ios::binary) << flipped;
      EXPECT_NE(error_of(read_all).find(file.string() + ": damaged, or of another checkpoint"), std::string::npos);
    }
    write_file_atomically(file, read_file(other.path / file.filename()));
    EXPECT_NE(error_of(read_all).find(file.string()), std::string::npos) << "of another checkpoint";
    write_file_atomically(file, sound);
  }
  const std::string sound = read_file(checkpoint.facts());
  for (std::size_t i = 0; i < sound.size(); ++i)
    for (const char bit : {1, 32}) {
      std::string flipped = sound;
      flipped[i] = static_cast<char>(flipped[i] ^ bit);
      std::ofstream(checkpoint.facts(), std::ios::binary) << flipped;
      const std::string error = error_of(read_all);
      EXPECT_NE(error.find(checkpoint.facts().string()), std::string::npos) << i << ": " << error;
    }
  write_file_atomically(checkpoint.facts(), sound);
  read_all();
}

/// A stranger's checkpoints may be links to other places.
TEST_F(CheckpointFolderTest, NoLinkIsFollowed) {
  save(5);
  fs::create_directory(path("elsewhere"));
  write_file_atomically(path("elsewhere/.checkpoint.json.0a.tmp"), "mine");
  fs::create_directory_symlink(path("elsewhere"), path("checkpoints/update-00000009"));
  folder_.remove_temporaries();
  EXPECT_TRUE(fs::exists(path("elsewhere/.checkpoint.json.0a.tmp"))) << "it is not the run's";
  EXPECT_NE(error_of([&] { (void)folder_.list().at(0).read(); }).find("is a symbolic link"), std::string::npos);
  folder_.keep_newest(0);
  EXPECT_TRUE(fs::exists(path("elsewhere/.checkpoint.json.0a.tmp")));

  fs::rename(path("checkpoints"), path("moved"));
  fs::create_directory_symlink(path("elsewhere"), path("checkpoints"));
  EXPECT_NE(error_of([&] { (void)folder_.list(); }).find("is a symbolic link, expected a folder"), std::string::npos);
  EXPECT_NE(error_of([&] { save(7); }).find("is a symbolic link"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("elsewhere")), {}), 1);
}

}  // namespace
}  // namespace bantam::run::checkpoint_folder_test
