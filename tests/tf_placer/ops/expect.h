// Checks of the C++ tests: a program exits with 1 and says why when one fails.

#ifndef TESTS_TF_PLACER_OPS_EXPECT_H_
#define TESTS_TF_PLACER_OPS_EXPECT_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

inline void Expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what.c_str());
  std::exit(1);
}

inline void ExpectEqual(int64_t got, int64_t expected, const std::string& what) {
  Expect(got == expected, what + ": got " + std::to_string(got) + ", expected " + std::to_string(expected));
}

#endif  // TESTS_TF_PLACER_OPS_EXPECT_H_
