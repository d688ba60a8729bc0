// Atomic files: whole or absent, no temporary file remains, and errors that name the system's reason.
#include "bantam/base/atomic_file.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam::atomic_file_test {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() : folder_(fs::temp_directory_path() / ("bantam_atomic_" + std::to_string(std::random_device()()))) {
    fs::create_directories(folder_);
  }
  ~AtomicFileTest() override { fs::remove_all(folder_); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename());
    return found;
  }

  fs::path folder_;
};

template <class Call>
std::string data_error_of(Call&& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(AtomicFileTest, AppearsOnlyWhenCommitted) {
  AtomicFile file(folder_ / "a.txt");
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(fs::exists(folder_ / "a.txt"));
  file.commit();
  EXPECT_EQ(read_file(folder_ / "a.txt"), "one two");
  EXPECT_EQ(names(), std::vector<std::string>{"a.txt"});
}

TEST_F(AtomicFileTest, WithoutCommitTheOldFileStays) {
  write_file_atomically(folder_ / "a.txt", "old");
  {
    AtomicFile file(folder_ / "a.txt");
    file.write("new");
    EXPECT_EQ(names().size(), 2u);
  }
  EXPECT_EQ(read_file(folder_ / "a.txt"), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"a.txt"});
}

TEST_F(AtomicFileTest, AFailedWriteLeavesTheOldFile) {
  write_file_atomically(folder_ / "a.txt", "old");
  // A limit on file sizes stands in for a full disk; SIGXFSZ must not end the program.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      data_error_of([&] { write_file_atomically(folder_ / "a.txt", std::string(10'000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(message, "cannot write " + (folder_ / "a.txt").string() + ": File too large");
  EXPECT_EQ(read_file(folder_ / "a.txt"), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"a.txt"});
}

TEST_F(AtomicFileTest, TheBeginningIsReplaced) {
  AtomicFile file(folder_ / "a");
  file.write("12345");
  file.rewrite_beginning("abc");
  file.write("6");
  file.commit();
  EXPECT_EQ(read_file(folder_ / "a"), "abc456");
  EXPECT_THROW(file.rewrite_beginning("x"), DataError);
}

TEST_F(AtomicFileTest, AFailedRenameLeavesNoTemporaryFile) {
  fs::create_directories(folder_ / "taken" / "inner");  // a folder that is not empty cannot be replaced
  const std::string message = data_error_of([&] { write_file_atomically(folder_ / "taken", "x"); });
  EXPECT_EQ(message, "cannot write " + (folder_ / "taken").string() + ": Is a directory");
  EXPECT_EQ(names(), std::vector<std::string>{"taken"});
}

TEST_F(AtomicFileTest, ReplacesFiles) {
  const fs::path path = folder_ / "z.bin";
  const std::vector<std::byte> bytes = {std::byte{0}, std::byte{255}, std::byte{10}};
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
  EXPECT_EQ(read_file(path), std::string("\0\xFF\n", 3));
  write_file_atomically(path, "shorter");
  EXPECT_EQ(read_file(path), "shorter");
}

TEST_F(AtomicFileTest, FoldersAreMadeOnlyWhenAsked) {
  const fs::path path = folder_ / "x" / "y" / "a.txt";
  EXPECT_EQ(data_error_of([&] { write_file_atomically(path, "x"); }),
            "cannot write " + path.string() + ": " + path.parent_path().string() + " does not exist");
  EXPECT_TRUE(names().empty());
  make_folders(path.parent_path());
  make_folders(path.parent_path());
  write_file_atomically(path, "x");
  EXPECT_EQ(read_file(path), "x");
}

TEST_F(AtomicFileTest, LinksAreFollowed) {
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink("elsewhere/a.txt", folder_ / "link");  // its target is not there yet
  fs::create_symlink(folder_ / "link", folder_ / "link_to_link");
  for (const char* text : {"made", "replaced"}) {
    write_file_atomically(folder_ / "link_to_link", text);
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
    EXPECT_TRUE(fs::is_symlink(folder_ / "link_to_link"));
    EXPECT_EQ(read_file(folder_ / "elsewhere" / "a.txt"), text);
  }
  fs::create_symlink("circle", folder_ / "circle");
  EXPECT_EQ(data_error_of([&] { write_file_atomically(folder_ / "circle", "x"); }),
            "cannot write " + (folder_ / "circle").string() + ": Too many levels of symbolic links");
  EXPECT_EQ(names().size(), 4u) << "no temporary file is left";
}

TEST_F(AtomicFileTest, AFifoIsWrittenToAndStays) {
  const fs::path path = folder_ / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);  // so that opening it to write does not wait
  ASSERT_GE(reader, 0);
  fs::create_symlink("fifo", folder_ / "link");
  write_file_atomically(folder_ / "link", "through");
  char got[16] = {};
  EXPECT_EQ(read(reader, got, sizeof(got)), 7);
  EXPECT_STREQ(got, "through");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path));
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(AtomicFileTest, AnOpenDescriptorIsWrittenOn) {
  const fs::path path = folder_ / "out";
  const int out = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_EQ(write(out, "before ", 7), 7);
  write_file_atomically("/dev/fd/" + std::to_string(out), "between");
  ASSERT_EQ(write(out, " after", 6), 6);
  close(out);
  EXPECT_EQ(read_file(path), "before between after");
}

