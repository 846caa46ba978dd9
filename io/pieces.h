#pragma once
/// @file
/// Large transfers in pieces, by all threads of a pool.

#include <functional>

#include "core/base/thread_pool.h"
#include "core/base/types.h"

namespace megatrain::io {

/// Called with bytes done and bytes in all, one call at a time.
using Progress = std::function<void(Index, Index)>;

/// Elements of a tensor that one thread moves at a time.
inline constexpr Index kPieceElements = Index{1} << 20;

/// Runs body(i) for i in [0, pieces); it returns the bytes that it moved. After a failure no piece
/// is begun, and the first one is rethrown.
void run_pieces(ThreadPool& pool, Index pieces, Index total_bytes, const Progress& progress,
                const std::function<Index(Index)>& body);

}  // namespace megatrain::io
