#include "core/plan/plan_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/plan/layout.h"

namespace megatrain {

namespace {

/// What the driver is taken to need in device memory for a graph of the dozen or two of kernels of
/// a block's visit: on the safe side.
constexpr Index kGraphBytes = Index{256} << 10;

StoreBytes planned_store(const Model& model, const Choices& choices) {
  return store_bytes(model, choices.master, choices.gradient_bytes(), choices.store_contents(),
                     choices.slicing, choices.moments);
}

/// "slot 3" -> "slot *": buffers that differ only in their numbers share a row.
std::string row_name(const std::string& name) {
  std::string row;
  for (const char c : name) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      row += c;
    else if (row.empty() || row.back() != '*')
      row += '*';
  }
  return row;
}

}  // namespace

PlanBytes plan_bytes(const Model& model, const Choices& choices) {
  Plan plan;
  PlanBuilder builder(plan);
  const Layout layout(model, choices, builder);
  return {plan.device_bytes, plan.pinned_bytes, planned_store(model, choices).total()};
}

Index graph_bytes(const Model& model, const Choices& choices) {
  if (!choices.graphs) return 0;
  // Forward, recompute, backward.
  const Index visits = choices.purpose == Purpose::train ? 3 : 1;
  return visits * model.config().layers * choices.micro_batches * kGraphBytes;
}

Index page_table_bytes(Index host_bytes) {
  // An entry a page, whether or not the host has it in a larger one. Measured: 385 MiB for 192.6
  // GiB.
  constexpr Index kPage = 4096;
  constexpr Index kEntry = 8;
  return ceil_div(host_bytes, kPage) * kEntry;
}

std::vector<MemoryRow> memory_table(const Plan& plan, const Model& model) {
  std::vector<MemoryRow> rows;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.view || buffer.space == MemorySpace::store) continue;
    const std::string name = row_name(buffer.name);
    auto row = std::ranges::find_if(
        rows, [&](const MemoryRow& r) { return r.space == buffer.space && r.name == name; });
    if (row == rows.end()) row = rows.insert(rows.end(), {buffer.space, name, 0, 0});
    ++row->count;
    row->bytes += buffer.bytes;
  }
  const StoreBytes store = planned_store(model, plan.choices);
  const Index units = model.unit_count();
  const auto slab = [&](std::string name, Index bytes) {
    if (bytes > 0) rows.push_back({MemorySpace::store, std::move(name), units, bytes});
  };
  slab("weights", store.weights);
  slab("remainder of fp32 masters", store.remainder);
  slab("gradients", store.gradient);
  const std::string_view kept = name(plan.choices.moments);
  slab(fmt::format("first moments in {}", kept), store.exp_avg);
  slab(fmt::format("second moments in {}", kept), store.exp_avg_sq);
  return rows;
}

}  // namespace megatrain
