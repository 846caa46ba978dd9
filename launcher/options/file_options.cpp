#include "launcher/options/file_options.h"

#include "core/base/cores.h"

namespace megatrain::launcher {

namespace {

constexpr const char* kFiles = "Files";
constexpr const char* kOutput = "Output";
constexpr const char* kMachine = "Machine";

Option place(const char* name, const char* value, const char* help, std::string& target) {
  return {.name = name,
          .group = kFiles,
          .value = value,
          .help = help,
          .target = &target,
          .required = true,
          .positional = true};
}

Option threads(Index& target) {
  return {"threads", kMachine, "N", "Host threads; 0: one a usable core", &target, {}, 0.0, 4096.0};
}

}  // namespace

std::vector<Option> inspect_table(InspectOptions& o) {
  return {
      place("path", "PATH",
            "Checkpoint, HDF5 file, Hugging Face folder or safetensors file to look into", o.path),
      {"stats", kOutput, "",
       "Read all values: smallest, largest, mean, standard deviation, and how many are NaN, "
       "infinite or zero",
       &o.stats},
      {"json", kOutput, "", "Print JSON", &o.json},
      threads(o.threads),
  };
}

std::vector<Option> verify_table(VerifyOptions& o) {
  return {
      place("checkpoint", "CHECKPOINT", "Checkpoint folder to read from end to end", o.checkpoint),
      {"reseal", kFiles, "",
       "Take the files as they are now, after an edit by other tools: check that they still fit "
       "the model, and write all checksums anew",
       &o.reseal},
      threads(o.threads),
  };
}

std::vector<Option> convert_table(ConvertOptions& o) {
  return {
      place("from", "FROM", "Hugging Face folder or checkpoint to read", o.from),
      place("to", "TO", "Folder to write: a checkpoint from a Hugging Face folder, and the reverse",
            o.to),
      {"type",
       kOutput,
       "TYPE",
       "Type of the weights written; absent: fp32 in a checkpoint, bf16 in a Hugging Face folder",
       &o.type,
       {"fp32", "bf16"}},
      {"h5-bf16",
       kOutput,
       "FORM",
       "How a checkpoint describes bf16: as a 16-bit float type, or as the bit patterns for tools "
       "that know no such type; absent: float",
       &o.h5_bf16,
       {"float", "uint16"}},
      {"shard-size",
       kOutput,
       "SIZE",
       "Most bytes of a file, as in 5GB or 16GiB, if a unit is not larger; absent: 16GiB in a "
       "checkpoint, 5e9 bytes in a Hugging Face folder",
       &o.shard_size,
       {},
       1.0},
      {"overwrite", kOutput, "", "Replace what is at TO", &o.overwrite},
      threads(o.threads),
  };
}

std::vector<Option> diff_table(DiffOptions& o) {
  return {
      place("a", "A", "Checkpoint, HDF5 file, Hugging Face folder or safetensors file", o.a),
      place("b", "B", "What to compare it with", o.b),
      {"all", kOutput, "", "Show every tensor that differs, not the first one alone", &o.all},
      {"weights", kFiles, "", "Compare weights only, without optimizer states", &o.weights},
      threads(o.threads),
  };
}

int thread_count(Index threads) {
  return threads > 0 ? static_cast<int>(threads) : available_cores();
}

}  // namespace megatrain::launcher
