#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "ops/reference/backend.h"
#include "ops/test_tools.h"

// What the tests of the reference operators share.
namespace tandem::ops::testing {

inline constexpr StepLimits kLimits{.max_tokens = 512,
                             .max_rows = 16,
                             .max_context = 512,
                             .max_logit_rows = 16,
                             .slots = 4,
                             .pages = 32,
                             .vocab = 300};

inline std::unique_ptr<Backend> reserved_backend() {
  auto backend = make_reference_backend();
  EXPECT_TRUE(backend->reserve(kLimits));
  return backend;
}

inline Request request(int slot, int pages, int first_page = 0) {
  Request r{.slot = SlotId{slot}, .pages = {}, .length = 0};
  for (int i = 0; i < pages; ++i) r.pages.push_back(PageId{first_page + i});
  return r;
}

}  // namespace tandem::ops::testing
