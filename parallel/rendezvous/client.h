#pragma once
/// @file
/// A rank's side of the rendezvous: meeting, agreeing, and hearing of trouble.

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

#include "core/base/error.h"
#include "core/base/log.h"
#include "parallel/key_value_store.h"
#include "parallel/rendezvous/place.h"
#include "parallel/rendezvous/server.h"

namespace megatrain::parallel {

/// The work of all ranks is over: a rank is lost, has failed, or says nothing any more. The message
/// names it.
class RankLost : public Error {
 public:
  explicit RankLost(const Trouble& trouble) : Error(trouble.reason), rank_(trouble.rank) {}
  /// Whose fault it is; -1: of who serves the rendezvous and is no rank.
  [[nodiscard]] int rank() const { return rank_; }

 private:
  int rank_;
};

struct RendezvousOptions {
  std::string noun = "rank";  ///< what is counted, for messages
  /// A hash of what all ranks must have in common.
  std::uint64_t configuration = 0;
  /// How long a rank waits for the others to come.
  Milliseconds join_limit{300'000};
  /// Where this process serves: a rank that nothing is heard of for so long is lost.
  Milliseconds silence{10'000};
  /// How far this rank has come in what all do alike, as a number that only grows. It tells who is
  /// behind when a rank is late. Called from a thread of the rendezvous; none: nobody is.
  std::function<std::uint64_t()> progress = {};
  /// Called once, from a thread of the rendezvous, when the work is over for all: see RankLost.
  std::function<void(const Trouble&)> on_trouble;
  /// Called, from the same thread, with each post of a rank, one's own included. All ranks see all
  /// posts in one order.
  std::function<void(int rank, const std::string&)> on_post;
  Logger log;
};

/// All waits have limits; what is thrown when one passes names the ranks that are missing. After
/// trouble every call throws RankLost. Calls may come from several threads. One thread sleeps until
/// something happens; where this process serves, one more.
class Rendezvous {
 public:
  /// Serves, if that is this rank's task, connects, and returns when all ranks are here.
  /// @throws UserError when this rank is refused, or ranks are missing after options.join_limit
  Rendezvous(const ProcessPlace& place, RendezvousOptions options);
  /// Leaves. A rank that serves stays until the others have left, 10 s at most.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int world() const { return place_.world; }
  /// Of the connection to who serves. A rank on the same machine may see loopback.
  [[nodiscard]] const Ends& ends() const { return ends_; }

  /// Keys are texts of at most 256 bytes, values bytes of at most 1 MiB.
  void set(std::string_view key, std::string_view value);
  /// The key's value; waits until somebody sets it.
  std::string get(std::string_view key, Milliseconds limit);
  /// The same, and nothing when nobody has set it within `limit` (0: only what is there now).
  std::optional<std::string> find(std::string_view key, Milliseconds limit);
  /// The same for many keys in one request: as long as keys and values of a request have 1 MiB
  /// together. See KeyValueStore.
  void set_all(std::span<const KeyValueStore::Entry> entries);
  KeyValueStore::Values find_all(std::span<const std::string> keys, Milliseconds limit);

  /// Every rank gives a value of at most 4 KiB under the same name and gets those of all, by rank.
  /// A name may be used again: the n-th use of one rank meets the n-th of the others.
  std::vector<std::string> exchange(std::string_view name, std::string_view value,
                                    Milliseconds limit);
  /// Returns when all ranks have called it.
  void barrier(std::string_view name, Milliseconds limit);
  /// Whether one of the ranks says so; all get the same answer.
  bool any(std::string_view name, bool value, Milliseconds limit);
  /// Whether all of them say so.
  bool all(std::string_view name, bool value, Milliseconds limit);

  /// Hands a text of at most 4 KiB to every rank's on_post.
  void post(std::string_view text);

  /// The watchdog: says what this rank does now, for others' errors, and that it will say something
  /// else within `limit` (0: some day). When it does not, the work is over for all. The message
  /// names the rank that does not answer, or else the one that is behind in `progress`: this rank
  /// may have waited for it.
  void working_on(std::string_view doing, Milliseconds limit);
  /// Ends the work for all: this rank has failed.
  void fail(std::string_view reason);
  /// What ended the work, if something did.
  [[nodiscard]] std::optional<Trouble> trouble() const;

 private:
  class Link;
  [[nodiscard]] std::string who() const;
  void serve(Clock::time_point deadline, const RendezvousOptions& options);

  ProcessPlace place_;
  std::string noun_;
  std::optional<RendezvousServer> server_;
  Ends ends_;
  std::unique_ptr<Link> link_;
  std::mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> uses_;  ///< of names, by this rank
};

}  // namespace megatrain::parallel
