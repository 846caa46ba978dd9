#pragma once
/// @file
/// The golden cases that make_goldens.py wrote, opened as the program opens a model folder.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/hf_folder.h"
#include "io/safetensors.h"

namespace megatrain::golden {

using Values = std::vector<double>;
/// Masters by parameter name.
using Parameters = std::map<std::string, std::vector<float>>;

/// The folders of all cases, by name. Never empty.
std::vector<std::filesystem::path> folders();

/// A tensor of floats. @throws LogicError when the file has none of that name
Values read(const io::SafetensorsFile& file, const std::string& name);

/// A folder's weights in a store.
struct Loaded {
  Loaded(const std::filesystem::path& path, MasterFormat format, Index gradient_bytes,
         Device& device, ThreadPool& pool);

  io::HfFolder folder;
  Model model;
  HostStore store;
};

Parameters masters(const HostStore& store);

}  // namespace megatrain::golden
