#include "tests/io/checkpoint_rig.h"

#include <bit>
#include <random>
#include <utility>

#include "tests/io/small_config.h"

namespace megatrain::io {

ModelConfig checkpoint_config(std::string_view model_type, bool tied) {
  ModelConfig config = small_config(model_type, tied);
  config.vocabulary = 259;
  config.layers = 3;
  config.intermediate = 37;
  if (!config.windows.empty()) config.windows.assign(3, 8);
  return config;
}

ModelConfig divisible_config(std::string_view model_type, bool tied) {
  ModelConfig config = checkpoint_config(model_type, tied);
  config.heads = config.kv_heads = 4;
  config.intermediate = 40;
  return config;
}

std::unique_ptr<HostStore> CheckpointRig::make_store(const ModelConfig& config, MasterFormat format,
                                                     const Slicing& slicing,
                                                     const Partition& partition) {
  return std::make_unique<HostStore>(
      Model(config, partition),
      StoreOptions{.master = format, .moments = moments, .slicing = slicing}, *device_, pool);
}

void CheckpointRig::fill(HostStore& store, std::uint32_t seed) {
  std::mt19937 random(seed);
  // Any finite value whose bf16 is finite: exponents up to 2^120, denormals and zeros of both
  // signs.
  const auto value = [&random] {
    const auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t exponent = (bits >> 23 & 0xFF) % 247;
    return std::bit_cast<float>((bits & 0x807FFFFF) | exponent << 23);
  };
  for (Index unit = 0; unit < store.model().unit_count(); ++unit)
    for (const ParamDesc& param : store.model().unit(unit).params) {
      const ElementRange held = store.held(unit, param);
      for (const StatePart part : kStateParts) {
        std::vector<float> values(static_cast<std::size_t>(param.whole_elements()));
        for (float& v : values) v = value();
        if (part == StatePart::master) values.front() = -0.0F;
        if (part == StatePart::exp_avg_sq)
          for (float& v : values) v = std::abs(v);
        param.for_each_run(held.first, held.count(), [&](const PartRun& run) {
          write_state(store, {unit, &param, part}, run.part,
                      std::span<const float>(values).subspan(static_cast<std::size_t>(run.whole),
                                                             static_cast<std::size_t>(run.count)));
        });
      }
    }
}

std::filesystem::path CheckpointRig::save(const HostStore& store, SaveOptions options) {
  BackgroundSave save(store, std::move(options), blocks, 2);
  for (Index unit = 0; unit < store.model().unit_count(); ++unit) save.unit(unit);
  save.wait();
  return save.options().folder;
}

SaveOptions training_checkpoint(const ModelConfig& config, std::filesystem::path folder, Index step,
                                DType moments) {
  TrainingRecord record;
  record.state.step = step;
  record.options = {{std::string(kMomentsOption), std::string(name(moments))}};
  SaveOptions options{.folder = std::move(folder), .step = step, .shard_bytes = 60'000};
  options.files = preset_side_files(config, false);
  options.files.push_back({std::string(kTrainingName), to_json(record)});
  return options;
}

std::vector<std::byte> slabs(const HostStore& store) {
  std::vector<std::byte> all;
  for (Index unit = 0; unit < store.model().unit_count(); ++unit) {
    const Index elements = store.slicing().slice(store.model().unit(unit).slab_elements);
    const auto add = [&](const void* data, Index bytes) {
      const auto* begin = static_cast<const std::byte*>(data);
      all.insert(all.end(), begin, begin + bytes);
    };
    const MasterFormat master = store.master_format();
    add(store.weights(unit), elements * size_of(weight_type(master)));
    add(store.remainder(unit), elements * remainder_bytes(master));
    add(store.exp_avg(unit), elements * size_of(store.moment_type()));
    add(store.exp_avg_sq(unit), elements * size_of(store.moment_type()));
  }
  return all;
}

}  // namespace megatrain::io
