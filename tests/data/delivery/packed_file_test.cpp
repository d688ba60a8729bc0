// Packed files: the same bytes as their source, from any number of threads; what makes them be written anew; damage,
// files of others and a full disk.
#include "bantam/data/delivery/packed_file.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <latch>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "tests/data/support.h"

namespace bantam::packed_file_test {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

constexpr std::int64_t kSamples = 100;

/// Encoded images of differing sizes beside a label and a vector; counts what is fetched.
class Encoded : public SampleReader {
 public:
  explicit Encoded(int salt = 0, std::int64_t samples = kSamples) : salt_(salt), samples_(samples) {}

  DatasetFacts facts() const override {
    return {.size = samples_,
            .image_shape = {0, 0, 3},
            .class_names = {"a", "b"},
            .targets = {{"labels", {}, DType::int32}, {"targets", {3}, DType::float32}}};
  }
  std::uint64_t encoded_bytes(std::int64_t) const override { return 12345; }
  std::string name_of(std::int64_t index) const override { return fmt::format("photo-{}.jpg", index); }
  void read(std::int64_t, std::span<const std::span<std::byte>>) const override { FAIL() << "images are encoded"; }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    ++fetched;
    fields[0].assign(static_cast<std::size_t>(index * 977 % 5000), static_cast<std::byte>(index + salt_));
    fields[1].assign(4, static_cast<std::byte>(index % 2));
    fields[2].assign(12, static_cast<std::byte>(index % 7));
  }

  mutable std::atomic<std::int64_t> fetched = 0;

 private:
  int salt_;
  std::int64_t samples_;
};

using Sample = std::vector<std::vector<std::byte>>;

Sample sample_of(const SampleReader& reader, std::int64_t index) {
  Sample sample(reader.facts().targets.size() + 1);
  reader.fetch(index, sample);
  return sample;
}

void expect_same(const SampleReader& source, const SampleReader& packed) {
  ASSERT_EQ(source.facts().size, packed.facts().size);
  for (std::int64_t i = 0; i < source.facts().size; ++i) ASSERT_EQ(sample_of(source, i), sample_of(packed, i)) << i;
}

class PackedFileTest : public ::testing::Test {
 protected:
  std::shared_ptr<const PackedFile> open(PackOptions options = {}) { return PackedFile::open(source_, path_, options); }
  /// Every file of the folder, sorted.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  void damage(std::uint64_t place) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(place));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(byte ^ 0x40));
    ASSERT_TRUE(file.good());
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "samples.cache";
  std::shared_ptr<const Encoded> source_ = std::make_shared<Encoded>();
};

TEST_F(PackedFileTest, HoldsTheStoredBytesOfAllSamplesFromAnyNumberOfThreads) {
  for (const int threads : {1, 4}) {
    fs::remove(path_);
    std::int64_t last = 0;
    const auto packed = open({.threads = threads, .on_read = [&](std::int64_t written, std::int64_t samples) {
                                EXPECT_EQ(samples, kSamples);
                                EXPECT_GT(written, last);
                                last = written;
                              }});
    EXPECT_TRUE(packed->is_new());
    EXPECT_EQ(last, kSamples);
    expect_same(*source_, *packed);
    EXPECT_EQ(packed->file_bytes(), fs::file_size(path_));
    EXPECT_EQ(packed->facts().fields(), source_->facts().fields());
    EXPECT_EQ(packed->name_of(3), "photo-3.jpg");
    EXPECT_EQ(files(), std::vector<std::string>{"samples.cache"});
  }
}

TEST_F(PackedFileTest, AnswersManyThreadsAtOnce) {
  const auto packed = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = t; i < 3 * kSamples; ++i)
        EXPECT_EQ(sample_of(*source_, i % kSamples), sample_of(*packed, i % kSamples));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PackedFileTest, ReadsTargetsWithoutImages) {
  const auto packed = open();
  const Sample expected = sample_of(*source_, 11);
  damage(fs::file_size(path_) - 1);  // of some sample, to see that 11 is not that one
  std::vector<std::byte> label(4), vector(12);
  const std::vector<std::span<std::byte>> targets = {label, vector};
  packed->read_targets(11, targets);
  EXPECT_EQ(label, expected[1]);
  EXPECT_EQ(vector, expected[2]);
  const std::vector<std::span<std::byte>> second = {{}, vector};  // as of a mask
  std::ranges::fill(vector, std::byte{0});
  packed->read_targets(11, second);
  EXPECT_EQ(vector, expected[2]);
}

