#pragma once
/// @file
/// The CPU as a compute device. Streams are threads with queues; work of different streams truly
/// runs at the same time, and only events order it.
///
/// A stream's work and its pool take numbers below the smallest normal one for zero, for speed;
/// copies keep them.
///
/// Under the thread sanitizer the queues themselves create no order between streams: a hand-over
/// orders the caller before the work and nothing else, so that a schedule's missing wait shows as
/// the race that it is. Library code is invisible to the sanitizer; op functions announce the
/// ranges that they read and write.

#include <functional>

#include "core/base/thread_pool.h"
#include "core/device/device.h"

namespace megatrain {

class CpuStream : public Stream {
 public:
  /// Appends work; it runs on the stream's thread, in order. An exception of the work fails the
  /// stream for good: later work is dropped, a stream that waits for a later event of this one
  /// fails too, and every later synchronize (of the stream, or of an event recorded on it)
  /// rethrows it. Events are still reached, so that nothing hangs.
  virtual void enqueue(std::function<void()> work) = 0;
  /// Threads for the loops of this stream's work, to be used from inside that work only. They
  /// start at the first call and belong to this stream alone; copies never use them.
  [[nodiscard]] virtual ThreadPool& pool() = 0;
};

/// The stream as the CPU device's. @throws LogicError for a stream of another device
CpuStream& cpu_stream(Stream& stream);

/// Tells the thread sanitizer that the running work reads or writes a range; no-ops otherwise.
void announce_read(const void* data, Index bytes);
void announce_write(void* data, Index bytes);
/// The same for `rows` rows of `row_bytes` bytes, `pitch_bytes` apart.
void announce_read(const void* data, Index rows, Index row_bytes, Index pitch_bytes);
void announce_write(void* data, Index rows, Index row_bytes, Index pitch_bytes);

}  // namespace megatrain
