#include "core/model/pieces.h"

#include <algorithm>

namespace megatrain {

namespace {

/// Offset of a parameter that the unit may lack; -1 then.
Index offset_of(const Unit& unit, ParamRole role) {
  const ParamDesc* param = unit.find(role);
  return param == nullptr ? -1 : param->offset;
}

ops::RowMap dense(Index columns) {
  return {.inner = 1, .outer_stride = columns, .inner_stride = 0};
}

}  // namespace

Linear::Linear(const Unit& unit, Index in, bool in_out, std::span<const Part> parts)
    : in_(in), in_out_(in_out) {
  for (const Part& part : parts) {
    const ParamDesc* weight = unit.find(part.weight);
    require(weight != nullptr && weight->shape.size() == 2, "a linear piece without its weight");
    const Range range{.weight = weight->offset,
                      .bias = part.bias ? offset_of(unit, *part.bias) : -1,
                      .column = out_,
                      .width = weight->shape[in_out ? 1 : 0]};
    require(weight->shape[in_out ? 0 : 1] == in, "a linear weight of another input width");
    const bool along_y = weight->shard.dimension == (in_out ? 1 : 0);
    const bool along_x = weight->shard.divided() && !along_y;
    require(&part == parts.data() || (along_x == sums_y_ && along_y == sums_dx_),
            "weights side by side are divided in the same way");
    sums_y_ = along_x;
    sums_dx_ = along_y;
    partition_ = weight->partition;
    out_ += range.width;

    // Weights stored [in, out] interleave their rows when side by side, so they never merge.
    const bool weights_meet = !in_out && !backward_.empty() &&
                              backward_.back().weight + backward_.back().width * in == range.weight;
    const bool biases_meet = range.bias >= 0 && !biases_.empty() &&
                             biases_.back().bias + biases_.back().width == range.bias &&
                             biases_.back().column + biases_.back().width == range.column;
    const bool one_bias_story =
        biases_meet || (range.bias < 0 && !forward_.empty() && forward_.back().bias < 0);

    if (weights_meet && one_bias_story) {
      forward_.back().width += range.width;
    } else {
      forward_.push_back(range);
    }
    if (weights_meet) {
      backward_.back().width += range.width;
    } else {
      backward_.push_back(range);
    }
    if (biases_meet) {
      biases_.back().width += range.width;
    } else if (range.bias >= 0) {
      biases_.push_back(range);
    }
  }
  pitch_ = out_;
}

Linear Linear::with_pitch(Index pitch) const {
  require(pitch >= out_, "rows of a linear piece that overlap");
  Linear copy = *this;
  copy.pitch_ = pitch;
  return copy;
}

Index Linear::workspace_bytes(Index rows) const {
  Index bytes = 0;
  for (const Range& range : biases_)
    bytes = std::max(bytes, ops::column_sum_workspace(rows, range.width));
  return bytes;
}

void Linear::forward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                     void* y, const void* residual) const {
  // Once in the sum over parts.
  const bool adds = !sums_y_ || partition_.first();
  if (!adds) residual = nullptr;
  for (const Range& range : forward_) {
    launch.ops.run(
        launch.stream,
        ops::Gemm{
            .m = rows,
            .n = range.width,
            .k = in_,
            .a = x,
            .lda = in_,
            .b = advance(weights, range.weight, launch.type),
            .ldb = in_out_ ? range.width : in_,
            .transpose_b = !in_out_,
            .in = launch.type,
            .d = advance(y, range.column, launch.type),
            .ldd = pitch_,
            .out = launch.type,
            .c = residual == nullptr ? nullptr : advance(residual, range.column, launch.type),
            .ldc = pitch_,
            .bias = range.bias < 0 || !adds ? nullptr : advance(weights, range.bias, launch.type),
            .workspace = launch.workspace});
  }
  if (!sums_y_) return;
  require(pitch_ == out_, "a result that is summed over parts has no gaps");
  launch.parts.sum(launch.stream, y, rows * out_, launch.type);
}

void Linear::backward_weight(const Launch& launch, Index rows, const void* dy, const void* x,
                             float* gradient, bool accumulate) const {
  for (const Range& range : backward_) {
    float* d = gradient + range.weight;
    const void* dy_part = advance(dy, range.column, launch.type);
    const Index ld = in_out_ ? range.width : in_;
    launch.ops.run(launch.stream, ops::Gemm{.m = in_out_ ? in_ : range.width,
                                            .n = ld,
                                            .k = rows,
                                            .a = in_out_ ? x : dy_part,
                                            .lda = in_out_ ? in_ : pitch_,
                                            .transpose_a = true,
                                            .b = in_out_ ? dy_part : x,
                                            .ldb = in_out_ ? pitch_ : in_,
                                            .in = launch.type,
                                            .d = d,
                                            .ldd = ld,
                                            .out = DType::f32,
                                            .c = accumulate ? d : nullptr,
                                            .ldc = ld,
                                            .workspace = launch.workspace});
  }
  for (const Range& range : biases_) {
    launch.ops.run(launch.stream, ops::BiasGradient{.rows = rows,
                                                    .columns = range.width,
                                                    .dy = advance(dy, range.column, launch.type),
                                                    .ld = pitch_,
                                                    .type = launch.type,
                                                    .db = gradient + range.bias,
                                                    .accumulate = accumulate,
                                                    .workspace = launch.workspace});
  }
}