TEST_F(PackedFileTest, ReadsValuesInPlace) {
  Runtime runtime({.threads = 2});
  const auto set = testing::ramp_dataset(runtime, 50);
  const auto packed = PackedFile::open(reader_of(set), path_, {.threads = 2});
  const auto again = read_dataset(runtime, *packed);
  EXPECT_TRUE(std::ranges::equal(set->images(), again->images()));
  EXPECT_TRUE(std::ranges::equal(set->labels(), again->labels()));
}

TEST_F(PackedFileTest, IsUsedAsItIsWhereNothingChanged) {
  (void)open();
  source_->fetched = 0;
  bool replaced = false;
  const auto packed = open({.on_replace = [&](std::string_view) { replaced = true; }});
  EXPECT_FALSE(packed->is_new());
  EXPECT_FALSE(replaced);
  EXPECT_EQ(source_->fetched, 32);  // those of the digest
  expect_same(*source_, *packed);
}

TEST_F(PackedFileTest, IsReplacedWithAWordWhereItIsOfOtherSamples) {
  const auto replaced = [&](std::shared_ptr<const Encoded> source, const std::string& recipe) {
    source_ = std::move(source);
    std::string reason;
    const auto packed =
        open({.recipe = recipe, .on_replace = [&](std::string_view text) { reason = std::string(text); }});
    EXPECT_EQ(packed->is_new(), !reason.empty());
    expect_same(*source_, *packed);
    return reason;
  };
  (void)open({.recipe = "resize"});
  EXPECT_EQ(replaced(std::make_shared<Encoded>(), "resize"), "");
  EXPECT_EQ(replaced(std::make_shared<Encoded>(), "resize 2"), "it was made of other samples, or by other stages");
  EXPECT_EQ(replaced(std::make_shared<Encoded>(9), "resize 2"), "it was made of other samples, or by other stages");
  EXPECT_EQ(replaced(std::make_shared<Encoded>(9, 60), "resize 2"), "it was made of other samples, or by other stages");
  fs::resize_file(path_, fs::file_size(path_) - 1);
  EXPECT_CONTAINS(replaced(std::make_shared<Encoded>(9, 60), "resize 2"), "as its header says");
  damage(17);
  EXPECT_EQ(replaced(std::make_shared<Encoded>(9, 60), "resize 2"), "its header is damaged");
  damage(8);
  EXPECT_EQ(replaced(std::make_shared<Encoded>(9, 60), "resize 2"), "its version is 65, not 1");
}

/// Runs of different stages may share a folder: each reads what it wrote, whatever another one puts there meanwhile.
TEST_F(PackedFileTest, RunsThatReplaceEachOthersFilesReadTheirOwn) {
  std::vector<std::thread> runs;
  for (const int salt : {1, 2})
    runs.emplace_back([&, salt] {
      const auto source = std::make_shared<Encoded>(salt);
      for (int i = 0; i < 40; ++i) EXPECT_NO_THROW(expect_same(*source, *PackedFile::open(source, path_, {})));
    });
  for (std::thread& run : runs) run.join();
}

/// As ranks of a run: one fetches and writes, the others wait and use its file.
TEST_F(PackedFileTest, IsWrittenOnceByThreadsThatOpenItTogether) {
  class Slow : public Encoded {
   public:
    void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Encoded::fetch(index, fields);
    }
  };
  constexpr int kThreads = 3;
  const auto source = std::make_shared<Slow>();
  std::atomic<int> written = 0;
  std::latch together(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      together.arrive_and_wait();
      const auto packed = PackedFile::open(source, path_, {.on_replace = [](std::string_view) { ADD_FAILURE(); }});
      written += packed->is_new() ? 1 : 0;
      EXPECT_EQ(sample_of(*packed, 42)[0].size(), 42 * 977 % 5000u);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(written, 1);
  EXPECT_EQ(source->fetched, kThreads * 32 + kSamples) << "those of each digest, and each sample once";
  expect_same(*source, *open());
  EXPECT_EQ(files(), std::vector<std::string>{"samples.cache"});
}

