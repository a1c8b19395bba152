#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tandem::comm {

enum class Collective : std::uint8_t { None, AllReduce, Broadcast, Barrier };

[[nodiscard]] const char* name(Collective kind);  // "all_reduce", ...

// What a device writes into host memory as its collectives run: where a rank stands whose thread only waits.
struct DeviceProgress {
  volatile std::uint64_t begun;     // number of the collective that runs or ran last; 0: none yet
  volatile std::uint64_t ended;     // of the one that ended last
  volatile std::uint32_t kind;      // Collective, of `begun`
  volatile std::uint32_t elements;  // of `begun`
};

// Where a rank is in its collectives, for the controller that has to name a stuck rank (R3.2).
// Thread: written by the rank's, read by any. The fields are read one by one: a snapshot of a rank that
// is moving may mix two collectives, that of a stuck rank does not.
struct Progress {
  std::atomic<std::uint64_t> number{0};  // of the collective begun last; 0: none yet
  std::atomic<Collective> kind{Collective::None};
  std::atomic<std::int64_t> elements{0};
  std::atomic<bool> inside{false};
  std::atomic<const DeviceProgress*> device{nullptr};  // counts in place of the above; lives as long as the group

  [[nodiscard]] std::string text() const;  // "in all_reduce number 17 (2560 elements)"
};

// How many collectives a rank has begun, and the hash over kind, size and number of them all.
struct SequenceMark {
  std::uint64_t number = 0;
  std::uint64_t hash = 0;
  bool operator==(const SequenceMark&) const = default;
};

// Numbers and hashes a rank's collectives. Thread: the rank's.
class Sequence {
 public:
  // `progress` may be null; else it outlives the sequence.
  explicit Sequence(Progress* progress) : progress_(progress) {}

  std::uint64_t begin(Collective kind, std::int64_t elements);
  void end();
  [[nodiscard]] std::uint64_t number() const { return mark_.number; }
  [[nodiscard]] const SequenceMark& mark() const { return mark_; }

 private:
  Progress* progress_;
  SequenceMark mark_;
};

}  // namespace tandem::comm
