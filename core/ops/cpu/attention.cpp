#include "core/device/cpu/simd_targets.h"
// clang-format off: Highway compiles this file once per instruction set
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include <hwy/aligned_allocator.h>

#include <cmath>
#include <limits>
#include <new>

#include "core/ops/cpu/attention_tiles.h"
#include "core/ops/cpu/kernels.h"
#include "core/ops/cpu/simd-inl.h"
#include "core/ops/cpu/tile_product-inl.h"

// Scores are kept as [moving tokens, stationary tokens]: the side that a piece of work owns lies
// along the lanes and is transposed once; the tiles that pass by are used as they lie in memory.
// So a softmax over passing keys is element-wise, and no tile is transposed twice.

HWY_BEFORE_NAMESPACE();
namespace megatrain::ops::cpu::HWY_NAMESPACE {

constexpr Index kTile = kAttentionTile;

/// Uninitialised fp32 tiles of one piece of work.
class Scratch {
 public:
  explicit Scratch(Index count)
      : memory_(hwy::AllocateAligned<float>(static_cast<std::size_t>(count))),
        next_(memory_.get()) {
    if (next_ == nullptr) throw std::bad_alloc();
  }
  float* take(Index count) {
    float* const taken = next_;
    next_ += count;
    return taken;
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  float* next_;
};

/// One head of a tensor of one sequence.
template <class T>
struct Head {
  T* data;
  Index stride;
};
template <class T, class Data>
HWY_INLINE Head<T> head_of(const AttentionShape& shape, Data* data, Index stride, Index batch,
                           Index head) {
  return {static_cast<T*>(data) + batch * shape.sequence * stride + head * shape.head_dim, stride};
}

HWY_INLINE Index padded(Index count) { return round_up(count, kTilePad); }

/// tile[padded rows, width] = rows of a head times `factor`, zeros around them.
template <class T>
void load_tile(Head<const T> head, Range rows, Index head_dim, float factor, float* tile) {
  const Index width = padded(head_dim);
  const FloatVec factors = hn::Set(Floats(), factor);
  for (Index r = rows.begin; r < rows.end; ++r, tile += width) {
    const T* source = head.data + r * head.stride;
    for_lanes(head_dim, [&](Index c, auto span) HWY_ATTR {
      store(hn::Mul(load(source + c, span), factors), tile + c, Whole{});
    });
    for (Index c = round_up(head_dim, static_cast<Index>(hn::Lanes(Floats()))); c < width; ++c)
      tile[c] = 0;
  }
  const Index count = rows.end - rows.begin;
  std::fill_n(tile, (padded(count) - count) * width, 0.0F);
}

/// out[head_dim, kTile] = transpose of tile[padded count, width].
void transpose_tile(const float* tile, Index count, Index head_dim, float* out) {
  const Floats d;
  const hn::RebindToSigned<Floats> indices;
  const Index width = padded(head_dim);
  const auto step =
      hn::Mul(hn::Iota(indices, 0), hn::Set(indices, static_cast<std::int32_t>(width)));
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index row = 0; row < padded(count); row += lanes)
    for (Index c = 0; c < head_dim; ++c)
      hn::StoreU(hn::GatherIndex(d, tile + row * width + c, step), d, out + c * kTile + row);
}

/// Writes rows of a tile, times factors[row] (or times `factor` where that is null).
template <class T>
void store_tile(const float* tile, Head<T> head, Range rows, Index head_dim, float factor,
                const float* factors = nullptr) {
  const Index width = padded(head_dim);
  for (Index r = rows.begin; r < rows.end; ++r, tile += width) {
    T* const out = head.data + r * head.stride;
    const FloatVec by = hn::Set(Floats(), factors != nullptr ? factors[r - rows.begin] : factor);
    for_lanes(head_dim, [&](Index c, auto span) HWY_ATTR {
      store(hn::Mul(hn::LoadU(Floats(), tile + c), by), out + c, span);
    });
  }
}

/// Which of the lanes are visible when `first` is query - key of lane 0, growing by `step` a lane.
HWY_INLINE hn::Mask<Floats> visible(Index first, std::int32_t step, Index window) {
  const hn::RebindToSigned<Floats> d;
  const auto difference = hn::Add(hn::Mul(hn::Iota(d, 0), hn::Set(d, step)),
                                  hn::Set(d, static_cast<std::int32_t>(first)));
  const auto limit = hn::Set(
      d, window > 0 ? static_cast<std::int32_t>(window) : std::numeric_limits<std::int32_t>::max());
  return hn::RebindMask(Floats(),
                        hn::And(hn::Gt(difference, hn::Set(d, -1)), hn::Lt(difference, limit)));
}

/// Takes a tile of scores [keys, queries] into the running softmax of each query: scores become
/// exp(score - maximum), `decay` is what earlier sums are to be multiplied by.
void softmax_step(float* scores, Index keys, Index queries, float* maximum, float* sum,
                  float* decay) {
  const Floats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index q = 0; q < queries; q += lanes) {
    const FloatVec before = hn::LoadU(d, maximum + q);
    FloatVec now = before;
    for (Index k = 0; k < keys; ++k) now = hn::Max(now, hn::LoadU(d, scores + k * kTile + q));
    FloatVec total = hn::Zero(d);
    for (Index k = 0; k < keys; ++k) {
      float* const score = scores + k * kTile + q;
      const FloatVec p = exp_of(hn::Sub(hn::LoadU(d, score), now));
      hn::StoreU(p, d, score);
      total = hn::Add(total, p);
    }
    const FloatVec factor = exp_of(hn::Sub(before, now));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + q), factor, total), d, sum + q);
    hn::StoreU(now, d, maximum + q);
    hn::StoreU(factor, d, decay + q);
  }
}