TEST_F(PackedFileTest, WhoWaitsForAnothersFileCanBeInterrupted) {
  std::string waiting;
  const auto packed = open({.on_read = [&](std::int64_t, std::int64_t) {
    if (!waiting.empty()) return;
    waiting = message_of<Error>([&] {
      (void)open({.on_read = [](std::int64_t written, std::int64_t samples) {
        EXPECT_EQ(written, 0);
        EXPECT_EQ(samples, kSamples);
        throw Error("interrupted");
      }});
    });
  }});
  EXPECT_EQ(waiting, "interrupted");
  EXPECT_TRUE(packed->is_new());
  expect_same(*source_, *packed);
}

/// A packing that is killed leaves its temporary file and its lock file; those of other names are others'.
TEST_F(PackedFileTest, RemovesWhatAKilledPackingLeft) {
  const std::vector<std::string> kept = {".other.cache.00000001.tmp", ".samples.cache.0000zz01.tmp",
                                         ".samples.cache.1.tmp"};
  for (const std::string& name : kept) write_file_atomically(folder_.path() / name, "kept");
  for (const char* name : {".samples.cache.0badcafe.tmp", ".samples.cache.00000000.tmp", ".samples.cache.lock"})
    write_file_atomically(folder_.path() / name, "left");
  EXPECT_TRUE(open()->is_new());
  std::vector<std::string> expected = kept;
  expected.emplace_back("samples.cache");
  EXPECT_EQ(files(), expected);
}

/// Files as samples: their names are in the digest with size and time of change.
TEST_F(PackedFileTest, NoticesAChangedFile) {
  class Files : public Encoded {
   public:
    explicit Files(fs::path path) : path_(std::move(path)) {}
    std::string name_of(std::int64_t index) const override { return index == 77 ? path_.string() : "none"; }

   private:
    fs::path path_;
  };
  const fs::path photo = folder_.path() / "photo.jpg";
  write_file_atomically(photo, "one");
  const Files files(photo);
  const std::uint64_t first = packed_digest(files, "", 1);
  EXPECT_EQ(packed_digest(files, "", 4), first);
  write_file_atomically(photo, "another");
  EXPECT_NE(packed_digest(files, "", 1), first);
}

/// So are files that a name does not say: masks, tables of labels.
TEST_F(PackedFileTest, NoticesAChangedFileBesideThatOfTheName) {
  class Rows : public Encoded {
   public:
    explicit Rows(fs::path table) : table_(std::move(table)) {}
    std::vector<std::string> files_of(std::int64_t index) const override { return {name_of(index), table_.string()}; }

   private:
    fs::path table_;
  };
  const fs::path table = folder_.path() / "table.csv";
  write_file_atomically(table, "a.jpg,cat");
  const auto rows = std::make_shared<Rows>(table);
  const std::uint64_t first = packed_digest(*rows, "", 1);
  EXPECT_EQ(packed_digest(*rows, "", 4), first);
  const auto some = first_samples(rows, kSamples);
  const std::uint64_t of_some = packed_digest(*some, "", 1);
  fs::last_write_time(table, fs::last_write_time(table) + std::chrono::seconds(2));
  EXPECT_NE(packed_digest(*rows, "", 1), first);
  EXPECT_NE(packed_digest(*some, "", 1), of_some) << "readers of other readers pass them on";
}

TEST_F(PackedFileTest, NamesADamagedSample) {
  const auto packed = open();
  const std::uint64_t table = 64, entry = 24, row = 3 * entry;
  std::uint64_t place = 0;
  std::ifstream(path_, std::ios::binary).seekg(table + 42 * row).read(reinterpret_cast<char*>(&place), sizeof(place));
  damage(place + 100);
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)sample_of(*packed, 42); }),
                  "samples.cache: packed sample 42 (photo-42.jpg) is damaged: its checksum differs");
  EXPECT_EQ(sample_of(*packed, 41), sample_of(*source_, 41));
  damage(table + 43 * row + 7);  // the highest byte of an offset
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)sample_of(*packed, 43); }),
                  "packed sample 43 (photo-43.jpg) has a damaged entry in the file's table");
  damage(table + 44 * row + 16);  // a checksum
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)sample_of(*packed, 44); }), "is damaged");
}

