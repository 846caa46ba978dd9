#pragma once
/// @file
/// What the files of this folder share: identifiers of the HDF5 library and its errors. Nothing
/// else includes it.

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>

namespace megatrain::io::hdf5 {

/// Owns an identifier of the library.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { release(); }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  [[nodiscard]] hid_t get() const { return id_; }
  /// Closes now. @returns false when the library reports a failure
  bool release() { return id_ < 0 || close_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// The one user at a time that the library can have: it is not reentrant unless built so, and then
/// it has one lock too. While a session lives the library prints no errors and loads no plugins;
/// what a program that uses HDF5 itself had set comes back at its end. Handles die before it.
class Session {
 public:
  /// @param path  the file in question, for messages
  explicit Session(const std::filesystem::path& path);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// UserError with what the library says: "cannot DOING 'PATH': ..."; Error for a failing disk.
  [[noreturn]] void fail(std::string_view doing) const;
  /// UserError in the same words, for what we find ourselves.
  [[noreturn]] void refuse(std::string_view what) const;
  /// Result of a call, or fail() for a negative one.
  template <typename Result>
  Result check(Result result, std::string_view doing) const {
    if (result < 0) fail(doing);
    return result;
  }
  [[nodiscard]] Handle own(hid_t id, Handle::Close close, std::string_view doing) const {
    return {check(id, doing), close};
  }

 private:
  std::unique_lock<std::mutex> lock_;
  const std::filesystem::path& path_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
  unsigned plugins_ = 0;
};

/// How files are opened: by the plain driver, whatever the environment says, and without locks,
/// which some network file systems do not have; who writes a file is settled elsewhere.
Handle file_access(const Session& session);

}  // namespace megatrain::io::hdf5
