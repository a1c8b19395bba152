#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace tandem {

// A number that is only ever one kind of thing. `Tag` makes the kinds distinct types.
template <class Tag, class Number>
struct Id {
  Number value{};
  friend constexpr auto operator<=>(Id, Id) = default;
};

using RequestId = Id<struct RequestTag, std::uint64_t>;  // never reused (R1.4); 0 is no request
using SlotId = Id<struct SlotTag, std::int32_t>;         // state slot, 0..slots-1; `slots` is the trash slot
using PageId = Id<struct PageTag, std::int32_t>;         // KV page, 0..pages-1; `pages` is the scratch page
using RankId = Id<struct RankTag, std::int32_t>;         // 0..world-1
using TokenId = std::int32_t;                            // 0..vocab-1; arithmetic is wanted here

}  // namespace tandem

template <class Tag, class Number>
struct std::hash<tandem::Id<Tag, Number>> {
  std::size_t operator()(tandem::Id<Tag, Number> id) const noexcept { return std::hash<Number>{}(id.value); }
};