/// Each byte of a small file, damaged alone: what was written, or an error.
/// Samples 0 and 42, of which the digest reads the first.
TEST_F(PackedFileTest, KeepsWhatIsWrongWithBrokenSamples) {
  class Broken : public Encoded {
   public:
    void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
      if (index == 0 || index == 42) throw DataError(fmt::format("photo-{}.jpg: it is cut short", index));
      Encoded::fetch(index, fields);
    }
  };
  const auto source = std::make_shared<Broken>();
  for (const bool is_new : {true, false}) {
    const auto packed = PackedFile::open(source, path_, {.threads = 2, .keeps_broken = true});
    EXPECT_EQ(packed->is_new(), is_new);
    for (const std::int64_t index : {0, 42}) {
      const std::string expected =
          fmt::format("photo-{}.jpg: it is cut short (when {} was written)", index, path_.string());
      EXPECT_EQ(message_of<DataError>([&] { (void)sample_of(*packed, index); }), expected);
      std::vector<std::byte> label(4);
      const std::vector<std::span<std::byte>> targets = {label, {}};
      EXPECT_EQ(message_of<DataError>([&] { packed->read_targets(index, targets); }), expected);
    }
    for (const std::int64_t index : {1, 41, 43, 99}) EXPECT_EQ(sample_of(*packed, index), sample_of(*source, index));
  }
  const auto packed = PackedFile::open(source, path_, {.keeps_broken = true});
  const std::uint64_t table = 64, entry = 24, row = 3 * entry;
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (const std::uint64_t sample : {41, 42})
    for (std::uint64_t field = 0; field < 3; ++field) {  // a bit says what an entry is of
      const std::uint64_t place = table + sample * row + field * entry + 7;
      file.seekg(static_cast<std::streamoff>(place));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(place));
      file.put(static_cast<char>(byte ^ 0x80));
    }
  file.close();
  for (const std::int64_t index : {41, 42})
    EXPECT_CONTAINS(message_of<DataError>([&] { (void)sample_of(*packed, index); }),
                    "is damaged: its checksum differs");
}

TEST_F(PackedFileTest, NeverReturnsOtherBytes) {
  source_ = std::make_shared<Encoded>(0, 3);
  (void)open();
  const std::uint64_t bytes = fs::file_size(path_);
  const std::string sound = read_file(path_);
  for (std::uint64_t place = 0; place < bytes; place += 3) {
    write_file_atomically(path_, sound);
    const auto packed = open();
    damage(place);
    for (std::int64_t i = 0; i < 3; ++i) try {
        ASSERT_EQ(sample_of(*packed, i), sample_of(*source_, i)) << "byte " << place;
      } catch (const DataError&) {
      }
  }
}

TEST_F(PackedFileTest, DoesNotReplaceAFileOfAnotherKind) {
  write_file_atomically(path_, "my thesis");
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)open(); }), "is no file of packed samples; it is not replaced");
  EXPECT_EQ(read_file(path_), "my thesis");
}

/// A limit of file size stands for a disk without room: the same path of errors.
TEST_F(PackedFileTest, KeepsNothingOfAFileThatDoesNotFit) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<DataError>([&] { (void)open({.threads = 2}); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_CONTAINS(message,
                  "samples.cache: File too large (the packed samples need about 1.18 MiB; cache: {disk: PATH}");
  EXPECT_TRUE(files().empty());
}

TEST_F(PackedFileTest, KeepsTheOldFileWhereTheSourceFails) {
  class Broken : public Encoded {
   public:
    Broken() : Encoded(1) {}
    void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
      if (index == 98) throw DataError("photo-98.jpg: cannot be read");
      Encoded::fetch(index, fields);
    }
  };
  (void)open();
  const std::string before = read_file(path_);
  EXPECT_EQ(message_of<DataError>([&] { (void)PackedFile::open(std::make_shared<Broken>(), path_, {.threads = 3}); }),
            "photo-98.jpg: cannot be read");
  EXPECT_EQ(read_file(path_), before);
  EXPECT_EQ(files(), std::vector<std::string>{"samples.cache"});
}

TEST_F(PackedFileTest, EndsWhereItsProgressThrows) {
  EXPECT_EQ(message_of<Error>([&] {
              (void)open({.threads = 2, .on_read = [](std::int64_t written, std::int64_t) {
                            if (written > 30) throw Error("interrupted");
                          }});
            }),
            "interrupted");
  EXPECT_TRUE(files().empty());
  const auto missing = folder_.path() / "none" / "samples.cache";
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)PackedFile::open(source_, missing, {}); }),
                  "No such file or directory");
}

}  // namespace
}  // namespace bantam::packed_file_test
