#pragma once
/// @file
/// Instructions that enqueue the same at every run, launched as graphs: one call each.

#include <functional>
#include <memory>
#include <vector>

#include "core/device/device.h"

namespace megatrain {

/// Of one stream. The first run of an instruction enqueues its work as it is, for what libraries
/// set up at first use; the second captures it; from then on a run is one launch.
class InstructionGraphs {
 public:
  /// @param stream  must outlive this
  /// @param count   instructions are numbered below this
  InstructionGraphs(Stream& stream, std::size_t count) : stream_(stream), entries_(count) {}

  /// @param enqueue  the instruction's work, the same at every run
  void run(std::size_t instruction, const std::function<void()>& enqueue);
  /// Instructions that are captured by now.
  [[nodiscard]] Index captured() const;

 private:
  struct Entry {
    bool ran = false;
    std::unique_ptr<Graph> graph;
  };
  Stream& stream_;
  std::vector<Entry> entries_;
};

}  // namespace megatrain
