#pragma once
/// @file
/// What a store holds of a tensor, as it lies in a file. Files hold whole tensors; a store has a
/// slice (core/store/slicing.h) of a part (core/model/partition.h) of each.

#include <vector>

#include "core/store/host_store.h"

namespace megatrain::io {

/// Elements [first, first + count) of the store's part of a tensor, all of which lie in block
/// `block` of the whole one, in the same order. ParamDesc::for_each_run says where.
struct HeldPiece {
  Index block = 0;
  Index first = 0;
  Index count = 0;
};

/// Cuts what is held where blocks of `block_elements` of the whole tensor end. Rows that pad a part
/// are in no piece. In order; no two pieces lie in the same block.
std::vector<HeldPiece> held_pieces(const ParamDesc& param, const ElementRange& held,
                                   Index block_elements);

/// What the store's rank writes to files: all that the store holds, but of what each part holds the
/// whole of, the first part's.
ElementRange written_by(const HostStore& store, Index unit, const ParamDesc& param);

}  // namespace megatrain::io
