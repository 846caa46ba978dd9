#include "launcher/commands/convert.h"

#include <fmt/format.h>

#include "io/checkpoint/convert.h"
#include "io/checkpoint/manifest.h"
#include "io/file.h"
#include "launcher/console.h"

namespace megatrain::launcher {

namespace {

constexpr Index kFolderShard = 5'000'000'000;
constexpr Index kCheckpointShard = Index{16} << 30;

DType type_of(const ConvertOptions& options, DType absent) {
  if (!options.type) return absent;
  return *options.type == name(DType::bf16) ? DType::bf16 : DType::f32;
}

}  // namespace

void convert(const ConvertOptions& options) {
  Console console;
  const bool from_checkpoint =
      io::file_exists(std::filesystem::path(options.from) / io::kManifestName);
  io::ConvertOptions request{.from = options.from,
                             .to = options.to,
                             .type = type_of(options, from_checkpoint ? DType::bf16 : DType::f32),
                             .shard_bytes = from_checkpoint ? kFolderShard : kCheckpointShard,
                             .replace = options.overwrite,
                             .threads = thread_count(options.threads)};
  if (options.shard_size) request.shard_bytes = options.shard_size->bytes;
  if (options.h5_bf16 && (from_checkpoint || request.type != DType::bf16))
    throw UserError(
        "--h5-bf16 says how a checkpoint describes bf16; here none is written with that type");
  const io::Progress progress = console.bytes_progress("converting");
  if (from_checkpoint)
    io::checkpoint_to_folder(request, progress);
  else
    io::folder_to_checkpoint(
        request, options.h5_bf16 == "uint16" ? io::Hdf5Bf16::uint16 : io::Hdf5Bf16::floating,
        progress);
  console.line(fmt::format("{} written to {} as {}",
                           from_checkpoint ? "Hugging Face folder" : "checkpoint", options.to,
                           name(request.type)));
}

}  // namespace megatrain::launcher