TEST_F(AtomicFileTest, PermissionsFollowTheUmask) {
  const mode_t before = umask(0027);
  write_file_atomically(folder_ / "a.txt", "x");
  umask(before);
  struct stat facts {};
  ASSERT_EQ(stat((folder_ / "a.txt").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
}

TEST_F(AtomicFileTest, RefusesUseAfterCommit) {
  AtomicFile file(folder_ / "a.txt");
  file.write("x");
  file.commit();
  EXPECT_EQ(data_error_of([&] { file.write("y"); }),
            "cannot write " + (folder_ / "a.txt").string() + ": Bad file descriptor");
  EXPECT_THROW(file.commit(), DataError);
  EXPECT_EQ(read_file(folder_ / "a.txt"), "x");
}

TEST_F(AtomicFileTest, GivesTheSystemsReason) {
  write_file_atomically(folder_ / "plain", "x");
  EXPECT_EQ(
      data_error_of([&] { AtomicFile file(folder_ / "plain" / "a.txt"); }),
      "cannot write " + (folder_ / "plain" / "a.txt").string() + ": " + (folder_ / "plain").string() + " is no folder");
  EXPECT_EQ(data_error_of([&] { make_folders(folder_ / "plain" / "inner"); }),
            "cannot create folder " + (folder_ / "plain" / "inner").string() + ": Not a directory");
  EXPECT_EQ(data_error_of([&] { AtomicFile file(folder_ / ""); }),
            "cannot write '" + (folder_ / "").string() + "': it names no file");
  EXPECT_EQ(data_error_of([&] { read_file(folder_ / "absent"); }),
            "cannot read " + (folder_ / "absent").string() + ": No such file or directory");
  EXPECT_EQ(data_error_of([&] { read_file(folder_); }), "cannot read " + folder_.string() + ": Is a directory");
}

TEST(ReadFile, RefusesDevices) {
  EXPECT_EQ(data_error_of([] { read_file("/dev/zero"); }),
            "cannot read /dev/zero: it is a device; expected a file or a pipe");
  EXPECT_EQ(data_error_of([] { read_file("/dev/null"); }),
            "cannot read /dev/null: it is a device; expected a file or a pipe");
}

TEST_F(AtomicFileTest, ReadingHasACap) {
  write_file_atomically(folder_ / "a.txt", "12345");
  EXPECT_EQ(read_file(folder_ / "a.txt", 5), "12345");
  const std::string message =
      "cannot read " + (folder_ / "a.txt").string() + ": it is larger than the 4 bytes that such a file may have";
  EXPECT_EQ(data_error_of([&] { read_file(folder_ / "a.txt", 4); }), message);
}

TEST_F(AtomicFileTest, PipesAreReadToTheirEndOrTheCap) {
  const fs::path path = folder_ / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto write_late = [&](std::size_t bytes) {
    std::signal(SIGPIPE, SIG_IGN);
    return std::thread([&path, bytes] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the reader is there first
      const int out = open(path.c_str(), O_WRONLY);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // and waits for a writer that is silent
      const std::string block(1000, 'x');
      for (std::size_t done = 0; done < bytes; done += block.size())
        if (::write(out, block.data(), block.size()) < 0) break;
      close(out);
    });
  };
  std::thread writer = write_late(200'000);
  EXPECT_EQ(read_file(path), std::string(200'000, 'x'));
  writer.join();
  writer = write_late(100'000'000'000);
  EXPECT_NE(data_error_of([&] { read_file(path, 1'000'000); }).find("larger than the 1,000,000 bytes"),
            std::string::npos);
  writer.join();
  std::signal(SIGPIPE, SIG_DFL);
}

TEST_F(AtomicFileTest, AFifoWithoutAWriterIsGivenUp) {
  const fs::path path = folder_ / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> done = false;
  // Where reading waits for ever, a writer that comes and goes ends it, and the test fails.
  std::thread rescue([&] {
    for (int i = 0; i < 100 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (!done) close(open(path.c_str(), O_WRONLY));
  });
  EXPECT_EQ(data_error_of([&] { read_file(path); }),
            "cannot read " + path.string() + ": it is a FIFO that nobody writes to (waited 3 s)");
  done = true;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9));
  rescue.join();
}

TEST(ReadFile, ReadsFilesThatSayTheyAreEmpty) {
  // /proc files have size 0 and content all the same.
  EXPECT_NE(read_file("/proc/self/status").find("Name:"), std::string::npos);
}

}  // namespace
}  // namespace bantam::atomic_file_test
