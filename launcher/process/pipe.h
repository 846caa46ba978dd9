#pragma once
/// @file
/// A pipe between processes.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file_descriptor.h"

namespace megatrain::launcher {

/// Both ends close when a program is started.
struct Pipe {
  FileDescriptor from, to;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error("cannot make a pipe: " + std::generic_category().message(errno));
    from = FileDescriptor(ends[0]);
    to = FileDescriptor(ends[1]);
  }
};

}  // namespace megatrain::launcher
