#include "io/held_pieces.h"

#include <algorithm>

namespace megatrain::io {

std::vector<HeldPiece> held_pieces(const ParamDesc& param, const ElementRange& held,
                                   Index block_elements) {
  std::vector<HeldPiece> pieces;
  param.for_each_run(held.first, held.count(), [&](PartRun run) {
    while (run.count > 0) {
      const Index block = run.whole / block_elements;
      const Index count = std::min(run.count, (block + 1) * block_elements - run.whole);
      // Padding follows the last element that a part has: what shares a block is side by side.
      if (pieces.empty() || pieces.back().block != block) pieces.push_back({block, run.part, 0});
      require(pieces.back().first + pieces.back().count == run.part,
              "the elements of a piece are side by side in the part");
      pieces.back().count += count;
      run = {run.part + count, run.whole + count, run.count - count};
    }
  });
  return pieces;
}

ElementRange written_by(const HostStore& store, Index unit, const ParamDesc& param) {
  return param.counted() ? store.held(unit, param) : ElementRange{};
}

}  // namespace megatrain::io
