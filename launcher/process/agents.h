#pragma once
/// @file
/// The launch programs of all nodes, which start, stop and restart their ranks together.

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/rendezvous/client.h"
#include "parallel/rendezvous/node_place.h"

namespace megatrain::launcher {

/// Something that a node says to all. Every node takes the same notices in the same order.
struct Notice {
  enum class Kind {
    signal,   ///< number: forward it to the ranks
    suspect,  ///< rank; text: why it is thought to be the first that failed
    failed,   ///< rank, number: its exit code; text: what happened. Nobody's ranks can go on
    ended,    ///< number: 0 or 75; no rank of that node runs any more
  };
  Kind kind;
  int generation;
  int rank = -1;
  int number = 0;
  std::string text = {};
  int node = 0;  ///< who says it
};

class Agents {
 public:
  /// Meets the other nodes.
  /// @param configuration  hash of what all nodes must have in common
  /// @throws UserError naming the nodes that are missing after `limit`
  Agents(const parallel::NodePlace& place, std::uint64_t configuration,
         parallel::Milliseconds limit, Logger log);

  /// Every node gives a value and gets those of all, by node.
  std::vector<std::string> exchange(const std::string& name, const std::string& value);
  void post(const Notice& notice);
  /// The next notice, one's own included.
  std::optional<Notice> take();
  /// Readable when there may be a notice or trouble.
  [[nodiscard]] int descriptor() const { return waker_.descriptor(); }
  void clear() const { waker_.clear(); }
  /// Says which node is gone, when one is: there is no going on then.
  [[nodiscard]] std::optional<parallel::Trouble> trouble() const;

 private:
  void deliver(Notice notice);

  parallel::Milliseconds limit_;
  parallel::Waker waker_;
  std::mutex mutex_;
  std::deque<Notice> notices_;
  std::unique_ptr<parallel::Rendezvous>
      rendezvous_;  ///< null: this node is alone. Last: it calls us
};

}  // namespace megatrain::launcher
