#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/checkpoint/shard_writer.h"
#include "io/text.h"

namespace megatrain::io {

namespace fs = std::filesystem;

namespace {

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \r\n") + 1);
  return text;
}

/// Runs `read`; whatever is wrong with the files it reads is damage.
template <class Read>
auto as_damage(const Read& read) {
  try {
    return read();
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const LogicError&) {
    throw;
  } catch (const PermissionError&) {
    throw;  // not what the files hold, but who asks for it
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    throw DamagedCheckpoint(error.what());
  }
}

}  // namespace

Manifest read_manifest(const fs::path& folder, bool sealed) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw UserError(fmt::format("{} is no folder", quote(folder.string())));
  const fs::path path = folder / kManifestName;
  if (!file_exists(path))
    throw UserError(
        fmt::format("{} is no checkpoint: it holds no {}", quote(folder.string()), kManifestName));
  if (!file_exists(folder / kCompleteName))
    throw DamagedCheckpoint(
        fmt::format("{} was never finished: it holds no {}", folder.string(), kCompleteName));
  Manifest manifest = as_damage([&] {
    const std::string text = read_whole_file(path, kLargestSideFile);
    const std::string marker = trimmed(read_whole_file(folder / kCompleteName, 4096));
    if (sealed && marker != to_text(checksum(text)))
      throw DamagedCheckpoint(fmt::format("{}: its checksum is {}, but {} says {}", path.string(),
                                          to_text(checksum(text)), kCompleteName, quote(marker)));
    return parse_manifest(text, path.string());
  });
  if (manifest.block_bytes > kBlockBytes)
    throw UserError(fmt::format("{}: blocks of {} are larger than this MegaTrain's {}",
                                path.string(), format_bytes(manifest.block_bytes),
                                format_bytes(kBlockBytes)));
  return manifest;
}

struct Checkpoint::Shard {
  Hdf5File file;
  DirectFile direct;
};

Checkpoint::Checkpoint(fs::path folder)
    : folder_(std::move(folder)), manifest_(std::make_unique<Manifest>(read_manifest(folder_))) {
  for (const ManifestFile& file : manifest_->files) (void)read_file(file.name);
  for (const ManifestShard& shard : manifest_->shards) as_damage([&] { open_shard(shard); });
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

void Checkpoint::open_shard(const ManifestShard& manifest) {
  const fs::path path = folder_ / manifest.name;
  {
    const InputFile file(path);
    if (file.bytes() != manifest.bytes)
      throw DamagedCheckpoint(fmt::format("{} has {} bytes, but the manifest says {}",
                                          path.string(), file.bytes(), manifest.bytes));
  }
  shards_.push_back(
      std::make_unique<Shard>(Shard{Hdf5File(path), DirectFile(path, DirectFile::Mode::read)}));
  const Shard& shard = *shards_.back();
  std::vector<const Hdf5Dataset*> datasets;
  for (const ManifestDataset& entry : manifest.datasets) {
    const Hdf5Dataset* dataset = shard.file.find(entry.path);
    if (dataset == nullptr)
      throw DamagedCheckpoint(
          fmt::format("{}: dataset {} is missing", path.string(), quote(entry.path)));
    if (!dataset->refusal.empty())
      throw DamagedCheckpoint(
          fmt::format("{}: dataset {}: {}", path.string(), quote(entry.path), dataset->refusal));
    if (dataset->type != entry.type || dataset->shape != entry.shape)
      throw DamagedCheckpoint(fmt::format("{}: dataset {} is {} {}, but the manifest says {} {}",
                                          path.string(), quote(entry.path), name(dataset->type),
                                          shape_text(dataset->shape), name(entry.type),
                                          shape_text(entry.shape)));
    datasets.push_back(dataset);
    tensors_[entry.path] = {&manifest, &entry, dataset, &shard.file, &shard.direct};
  }
  if (shard.file.datasets().size() != datasets.size())
    throw DamagedCheckpoint(fmt::format("{} holds {} datasets, but the manifest lists {}",
                                        path.string(), shard.file.datasets().size(),
                                        datasets.size()));
  const Checksum found = metadata_checksum(InputFile(path), datasets);
  if (found != manifest.metadata)
    throw DamagedCheckpoint(
        fmt::format("{}: the checksum of its metadata is {}, but the manifest says {}",
                    path.string(), to_text(found), to_text(manifest.metadata)));
}

const Checkpoint::Tensor* Checkpoint::find(const std::string& path) const {
  const auto found = tensors_.find(path);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string Checkpoint::read_file(std::string_view name) const {
  const auto entry = std::ranges::find(manifest_->files, name, &ManifestFile::name);
  if (entry == manifest_->files.end())
    throw UserError(fmt::format("the checkpoint {} has no {}", quote(folder_.string()), name));
  return as_damage([&] {
    const fs::path path = folder_ / entry->name;
    std::string text = read_whole_file(path, kLargestSideFile);
    if (std::ssize(text) != entry->bytes)
      throw DamagedCheckpoint(fmt::format("{} has {} bytes, but the manifest says {}",
                                          path.string(), text.size(), entry->bytes));
    if (checksum(text) != entry->checksum)
      throw DamagedCheckpoint(fmt::format("{}: its checksum is {}, but the manifest says {}",
                                          path.string(), to_text(checksum(text)),
                                          to_text(entry->checksum)));
    return text;
  });
}

std::span<const std::byte> Checkpoint::read_block(const Tensor& tensor, Index block,
                                                  BlockPool::Block& into) const {
  const Index first = block * manifest_->block_bytes;
  const Index bytes = std::min(manifest_->block_bytes, tensor.entry->bytes() - first);
  const std::span<std::byte> data = into.bytes().first(static_cast<std::size_t>(bytes));
  const Index offset = tensor.dataset->offset + first;
  as_damage([&] {
    if (tensor.dataset->compact.empty() && offset % kDirectAlignment == 0) {
      const auto whole = static_cast<std::size_t>(round_up(bytes, kDirectAlignment));
      const Index read = tensor.direct->read(offset, into.bytes().first(whole));
      if (read < bytes)
        throw DamagedCheckpoint(fmt::format("{} ends inside {}", tensor.file->path().string(),
                                            quote(tensor.entry->path)));
    } else {
      // Files that other tools wrote anew put datasets anywhere.
      tensor.file->read(*tensor.dataset, first, data);
    }
    const Checksum expected = tensor.entry->blocks[static_cast<std::size_t>(block)];
    if (const Checksum found = checksum(data); found != expected)
      throw DamagedCheckpoint(
          fmt::format("{}: {}: the checksum of bytes {} to {} is {}, but the manifest says {}",
                      tensor.file->path().string(), quote(tensor.entry->path), first, first + bytes,
                      to_text(found), to_text(expected)));
  });
  return data;
}

}  // namespace megatrain::io
