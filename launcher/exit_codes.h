#pragma once
/// @file
/// What the program ends with.

namespace megatrain::launcher {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;     ///< nothing that the user can mend
inline constexpr int kUserError = 2;  ///< what the user can mend: the same request again is no help
/// A run that was asked to make room and can go on elsewhere, as schedulers know it: no failure.
inline constexpr int kRequeue = 75;
/// What a program ends with that a signal has ended early, as shells have it.
constexpr int code_of_signal(int signal) { return 128 + signal; }

}  // namespace megatrain::launcher
