#pragma once
/// @file
/// What the options say of the training itself: its data, learning rates and optimizer. `train`
/// uses it, `plan` checks it.

#include "core/train/trainer.h"
#include "io/dataset.h"
#include "launcher/console.h"
#include "launcher/options/run_options.h"
#include "launcher/session/model_source.h"

namespace megatrain::launcher {

/// @throws UserError for values that no step could use
TrainOptions training_options(const RunOptions& options);

/// Whether there is held-out data.
[[nodiscard]] bool evaluates(const RunOptions& options);

/// Opens the files that are given, and checks them against the model.
/// @param required  false: the training data may be absent, as for a plan
/// @param console   is warned of text that is not what it should be
/// @throws UserError as io::open_dataset does, and for evaluations without held-out data
io::Dataset open_data(const RunOptions& options, const ModelSource& source, Console& console,
                      bool required = true);

/// Tells data apart whose files have the same names: the number of samples and a checksum over some
/// of them, from first to last. Text that is put in or taken out moves all that follows it.
std::string content_mark(const TokenSource& data);

}  // namespace megatrain::launcher
