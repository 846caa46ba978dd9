#include "io/hdf5/handle.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "io/file.h"
#include "io/text.h"

namespace megatrain::io::hdf5 {

static_assert(std::is_same_v<hid_t, std::int64_t>, "HDF5 before 1.10 had 32-bit identifiers");

namespace {

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t keep_first(unsigned, const H5E_error2_t* error, void* text) {
  auto& kept = *static_cast<std::string*>(text);
  if (kept.empty() && error->desc != nullptr) kept = error->desc;
  return 0;
}

/// What the library's innermost function had to say.
std::string library_words() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  return text;
}

/// The system's error number that the library quotes ("errno = 28"), or 0.
int system_error(std::string_view text) {
  constexpr std::string_view kMark = "errno = ";
  const std::size_t at = text.find(kMark);
  int number = 0;
  if (at != std::string_view::npos)
    std::from_chars(text.data() + at + kMark.size(), text.data() + text.size(), number);
  return number;
}

}  // namespace

Session::Session(const std::filesystem::path& path) : lock_(library_mutex()), path_(path) {
  if (H5open() < 0) throw Error("the HDF5 library cannot start");
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLget_loading_state(&plugins_);
  // A filter or driver that a file names must not make the process load code.
  H5PLset_loading_state(0);
}

Session::~Session() {
  H5PLset_loading_state(plugins_);
  H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
}

void Session::fail(std::string_view doing) const {
  const std::string words = library_words();
  if (const int error = system_error(words); error != 0) throw_system_error(doing, path_, error);
  throw UserError(fmt::format("cannot {} {}: HDF5 says {}", doing, quote(path_.string()),
                              words.empty() ? "nothing" : quote(words)));
}

void Session::refuse(std::string_view what) const {
  throw UserError(fmt::format("{}: {}", quote(path_.string()), what));
}

Handle file_access(const Session& session) {
  Handle access = session.own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "open");
  session.check(H5Pset_fapl_sec2(access.get()), "open");
  session.check(H5Pset_file_locking(access.get(), false, true), "open");
  // Nothing that is left open may keep the file open.
  session.check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "open");
  return access;
}

}  // namespace megatrain::io::hdf5
