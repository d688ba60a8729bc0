// Messages of exceptions on standard error, and the exit codes that the program ends with.
#pragma once

#include <string>
#include <string_view>

namespace bantam::cli {

enum ExitCode : int { kDone = 0, kFailed = 1, kUsage = 2, kData = 3, kDoesNotFit = 4, kNotFinite = 5 };

/// An error's message as it is printed, with its newline.
std::string error_line(std::string_view message, const std::string& who = "");
/// Prints it on standard error; returns `code`.
int report_error(std::string_view message, int code, const std::string& who = "");

/// Writes on standard error without waiting, for a reader that has stopped reading or for a lock of the stream: what
/// cannot be written at once is not. A signal's handler may call it.
void write_at_once(std::string_view text) noexcept;

/// Within a catch clause: the exit code of the exception under way.
int code_of_exception();
/// Within a catch clause: prints the exception's message, after `who` ("rank 2: "), and returns its exit code.
int report_exception(const std::string& who = "");

}  // namespace bantam::cli