void Linear::backward_input(const Launch& launch, Index rows, const std::byte* weights,
                            const void* dy, void* dx) const {
  const void* sum = nullptr;
  for (const Range& range : backward_) {
    launch.ops.run(launch.stream, ops::Gemm{.m = rows,
                                            .n = in_,
                                            .k = range.width,
                                            .a = advance(dy, range.column, launch.type),
                                            .lda = pitch_,
                                            .b = advance(weights, range.weight, launch.type),
                                            .ldb = in_out_ ? range.width : in_,
                                            .transpose_b = in_out_,
                                            .in = launch.type,
                                            .d = dx,
                                            .ldd = in_,
                                            .out = launch.type,
                                            .c = sum,
                                            .ldc = in_,
                                            .workspace = launch.workspace});
    sum = dx;
  }
  if (sums_dx_) launch.parts.sum(launch.stream, dx, rows * in_, launch.type);
}

Norm::Norm(const ModelConfig& config, const Unit& unit, ParamRole weight, ParamRole bias)
    : kind_(config.norm), eps_(static_cast<float>(config.norm_eps)), bias_(offset_of(unit, bias)) {
  const ParamDesc* param = unit.find(weight);
  require(param != nullptr, "a norm piece without its weight");
  width_ = param->elements();
  weight_ = param->offset;
}

Norm::Norm(const ModelConfig& config, const Unit& unit, ParamRole weight)
    : Norm(config, unit, weight, weight) {
  kind_ = ops::NormKind::rms;
  bias_ = -1;
}

void Norm::forward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                   void* y, Statistics statistics) const {
  forward(launch, rows, weights, x, dense(width_), y, dense(width_), statistics);
}

void Norm::forward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                   ops::RowMap x_rows, void* y, ops::RowMap y_rows, Statistics statistics) const {
  launch.ops.run(
      launch.stream,
      ops::NormForward{.kind = kind_,
                       .rows = rows,
                       .columns = width_,
                       .type = launch.type,
                       .x = x,
                       .x_rows = x_rows,
                       .weight = advance(weights, weight_, launch.type),
                       .bias = bias_ < 0 ? nullptr : advance(weights, bias_, launch.type),
                       .eps = eps_,
                       .y = y,
                       .y_rows = y_rows,
                       .rstd = statistics.rstd,
                       .mean = statistics.mean});
}

void Norm::backward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                    Statistics statistics, const void* dy, const void* add, void* dx,
                    float* gradient, bool accumulate) const {
  backward(launch,
           ops::NormBackward{.rows = rows,
                             .x = x,
                             .x_rows = dense(width_),
                             .dy = dy,
                             .dy_rows = dense(width_),
                             .add = add,
                             .dx = dx,
                             .dx_rows = dense(width_),
                             .workspace = launch.workspace},
           weights, statistics, gradient, accumulate);
}

void Norm::backward(const Launch& launch, Index rows, const std::byte* weights, const void* x,
                    ops::RowMap x_rows, Statistics statistics, void* dy, ops::RowMap dy_rows,
                    float* gradient, bool accumulate) const {
  backward(launch,
           ops::NormBackward{.rows = rows,
                             .x = x,
                             .x_rows = x_rows,
                             .dy = dy,
                             .dy_rows = dy_rows,
                             .dx = dy,
                             .dx_rows = dy_rows,
                             .workspace = launch.workspace},
           weights, statistics, gradient, accumulate);
}

void Norm::backward(const Launch& launch, ops::NormBackward arguments, const std::byte* weights,
                    Statistics statistics, float* gradient, bool accumulate) const {
  arguments.kind = kind_;
  arguments.columns = width_;
  arguments.type = launch.type;
  arguments.weight = advance(weights, weight_, launch.type);
  arguments.rstd = statistics.rstd;
  arguments.mean = statistics.mean;
  arguments.dweight = gradient + weight_;
  arguments.dbias = bias_ < 0 ? nullptr : gradient + bias_;
  arguments.accumulate = accumulate;
  launch.ops.run(launch.stream, arguments);
}

}  // namespace megatrain
