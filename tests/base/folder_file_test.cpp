// Files of a stranger's folder: no link is followed, nothing else than a regular file is opened, and nothing waits.
#include "bantam/base/folder_file.h"

#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::folder_file_test {
namespace {

namespace fs = std::filesystem;

class FolderFileTest : public ::testing::Test {
 protected:
  FolderFileTest() : folder_(make_temporary_folder("bantam-folder-file-")) {
    fs::create_directories(folder_ / "run/a/b");
    write_file_atomically(folder_ / "secret", "secret");
    write_file_atomically(folder_ / "run/file", "one\ntwo\nhalf");
    write_file_atomically(folder_ / "run/a/b/file", "deep");
  }
  ~FolderFileTest() override { fs::remove_all(folder_); }

  /// Opens the file in each way that files of a run are opened.
  std::vector<std::string> errors_of(const FolderFile& file) const {
    std::vector<std::string> errors;
    const auto note = [&](const auto& call) {
      try {
        call();
        errors.emplace_back("no error");
      } catch (const DataError& error) {
        errors.emplace_back(error.what());
      }
    };
    note([&] { (void)open_file(file, O_RDONLY); });
    note([&] { (void)open_file(file, O_WRONLY | O_CREAT | O_APPEND); });
    note([&] { (void)read_file(file); });
    note([&] { (void)sum_of(file); });
    note([&] { (void)read_lines(file, 0, [](const FileLine&) { return true; }); });
    return errors;
  }
  void expect_refused(const FolderFile& file, const std::string& kind) const {
    for (const std::string& error : errors_of(file)) {
      EXPECT_NE(error.find("it is " + kind + ", expected a"), std::string::npos) << error;
      EXPECT_NE(error.find(folder_.string()), std::string::npos) << error;
    }
  }

  fs::path folder_;
};

TEST_F(FolderFileTest, WhatLeadsOutOrWaitsIsRefusedAtOnce) {
  fs::create_symlink(folder_ / "secret", folder_ / "run/link");
  fs::create_symlink("nowhere", folder_ / "run/dangling");
  fs::create_symlink("file", folder_ / "run/inside");
  fs::create_directory_symlink(folder_ / "run/a", folder_ / "run/c");
  ASSERT_EQ(mkfifo((folder_ / "run/fifo").c_str(), 0600), 0);
  for (const char* link : {"link", "dangling", "inside"}) expect_refused({folder_ / "run" / link}, "a symbolic link");
  expect_refused({folder_ / "run/fifo"}, "a FIFO");
  expect_refused({folder_ / "run/a"}, "a folder");
  expect_refused({folder_ / "run/c/b/file", 3}, "a symbolic link");
  expect_refused({folder_ / "run/file/b/file", 3}, "a file");
  EXPECT_FALSE(fs::exists(folder_ / "run/nowhere")) << "nothing is made where a link leads";
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "./bantam-socket"};
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "run");  // a path in an address has few bytes
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  fs::current_path(before);
  expect_refused({folder_ / "run/bantam-socket"}, "a socket");
  ::close(socket);
  EXPECT_EQ(read_file(folder_ / "secret"), "secret");
}

TEST_F(FolderFileTest, LinksToTheFolderAreFollowed) {
  fs::create_directory_symlink(folder_ / "run", folder_ / "latest");
  EXPECT_EQ(read_file(FolderFile{folder_ / "latest/a/b/file", 3}), "deep");
  EXPECT_EQ(read_file(FolderFile{folder_ / "latest/file"}), "one\ntwo\nhalf");
  EXPECT_NE(errors_of({folder_ / "latest/a/b/file", 4})[0].find("symbolic link"), std::string::npos);
}

TEST_F(FolderFileTest, WhatIsNotThereIsEmpty) {
  for (const FolderFile& file : {FolderFile{folder_ / "run/none"}, FolderFile{folder_ / "run/none/b/file", 3}}) {
    EXPECT_FALSE(open_file(file, O_RDONLY));
    EXPECT_EQ(sum_of(file).bytes(), 0u);
    EXPECT_FALSE(read_lines(file, 0, [](const FileLine&) { return true; }));
    EXPECT_THROW((void)read_file(file), DataError);
  }
  require_no_links({folder_ / "run/none"});
  EXPECT_THROW((void)read_file(FolderFile{folder_ / "run/file"}, 5), DataError) << "it is longer";
}

TEST_F(FolderFileTest, LinesHaveNumbersAndPlaces) {
  std::string told;
  const auto tell = [&](const FileLine& line) {
    told += std::to_string(line.number) + "@" + std::to_string(line.offset) + ":" + std::string(line.text) +
            (line.is_whole ? ";" : "…");
    return line.number < 3;
  };
  EXPECT_TRUE(read_lines({folder_ / "run/file"}, 0, tell));
  EXPECT_EQ(told, "1@0:one;2@4:two;3@8:half…");
  told.clear();
  (void)read_lines({folder_ / "run/file"}, 4, tell);
  EXPECT_EQ(told, "1@4:two;2@8:half…");
  std::string text;  // lines across the ends of what is read at once
  for (int i = 0; text.size() < 1'000'000; ++i) text += std::string(static_cast<std::size_t>(i % 5000), 'x') + "\n";
  write_file_atomically(folder_ / "run/long", text);
  std::string again;
  (void)read_lines({folder_ / "run/long"}, 0, [&](const FileLine& line) {
    EXPECT_EQ(line.offset, again.size());
    again += std::string(line.text) + "\n";
    return true;
  });
  EXPECT_EQ(again, text);
  EXPECT_EQ(sum_of({folder_ / "run/long"}, 777'777).finished(),
            (FileSum{.bytes = 777'777, .sha256 = sha256_of(text.substr(0, 777'777))}));
}

TEST_F(FolderFileTest, AnAtomicFileReplacesALinkAndRefusesAFifo) {
  fs::create_symlink(folder_ / "secret", folder_ / "run/link");
  AtomicFile file(FolderFile{folder_ / "run/link"});
  file.begin_sum();
  file.write("new");
  file.commit();
  EXPECT_EQ(file.sum(), (FileSum{.bytes = 3, .sha256 = sha256_of("new")}));
  EXPECT_EQ(read_file(folder_ / "secret"), "secret");
  EXPECT_EQ(read_file(FolderFile{folder_ / "run/link"}), "new") << "a file of the folder itself now";
  ASSERT_EQ(mkfifo((folder_ / "run/fifo").c_str(), 0600), 0);
  EXPECT_THROW(write_file_atomically(FolderFile{folder_ / "run/fifo"}, "new"), DataError);
  fs::create_directory_symlink(folder_, folder_ / "run/out");
  EXPECT_THROW(write_file_atomically(FolderFile{folder_ / "run/out/secret", 2}, "new"), DataError);
  EXPECT_EQ(read_file(folder_ / "secret"), "secret");
}

}  // namespace
}  // namespace bantam::folder_file_test
