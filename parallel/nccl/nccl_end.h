#pragma once
/// @file
/// One rank's end of a communicator of NCCL's, shared by its owner and the threads that watch it.

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device/cuda/cuda_device.h"
#include "core/engine/communicator.h"
#include "parallel/cpu/call.h"
#include "parallel/nccl/trouble_board.h"

namespace megatrain {

/// The library's communicator is non-blocking: none of its calls waits for a peer or for the GPU,
/// so all are made under one lock, and it may be aborted whenever nobody holds that.
///
/// Three threads meet here. The *owner* issues. The *observer* asks the GPU what was reached; such
/// a question may block when the driver's queues are full. The *keeper* keeps the time, asks the
/// other ranks, and ends things; it never asks the GPU anything.
class NcclEnd {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  /// A call of the library for a communicator and a stream.
  using Launch = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  NcclEnd(CudaDevice& device, std::shared_ptr<KeyValueStore> store, std::string name, int rank,
          int size, Milliseconds timeout, std::function<void()> on_collective);
  NcclEnd(const NcclEnd&) = delete;
  NcclEnd& operator=(const NcclEnd&) = delete;

  // --- The owner ---

  /// Finds the other ranks and connects. @throws PeerError
  void connect();
  /// Makes a call of the library; returns when what it does is on the stream, so that an event
  /// recorded next comes after it. Waits for no GPU, but NCCL connects ranks when they first need
  /// it, and then for the others to make the same call.
  /// @param limit  from now until it is reached; nullopt: the timeout, from when the GPU comes to
  /// it
  /// @throws PeerError
  void enqueue(const Call& call, CudaStream& stream, const Launch& launch,
               std::optional<Milliseconds> limit = std::nullopt);
  /// Waits for an event of a stream that `call` is on. @throws PeerError
  void wait(const Call& call, Event& event);
  /// @throws PeerError when something has failed
  void check();
  /// Ends what is left: waits a while for the other ranks, or for the keeper where something
  /// failed.
  void close() noexcept;

  // --- Any thread ---

  /// Ends it for all ranks, with a reason of this one's. See Communicator::abort.
  void abort(std::string_view reason) noexcept;
  /// From now on every call throws this. The first counts.
  void fail(const PeerError& error);
  [[nodiscard]] std::optional<PeerError> failure();

  // --- The observer ---

  void observe() noexcept;

  // --- The keeper ---

  /// What ends this communicator, found out with the help of the others; asked often.
  [[nodiscard]] std::optional<PeerError> trouble();
  /// The library's communicator, to be aborted; nullptr when there is none. Calls after this find
  /// that it failed.
  [[nodiscard]] ncclComm_t take();
  /// It was aborted: no kernel of it waits any more.
  void aborted();
  /// Ends it because of trouble that another communicator of the GPU had.
  void end_with(std::string_view trouble) noexcept;

 private:
  /// A call whose end has not been seen.
  struct Pending {
    Call call;
    std::unique_ptr<Event> begin, end;
    bool on_stream = false;                    ///< both events are recorded
    std::optional<Clock::time_point> due;      ///< nullopt: the GPU has not come to it
    std::optional<Clock::time_point> limited;  ///< due whatever the GPU does
    [[nodiscard]] bool late(Clock::time_point now) const {
      return (due && now > *due) || (limited && now > *limited);
    }
  };

  /// Runs `act` under the lock and waits until the library is done with it.
  void run(const std::string& what, const std::function<ncclResult_t()>& act);
  /// Leaves it to the keeper to find out why, and throws what it finds.
  [[noreturn]] void give_in(const std::string& what, const std::string& why);
  void throw_failure(const std::string& what);
  // Under the lock:
  /// The state of the library's communicator, of which there is one.
  [[nodiscard]] ncclResult_t ask_library();
  /// The error that it has, if it has one.
  [[nodiscard]] std::optional<std::string> library_error();
  [[noreturn]] void raise(const std::string& what) const;
  [[nodiscard]] std::string describe(const Call& call) const;
  [[nodiscard]] std::unique_ptr<Event> make_event();
  void report(std::string what);
  /// @returns the trouble in this rank's own words
  [[nodiscard]] std::optional<std::string> own_trouble(Progress& progress);

  CudaDevice& device_;
  const std::string name_;
  const int rank_;
  const int size_;
  const Milliseconds timeout_;
  const std::function<void()> on_collective_;
  TroubleBoard board_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex:
  ncclComm_t comm_ = nullptr;
  std::deque<Pending> pending_;                ///< the owner appends, the observer takes away
  std::vector<std::unique_ptr<Event>> spare_;  ///< events that were reached
  Progress progress_;
  std::optional<Clock::time_point> connecting_until_;
  std::optional<std::string> reported_;  ///< trouble that a call of the library or the GPU had
  std::optional<PeerError> failure_;
  std::string failed_in_;  ///< the call that was under way
  bool aborted_ = false;

  Clock::time_point next_news_;  ///< of the keeper alone
};

/// Words for a result of NCCL's, with what the library says besides.
std::string nccl_error_text(ncclResult_t result, ncclComm_t comm);

}  // namespace megatrain
