#include "base/thread_team.h"

#include <sched.h>

#include <algorithm>

namespace tandem {
namespace {

// Some 20 to 70 microseconds: longer than what runs between two operators, shorter than a scheduler's slice.
constexpr int kSpins = 1000;

template <class Number>
void wait_while(const std::atomic<Number>& value, Number old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(
      1, static_cast<int>(std::thread::hardware_concurrency()));  // more processors than the mask holds
}

ThreadTeam::ThreadTeam(int threads, int all_threads) {
  spins_ = std::max(threads, all_threads) <= usable_cores() ? kSpins : 0;
  for (int worker = 1; worker < threads; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
  }
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ThreadTeam::take_items(int worker) {
  for (;;) {
    const std::int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= items_) return;
    call_(context_, item, worker);
  }
}

void ThreadTeam::run_items(std::int64_t items, Call call, void* context) {
  if (threads_.empty() || items <= 1) {
    for (std::int64_t item = 0; item < items; ++item) call(context, item, 0);
    return;
  }
  call_ = call;
  context_ = context;
  items_ = items;
  next_.store(0, std::memory_order_relaxed);
  working_.store(static_cast<std::int32_t>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_items(0);
  for (;;) {
    const std::int32_t working = working_.load(std::memory_order_acquire);
    if (working == 0) return;
    wait_while(working_, working, spins_);
  }
}

void ThreadTeam::work(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(generation_, seen, spins_);
    // A loop cannot begin before the last one's end, so exactly one generation has passed.
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    take_items(worker);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

}  // namespace tandem
