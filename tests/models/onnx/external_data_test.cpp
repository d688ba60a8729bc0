// Values in files beside an ONNX file: ranges read, and each claim of a location, an offset or a length that is
// refused.
#include "bantam/models/onnx/external_data.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/base/protobuf.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx::external_data_test {
namespace {

namespace fs = std::filesystem;
using Entries = std::vector<std::pair<std::string, std::string>>;

class ExternalDataTest : public ::testing::Test {
 protected:
  ExternalDataTest() : root_(fs::temp_directory_path() / fs::path("bantam_external_" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "net" / "sub");
    write("net/net.onnx", "");
    write("net/net.onnx.data", floats({1, 2, 3, 4}));
    write("outside.data", floats({5, 6, 7, 8}));
  }
  ~ExternalDataTest() override { fs::remove_all(root_); }

  static std::string floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  void write(const fs::path& name, const std::string& bytes) const {
    std::ofstream(root_ / name, std::ios::binary) << bytes;
  }

  /// A model whose initializer `w` of `count` float32 values has these entries of external_data.
  static std::string model_of(std::int64_t count, const Entries& entries) {
    ProtoWriter tensor, graph, opset, model;
    tensor.integer(1, count);
    tensor.integer(2, 1);
    tensor.bytes(8, "w");
    for (const auto& [key, value] : entries) {
      ProtoWriter entry;
      entry.bytes(1, key);
      entry.bytes(2, value);
      tensor.message(13, entry);
    }
    tensor.integer(14, 1);
    graph.message(5, tensor);
    opset.integer(2, 20);
    model.integer(1, 10);
    model.message(8, opset);
    model.message(7, graph);
    return model.text();
  }

  std::vector<float> values(std::int64_t count, const Entries& entries, const fs::path& file = "net/net.onnx") const {
    return parse(model_of(count, entries), root_ / file).initializers.at(0).as_floats();
  }
  /// The message after the place; empty where there is none.
  std::string error(std::int64_t count, const Entries& entries) const {
    try {
      (void)values(count, entries);
    } catch (const DataError& error) {
      const std::string what = error.what(), place = "tensor 'w': ";
      return what.substr(what.find(place) + place.size());
    }
    return "";
  }

  const fs::path root_;
};

TEST_F(ExternalDataTest, RangesOfAFileBeside) {
  using Floats = std::vector<float>;
  EXPECT_EQ(values(4, {{"location", "net.onnx.data"}}), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(values(2, {{"location", "net.onnx.data"}, {"offset", "4"}, {"length", "8"}, {"checksum", "abc"}}),
            (Floats{2, 3}));
  EXPECT_EQ(values(2, {{"location", "./net.onnx.data"}, {"offset", "8"}}), (Floats{3, 4}));
  write("net/sub/part", floats({9}));
  EXPECT_EQ(values(1, {{"location", "sub/part"}}), (Floats{9}));
  EXPECT_EQ(values(1, {{"location", "sub/../sub/part"}}), (Floats{9}));
  EXPECT_EQ(values(0, {{"location", "net.onnx.data"}, {"length", "0"}}), Floats{});
}

/// Caches of downloads keep a model and its data as links into one folder.
TEST_F(ExternalDataTest, LinksThatStayBesideTheModel) {
  fs::create_symlink("net.onnx.data", root_ / "net" / "link.data");
  EXPECT_EQ(values(1, {{"location", "link.data"}}), std::vector<float>{1});
  fs::create_directories(root_ / "cache");
  fs::create_symlink("../net/net.onnx", root_ / "cache" / "model.onnx");
  fs::create_symlink("../net/net.onnx.data", root_ / "cache" / "model.onnx.data");
  EXPECT_EQ(values(1, {{"location", "model.onnx.data"}}, "cache/model.onnx"), std::vector<float>{1});
}

TEST_F(ExternalDataTest, LocationsThatAreRefused) {
  EXPECT_EQ(error(4, {{"location", "model.data"}}),
            "its values lie in 'model.data', which is not beside the ONNX file (there is 'net.onnx.data'): copy both "
            "files together, under these names");
  EXPECT_EQ(error(4, {{"location", "../outside.data"}}),
            "its values lie in '../outside.data', which is outside the folder of the ONNX file; copy that file into "
            "the folder");
  EXPECT_EQ(error(4, {{"location", "sub/../../outside.data"}}),
            "its values lie in 'sub/../../outside.data', which is outside the folder of the ONNX file; copy that file "
            "into the folder");
  fs::create_symlink("../outside.data", root_ / "net" / "link.data");
  EXPECT_EQ(error(4, {{"location", "link.data"}}),
            "its values lie in 'link.data', which is outside the folder of the ONNX file (a link leads there); copy "
            "that file into the folder");
  fs::create_directory_symlink("..", root_ / "net" / "up");
  EXPECT_NE(error(4, {{"location", "up/outside.data"}}).find("outside the folder"), std::string::npos);
  EXPECT_EQ(error(4, {{"location", (root_ / "net" / "net.onnx.data").string()}}).find("its values lie in '/"), 0u);
  EXPECT_EQ(error(4, {}), "external data: its location is not the name of a file");
  EXPECT_EQ(error(4, {{"location", "sub"}}), "its values lie in 'sub', which is not a regular file");
}

TEST_F(ExternalDataTest, RangesThatAreRefused) {
  const auto refused = [&](std::int64_t count, const std::string& offset, const std::string& length) {
    return error(count, {{"location", "net.onnx.data"}, {"offset", offset}, {"length", length}});
  };
  EXPECT_EQ(refused(2, "0", "12"), "12 bytes of values in 'net.onnx.data'; its extents and type need 8");
  EXPECT_EQ(refused(2, "0", "7"), "7 bytes of values in 'net.onnx.data'; its extents and type need 8");
  EXPECT_EQ(refused(2, "12", "8"),
            "its values are 8 bytes from byte 12 on of 'net.onnx.data', which has 16: the file is cut short, or of "
            "another export");
  EXPECT_NE(refused(2, "18446744073709551612", "8").find("which has 16"), std::string::npos);
  EXPECT_EQ(refused(2, "-4", "8"), "external data: offset '-4'; expected a number of bytes");
  EXPECT_EQ(refused(2, "4x", "8"), "external data: offset '4x'; expected a number of bytes");
  EXPECT_EQ(refused(2, "0", "18446744073709551616"),
            "external data: length '18446744073709551616'; expected a number of bytes");
  // More than the file could have is neither allocated nor read.
  EXPECT_NE(refused(std::int64_t{1} << 28, "0", "1073741824").find("which has 16"), std::string::npos);
}

TEST_F(ExternalDataTest, ASmallFileDoesNotBecomeMuchMemory) {
  ExternalData data(root_ / "net" / "net.onnx");
  const ExternalRange range{.location = "net.onnx.data", .offset = "", .length = ""};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(data.read(range, 16).size(), 16u);
  EXPECT_THROW((void)data.read(range, 16), DataError);
}

}  // namespace
}  // namespace bantam::onnx::external_data_test
