#include <algorithm>
#include <vector>

#include "io/hf_folder.h"
#include "io/weight_files.h"

namespace megatrain::io {

namespace {

void load_piece(const WeightSource& source, Index first, Index count, HostStore& store) {
  std::vector<float> values(static_cast<std::size_t>(count));
  source.from.file->read_floats(*source.from.tensor, first, values);
  check_copies(source, first, values);
  try {
    store.write_master(source.unit, *source.param, first, values);
  } catch (const UserError& error) {
    throw UserError(Error::with_context(source.from.file->path().string(), error.what()));
  }
}

}  // namespace

void load_weights(const std::filesystem::path& folder, HostStore& store, ThreadPool& pool,
                  const Progress& progress) {
  const WeightFiles files(folder);
  const std::vector<WeightSource> sources = match_weights(files, store.model());

  struct Piece {
    const WeightSource* source;
    Index first, count;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (const WeightSource& source : sources) {
    const ElementRange held = store.held(source.unit, *source.param);
    for (Index first = held.first; first < held.last; first += kPieceElements)
      pieces.push_back({&source, first, std::min(kPieceElements, held.last - first)});
    total += held.count() * bits_of(source.from.tensor->type) / 8;
  }
  run_pieces(pool, static_cast<Index>(pieces.size()), total, progress, [&](Index i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    load_piece(*piece.source, piece.first, piece.count, store);
    return piece.count * bits_of(piece.source->from.tensor->type) / 8;
  });
}

}  // namespace megatrain::io
