#include "io/checkpoint/checkpoint_files.h"

#include "io/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/state_layout.h"
#include "io/hdf5/hdf5_writer.h"

namespace megatrain::io {

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest) {
  const std::string text = to_json(manifest);
  write_file(folder / kManifestName, text);
  write_file(folder / kCompleteName, to_text(checksum(text)) + "\n");
}

void write_checkpoint_files(const std::filesystem::path& folder, std::span<const SideFile> files,
                            Manifest& manifest) {
  for (const SideFile& file : files) {
    write_file(folder / file.name, file.content);
    manifest.files.push_back({file.name, std::ssize(file.content), checksum(file.content)});
  }
  std::vector<Hdf5Link> links;
  for (const ManifestShard& shard : manifest.shards)
    for (const ManifestDataset& dataset : shard.datasets)
      links.push_back({dataset.path, shard.name});
  const std::filesystem::path view = folder / kViewName;
  create_hdf5_view(view, links, root_attributes(manifest.step));
  DirectFile(view, DirectFile::Mode::write).sync();
  write_manifest(folder, manifest);
}

}  // namespace megatrain::io
