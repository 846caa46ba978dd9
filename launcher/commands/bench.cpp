#include "launcher/commands/bench.h"

#include <fmt/format.h>

#include "io/atomic_file.h"
#include "launcher/console.h"
#include "launcher/session/measure.h"
#include "launcher/session/model_source.h"

namespace megatrain::launcher {

void bench(const BenchOptions& options) {
  Console console;
  const ModelSource source = find_model(options.model);
  const Model model(source.config);
  Machine machine = open_machine(options.machine, model, Presence::required);
  const Index tokens = options.tokens.value_or(measured_tokens(machine.kind));
  console.line(fmt::format("measuring {} in {}, shapes of {}, {} tokens", machine.name,
                           name(machine.compute), source.name, tokens));
  ThreadPool pool(machine.threads);
  const std::filesystem::path folder = options.disk
                                           ? std::filesystem::path(*options.disk)
                                           : std::filesystem::absolute(options.rates).parent_path();
  const Rates rates = measure_rates(machine, source.config, tokens, pool, folder);
  io::write_file(options.rates,
                 fmt::format("# {} in {}, shapes of {}, {} tokens a micro-batch\n{}", machine.name,
                             name(machine.compute), source.name, tokens, format_rates(rates)));
  console.line(describe(rates) + "written to " + options.rates);
}

}  // namespace megatrain::launcher
