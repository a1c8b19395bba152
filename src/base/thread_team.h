#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace tandem {

// Processors that this process may use: its affinity mask counts, as containers and taskset set it. At
// least 1.
[[nodiscard]] int usable_cores();

// A fixed team of threads that share one loop at a time: fork, do, join.
//
// Items are handed out one by one (the next free thread takes the next), so a thread that the system
// holds up delays its own item only. Which thread does an item must not matter to the result.
// Waits block, after a moment of spinning where every thread has a core: waking one costs as much as a small
// operator, and a decode step of 24 layers forks more than a hundred times. More threads than cores do not
// spin: they would take time from those they wait for.
//
// Thread: `run` from one thread at a time, the one that made the team; it works along as worker 0.
// Allocates in the constructor only. Items must not throw.
class ThreadTeam {
 public:
  // `threads` >= 1, the caller included. `all_threads`: of every team that works beside this one, itself
  // included, when that is more.
  explicit ThreadTeam(int threads, int all_threads = 0);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  [[nodiscard]] int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls item(i, worker) once for every i in [0, items), worker in [0, size()); returns when all are done.
  template <class Item>
  void run(std::int64_t items, Item&& item) {
    using Callable = std::remove_reference_t<Item>;
    run_items(
        items,
        [](void* context, std::int64_t i, int worker) { (*static_cast<Callable*>(context))(i, worker); },
        const_cast<void*>(static_cast<const void*>(&item)));
  }

 private:
  using Call = void (*)(void* context, std::int64_t item, int worker);

  void run_items(std::int64_t items, Call call, void* context);
  void work(int worker);
  void take_items(int worker);

  // Written before `generation_` moves on, read after it was seen to.
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t items_ = 0;

  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // one up per loop
  alignas(64) std::atomic<std::int32_t> working_{0};      // threads, the caller aside, that have not finished
  std::atomic<bool> stop_{false};
  int spins_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace tandem
