#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "rank/command.h"

namespace tandem::rank {

class RankModel;

// Places where things can be made to go wrong on purpose: tests, and `--fault`. The default does
// nothing. Thread: deliver() on the controller's, the others on the rank's; rules for several ranks
// come in from all their threads at once.
class Faults {
 public:
  enum class Delivery : std::uint8_t {
    Normal,
    Lost,     // the queue takes it, the rank never sees it
    Refused,  // the queue does not take it
  };

  virtual ~Faults() = default;

  virtual Delivery deliver(RankId, const Command&) { return Delivery::Normal; }

  // Before the released command runs. An error becomes the rank's; may throw, or block for ever.
  virtual Result<void> before(RankId, const Command&, RankModel&) { return {}; }

  // What the rank sends in place of its reply: nothing, this, another, several.
  virtual std::vector<Reply> send(RankId, Reply reply) {
    std::vector<Reply> out;
    out.push_back(std::move(reply));
    return out;
  }
};

}  // namespace tandem::rank
