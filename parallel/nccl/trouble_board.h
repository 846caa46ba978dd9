#pragma once
/// @file
/// Where the ranks of a communicator say that they came, and why it ended. NCCL tells neither who
/// is missing nor who has died: its kernels just wait.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/communicator.h"
#include "parallel/key_value_store.h"

namespace megatrain {

/// How far a rank has come, by the numbers of its calls.
struct Progress {
  std::uint64_t reached = 0;  ///< the latest that its GPU has come to
  std::uint64_t issued = 0;   ///< the latest that it has made
  auto operator<=>(const Progress&) const = default;
};

/// Calls may come from several threads. A store that knows why the work of all is over counts
/// before what the ranks say: its PeerError is thrown, or returned where an error is returned.
class TroubleBoard {
 public:
  /// @param patience  how long the others are waited for once somebody has found trouble. Each
  /// looks
  ///                  at the board about once a second
  TroubleBoard(std::shared_ptr<KeyValueStore> store, std::string name, int rank, int size,
               std::chrono::milliseconds patience = std::chrono::milliseconds(4000));

  /// Says that this rank is here, and waits for the others. @throws PeerError naming who did not
  /// come in time
  void meet(std::chrono::milliseconds timeout);
  /// Something that rank 0 has for all. @throws PeerError naming it when it says nothing
  void publish(std::string_view value);
  [[nodiscard]] std::string read_published(std::chrono::milliseconds timeout);

  /// What others have said of an end; nothing when nobody has.
  [[nodiscard]] std::optional<std::string> news();
  /// Why the communicator ends, where this rank knows `what` only: asks the others whom they blame.
  /// If none knows, it is who does not answer, or else who is behind. Says the result too.
  [[nodiscard]] PeerError explain(const std::string& what, const Progress& progress);
  /// A sign of life from a rank that does not know what is wrong here.
  void mention(std::string_view what, const Progress& progress) noexcept;
  /// This rank ends it. @returns what counts, which may be another reason that was there before
  [[nodiscard]] PeerError give_up(std::string_view reason, const Progress& progress);

 private:
  struct Words {
    std::vector<int> blamed;
    Progress progress;
    std::string text;
  };
  [[nodiscard]] std::string key(std::string_view what) const;
  [[nodiscard]] std::string words_key(int of) const;
  void say(const Words& words);
  [[nodiscard]] std::optional<Words> words_of(int rank, std::chrono::milliseconds patience);
  [[nodiscard]] PeerError ask(const std::string& what, const Progress& progress);

  const std::shared_ptr<KeyValueStore> store_;
  const std::string name_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds patience_;
};

}  // namespace megatrain
