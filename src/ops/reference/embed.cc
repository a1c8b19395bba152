#include <algorithm>

#include "ops/reference/operators.h"

namespace tandem::ops::reference {

void embed(std::span<const TokenId> ids, const EmbedArgs& args) {
  const std::int64_t hidden = args.weight.hidden;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const bf16* row = args.weight.table + ids[t] * hidden;
    std::copy(row, row + hidden, args.x.row(static_cast<std::int64_t>(t)));
  }
}

}  // namespace tandem::ops::reference
