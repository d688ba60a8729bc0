// NpyWriter: bytes as numpy.save writes them, arrays that NpyArray reads, and files that are whole or not there.
#include "bantam/data/files/npy_writer.h"

#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/data/files/npy_array.h"
#include "tests/data/formats/array_files.h"

namespace bantam::npy_writer_test {
namespace {

namespace fs = std::filesystem;

class NpyWriterTest : public ::testing::Test {
 protected:
  NpyWriterTest() : folder_(make_temporary_folder("npy-writer-")) {}
  ~NpyWriterTest() override { fs::remove_all(folder_); }
  fs::path path(const std::string& name) const { return folder_ / name; }

 private:
  fs::path folder_;
};

TEST_F(NpyWriterTest, WritesWhatNumpyDoes) {
  NpyWriter file(path("a.npy"), {3});
  file.append(std::vector<float>{1, 2, 3});
  file.append(std::vector<float>{4, 5, 6});
  EXPECT_FALSE(fs::exists(path("a.npy")));
  EXPECT_EQ(file.rows(), 2);
  file.commit();
  EXPECT_EQ(read_file(path("a.npy")), testing::npy("<f4", "2, 3", std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(NpyWriterTest, RowsOfAnyShapeAreReadBack) {
  for (const Shape& row : {Shape{}, Shape{5}, Shape{2, 3, 4}, Shape{7, 0, 3}}) {
    NpyWriter file(path("a.npy"), row);
    std::vector<float> values(static_cast<std::size_t>(row.elements()), 0.5f);
    for (int i = 0; i < 11; ++i) file.append(values);
    file.commit();
    const NpyArray array(open_file_bytes(path("a.npy")));
    std::vector<std::int64_t> extents = {11};
    extents.insert(extents.end(), row.extents().begin(), row.extents().end());
    EXPECT_EQ(array.extents(), extents);
    std::vector<float> last(values.size());
    array.read_rows(10, last);
    EXPECT_EQ(last, values);
  }
}

TEST_F(NpyWriterTest, WithoutCommitNothingIsThere) {
  {
    NpyWriter file(path("a.npy"), {1});
    file.append(std::vector<float>{1});
  }
  EXPECT_TRUE(fs::is_empty(path("")));
}

TEST_F(NpyWriterTest, RowsOfAnotherLengthAndPipesAreRefused) {
  NpyWriter file(path("a.npy"), {2});
  EXPECT_THROW(file.append(std::vector<float>{1}), ShapeError);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  try {
    const NpyWriter refused(path("pipe"), {2});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.what(),
              "cannot write " + path("pipe").string() + ": it is a pipe, and the file's beginning is known at its end");
  }
  ::close(reader);
}

}  // namespace
}  // namespace bantam::npy_writer_test