/// Scores that a query must not see; far below every real one, yet finite.
constexpr float kHidden = -1e30F;

/// o and lse of one tile of queries of one head.
template <class T>
void forward_tile_of(const AttentionForward& op, Index batch, Index head, Index query_tile) {
  const Floats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const AttentionShape& shape = op.shape;
  const AttentionTiles tiles(shape);
  const Index dim = shape.head_dim;
  const Index width = padded(dim);
  const Index kv = head / (shape.query_heads / shape.kv_heads);
  const auto q = head_of<const T>(shape, op.q, op.q_stride, batch, head);
  const auto k = head_of<const T>(shape, op.k, op.k_stride, batch, kv);
  const auto v = head_of<const T>(shape, op.v, op.v_stride, batch, kv);

  Scratch scratch(kTile * (4 * width + kTile + 3));
  float* const keys = scratch.take(kTile * width);
  float* const values = scratch.take(kTile * width);
  float* const queries = scratch.take(kTile * width);
  float* const out = scratch.take(kTile * width);
  float* const scores = scratch.take(kTile * kTile);
  float* const maximum = scratch.take(kTile);
  float* const sum = scratch.take(kTile);
  float* const decay = scratch.take(kTile);

  const Range rows = tiles.tokens(query_tile);
  const Index query_count = rows.end - rows.begin;
  const Index query_lanes = padded(query_count);
  load_tile(q, rows, dim, shape.scale, keys);
  transpose_tile(keys, query_count, dim, queries);
  std::fill_n(maximum, kTile, kHidden);
  std::fill_n(sum, kTile, 0.0F);

  // From the diagonal backwards: every query sees a key (itself) in the first tile, so its
  // maximum is real from then on and hidden scores become exact zeros.
  const Range key_tiles = tiles.key_tiles(query_tile);
  for (Index key_tile = key_tiles.end - 1; key_tile >= key_tiles.begin; --key_tile) {
    const Range range = tiles.tokens(key_tile);
    const Index key_count = range.end - range.begin;
    load_tile(k, range, dim, 1, keys);
    load_tile(v, range, dim, 1, values);
    tile_product({keys, width, 1}, queries, kTile, padded(key_count), query_lanes, dim, scores,
                 kTile, false);
    if (tiles.needs_mask(query_tile, key_tile)) {
      for (Index i = 0; i < key_count; ++i)
        for (Index c = 0; c < query_lanes; c += lanes) {
          float* const score = scores + i * kTile + c;
          const auto seen = visible(rows.begin + c - range.begin - i, 1, tiles.window);
          hn::StoreU(hn::IfThenElse(seen, hn::LoadU(d, score), hn::Set(d, kHidden)), d, score);
        }
    }
    softmax_step(scores, key_count, query_lanes, maximum, sum, decay);
    const bool first = key_tile == key_tiles.end - 1;
    for (Index i = 0; i < query_count && !first; ++i)
      for (Index c = 0; c < width; c += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(d, out + i * width + c), hn::Set(d, decay[i])), d,
                   out + i * width + c);
    tile_product({scores, 1, kTile}, values, width, query_lanes, width, key_count, out, width,
                 !first);
  }

  float* const lse = op.lse + (batch * shape.query_heads + head) * shape.sequence + rows.begin;
  for (Index i = 0; i < query_count; ++i) {
    lse[i] = maximum[i] + std::log(sum[i]);
    sum[i] = 1.0F / sum[i];
  }
  store_tile(out, head_of<T>(shape, op.o, op.o_stride, batch, head), rows, dim, 1, sum);
}

