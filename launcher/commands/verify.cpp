#include "launcher/commands/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "io/checkpoint/checkpoint_files.h"
#include "io/checkpoint/reseal.h"
#include "io/checkpoint/state_match.h"
#include "io/checkpoint/verify.h"
#include "io/folder.h"
#include "io/text.h"
#include "launcher/console.h"

namespace megatrain::launcher {

namespace {

namespace fs = std::filesystem;

/// Files in the folder that belong to no checkpoint: they do no harm, and say that someone was
/// here.
void report_strangers(Console& console, const io::Checkpoint& checkpoint) {
  std::set<std::string> known{std::string(io::kManifestName), std::string(io::kCompleteName),
                              std::string(io::kViewName)};
  for (const io::ManifestFile& file : checkpoint.manifest().files) known.insert(file.name);
  for (const io::ManifestShard& shard : checkpoint.manifest().shards) known.insert(shard.name);
  std::set<std::string> strangers;
  for (const std::string& name : io::names_in(checkpoint.folder()))
    if (!known.contains(name)) strangers.insert(name);
  for (const std::string& name : strangers)
    console.warning(fmt::format("{} is not part of the checkpoint", io::quote(name)));
}

void report(Console& console, const io::Checkpoint& checkpoint,
            const io::CheckpointContents& contents) {
  Index bytes = 0;
  for (const io::ManifestShard& shard : checkpoint.manifest().shards) bytes += shard.bytes;
  const std::string use = contents.training ? "training can go on from it"
                          : contents.parts == io::LoadParts::all
                              ? "weights and optimizer states without a training state"
                              : "weights alone";
  console.line(fmt::format("{} is whole: step {}, a {} model, {} tensors, {}; {}",
                           checkpoint.folder().string(), checkpoint.manifest().step,
                           contents.config.model_type, checkpoint.tensors().size(),
                           format_bytes(bytes), use));
}

void report_resealed(Console& console, const std::vector<io::ResealedItem>& changed) {
  for (const io::ResealedItem& item : changed)
    console.line(item.tensor.empty()
                     ? fmt::format("changed: {}", item.file)
                     : fmt::format("changed: {}: {}", item.file, io::quote(item.tensor)));
  console.line(fmt::format("sealed anew; changed items: {}", changed.size()));
}

}  // namespace

void verify(const VerifyOptions& options) {
  Console console;
  const fs::path folder = options.checkpoint;
  ThreadPool pool(thread_count(options.threads));
  if (options.reseal)
    report_resealed(console, io::reseal(folder, pool, console.bytes_progress("reading")));
  const io::Checkpoint checkpoint(folder);
  const io::CheckpointContents contents = io::check_contents(checkpoint);
  io::BlockPool blocks(std::min(pool.threads(), 8));
  io::verify_values(checkpoint, blocks, pool, console.bytes_progress("verifying"));
  report_strangers(console, checkpoint);
  report(console, checkpoint, contents);
}

}  // namespace megatrain::launcher
