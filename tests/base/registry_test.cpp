// The table of named entries: order, duplicates, and what is said of a name that is not there.
#include "bantam/base/config/registry.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/base/config_error.h"

namespace bantam::registry_test {
namespace {

TEST(RegistryTest, KeepsTheOrderAndFindsByName) {
  Registry<int> table("number", {{"one", 1}, {"two", 2}});
  table.add("three", 3);
  EXPECT_EQ(table.names(), (std::vector<std::string>{"one", "two", "three"}));
  ASSERT_NE(table.find("three"), nullptr);
  EXPECT_EQ(*table.find("three"), 3);
  EXPECT_EQ(table.at("one"), 1);
  EXPECT_EQ(table.find("four"), nullptr);
  EXPECT_EQ(table.what(), "number");
}

TEST(RegistryTest, ANameIsTakenOnce) {
  Registry<int> table("number", {{"one", 1}});
  EXPECT_EQ(testing::config_error_of([&] { table.add("one", 7); }), "number 'one' is registered already");
  EXPECT_EQ(*table.find("one"), 1) << "the first one stands";
  EXPECT_EQ(testing::config_error_of([&] { table.add("", 7); }), "number: an entry without a name");
  EXPECT_EQ(testing::config_error_of([] {
              Registry<int>("number", {{"a", 1}, {"a", 2}});
            }),
            "number 'a' is registered already");
}

TEST(RegistryTest, SaysWhatIsNearOrWhatThereIs) {
  Registry<int> table("number", {{"seventeen", 17}, {"two", 2}});
  EXPECT_EQ(testing::config_error_of([&] { (void)table.at("seventen"); }),
            "unknown number 'seventen'; did you mean 'seventeen'?");
  EXPECT_EQ(testing::config_error_of([&] { (void)table.at("forty"); }),
            "unknown number 'forty'; valid: seventeen and two");
  EXPECT_EQ(testing::config_error_of([] { (void)Registry<int>("number", {}).at("x"); }), "unknown number 'x'");
}

TEST(RegistryTest, EntriesStayWhereTheyAreWhileOthersAreAdded) {
  Registry<int> table("number", {{"first", 42}});
  const int* first = table.find("first");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&table, t] {
      for (int i = 0; i < 100; ++i) table.add(std::to_string(t * 100 + i), i);
    });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(*table.find("first"), 42);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.find("first"), first);
  EXPECT_EQ(table.names().size(), 401u);
}

}  // namespace
}  // namespace bantam::registry_test
