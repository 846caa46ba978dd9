// An HDF5 file: what is let through must lie inside the file, with sizes that fit the shapes. In
// fuzz builds checksums are not compared: what lies behind them must be safe without.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/hdf5/hdf5_file.h"

namespace {

using namespace megatrain;

void check(const io::Hdf5File& file) {
  for (const io::Hdf5Dataset& dataset : file.datasets()) {
    if (file.find(dataset.path) == nullptr) std::abort();
    if (!dataset.refusal.empty()) continue;
    Index bytes = io::bits_of(dataset.type) / 8;
    for (const Index dimension : dataset.shape) bytes = checked_mul(bytes, dimension);
    if (bytes != dataset.bytes || bytes > file.bytes()) std::abort();
    std::vector<std::byte> values(static_cast<std::size_t>(bytes));
    file.read(dataset, 0, values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int kFile = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::ftruncate(kFile, 0) != 0 || ::pwrite(kFile, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  try {
    check(io::Hdf5File("/proc/self/fd/" + std::to_string(kFile)));
  } catch (const UserError&) {
  }
  return 0;
}
