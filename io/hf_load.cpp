#include <vector>

#include "io/held_pieces.h"
#include "io/hf_folder.h"
#include "io/weight_files.h"

namespace megatrain::io {

namespace {

/// Reads the elements between the first and the last of a piece at once: where a part has rows of a
/// tensor, they are shorter than what a disk reads.
void load_piece(const WeightSource& source, const HeldPiece& piece, HostStore& store) {
  std::vector<PartRun> runs;
  source.param->for_each_run(piece.first, piece.count,
                             [&](const PartRun& run) { runs.push_back(run); });
  const Index first = runs.front().whole;
  std::vector<float> values(
      static_cast<std::size_t>(runs.back().whole + runs.back().count - first));
  source.from.file->read_floats(*source.from.tensor, first, values);
  check_copies(source, first, values);
  try {
    for (const PartRun& run : runs)
      store.write_master(source.unit, *source.param, run.part,
                         std::span(values).subspan(static_cast<std::size_t>(run.whole - first),
                                                   static_cast<std::size_t>(run.count)));
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
    HeldPiece elements;
  };
  std::vector<Piece> pieces;
  Index total = 0;
  for (const WeightSource& source : sources) {
    for (const HeldPiece& elements :
         held_pieces(*source.param, store.held(source.unit, *source.param), kPieceElements)) {
      pieces.push_back({&source, elements});
      total += elements.count * bits_of(source.from.tensor->type) / 8;
    }
  }
  run_pieces(pool, static_cast<Index>(pieces.size()), total, progress, [&](Index i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    load_piece(*piece.source, piece.elements, store);
    return piece.elements.count * bits_of(piece.source->from.tensor->type) / 8;
  });
}

}  // namespace megatrain::io