/// sums[batch, head, token] = sum over the head of o * d_o.
template <class T>
void output_sums_of(const AttentionBackward& op, Range tokens, float* sums) {
  const AttentionShape& shape = op.shape;
  for (Index t = tokens.begin; t < tokens.end; ++t) {
    for (Index head = 0; head < shape.query_heads; ++head) {
      const T* o = static_cast<const T*>(op.o) + t * op.o_stride + head * shape.head_dim;
      const T* d_o = static_cast<const T*>(op.d_o) + t * op.d_o_stride + head * shape.head_dim;
      FloatVec sum = hn::Zero(Floats());
      for_lanes(shape.head_dim, [&](Index c, auto span) HWY_ATTR {
        sum = hn::MulAdd(load(o + c, span), load(d_o + c, span), sum);
      });
      const Index batch = t / shape.sequence;
      sums[(batch * shape.query_heads + head) * shape.sequence + t % shape.sequence] = sum_of(sum);
    }
  }
}

/// The buffers of a piece of the backward pass.
struct BackwardScratch {
  explicit BackwardScratch(Index width)
      : memory(kTile * (6 * width + 2 * kTile + 2)),
        stationary_first(memory.take(kTile * width)),
        stationary_second(memory.take(kTile * width)),
        moving_first(memory.take(kTile * width)),
        moving_second(memory.take(kTile * width)),
        gradient_first(memory.take(kTile * width)),
        gradient_second(memory.take(kTile * width)),
        p(memory.take(kTile * kTile)),
        ds(memory.take(kTile * kTile)),
        lse(memory.take(kTile)),
        sums(memory.take(kTile)) {}
  Scratch memory;
  float *stationary_first, *stationary_second;  ///< [head_dim, kTile]
  float *moving_first, *moving_second;          ///< [kTile, width]
  float *gradient_first, *gradient_second;      ///< [kTile, width], of the stationary tiles
  float *p, *ds;                                ///< [moving, stationary]
  float *lse, *sums;                            ///< of the queries of a tile
};

/// p = exp(scores - lse) where visible; ds = p * (dp - sum). In: p holds scores, ds holds dp.
template <bool kKeysStay>
HWY_INLINE void score_gradients(BackwardScratch& s, Range moving, Range stationary, Index window,
                                bool masked) {
  const Floats d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Index columns = padded(stationary.end - stationary.begin);
  for (Index i = 0; i < moving.end - moving.begin; ++i) {
    for (Index c = 0; c < columns; c += lanes) {
      const FloatVec lse = kKeysStay ? hn::Set(d, s.lse[i]) : hn::LoadU(d, s.lse + c);
      const FloatVec sum = kKeysStay ? hn::Set(d, s.sums[i]) : hn::LoadU(d, s.sums + c);
      float* const p_at = s.p + i * kTile + c;
      float* const ds_at = s.ds + i * kTile + c;
      FloatVec p = exp_of(hn::Sub(hn::LoadU(d, p_at), lse));
      if (masked) {
        const Index difference = moving.begin + i - stationary.begin - c;
        p = hn::IfThenElseZero(
            visible(kKeysStay ? difference : -difference, kKeysStay ? -1 : 1, window), p);
      }
      hn::StoreU(p, d, p_at);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, ds_at), sum)), d, ds_at);
    }
  }
}

/// The lse and row sums of a tile of queries, zeros behind them.
HWY_INLINE void load_statistics(const AttentionBackward& op, const float* sums, Index batch,
                                Index head, Range rows, BackwardScratch& s) {
  const Index at = (batch * op.shape.query_heads + head) * op.shape.sequence;
  std::fill_n(s.lse, kTile, 0.0F);
  std::fill_n(s.sums, kTile, 0.0F);
  std::copy(op.lse + at + rows.begin, op.lse + at + rows.end, s.lse);
  std::copy(sums + at + rows.begin, sums + at + rows.end, s.sums);
}

