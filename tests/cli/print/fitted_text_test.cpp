// Names are cut to what lines have room for, and no shorter than the least.
#include "bantam/cli/print/fitted_text.h"

#include <gtest/gtest.h>

#include "bantam/base/text.h"

namespace bantam::cli::fitted_text_test {
namespace {

std::string table_of(std::size_t most) {
  Table table({{"name", Align::left}, {"bytes"}});
  table.add_row({shown("a_block/with_a_rather_long_name/depthwise", most), "1,024"});
  return table.to_string();
}

std::size_t width_of(std::size_t columns) {
  const std::string text = fitted_text(columns, 10, table_of);
  return text.find('\n', text.find('\n') + 1) - text.find('\n') - 1;  // of the rule
}

TEST(FittedText, FillsTheLines) {
  EXPECT_EQ(width_of(200), 41u + 2 + 5) << "the whole name";
  EXPECT_EQ(width_of(48), 48u);
  EXPECT_EQ(width_of(47), 47u);
  EXPECT_EQ(width_of(30), 30u);
}

TEST(FittedText, KeepsTheLeastOfANameInAnyCase) { EXPECT_EQ(width_of(5), 10u + 2 + 5); }

}  // namespace
}  // namespace bantam::cli::fitted_text_test
