#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tandem::cli {

// A bar on a terminal's standard error; on anything else a line every five seconds.
// Thread: one at a time. The line is ended by finish() or the destructor.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;

  // `done` of `total` bytes; total 0 shows nothing.
  void show(std::int64_t done, std::int64_t total);
  void finish();

 private:
  std::string what_;
  bool terminal_;
  bool open_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace tandem::cli
