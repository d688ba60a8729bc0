// How wide lines for a person may be.
#pragma once

#include <cstdio>

namespace bantam::cli {

/// Columns of a line on `out`: the environment's COLUMNS where that is a whole number from 20 to 10,000, else those of
/// the terminal, else 80.
int terminal_columns(std::FILE* out);

/// The same for tables of many columns: where neither says how wide lines are (a file, a pipe), 120.
int table_columns(std::FILE* out);

}  // namespace bantam::cli
