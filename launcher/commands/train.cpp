#include "launcher/commands/train.h"

#include <fmt/format.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <optional>

#include "core/base/host_memory.h"
#include "core/base/thread_pool.h"
#include "core/store/host_store.h"
#include "core/train/trainer.h"
#include "io/atomic_file.h"
#include "io/folder.h"
#include "launcher/console.h"
#include "launcher/exit_codes.h"
#include "launcher/metrics_file.h"
#include "launcher/options/config_file.h"
#include "launcher/output_file.h"
#include "launcher/process/environment.h"
#include "launcher/run_folder.h"
#include "launcher/session/banner.h"
#include "launcher/session/checkpoint_saver.h"
#include "launcher/session/measure/peak.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"
#include "launcher/session/resume.h"
#include "launcher/session/training.h"
#include "launcher/signals.h"
#include "parallel/rendezvous/place.h"

namespace megatrain::launcher {

namespace {

/// The first step that the ones before it have warmed up.
constexpr Index kTracedStep = 3;

/// Several processes would each train the whole model, in one folder.
void require_alone(const parallel::ProcessPlace& place) {
  if (place.world > 1)
    throw UserError(
        fmt::format("this is {}, and train does not share its work among ranks yet: "
                    "start it once",
                    describe(place)));
}

/// The options with everything decided that decides bits. Budgets that were left to the machine
/// stay so: a rerun may find less memory free, and gets the same bits all the same.
std::string resolved_config(RunOptions options, const Machine& machine, const RunPlans& plans,
                            const Model& model) {
  options.machine.device = std::string(name(machine.kind));
  options.machine.compute = std::string(name(machine.compute));
  options.micro_batch = plans.train.choices.micro_batch.batch;
  return format_config(
      train_table(options),
      {fmt::format("MegaTrain {} resolved these options; run them again with", MEGATRAIN_VERSION),
       "  megatrain train --config THIS --out ANOTHER_FOLDER",
       fmt::format("plan: {}", describe(plans.train.choices, model))});
}

/// Feeds the console and the file. A file that cannot be written any more ends the run at the next
/// step boundary, where the model can be saved.
class RunSink final : public MetricsSink {
 public:
  RunSink(StepConsole& console, MetricsFile& file, const Device& device)
      : console_(console), file_(file), device_(device) {}

  void step(const StepMetrics& metrics) override {
    StepMetrics measured = metrics;
    measured.device_bytes += device_.reserve_bytes();
    console_.step(measured);
    write([&] { file_.step(measured); });
  }
  void evaluation(const EvaluationMetrics& metrics) override {
    console_.evaluation(metrics);
    write([&] { file_.evaluation(metrics); });
  }
  /// What the file could not be written for, if so.
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }

