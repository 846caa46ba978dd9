#pragma once
/// @file
/// The one object by which a process is a rank of a run.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/engine/communicator.h"
#include "parallel/rendezvous/client.h"
#include "parallel/rendezvous/place.h"
#include "parallel/world/connector.h"
#include "parallel/world/living_communicators.h"

namespace megatrain::parallel {

struct WorldOptions {
  /// A hash of what all ranks must have in common.
  std::uint64_t configuration = 0;
  /// Whose memory the communicators work on; outlives the world. nullptr: that of the CPU.
  Device* device = nullptr;
  /// How long a rank waits for the others to come.
  Milliseconds join_limit{300'000};
  /// How long a collective, or the connecting, waits for a peer that the rendezvous sees alive.
  Milliseconds collective_timeout{300'000};
  /// Where this process serves the rendezvous: a rank that nothing is heard of for so long is lost.
  Milliseconds silence{10'000};
  /// Called once, from a thread of the rendezvous, when another rank has ended the work of all.
  std::function<void(const Trouble&)> on_trouble = {};
  Logger log = {};
};

/// All ranks of a run, as one of them sees them. A world of one has no sockets and no threads.
///
/// When a rank is lost, silent, stuck or fails, every rank's communicators are ended at once, from
/// a thread of the rendezvous: what waits in a collective throws a PeerError, what waits in a call
/// of this class throws RankLost, and both name the rank of the world whose fault it is. So does
/// all that comes later. Calls may come from several threads.
class World {
 public:
  /// Returns when all ranks are here.
  /// @throws UserError when this rank is refused, or ranks are missing after options.join_limit;
  ///         RankLost when one of those that came is gone again
  World(const ProcessPlace& place, const WorldOptions& options);
  /// Leaves, as soon as the communicators are gone too. When it goes by an exception, this rank has
  /// failed.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.world; }
  [[nodiscard]] const ProcessPlace& place() const { return place_; }

  /// Connects some ranks; each of them makes this call, and several such calls in the same order.
  /// @param name   for messages, at most 128 bytes. It may be used again, for the same or others
  /// @param ranks  each once, in the communicator's order, this one among them
  /// @throws PeerError when ranks do not come, or after trouble; UserError when this build has
  ///         nothing to connect them with
  [[nodiscard]] std::unique_ptr<Communicator> connect(const std::string& name,
                                                      std::span<const int> ranks);

  /// Agreements of all ranks: see Rendezvous, whose limits they have. Alone they return at once.
  std::vector<std::string> exchange(std::string_view name, std::string_view value,
                                    Milliseconds limit);
  void barrier(std::string_view name, Milliseconds limit);
  bool any(std::string_view name, bool value, Milliseconds limit);
  bool all(std::string_view name, bool value, Milliseconds limit);

  /// Keys are texts of at most 256 bytes, values bytes of at most 1 MiB.
  void set(std::string_view key, std::string_view value);
  /// The key's value; waits until a rank sets it. Alone, what is not there is an Error at once.
  std::string get(std::string_view key, Milliseconds limit);

  /// The watchdog: says what this rank does now, and that it will say something else within `limit`
  /// (0: some day). When it does not, the work is over for all, and to blame is who does not answer
  /// or has come to the fewest collectives. Alone nobody waits for it.
  void working_on(std::string_view doing, Milliseconds limit);
  /// This rank has failed: ends the work of all. After other trouble it changes nothing.
  void fail(std::string_view reason);
  /// What has ended the work of all.
  [[nodiscard]] std::optional<Trouble> trouble() const;

 private:
  /// Who the other ranks are asked through; nobody when alone. @throws RankLost when alone and
  /// failed
  [[nodiscard]] Rendezvous* others() const;

  const ProcessPlace place_;
  Device* const device_;
  const Milliseconds collective_timeout_;
  const int exceptions_;  ///< that were under way when this was made
  const std::shared_ptr<LivingCommunicators> living_;
  /// Collectives that this rank has come to. All ranks make the same ones.
  const std::shared_ptr<std::atomic<std::uint64_t>> collectives_;
  std::shared_ptr<Rendezvous> rendezvous_;  ///< alone: none
  std::string address_;                     ///< where the other ranks reach this one
  std::mutex mutex_;                        ///< of what follows
  Connector connector_;                     ///< made when it is needed
  std::map<std::uint64_t, int> connected_;  ///< how often the same name and ranks were
  std::map<std::string, std::string, std::less<>> values_;  ///< alone: what was set
};

}  // namespace megatrain::parallel
