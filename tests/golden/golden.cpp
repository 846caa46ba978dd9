#include "tests/golden/golden.h"

#include <algorithm>

namespace megatrain::golden {

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(MEGATRAIN_GOLDEN_DATA))
    if (entry.is_directory()) found.push_back(entry.path());
  if (found.empty()) throw LogicError("no golden cases in " MEGATRAIN_GOLDEN_DATA);
  std::ranges::sort(found);
  return found;
}

Values read(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) throw LogicError(file.path().string() + " has no tensor " + name);
  std::vector<float> floats(static_cast<std::size_t>(tensor->elements()));
  file.read_floats(*tensor, 0, floats);
  return {floats.begin(), floats.end()};
}

Loaded::Loaded(const std::filesystem::path& path, MasterFormat format, Index gradient_bytes,
               Device& device, ThreadPool& pool)
    : folder(path),
      model(folder.config().model),
      store(model, {.master = format, .gradient_bytes = gradient_bytes}, device, pool) {
  io::load_weights(path, store, pool);
}

Parameters masters(const HostStore& store) {
  Parameters all;
  for (Index unit = 0; unit < store.model().unit_count(); ++unit)
    for (const ParamDesc& param : store.model().unit(unit).params) {
      std::vector<float>& values = all[param.name];
      values.resize(static_cast<std::size_t>(param.elements()));
      store.read_master(unit, param, 0, values);
    }
  return all;
}

}  // namespace megatrain::golden
