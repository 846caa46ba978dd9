// Training data: the first byte chooses the kind of file, the rest is its content. Whatever is
// accepted must give samples whose ids lie inside the vocabulary.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/dataset.h"

namespace {

using namespace megatrain;

/// One file of each kind, in memory where the system has such a folder; gone when the process ends.
class Files {
 public:
  Files() : folder_(parent() / ("megatrain_fuzz_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::filesystem::path write(std::uint8_t kind, std::span<const char> content) const {
    constexpr std::array kNames = {"tokens.bin", "documents.jsonl", "text.txt"};
    std::filesystem::path path = folder_ / kNames[kind % kNames.size()];
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path;
  }

 private:
  static std::filesystem::path parent() {
    const std::filesystem::path memory = "/dev/shm";
    return std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  }

  std::filesystem::path folder_;
};

void read_all(const TokenSource& source, Index vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.sequence() + 1));
  for (Index i = 0; i < source.samples(); ++i) {
    source.sample(i, tokens);
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= vocabulary) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Files kFiles;
  if (size == 0) return 0;
  io::DatasetOptions options;
  options.sequence = 3;
  options.vocabulary = 300;
  options.validation_fraction = 0.25;
  options.train = {
      kFiles.write(data[0], std::span(reinterpret_cast<const char*>(data + 1), size - 1))};
  try {
    const io::Dataset dataset = io::open_dataset(options);
    read_all(*dataset.train, options.vocabulary);
    if (dataset.validation) read_all(*dataset.validation, options.vocabulary);
  } catch (const UserError&) {
  }
  return 0;
}
