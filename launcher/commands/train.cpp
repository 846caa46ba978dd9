#include "launcher/commands/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/base/host_memory.h"
#include "core/base/thread_pool.h"
#include "core/store/host_store.h"
#include "core/train/trainer.h"
#include "io/atomic_file.h"
#include "io/checkpoint/peers.h"
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
#include "launcher/session/failures.h"
#include "launcher/session/measure/peak.h"
#include "launcher/session/measure/timing.h"
#include "launcher/session/model_source.h"
#include "launcher/session/plans.h"
#include "launcher/session/replica_check.h"
#include "launcher/session/resume.h"
#include "launcher/session/run_sink.h"
#include "launcher/session/stop_requests.h"
#include "launcher/session/team.h"
#include "launcher/session/training.h"
#include "launcher/signals.h"
#include "parallel/rendezvous/place.h"

namespace megatrain::launcher {

namespace {

/// The first step that the ones before it have warmed up.
constexpr Index kTracedStep = 3;

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

/// What decides what is learned.
NamedValues decisions_of(const RunOptions& options, const io::Dataset& data) {
  NamedValues decisions = decisive_options(options);
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
Index spare_host_memory(const MachineOptions& options, const Machine& machine,
                        const HostStore& store, Index pinned) {
  const Index available = available_host_memory().available / machine.share.ranks;
  if (!options.host_memory) return available;
  return std::min(available, machine.host_memory - store.bytes().total() - pinned);
}

/// What is known of a run before memory is taken or a file is written.
struct Preparation {
  ModelSource source;
  RunFolder folder;
  Resume resume;
  bool continues = false;  ///< the run of the folder goes on
  bool replaces = false;   ///< an earlier run in the folder goes
  TrainOptions training;
  io::Dataset data = {};
  NamedValues decisions = {};
  std::optional<SavedKey> key = {};  ///< that the run must keep
};

void check_folder(const Preparation& run) {
  if (!run.continues) check_run_folder(run.folder, run.replaces, run.source.folder.value_or(""));
}

/// Refuses all that can be refused now.
Preparation prepare(const RunOptions& options, Console& console) {
  ModelSource source = find_model(options.model);
  const RunFolder folder{options.out};
  Preparation run{.source = std::move(source),
                  .folder = folder,
                  .resume = find_resume(options, folder, console),
                  .training = training_options(options)};
  const bool automatic = options.checkpoints.resume == "auto";
  run.continues = run.resume && (automatic || folder.holds(run.resume.folder()));
  // A scheduler may have ended it early, and starts it again.
  const bool anew = automatic && options.checkpoints.save_every > 0 && died_before_saving(folder);
  run.replaces = options.overwrite || anew;
  if (anew && io::file_exists(folder.config()))
    console.warning("an earlier run was ended before it saved anything; it begins anew");
  check_folder(run);
  check_output_file("--trace", options.trace);
  run.data = open_data(options, run.source, console);
  run.decisions = decisions_of(options, run.data);
  check_accepted(options.checkpoints.accept_change, run.decisions,
                 run.resume ? run.resume.record().options : NamedValues());
  // No refusal: a command that shall go on later, whatever happens, says it from the start.
  if (!run.resume && !options.checkpoints.accept_change.empty())
    console.warning(
        fmt::format("--accept-change {} has no effect: {} holds no checkpoint to go on from",
                    fmt::join(options.checkpoints.accept_change, ", "), folder.path.string()));
  if (options.key) run.key = read_key(*options.key);
  if (run.resume) {
    run.resume.require_same_model(run.source.config);
    run.resume.require_same_options(run.decisions, options.checkpoints.accept_change);
    // Where another one is taken in its place, it is an earlier one.
    if (const Index step = run.resume.record().state.step; step > options.steps)
      throw UserError(fmt::format("{} is of step {}, beyond --steps {}",
                                  run.resume.folder().string(), step, options.steps));
    if (!run.key) run.key = run.resume.key(options.checkpoints.accept_change);
  }
  return run;
}

/// What must be the same on all ranks, or they would not train one model.
std::string common_configuration(const RunOptions& options, const Preparation& run) {
  std::string text = fmt::format("MegaTrain {}\nmodel {}\nout {}\ngoes on from {}\n",
                                 MEGATRAIN_VERSION, options.model, options.out,
                                 run.resume ? run.resume.folder().string() : "nothing");
  for (const auto& [name, value] : run.decisions) text += fmt::format("{} = {}\n", name, value);
  for (const auto& [name, value] : run.key ? run.key->lines : NamedValues())
    text += fmt::format("key {} = {}\n", name, value);
  return text + fmt::format(
                    "tensor-parallel = {}\nshard-group = {}\nval-every = {}\nsave-every = "
                    "{}\ncheck-replicas = {}\n",
                    options.tensor_parallel, options.shard_group, options.val_every,
                    options.checkpoints.save_every, options.check_replicas);
}

/// What the rank that leads has of the run folder.
struct Claim {
  std::unique_ptr<FolderHold> hold;  ///< nullptr: another rank's, or refused
  std::exception_ptr refusal;        ///< that the others are to be told
};

/// Comes before anything in the folder is looked at: another run may be at work there.
Claim claim(const RunFolder& folder, const parallel::ProcessPlace& place) {
  if (place.rank > 0) return {};
  try {
    return {.hold = std::make_unique<FolderHold>(folder), .refusal = nullptr};
  } catch (const UserError&) {
    if (place.world == 1) throw;
    return {.hold = nullptr, .refusal = std::current_exception()};
  }
}

/// Whether the run saves, and no checkpoint goes before the first that it saves.
bool needs_room_to_save(const RunOptions& options, const Preparation& run) {
  if (options.checkpoints.save_every == 0) return false;
  if (!run.continues) return true;
  const auto there = std::ssize(io::CheckpointFolder(run.folder.checkpoints()).finished());
  return there <= options.checkpoints.keep_last && run.resume.record().state.step < options.steps;
}

/// Where the folder was not there to be held, it is made. @throws UserError on all ranks
void take_folder(const RunOptions& options, const Preparation& run, const Claim& claim,
                 Index state_bytes, Team& team) {
  io::agree(team.peers(), "the run folder", [&]() -> std::string {
    if (!claim.hold) return {};
    if (needs_room_to_save(options, run))
      require_checkpoint_space(run.folder, state_bytes, !run.continues);
    if (claim.hold->make())
      check_run_folder(run.folder, options.overwrite, run.source.folder.value_or(""));
    return {};
  });
}

/// Makes room in the run folder for what this run writes, and begins with what it is.
void begin(const Preparation& run, Index model_bytes, const std::string& config,
           const std::string& key) {
  if (run.continues)
    require_disk_space(run.folder, model_bytes);
  else
    clear_run_folder(run.folder, model_bytes);
  io::write_file(run.folder.config(), config);
  io::write_file(run.folder.key(), key);
}

/// "trace.json" of rank 3: "trace.rank3.json". Rank 0 has the file that was asked for.
std::string file_of_rank(const std::string& file, int rank) {
  const std::filesystem::path path(file);
  std::filesystem::path name = path.stem();
  name += fmt::format(".rank{}", rank);
  name += path.extension();
  return (path.parent_path() / name).string();
}

/// From the ranks' meeting to the end.
int train_together(const RunOptions& options, Preparation& run, const Claim& claim,
                   const Model& model, Machine& machine, Team& team, StopSignals& signals,
                   Console& console) {
  io::agree(team.peers(), "the claim to the run folder", [&]() -> std::string {
    if (claim.refusal) std::rethrow_exception(claim.refusal);
    return {};
  });
  const DataRanks& ranks = team.data();
  StepGroups groups = team.connect();
  measure_again(machine, options.machine);
  team.agree(machine);
  RunPlans plans = plan_run(options, machine, model, rates_of(options, machine), run.key, ranks);
  team.require_same("the plan", describe(plans.train.choices, model));
  const Index model_bytes = model.whole_parameter_count() * size_of(machine.compute);
  require_disk_space(run.folder, model_bytes);
  const std::string config = resolved_config(options, machine, plans, model);
  take_folder(options, run, claim, io::state_bytes(model, machine.moments), team);

  print_banner(console, run.source, model, machine, plans, predict(options, machine, plans.train));
  print_data(console, run.data);
  std::string peak_source;
  const double peak = team.leads() ? find_peak(options, machine, model, peak_source) : 0;
  console.line(fmt::format("MFU is against {}{} ({})",
                           team.alone() ? "" : fmt::format("{} x ", team.size()),
                           format_flops(peak), peak_source));

  ThreadPool pool(machine.threads.count, machine.threads.processors);
  HostStore store(model,
                  {.master = machine.master,
                   .moments = machine.moments,
                   .gradient_bytes = plans.train.choices.gradient_bytes(),
                   .slicing = ranks.slicing(),
                   .progress = console.bytes_progress("taking host memory")},
                  *machine.device, pool);
  print_store(console, store);
  TrainState state;
  if (run.resume) {
    const double begin = seconds_now();
    run.resume.load(store, options.checkpoints.accept_change, pool,
                    console.bytes_progress("loading the checkpoint"), team.peers());
    const double taken = seconds_now() - begin;
    state = run.resume.record().state;
    console.line(fmt::format(
        "going on from step {} of {}: {} in {}", state.step, run.resume.folder().string(),
        format_bytes(io::state_bytes(model, machine.moments)), precise_seconds(taken)));
  } else {
    fill_store(store, run.source, options.seed, pool, console.bytes_progress("loading weights"));
  }
  const std::string key = plans.key;
  const Index pinned = plans.pinned_bytes();
  std::optional<CheckpointSaver> saver;  // before the engine, whose threads read through it
  Engine engine(*machine.device, *machine.ops, model, store, pool,
                {.train = std::move(plans.train), .evaluate = std::move(plans.evaluate)},
                std::move(groups));
  run.training.share = ranks.share();
  Trainer trainer(engine, model, *run.data.train, run.data.validation.get(), run.training, state);

  StopRequests requests(team, signals);
  const io::CheckpointFolder checkpoints(run.folder.checkpoints());
  saver.emplace(
      checkpoints, options.checkpoints, store,
      save_blocks(options.checkpoints, spare_host_memory(options.machine, machine, store, pinned),
                  model, machine.moments),
      io::TrainingRecord{.state = {}, .options = run.decisions, .numerics_key = key},
      run.source.side_files, console, [&] { return requests.requeue(); },
      [&] { return engine.seconds_held(); }, run.continues ? state.step : -1,
      SaveShare{team.peers(), ranks.writes()});
  // Until here there is nothing to save, and a signal just ends the program.
  signals.training_begins();
  std::optional<MetricsFile> file;
  if (team.leads()) {
    warn_of_disk(console, run.folder, options.checkpoints, io::state_bytes(model, machine.moments),
                 model_bytes);
    begin(run, model_bytes, config, key);
    checkpoints.remove_leftovers();
    // A process that was killed may have published one, and not have said so.
    if (run.continues && checkpoints.finished().front() == state.step)
      checkpoints.published(state.step, retention(options.checkpoints));
    // A run that did the evaluation which is due, and was killed before it saved, left its line.
    const bool evaluates_again = state.evaluation_due && run.data.validation != nullptr;
    file.emplace(run.folder.metrics(), KeptLines{.until = run.continues ? state.step : 0,
                                                 .evaluation = !evaluates_again});
  }
  team.barrier("the run folder is made");
  StepConsole steps(console, options.steps, peak * static_cast<double>(team.size()),
                    console.is_terminal());
  RunSink sink(steps, file ? &*file : nullptr, *machine.device,
               [&] { team.at_work("between steps"); });
  Trace trace;
  const Index traced = options.trace ? std::min(state.step + kTracedStep, run.training.steps) : 0;
  ReplicaCheck replicas(team, engine, store, pool, options.check_replicas);
  const auto before_step = [&](Index step) {
    replicas.after(step - 1);
    team.in_step(fmt::format("step {}", step), saver->is_saving());
    return step == traced ? &trace : nullptr;
  };
  const auto stop = [&] { return requests.stop(sink.failure() != nullptr); };
  std::exception_ptr broken;
  try {
    trainer.run(sink, stop, before_step, &*saver);
  } catch (const Error&) {
    // Bad data, or gradients that stay infinite: what was learned before is whole, and is kept.
    // Several ranks keep their checkpoints: one may have failed alone.
    if (!team.alone()) throw;
    broken = std::current_exception();
    engine.flush();
    engine.finish_snapshot();
  }
  Failures failures;
  failures.add(sink.failure());  // of a step, before what its boundary may have met
  failures.add(broken);
  if (file) failures.collect([&] { file->check_there(); });
  // Before the model: who wants the trace alone need not wait for that.
  if (!trace.spans.empty())
    failures.collect([&] { io::write_file(*options.trace, trace.to_json()); });
  team.at_work("saving the model");
  steps.finish();
  bool saved = true;
  failures.collect([&] { saved = saver->finish(); });
  bool exported = false;
  failures.collect([&] {
    io::export_model(store, run.source.side_files,
                     {.folder = run.folder.model(),
                      .type = machine.compute,
                      .replace = run.continues,
                      .peers = &team.peers(),
                      .writes = ranks.writes()},
                     pool, console.bytes_progress("saving the model"));
    exported = true;
  });
  const Index done = trainer.state().step;
  console.line(fmt::format("{} after {} of {} steps; {}", done < options.steps ? "stopped" : "done",
                           done, options.steps,
                           exported ? fmt::format("the model is in {}", run.folder.model().string())
                                    : "the model could not be saved"));
  failures.rethrow();
  // Of several signals in the same moment each is heard, also one that came after the last
  // boundary.
  if (done < options.steps && requests.stop(/*failed=*/false) && requests.requeue()) {
    trainer.save(*saver, /*ending=*/true);
    engine.finish_snapshot();
    saved = saver->finish();
  }
  if (!saved)
    // What is to be mended: the same run again would do no better.
    throw UserError(
        fmt::format("the last checkpoint could not be saved (see above); the model is in {}",
                    run.folder.model().string()));
  team.barrier("the run is done");
  return done < options.steps ? requests.exit_code() : kDone;
}

}  // namespace

int train(const RunOptions& asked) {
  // A reader of the output that goes away, as head does, shall not end the training.
  std::signal(SIGPIPE, SIG_IGN);
  StopSignals signals;
  const parallel::ProcessPlace place = parallel::detect_place(program_environment());
  RunOptions options = asked;
  if (place.rank > 0 && asked.trace) options.trace = file_of_rank(*asked.trace, place.rank);
  const ModelRanks ranks = divide(place, options.tensor_parallel, options.shard_group);
  // mpirun gives its ranks a terminal, wherever its own output goes.
  const bool bar = place.source != parallel::PlaceSource::mpi;
  Console console(/*quiet=*/place.rank > 0, bar);
  const Claim folder = claim(RunFolder{options.out}, place);
  Console silent(/*quiet=*/true);
  Preparation run = prepare(options, folder.refusal ? silent : console);
  const Model model = part_of(run.source.config, ranks);
  if (!run.resume) check_weights(run.source, model);
  Machine machine = open_machine(options.machine, model, Presence::required,
                                 StoreContents::training, node_share(place, ranks));
  Team team(place, ranks,
            {.patience = options.rank_timeout,
             .configuration = common_configuration(options, run),
             .device = machine.device.get(),
             .on_trouble = [&signals] { signals.run_is_over(); }});
  try {
    return train_together(options, run, folder, model, machine, team, signals, console);
  } catch (const std::exception& error) {
    if (team.alone()) throw;
    signals.run_is_over();
    team.fail(error.what());
    // All were asked to make room, and one was faster: the latest checkpoint is what there is.
    if (!signals.requeue_requested()) throw;
    return kRequeue;
  }
}

}  // namespace megatrain::launcher
