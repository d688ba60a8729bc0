// Curves of characters, by hand.
#include "bantam/cli/print/text_plot.h"

#include <gtest/gtest.h>

namespace bantam::cli::text_plot_test {
namespace {

TEST(TextPlotTest, ALineByHand) {
  EXPECT_EQ(draw({.x = {0, 1, 2, 3}, .y = {3, 2, 1, 0}, .marks = {2}, .columns = 4, .rows = 4}),
            "        3 |*\n"
            "          | *\n"
            "        1 |  *\n"
            "        0 |   *\n"
            "          +----\n"
            "             ^\n"
            "           0  3\n");
}

TEST(TextPlotTest, ALogarithmicAxisAndColumnsOfSeveralPoints) {
  const std::string text =
      draw({.x = {1e-4, 1e-3, 1e-2, 1.1e-2, 1}, .y = {1, 1, 2, 4, 5}, .log_x = true, .columns = 5, .rows = 5});
  EXPECT_NE(text.find("        5 |    *\n"), std::string::npos) << text;
  EXPECT_NE(text.find("        3 |  *\n"), std::string::npos) << "the mean of 2 and 4\n" << text;
  EXPECT_NE(text.find("        1 |**\n"), std::string::npos) << text;
}

TEST(TextPlotTest, OnePointAndNone) {
  EXPECT_EQ(draw({}), "");
  EXPECT_NE(draw({.x = {1}, .y = {2}}).find("        2 |*\n"), std::string::npos);
}

}  // namespace
}  // namespace bantam::cli::text_plot_test
