#pragma once
/// @file
/// Owns what the system gives out as numbers: files, sockets, pipes, event counters.

namespace megatrain {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  [[nodiscard]] int get() const { return descriptor_; }
  /// Whether there is one.
  explicit operator bool() const { return descriptor_ >= 0; }
  /// Closes now. @returns false when the system reports a failure (errno is set)
  bool close();

 private:
  int descriptor_ = -1;
};

}  // namespace megatrain
