// Lets allocations of a piece of work fail, one after another. Include in one source of a program: it brings the
// program's operator new.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <new>
#include <string>
#include <typeinfo>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/public/counted_new.h"

namespace bantam::testing {

enum class Ended { well, bad_alloc, error, otherwise };

/// Returns the outcome by what `work` returns or throws.
inline Ended ended(const std::function<void()>& work, std::string& what) {
  try {
    work();
    return Ended::well;
  } catch (const Error& error) {
    what = error.what();
    return Ended::error;
  } catch (const std::bad_alloc&) {
    return Ended::bad_alloc;
  } catch (const std::exception& other) {
    what = std::string(typeid(other).name()) + ": " + other.what();
    return Ended::otherwise;
  } catch (...) {
    what = "something that is no std::exception";
    return Ended::otherwise;
  }
}

/// Memory that may be left after an allocation has failed.
enum class Left {
  nothing,   ///< all is freed
  anything,  ///< other libraries lose objects of their own (oneDNN; nlohmann the members of a list that fails), or
             ///< other threads free later
};

/// Lets each of about `trials` allocations of `work` fail, one a trial; all of them where BANTAM_EVERY_ALLOCATION is
/// set and they are fewer than 100,000. `work` says how it ended, and why.
inline void fail_each(const char* name, int trials, const std::function<Ended(std::string& what)>& work,
                      Left left = Left::nothing) {
  std::string what;
  ASSERT_EQ(work(what), Ended::well) << name << ": " << what;  // what is made once a process
  std::int64_t begin = new_counters().calls;
  ASSERT_EQ(work(what), Ended::well) << name << ": " << what;
  const std::int64_t calls = new_counters().calls - begin, live = new_counters().live;
  const bool all = std::getenv("BANTAM_EVERY_ALLOCATION") != nullptr && calls < 100'000;
  const std::int64_t stride = all ? 1 : std::max<std::int64_t>(1, calls / trials);
  std::int64_t thrown = 0, tried = 0;
  for (std::int64_t n = 1; n <= calls; n += stride, ++tried) {
    new_counters().fails_at = new_counters().calls + n;
    const Ended end = work(what);
    new_counters().fails_at = std::numeric_limits<std::int64_t>::max();
    ASSERT_NE(end, Ended::otherwise) << name << ", allocation " << n << " of " << calls << ": " << what;
    if (end != Ended::well) ++thrown;
    std::string().swap(what);  // its memory counts
    if (left == Left::anything) continue;
    ASSERT_EQ(new_counters().live, live) << name << ", allocation " << n << " of " << calls << ": not all was freed";
  }
  EXPECT_GT(thrown, 0) << name << ": nothing failed";
  std::cout << name << ": " << tried << " of " << calls << " allocations failed, each in a trial; " << thrown
            << " ended the work\n";
}

}  // namespace bantam::testing
