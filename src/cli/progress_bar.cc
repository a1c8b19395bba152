#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tandem::cli {
namespace {

constexpr int kWidth = 32;

}  // namespace

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()), last_(start_) {}

ProgressBar::~ProgressBar() { finish(); }

void ProgressBar::show(std::int64_t done, std::int64_t total) {
  if (total <= 0) return;
  const auto now = std::chrono::steady_clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(50) : std::chrono::milliseconds(5000);
  if (now - last_ < pause && !(terminal_ && done == total && open_)) return;
  last_ = now;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string figures = fmt::format("{:.1f} of {:.1f} GB, {:.2f} GB/s", static_cast<double>(done) / 1e9,
                                          static_cast<double>(total) / 1e9, static_cast<double>(done) / 1e9 / std::max(seconds, 1e-3));
  if (terminal_) {
    const auto filled = static_cast<int>(share * kWidth);
    std::fputs(fmt::format("\r{} [{}{}] {:3.0f} %  {}  ", what_, std::string(filled, '#'), std::string(kWidth - filled, '.'),
                           share * 100, figures)
                   .c_str(),
               stderr);
    std::fflush(stderr);
    open_ = true;
  } else {
    std::fputs(fmt::format("{}: {:.0f} %, {}\n", what_, share * 100, figures).c_str(), stderr);
  }
}

void ProgressBar::finish() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace tandem::cli
