#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::text {

// Ends a text at the first place where one of some strings is complete (of several that are complete
// at the same place, the longest counts), wherever the pieces of the text end. What comes out is never
// delayed unless it is the beginning of a stop string, and then exactly that beginning.
//
// Thread: one at a time. Time: linear in the text, whatever the strings are.
class StopMatcher {
 public:
  static constexpr std::size_t kMostStrings = 64;
  static constexpr std::size_t kLongestBytes = 4096;

  // Never stops.
  StopMatcher() = default;

  // `include_stop`: the stop string itself still belongs to the text. Error: Invalid, field "stop":
  // an empty string, which would stop everything at once; too many or too long ones.
  [[nodiscard]] static Result<StopMatcher> make(std::vector<std::string> stops, bool include_stop);

  // Appends to `out` what is safe to show. True once a stop string has ended the text; from then on
  // nothing more comes out.
  bool push(std::string_view text, std::string& out);

  // The text ends here without a stop string: appends what was held back.
  void flush(std::string& out);

  [[nodiscard]] bool stopped() const { return stopped_by_ >= 0; }
  [[nodiscard]] const std::string& stopped_by() const { return stops_[static_cast<std::size_t>(stopped_by_)]; }  // only if stopped

  // Bytes pushed but not given out: the beginning of a stop string. 0 once stopped.
  [[nodiscard]] std::size_t held_bytes() const { return held_.size(); }

 private:
  // One node for each beginning of a stop string (Aho and Corasick, 1975).
  struct Node {
    unsigned char byte = 0;
    std::int32_t child = -1, sibling = -1;
    std::int32_t fall_back = 0;  // node of the longest proper suffix that is a beginning too
    std::int32_t depth = 0;      // bytes of the beginning
    std::int32_t stop = -1;      // the longest stop string that ends here
  };
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop);
  [[nodiscard]] std::int32_t child(std::int32_t node, unsigned char byte) const;
  [[nodiscard]] std::int32_t step(std::int32_t node, unsigned char byte) const;
  [[nodiscard]] Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::vector<std::string> stops_;
  bool include_stop_ = false;
  std::vector<Node> nodes_{1};
  std::int32_t state_ = 0;
  std::int32_t stopped_by_ = -1;
  std::string held_;  // the beginning that state_ stands for
};

}  // namespace tandem::text
