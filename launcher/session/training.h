#pragma once
/// @file
/// What the options say of the training itself: its data, learning rates and optimizer. `train`
/// uses it, `plan` checks it.

#include "core/train/trainer.h"
#include "io/dataset.h"
#include "launcher/options/run_options.h"
#include "launcher/session/model_source.h"

namespace megatrain::launcher {

/// @throws UserError for values that no step could use
TrainOptions training_options(const RunOptions& options);

/// Whether there is held-out data.
[[nodiscard]] bool evaluates(const RunOptions& options);

/// Opens the files that are given, and checks them against the model.
/// @param required  false: the training data may be absent, as for a plan
/// @throws UserError as io::open_dataset does, and for evaluations without held-out data
io::Dataset open_data(const RunOptions& options, const ModelSource& source, bool required = true);

}  // namespace megatrain::launcher
