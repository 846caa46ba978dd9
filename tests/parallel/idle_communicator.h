#pragma once
/// @file
/// A communicator of one rank that does nothing: for tests that override what they look at.

#include "core/engine/communicator.h"

namespace megatrain::testing {

class IdleCommunicator : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string_view name() const override { return "idle"; }
  void all_gather(Stream&, const void*, void*, Index, DType) override {}
  void reduce_scatter(Stream&, const float*, float*, Index) override {}
  void all_reduce(Stream&, float*, Index) override {}
  void broadcast(Stream&, void*, Index, DType, int) override {}
  void sum(std::span<double>) override {}
  [[nodiscard]] double max(double value) override { return value; }
  void barrier(std::chrono::milliseconds) override {}
  void check() override {}
  void abort(std::string_view) noexcept override {}
};

}  // namespace megatrain::testing
