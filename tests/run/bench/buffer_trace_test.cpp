// Lifetimes from a CSV, and errors that name the line.
#include "bantam/run/bench/buffer_trace.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::buffer_trace_test {
namespace {

class BufferTraceTest : public RunTest {
 protected:
  BufferTrace read(const std::string& text) const {
    write_file_atomically(path("trace.csv"), text);
    return read_buffer_trace(path("trace.csv").string());
  }
  void expect_error(const std::string& text, const std::string& message) const {
    try {
      (void)read(text);
      FAIL() << text << " was accepted";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
};

TEST_F(BufferTraceTest, ColumnsComeInAnyOrder) {
  const BufferTrace trace = read("\xef\xbb\xbfsize, note ,id,upper,lower\r\n512,x,a,4,1\n\n256,y,b,9,2\n");
  EXPECT_EQ(trace.ids, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(trace.buffers.size(), 2u);
  EXPECT_EQ(trace.buffers[1].id, 1);
  EXPECT_EQ(trace.buffers[1].lower, 2);
  EXPECT_EQ(trace.buffers[1].upper, 9);
  EXPECT_EQ(trace.buffers[1].size, 256u);
}

TEST_F(BufferTraceTest, ErrorsNameTheLine) {
  expect_error("", "trace.csv:1: error: the file is empty");
  expect_error("id,lower,upper\n", "trace.csv:1: error: no column 'size'");
  expect_error("id,lower,upper,size,size\n", "two columns are called 'size'");
  expect_error("id,lower,upper,size\na,1,4\n", "trace.csv:2: error: expected 4 values, got 3");
  expect_error("id,lower,upper,size\na,1,4,8\nb,4,4,8\n", "trace.csv:3: error: lower must be below upper");
  expect_error("id,lower,upper,size\na,1,4,8\na,1,4,8\n", "trace.csv:3: error: id: 'a' is taken by line 2");
  expect_error("id,lower,upper,size\na,1,4,many\n", "size: expected a whole number, got 'many'");
}

}  // namespace
}  // namespace bantam::run::buffer_trace_test
