#include "bantam/base/stable_sort.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::stable_sort_test {
namespace {

struct Row {
  std::string name;
  int bytes = 0;
};

std::string names(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) text += row.name;
  return text;
}

const std::vector<Row> kRows = {{"a", 2}, {"b", 3}, {"c", 1}, {"d", 3}, {"e", 2}};

TEST(StableSort, KeepsTheOrderOfEquals) {
  std::vector<Row> rows = kRows;
  sort_stably(rows, {}, &Row::bytes);
  EXPECT_EQ(names(rows), "caebd");
  rows = kRows;
  sort_stably(rows, std::greater<>(), &Row::bytes);
  EXPECT_EQ(names(rows), "bdaec");
  sort_stably(rows, [](const Row& a, const Row& b) { return a.name > b.name; });
  EXPECT_EQ(names(rows), "edcba");
}

TEST(StableSort, OrdersPlacesAndLeavesTheValues) {
  const std::vector<int> values = {5, 1, 5, 0};
  EXPECT_EQ(stable_order(values), (std::vector<std::size_t>{3, 1, 0, 2}));
  EXPECT_EQ(stable_order(values, std::greater<>()), (std::vector<std::size_t>{0, 2, 1, 3}));
  EXPECT_TRUE(stable_order(std::vector<int>()).empty());
}

TEST(StableSort, MovesValuesThatCannotBeCopied) {
  std::vector<std::unique_ptr<int>> values;
  for (const int value : {3, 1, 2}) values.push_back(std::make_unique<int>(value));
  sort_stably(values, {}, [](const std::unique_ptr<int>& value) { return *value; });
  EXPECT_EQ(*values[0], 1);
  EXPECT_EQ(*values[1], 2);
  EXPECT_EQ(*values[2], 3);
}

}  // namespace
}  // namespace bantam::stable_sort_test
