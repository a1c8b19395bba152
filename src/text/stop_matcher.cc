#include "text/stop_matcher.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::text {

Result<StopMatcher> StopMatcher::make(std::vector<std::string> stops, bool include_stop) {
  if (stops.size() > kMostStrings)
    return fail(ErrorKind::Invalid, fmt::format("stop has {} strings; at most {} are supported", stops.size(), kMostStrings), "stop");
  for (const std::string& stop : stops) {
    if (stop.empty()) return fail(ErrorKind::Invalid, "stop has an empty string, which would end every text at once", "stop");
    if (stop.size() > kLongestBytes)
      return fail(ErrorKind::Invalid, fmt::format("stop has a string of {} bytes; at most {} are supported", stop.size(), kLongestBytes), "stop");
  }
  return StopMatcher(std::move(stops), include_stop);
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : stops_(std::move(stops)), include_stop_(include_stop) {
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    std::int32_t node = 0;
    for (const char c : stops_[i]) {
      const auto byte = static_cast<unsigned char>(c);
      std::int32_t next = child(node, byte);
      if (next < 0) {
        next = static_cast<std::int32_t>(nodes_.size());
        nodes_.push_back({.byte = byte, .sibling = at(node).child, .depth = at(node).depth + 1});
        at(node).child = next;
      }
      node = next;
    }
    at(node).stop = static_cast<std::int32_t>(i);
  }
  // Breadth first: a node's fall-back is shorter, so it is complete before it is needed.
  std::vector<std::int32_t> queue{0};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::int32_t parent = queue[i];
    for (std::int32_t node = at(parent).child; node >= 0; node = at(node).sibling) {
      at(node).fall_back = parent == 0 ? 0 : step(at(parent).fall_back, at(node).byte);
      if (at(node).stop < 0) at(node).stop = at(at(node).fall_back).stop;
      queue.push_back(node);
    }
  }
}

std::int32_t StopMatcher::child(std::int32_t node, unsigned char byte) const {
  std::int32_t next = at(node).child;
  while (next >= 0 && at(next).byte != byte) next = at(next).sibling;
  return next;
}

std::int32_t StopMatcher::step(std::int32_t node, unsigned char byte) const {
  while (true) {
    const std::int32_t next = child(node, byte);
    if (next >= 0) return next;
    if (node == 0) return 0;
    node = at(node).fall_back;
  }
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  if (stopped()) return true;
  if (stops_.empty()) {
    out += text;
    return false;
  }
  held_ += text;
  for (std::size_t i = held_.size() - text.size(); i < held_.size(); ++i) {
    state_ = step(state_, static_cast<unsigned char>(held_[i]));
    if (at(state_).stop < 0) continue;
    stopped_by_ = at(state_).stop;
    const std::size_t end = include_stop_ ? i + 1 : i + 1 - stopped_by().size();
    out.append(held_, 0, end);
    held_.clear();
    return true;
  }
  const std::size_t safe = held_.size() - static_cast<std::size_t>(at(state_).depth);
  out.append(held_, 0, safe);
  held_.erase(0, safe);
  return false;
}

void StopMatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
  state_ = 0;
}

}  // namespace tandem::text
