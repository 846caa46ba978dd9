#pragma once
/// @file
/// A folder that several ranks fill together, and that appears whole or not at all.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/checkpoint/peers.h"

namespace megatrain::io {

/// Rank 0 makes the folder aside and its files at full size, ranks write their parts, and rank 0
/// publishes. Where a step fails on one rank it throws on all (agree), nothing is published, and
/// rank 0 removes what was written at the end of the object's life. Every rank makes the same
/// calls.
class JointFolder {
 public:
  using Act = std::function<void()>;

  /// @param name     of the exchanges between the ranks: tells apart what is under way at one time
  /// @param replace  as of AtomicFolder
  JointFolder(Peers& peers, std::string name, std::filesystem::path folder, bool replace)
      : peers_(peers), name_(std::move(name)), folder_(std::move(folder)), replace_(replace) {}

  /// On rank 0 `make` makes the files; then `join` opens them on the others. A rank that writes
  /// nothing gives no `join`, and need not see the folder.
  void begin(const Act& make, const Act& join);
  /// Where to write: the same place on all ranks.
  [[nodiscard]] std::filesystem::path path() const { return AtomicFolder::aside(folder_); }
  /// A step of all ranks (agree).
  std::vector<std::string> agree(std::string_view step, const std::function<std::string()>& act);
  /// On rank 0: `last`, then the folder appears.
  void commit(const Act& last);
  /// Whether this rank makes and publishes.
  [[nodiscard]] bool leads() const { return peers_.rank() == 0; }

 private:
  void recognize(const std::string& token) const;

  Peers& peers_;
  std::string name_;
  std::filesystem::path folder_;
  bool replace_;
  std::optional<AtomicFolder> made_;
};

}  // namespace megatrain::io