/// dk and dv of one tile of keys (kKeysStay), or dq of one tile of queries. `head` is a key/value
/// head or a query head. The other side's tiles pass by.
template <class T, bool kKeysStay>
void backward_tile_of(const AttentionBackward& op, const float* sums, Index batch, Index head,
                      Index tile) {
  const AttentionShape& shape = op.shape;
  const AttentionTiles tiles(shape);
  const Index dim = shape.head_dim;
  const Index width = padded(dim);
  const Index group = shape.query_heads / shape.kv_heads;
  const Index kv = kKeysStay ? head : head / group;
  const Range query_heads = kKeysStay ? Range{kv * group, (kv + 1) * group} : Range{head, head + 1};
  const Range stationary = tiles.tokens(tile);
  const Index count = stationary.end - stationary.begin;
  const auto k = head_of<const T>(shape, op.k, op.k_stride, batch, kv);
  const auto v = head_of<const T>(shape, op.v, op.v_stride, batch, kv);

  BackwardScratch s(width);
  bool started = false;
  for (Index query_head = query_heads.begin; query_head < query_heads.end; ++query_head) {
    const auto q = head_of<const T>(shape, op.q, op.q_stride, batch, query_head);
    const auto d_o = head_of<const T>(shape, op.d_o, op.d_o_stride, batch, query_head);
    if (!started) {
      load_tile(kKeysStay ? k : q, stationary, dim, kKeysStay ? 1 : shape.scale, s.moving_first);
      load_tile(kKeysStay ? v : d_o, stationary, dim, 1, s.moving_second);
      transpose_tile(s.moving_first, count, dim, s.stationary_first);
      transpose_tile(s.moving_second, count, dim, s.stationary_second);
    }
    if (!kKeysStay) load_statistics(op, sums, batch, query_head, stationary, s);

    const Range passing = kKeysStay ? tiles.query_tiles(tile) : tiles.key_tiles(tile);
    for (Index other = passing.begin; other < passing.end; ++other, started = true) {
      const Range moving = tiles.tokens(other);
      const Index moving_count = moving.end - moving.begin;
      load_tile(kKeysStay ? q : k, moving, dim, kKeysStay ? shape.scale : 1, s.moving_first);
      load_tile(kKeysStay ? d_o : v, moving, dim, 1, s.moving_second);
      if (kKeysStay) load_statistics(op, sums, batch, query_head, moving, s);
      tile_product({s.moving_first, width, 1}, s.stationary_first, kTile, padded(moving_count),
                   padded(count), dim, s.p, kTile, false);
      tile_product({s.moving_second, width, 1}, s.stationary_second, kTile, padded(moving_count),
                   padded(count), dim, s.ds, kTile, false);
      const bool masked = kKeysStay ? tiles.needs_mask(other, tile) : tiles.needs_mask(tile, other);
      score_gradients<kKeysStay>(s, moving, stationary, tiles.window, masked);
      tile_product({s.ds, 1, kTile}, s.moving_first, width, padded(count), width, moving_count,
                   s.gradient_first, width, started);
      if (kKeysStay)
        tile_product({s.p, 1, kTile}, s.moving_second, width, padded(count), width, moving_count,
                     s.gradient_second, width, started);
    }
  }
  if (kKeysStay) {
    // The scale is in the queries that have passed by.
    store_tile(s.gradient_first, head_of<T>(shape, op.dk, op.dk_stride, batch, kv), stationary, dim,
               1);
    store_tile(s.gradient_second, head_of<T>(shape, op.dv, op.dv_stride, batch, kv), stationary,
               dim, 1);
  } else {
    store_tile(s.gradient_first, head_of<T>(shape, op.dq, op.dq_stride, batch, head), stationary,
               dim, shape.scale);
  }
}

void attention_forward_tile(const AttentionForward& op, Index batch, Index head, Index tile) {
  if (op.shape.type == DType::f32)
    forward_tile_of<float>(op, batch, head, tile);
  else
    forward_tile_of<bfloat16>(op, batch, head, tile);
}

void attention_output_sums(const AttentionBackward& op, Range tokens, float* sums) {
  if (op.shape.type == DType::f32)
    output_sums_of<float>(op, tokens, sums);
  else
    output_sums_of<bfloat16>(op, tokens, sums);
}

void attention_key_tile(const AttentionBackward& op, const float* sums, Index batch, Index head,
                        Index tile) {
  if (op.shape.type == DType::f32)
    backward_tile_of<float, true>(op, sums, batch, head, tile);
  else
    backward_tile_of<bfloat16, true>(op, sums, batch, head, tile);
}

void attention_query_tile(const AttentionBackward& op, const float* sums, Index batch, Index head,
                          Index tile) {
  if (op.shape.type == DType::f32)
    backward_tile_of<float, false>(op, sums, batch, head, tile);
  else
    backward_tile_of<bfloat16, false>(op, sums, batch, head, tile);
}

}  // namespace megatrain::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain::ops::cpu {

