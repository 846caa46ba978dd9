#pragma once
/// @file
/// A saved numerics key: what a run must do to give the same bits again.

#include <string>
#include <vector>

#include "core/base/named_values.h"
#include "core/base/types.h"

namespace megatrain::launcher {

struct SavedKey {
  std::string source;                  ///< the file, for messages
  std::string remedy;                  ///< what a user can do who does not need the same bits
  NamedValues lines;                   ///< "name = value"
  std::vector<std::string> free = {};  ///< lines that may be other ones: the user accepts it

  /// The choices that it fixes, as the planner takes them.
  [[nodiscard]] NamedValues forced() const;
  /// Refuses another number of ranks, before choices that no other number can meet are forced.
  /// @param world  as world_text() has it; @param parts  of the model. @throws UserError
  void require_world(const std::string& world, Index parts) const;
  /// @throws UserError naming the choices that are asked to be other ones than it fixes
  void require_choices(const NamedValues& asked) const;
  /// @param device_known  false: a plan without its device, whose line is passed over
  /// @throws UserError naming the lines in which `key` differs
  void require_equal(const std::string& key, bool device_known) const;

 private:
  [[noreturn]] void refuse(const std::string& differences) const;
};

/// Lines that keys lack which were saved before there was a choice say what was done then.
/// @throws UserError when the text is no key
SavedKey parse_key(const std::string& text, const std::string& source, const std::string& remedy);
/// What --key names. @throws UserError when the file is no key
SavedKey read_key(const std::string& file);

}  // namespace megatrain::launcher
