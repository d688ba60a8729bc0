// Test support: a function on a thread whose stack is small, as an embedder's threads may be.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>

#include <gtest/gtest.h>
#include <pthread.h>

namespace bantam::testing {

/// Runs `work` on a thread with a stack of `bytes`, to its end; an exception fails the test.
inline void on_small_stack(std::size_t bytes, std::function<void()> work) {
  const auto run = [](void* context) -> void* {
    try {
      (*static_cast<std::function<void()>*>(context))();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    return nullptr;
  };
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_attr_destroy(&attributes);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
}

}  // namespace bantam::testing