namespace {

HWY_EXPORT(attention_forward_tile);
HWY_EXPORT(attention_output_sums);
HWY_EXPORT(attention_key_tile);
HWY_EXPORT(attention_query_tile);

void check(const AttentionShape& shape, AttentionBackend backend) {
  require(backend == AttentionBackend::own, "the CPU has its own attention kernel only");
  require(shape.kv_heads > 0 && shape.query_heads % shape.kv_heads == 0,
          "query heads are not a multiple of key/value heads");
  require(shape.sequence < std::numeric_limits<std::int32_t>::max(),
          "an attention sequence has more than 2^31 tokens");
}

/// The tokens of every head of a tensor.
struct HeadRows {
  Index rows, row_bytes, pitch_bytes;
  HeadRows(const AttentionShape& shape, Index heads, Index stride)
      : rows(shape.batch * shape.sequence),
        row_bytes(heads * shape.head_dim * size_of(shape.type)),
        pitch_bytes(stride * size_of(shape.type)) {}
  void read(const void* data) const { announce_read(data, rows, row_bytes, pitch_bytes); }
  void write(void* data) const { announce_write(data, rows, row_bytes, pitch_bytes); }
};

}  // namespace

void attention_forward(OpState& /*state*/, Stream& stream, const AttentionForward& op) {
  check(op.shape, op.backend);
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, &own] {
    const AttentionShape& shape = op.shape;
    HeadRows(shape, shape.query_heads, op.q_stride).read(op.q);
    HeadRows(shape, shape.kv_heads, op.k_stride).read(op.k);
    HeadRows(shape, shape.kv_heads, op.v_stride).read(op.v);
    HeadRows(shape, shape.query_heads, op.o_stride).write(op.o);
    const Index heads = shape.batch * shape.query_heads;
    announce_write(op.lse, heads * shape.sequence * 4);
    // Late tiles see the most keys; they come first, so that no thread ends with a long one.
    const Index tiles = AttentionTiles(shape).number();
    own.pool().for_each(heads * tiles, [&](Index piece) {
      const Index head = piece % heads;
      HWY_DYNAMIC_DISPATCH(attention_forward_tile)
      (op, head / shape.query_heads, head % shape.query_heads, tiles - 1 - piece / heads);
    });
  });
}

void attention_backward(OpState& /*state*/, Stream& stream, const AttentionBackward& op) {
  check(op.shape, op.backend);
  const Index scratch = attention_backward_workspace(op.shape, op.backend);
  require(op.workspace.bytes >= scratch, "the workspace of attention's backward is too small");
  CpuStream& own = cpu_stream(stream);
  own.enqueue([op, scratch, &own] {
    const AttentionShape& shape = op.shape;
    HeadRows(shape, shape.query_heads, op.q_stride).read(op.q);
    HeadRows(shape, shape.kv_heads, op.k_stride).read(op.k);
    HeadRows(shape, shape.kv_heads, op.v_stride).read(op.v);
    HeadRows(shape, shape.query_heads, op.o_stride).read(op.o);
    HeadRows(shape, shape.query_heads, op.d_o_stride).read(op.d_o);
    HeadRows(shape, shape.query_heads, op.dq_stride).write(op.dq);
    HeadRows(shape, shape.kv_heads, op.dk_stride).write(op.dk);
    HeadRows(shape, shape.kv_heads, op.dv_stride).write(op.dv);
    const Index heads = shape.batch * shape.query_heads;
    const Index kv_heads = shape.batch * shape.kv_heads;
    announce_read(op.lse, heads * shape.sequence * 4);
    announce_write(op.workspace.data, scratch);

    auto* const sums = static_cast<float*>(op.workspace.data);
    for_pieces(own.pool(),
               row_pieces(shape.batch * shape.sequence, shape.query_heads * shape.head_dim),
               [&](Range rows) { HWY_DYNAMIC_DISPATCH(attention_output_sums)(op, rows, sums); });
    // Tiles of keys, then tiles of queries, each kind with its longest first.
    const Index tiles = AttentionTiles(shape).number();
    const Index key_pieces = kv_heads * tiles;
    own.pool().for_each(key_pieces + heads * tiles, [&](Index piece) {
      if (piece < key_pieces) {
        const Index head = piece % kv_heads;
        HWY_DYNAMIC_DISPATCH(attention_key_tile)
        (op, sums, head / shape.kv_heads, head % shape.kv_heads, piece / kv_heads);
      } else {
        const Index head = (piece - key_pieces) % heads;
        HWY_DYNAMIC_DISPATCH(attention_query_tile)
        (op, sums, head / shape.query_heads, head % shape.query_heads,
         tiles - 1 - (piece - key_pieces) / heads);
      }
    });
  });
}

}  // namespace megatrain::ops::cpu
#endif  // HWY_ONCE