 private:
  template <class Write>
  void write(const Write& write_line) {
    if (failure_) return;
    try {
      write_line();
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }

  StepConsole& console_;
  MetricsFile& file_;
  const Device& device_;
  std::exception_ptr failure_;
};

/// What MFU is measured against, and where that number comes from.
double find_peak(const RunOptions& options, Machine& machine, const Model& model,
                 std::string& source) {
  if (options.peak) {
    source = "given";
    return *options.peak;
  }
  if (machine.peak_flops > 0) {
    source = "data sheet";
    return machine.peak_flops;
  }
  source = "measured products";
  return measure_peak(machine, model.config());
}

using Decisions = std::vector<std::pair<std::string, std::string>>;

/// What decides what is learned.
Decisions decisions_of(const RunOptions& options, const io::Dataset& data) {
  Decisions decisions = decisive_options(options);
  decisions.emplace_back("data-content", content_mark(*data.train));
  return decisions;
}

Resume find_resume(const RunOptions& options, const RunFolder& folder, Console& console) {
  const std::string& mode = options.checkpoints.resume;
  const bool anew = options.overwrite && mode == "auto";
  Resume resume(anew ? "none" : mode, io::CheckpointFolder(folder.checkpoints()),
                [&console](std::string_view text) { console.warning(text); });
  if (resume && mode != "auto" && folder.holds(resume.folder())) {
    const std::vector<Index> steps = io::CheckpointFolder(folder.checkpoints()).finished();
    const Index newest = steps.empty() ? 0 : steps.front();
    if (newest > resume.record().state.step)
      throw UserError(
          fmt::format("{} holds later checkpoints (step {}), which would mix with what is trained "
                      "from {}: name "
                      "another --out, or move them away",
                      folder.path.string(), newest, resume.folder().string()));
  }
  if (options.overwrite && resume && folder.holds(resume.folder()))
    throw UserError(fmt::format("--overwrite would remove the checkpoint that --resume names, {}",
                                resume.folder().string()));
  return resume;
}

/// A full disk costs what is trained after it: better said before than when it happens.
void warn_of_disk(Console& console, const RunFolder& folder, const CheckpointOptions& options,
                  Index state_bytes, Index model_bytes) {
  if (options.save_every == 0) return;
  const std::optional<Index> available = io::available_disk(folder.path);
  const auto there_already = std::ssize(io::CheckpointFolder(folder.checkpoints()).finished());
  // One more than stay: an old one goes only when the new one is there.
  const Index wanted =
      std::max<Index>(options.keep_last + 1 - there_already, 1) * state_bytes + model_bytes;
  if (available && *available < wanted)
    console.warning(fmt::format(
        "the disk of {} has {} left, but checkpoints of {} each and the model may take {} more",
        folder.path.string(), format_bytes(*available), format_bytes(state_bytes),
        format_bytes(wanted)));
}

/// Host memory that the run leaves: what the machine has now, or what --host-memory leaves.
Index spare_host_memory(const MachineOptions& options, const HostStore& store) {
  const Index available = available_host_memory().available;
  if (!options.host_memory) return available;
  return std::min(available, options.host_memory->bytes - store.bytes().total());
}

}  // namespace

int train(const RunOptions& options) {
  // A reader of the output that goes away, as head does, shall not end the training.
  std::signal(SIGPIPE, SIG_IGN);
  require_alone(parallel::detect_place(program_environment()));
  StopSignals signals;
  Console console;

  // Everything that can be refused is refused before memory is taken or a file is written.
  const ModelSource source = find_model(options.model);
  const RunFolder folder{options.out};
  Resume resume = find_resume(options, folder, console);
  const bool continues =
      resume && (options.checkpoints.resume == "auto" || folder.holds(resume.folder()));
  // A scheduler may have ended it early, and starts it again.
  const bool anew = options.checkpoints.resume == "auto" && options.checkpoints.save_every > 0 &&
                    died_before_saving(folder);
  const bool replaces = options.overwrite || anew;
  if (anew && io::file_exists(folder.config()))
    console.warning("an earlier run was ended before it saved anything; it begins anew");
  if (!continues) check_run_folder(folder, replaces, source.folder.value_or(""));
  check_output_file("--trace", options.trace);
  const TrainOptions training = training_options(options);
  const io::Dataset data = open_data(options, source);
  const Decisions decisions = decisions_of(options, data);
  check_accepted(options.checkpoints.accept_change, decisions,
                 resume ? resume.record().options : Decisions());
  std::optional<SavedKey> kept_key;
  if (options.key) kept_key = read_key(*options.key);
  if (resume) {
    resume.require_same_model(source.config);
    resume.require_same_options(decisions, options.checkpoints.accept_change);
    if (!kept_key) kept_key = resume.key(options.checkpoints.accept_change);
  }
  const Model model(source.config);
  Machine machine = open_machine(options.machine, model, Presence::required);
  RunPlans plans = plan_run(options, machine, model, kept_key);
  const Index model_bytes = model.parameter_count() * size_of(machine.compute);
  require_disk_space(folder, model_bytes);
  const std::string config = resolved_config(options, machine, plans, model);

  print_banner(console, source, model, machine, plans, predict(options, machine, plans.train));
  print_data(console, data);
  std::string peak_source;
  const double peak = find_peak(options, machine, model, peak_source);
  console.line(fmt::format("MFU is against {} ({})", format_flops(peak), peak_source));

  ThreadPool pool(machine.threads);
  const Index gradient_bytes = plans.train.choices.gradient_bytes();
  HostStore store(model,
                  {.master = machine.master,
                   .gradient_bytes = gradient_bytes,
                   .progress = console.bytes_progress("taking host memory")},
                  *machine.device, pool);
  TrainState state;
  if (resume) {
    resume.load(store, pool, console.bytes_progress("loading the checkpoint"));
    state = resume.record().state;
    console.line(fmt::format("going on from step {} of {}", state.step, resume.folder().string()));
  } else {
    fill_store(store, source, options.seed, pool, console.bytes_progress("loading weights"));
  }
  if (state.step > options.steps)
    throw UserError(fmt::format("{} is of step {}, beyond --steps {}", resume.folder().string(),
                                state.step, options.steps));
  const std::string key = plans.key;
  std::optional<CheckpointSaver> saver;  // before the engine, whose threads read through it
  Engine engine(*machine.device, *machine.ops, model, store, pool,
                {.train = std::move(plans.train), .evaluate = std::move(plans.evaluate)});
  Trainer trainer(engine, model, *data.train, data.validation.get(), training, state);

  const io::CheckpointFolder checkpoints(folder.checkpoints());
  saver.emplace(
      checkpoints, options.checkpoints, store,
      save_blocks(options.checkpoints, spare_host_memory(options.machine, store),
                  io::state_bytes(model)),
      io::TrainingRecord{.state = {}, .options = decisions, .numerics_key = key}, source.side_files,
      console, [&] { return signals.requeue_requested(); }, [&] { return engine.seconds_held(); },
      continues ? state.step : -1);
  warn_of_disk(console, folder, options.checkpoints, io::state_bytes(model), model_bytes);
  // Until here there is nothing to save, and a signal just ends the program.
  signals.training_begins();
  // Loading took its time: another run may have begun here meanwhile.
  if (!continues) check_run_folder(folder, replaces, source.folder.value_or(""));
  const io::FileDescriptor lock = begin_run_folder(folder, model_bytes, continues);
  io::write_file(folder.config(), config);
  io::write_file(folder.key(), key);
  checkpoints.remove_leftovers();
  MetricsFile file(folder.metrics(), continues ? state.step : 0);
  StepConsole steps(console, options.steps, peak, console.is_terminal());
  RunSink sink(steps, file, *machine.device);
  const auto stop = [&] { return signals.stop_requested() || sink.failure() != nullptr; };
  Trace trace;
  const Index traced = options.trace ? std::min(state.step + kTracedStep, training.steps) : 0;
  std::exception_ptr failure;
  try {
    trainer.run(sink, stop, [&](Index step) { return step == traced ? &trace : nullptr; }, &*saver);
  } catch (const Error&) {
    // Bad data, or gradients that stay infinite: what was learned before is whole, and is kept.
    failure = std::current_exception();
    engine.flush();
    engine.finish_snapshot();
  }
  steps.finish();
  const bool saved = saver->finish();
  io::export_model(store, source.side_files,
                   {.folder = folder.model(), .type = machine.compute, .replace = continues}, pool,
                   console.bytes_progress("saving the model"));
  const Index done = trainer.state().step;
  console.line(fmt::format("{} after {} of {} steps; the model is in {}",
                           done < options.steps ? "stopped" : "done", done, options.steps,
                           folder.model().string()));
  if (!trace.spans.empty()) io::write_file(*options.trace, trace.to_json());
  if (sink.failure()) failure = sink.failure();
  if (failure) std::rethrow_exception(failure);
  if (!saved)
    throw Error(
        fmt::format("the last checkpoint could not be saved (see above); the model is in {}",
                    folder.model().string()));
  const bool requeue = signals.requeue_requested() && done < options.steps;
  return requeue ? kRequeue : kDone;
}

}  // namespace megatrain::launcher
