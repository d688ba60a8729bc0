// Ranks compare lines of their data: other classes, other files and other values make other lines.
#include "bantam/run/ranks/data_lines.h"

#include <cstring>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::run::data_lines_test {
namespace {

/// Samples of two bytes with a name each, and a key that they decide.
struct Samples : SampleReader {
  DatasetFacts facts() const override {
    return {.size = std::ssize(names), .image_shape = {1, 1, 2}, .class_names = classes};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const unsigned char pixels[2] = {static_cast<unsigned char>(index), static_cast<unsigned char>(value)};
    std::memcpy(fields[0].data(), pixels, 2);
    std::memset(fields[1].data(), 0, fields[1].size());
  }
  std::string name_of(std::int64_t index) const override { return folder + names[static_cast<std::size_t>(index)]; }
  std::vector<std::pair<std::string, std::string>> decided_keys() const override { return {{"features", features}}; }

  std::string folder = "/here/", features = "[a, b]";
  std::vector<std::string> classes = {"cat", "dog"}, names = {"a.png", "b.png", "c.png"};
  int value = 1;
};

std::string lines_of(const Samples& samples) {
  DataOptions data;
  data.source.train = std::make_shared<Samples>(samples);
  data.source.validation = std::make_shared<Samples>();
  return data_lines(data);
}

TEST(DataLines, AreAlikeWhereTheDataAre) {
  Samples elsewhere;
  elsewhere.folder = "/there/data/";
  EXPECT_EQ(lines_of(elsewhere), lines_of({})) << "each host has its own path";
  EXPECT_EQ(lines_of({}).find("training data, class 0: cat\ntraining data, class 1: dog\n"), 0u) << lines_of({});
}

TEST(DataLines, DifferWhereAnythingDoes) {
  Samples classes, features, names, order, value, size;
  classes.classes = {"dog", "cat"};
  features.features = "[b, a]";
  names.names[1] = "d.png";
  std::swap(order.names[0], order.names[2]);
  value.value = 2;
  size.names.push_back("d.png");
  for (const auto& [other, what] :
       {std::pair(classes, "class 0: dog"), std::pair(features, "features: [b, a]"), std::pair(size, "samples: 4"),
        std::pair(names, "b.png"), std::pair(order, "names"), std::pair(value, "sample 0 (a.png)")}) {
    EXPECT_NE(lines_of(other), lines_of({})) << what;
    EXPECT_TRUE(what == std::string("b.png") || lines_of(other).find(what) != std::string::npos) << lines_of(other);
  }
}

TEST(DataLines, ASampleThatCannotBeReadIsALine) {
  struct Broken : Samples {
    void read(std::int64_t, std::span<const std::span<std::byte>>) const override { throw DataError("a.png: broken"); }
  };
  DataOptions data;
  data.source.train = std::make_shared<Broken>();
  EXPECT_NE(data_lines(data).find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace bantam::run::data_lines_test
