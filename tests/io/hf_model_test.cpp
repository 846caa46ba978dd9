#include <cmath>
#include <map>

#include "core/base/bfloat16.h"
#include "core/base/split_master.h"
#include "io/byte_tokenizer.h"
#include "io/hf_folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_writer.h"
#include "tests/io/io_test_support.h"
#include "tests/io/small_config.h"
#include "tests/memory_map.h"

namespace megatrain::io {
namespace {

namespace fs = std::filesystem;

using Parameters = std::map<std::string, std::vector<float>>;

class HfModel : public testing::Test {
 protected:
  std::unique_ptr<HostStore> make_store(const Model& model,
                                        MasterFormat format = MasterFormat::fp32) {
    return std::make_unique<HostStore>(model, StoreOptions{.master = format}, *device_, pool_);
  }

  static Parameters read_all(const HostStore& store) {
    Parameters all;
    for (Index unit = 0; unit < store.model().unit_count(); ++unit)
      for (const ParamDesc& param : store.model().unit(unit).params) {
        std::vector<float>& values = all[param.name];
        values.resize(static_cast<std::size_t>(param.elements()));
        store.read_master(unit, param, 0, values);
      }
    return all;
  }

  /// Writes a store with initial values (norms and biases too made uneven) into a folder.
  Parameters write_model(const ModelConfig& config, const ExportOptions& options,
                         MasterFormat format = MasterFormat::fp32) {
    const Model model(config);
    const auto store = make_store(model, format);
    initialize(*store, 5, pool_);
    for (Index unit = 0; unit < model.unit_count(); ++unit)
      for (const ParamDesc& param : model.unit(unit).params)
        if (param.init != Init::normal) {
          std::vector<float> values(static_cast<std::size_t>(param.elements()));
          for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = 1.0F + static_cast<float>(i) / 7.0F;
          store->write_master(unit, param, 0, values);
        }
    export_model(*store, preset_side_files(config, true), options, pool_);
    return read_all(*store);
  }

  /// Opens a folder as the program does and returns what is in it.
  Parameters load(const fs::path& folder, MasterFormat format = MasterFormat::fp32) {
    const HfFolder opened(folder);
    const Model model(opened.config().model);
    const auto store = make_store(model, format);
    load_weights(folder, *store, pool_);
    return read_all(*store);
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  ThreadPool pool_{2};
  TemporaryFolder folder_;
};

TEST_F(HfModel, EveryModelTypeRoundTrips) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gpt2"})
    for (const bool tied : {false, true}) {
      const ModelConfig config = small_config(type, tied);
      const fs::path folder = folder_ / (std::string(type) + (tied ? "-tied" : ""));
      const Parameters written = write_model(config, {.folder = folder, .type = DType::f32});
      EXPECT_EQ(HfFolder(folder).config().model, config) << type;
      EXPECT_EQ(load(folder), written) << type;
      EXPECT_EQ(load(folder, MasterFormat::split), written) << type;
      const SafetensorsFile file(folder / "model.safetensors");
      EXPECT_EQ(file.find("lm_head.weight") == nullptr, tied) << type;
    }
}

TEST_F(HfModel, TensorsOfSeveralPiecesRoundTrip) {
  ModelConfig config = small_config("qwen2", true);
  config.vocabulary = 2 * kPieceElements / config.hidden + 11;
  const fs::path folder = folder_ / "m";
  const Parameters written = write_model(config, {.folder = folder, .type = DType::f32});
  EXPECT_TRUE(load(folder) == written);
}

TEST_F(HfModel, Bf16IsTheNearestAndShardsSayTheSame) {
  const ModelConfig config = small_config("qwen2", true);
  const fs::path one = folder_ / "one", many = folder_ / "many";
  const Parameters written = write_model(config, {.folder = one}, MasterFormat::split);
  write_model(config, {.folder = many, .shard_bytes = 4000}, MasterFormat::split);
  const Parameters read = load(one);
  for (const auto& [name, values] : written)
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(read.at(name)[i], to_float(to_bfloat16(values[i]))) << name << " " << i;
  EXPECT_EQ(load(many), read);

  const JsonValue index = parse_json(get_file(many / "model.safetensors.index.json"), "index");
  const auto& map = *index.find("weight_map")->as<JsonValue::Object>();
  EXPECT_EQ(map.size(), written.size());
  Index bytes = 0;
  for (const auto& [name, values] : written) bytes += 2 * static_cast<Index>(values.size());
  EXPECT_EQ(*index.find("metadata")->find("total_size")->as<Index>(), bytes);
  Index shards = 0;
  for (const auto& file : fs::directory_iterator(many))
    if (file.path().extension() == ".safetensors") {
      ++shards;
      const SafetensorsFile shard(file.path());
      Index size = 0;
      for (const TensorInfo& tensor : shard.header().tensors) size += tensor.end - tensor.begin;
      EXPECT_TRUE(size <= 4000 || shard.header().tensors.size() == 1) << file.path();
    }
  EXPECT_GT(shards, 5);
  EXPECT_FALSE(fs::exists(one / "model.safetensors.index.json"));
}

TEST_F(HfModel, LoadingAndSavingTakePiecesNotCopies) {
  if (!kProcessIsOurs) GTEST_SKIP() << "a sanitizer's notes are larger than the model";
  ModelConfig config = small_config("llama", false);
  config.vocabulary = 500'000;  // two tables of 48 MB
  const Model model(config);
  const auto store = make_store(model);
  initialize(*store, 5, pool_);
  constexpr Index kMost = Index{24} << 20;
  Index before = peak_bytes(true);
  export_model(*store, preset_side_files(config, false),
               {.folder = folder_ / "m", .type = DType::f32}, pool_);
  EXPECT_LT(peak_bytes(false) - before, kMost);
  before = peak_bytes(true);
  load_weights(folder_ / "m", *store, pool_);
  EXPECT_LT(peak_bytes(false) - before, kMost);
}

TEST_F(HfModel, WeightsAloneAreLoadedAndExportedAsTheyStream) {
  const ModelConfig config = small_config("qwen2", true);
  const fs::path source = folder_ / "source";
  write_model(config, {.folder = source, .type = DType::f32});
  const Model model(config);
  for (const MasterFormat format : {MasterFormat::split, MasterFormat::fp32}) {
    HostStore store(model, {.contents = StoreContents::weights, .master = format}, *device_, pool_);
    load_weights(source, store, pool_);
    const Parameters held = read_all(store);
    const fs::path copy = folder_ / (format == MasterFormat::split ? "split" : "fp32");
    export_model(store, preset_side_files(config, true), {.folder = copy, .type = DType::f32},
                 pool_);
    EXPECT_EQ(load(copy), held);
    if (format == MasterFormat::fp32) {
      EXPECT_EQ(held, load(source));
    } else {
      for (const auto& [name, values] : load(source))
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(held.at(name)[i], to_float(split_master(values[i]).high)) << name << " " << i;
    }
  }
}

TEST_F(HfModel, SideFilesPassThroughAndTheTypeIsRewritten) {
  const fs::path source = folder_ / "source";
  write_model(small_config("llama", false), {.folder = source, .type = DType::f32});
  EXPECT_FALSE(refuse_bytes(HfFolder(source).side_files(), 258));
  std::string config = get_file(source / "config.json");
  config.insert(config.find('{') + 1, "\"mystery\":{\"a\":[1.0]},");
  put_file(source / "config.json", config);
  put_file(source / "chat_template.jinja", "{{ anything\n }}");
  put_file(source / "README.md", "a model card of other weights");

  const HfFolder opened(source);
  EXPECT_EQ(opened.config().notes.size(), 1U);
  const Model model(opened.config().model);
  const auto store = make_store(model);
  load_weights(source, *store, pool_);
  fs::remove_all(source);  // the folder may be gone when training ends
  const fs::path target = folder_ / "run/model";
  export_model(*store, opened.side_files(), {.folder = target}, pool_);
  EXPECT_EQ(get_file(target / "chat_template.jinja"), "{{ anything\n }}");
  EXPECT_FALSE(fs::exists(target / "README.md"));
  const JsonValue written = parse_json(get_file(target / "config.json"), "x");
  EXPECT_EQ(to_text(*written.find("mystery")), R"({"a":[1.0]})");
  EXPECT_EQ(*written.find("torch_dtype")->as<std::string>(), "bfloat16");
  expect_user_error([&] { export_model(*store, opened.side_files(), {.folder = target}, pool_); },
                    {"exists"});
}

/// Tensors to be written by hand.
struct Handmade {
  FileType type;
  std::vector<Index> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Handmade>;

void write_tensors(const fs::path& path, const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.type, tensor.shape});
  SafetensorsWriter writer(path, specs);
  std::size_t index = 0;
  for (const auto& [name, tensor] : tensors) {
    std::string bytes;
    for (const float value : tensor.values) {
      if (tensor.type == FileType::f32)
        bytes += bytes_of_value(value);
      else if (tensor.type == FileType::bf16)
        bytes += bytes_of_value(to_bfloat16(value));
      else  // half of the value 1: enough for these tests
        bytes += bytes_of_value(std::uint16_t{0x3c00});
    }
    writer.write(index++, 0, std::as_bytes(std::span(bytes)));
  }
  writer.finish();
}

Tensors read_tensors(const fs::path& path) {
  Tensors tensors;
  const SafetensorsFile file(path);
  for (const TensorInfo& info : file.header().tensors) {
    Handmade& tensor = tensors[info.name];
    tensor = {info.type, info.shape, std::vector<float>(static_cast<std::size_t>(info.elements()))};
    file.read_floats(info, 0, tensor.values);
  }
  return tensors;
}

TEST_F(HfModel, OtherSpellingsOfTheSameWeightsLoad) {
  const fs::path folder = folder_ / "gpt2";
  const Parameters written =
      write_model(small_config("gpt2", true), {.folder = folder, .type = DType::f32});
  const fs::path file = folder / "model.safetensors";
  Tensors tensors;
  for (auto& [name, tensor] : read_tensors(file)) {
    const std::string prefix = "transformer.";
    tensors[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = tensor;
  }
  // Without the prefix, with the mask buffers, with a copy of the tied head.
  tensors["h.0.attn.bias"] = {FileType::f32, {1, 1, 2, 2}, {1, 0, 1, 1}};
  tensors["h.1.attn.masked_bias"] = {FileType::f32, {}, {-1e4F}};
  tensors["lm_head.weight"] = tensors.at("wte.weight");
  write_tensors(file, tensors);
  EXPECT_EQ(load(folder), written);

  tensors["lm_head.weight"].values[3] += 1;
  write_tensors(file, tensors);
  expect_user_error([&] { load(folder); }, {"'lm_head.weight' differs", "tie_word_embeddings"});

  tensors.erase("lm_head.weight");
  tensors["transformer.wte.weight"] = tensors.at("wte.weight");
  write_tensors(file, tensors);
  expect_user_error([&] { load(folder); }, {"'transformer.wte.weight'", "'wte.weight'"});

  // The tied tensor under its other name only.
  tensors["lm_head.weight"] = tensors.at("wte.weight");
  tensors.erase("wte.weight");
  tensors.erase("transformer.wte.weight");
  write_tensors(file, tensors);
  EXPECT_EQ(load(folder), written);
}

TEST_F(HfModel, MixedTypesLoadExactly) {
  const fs::path folder = folder_ / "llama";
  Parameters expected =
      write_model(small_config("llama", false), {.folder = folder, .type = DType::f32});
  const fs::path file = folder / "model.safetensors";
  Tensors tensors = read_tensors(file);
  tensors.at("model.norm.weight").type = FileType::f16;
  for (float& value : expected.at("model.norm.weight")) value = 1;
  tensors.at("lm_head.weight").type = FileType::bf16;
  for (float& value : expected.at("lm_head.weight")) value = to_float(to_bfloat16(value));
  tensors["model.layers.1.self_attn.rotary_emb.inv_freq"] = {FileType::f32, {2}, {1, 2}};
  write_tensors(file, tensors);
  EXPECT_EQ(load(folder), expected);
}

TEST_F(HfModel, WrongWeightsAreRefusedByName) {
  const fs::path folder = folder_ / "llama";
  write_model(small_config("llama", false), {.folder = folder, .type = DType::f32});
  const fs::path file = folder / "model.safetensors";
  const Tensors good = read_tensors(file);
  const auto refuses = [&](auto change, std::initializer_list<std::string_view> says) {
    Tensors tensors = good;
    change(tensors);
    write_tensors(file, tensors);
    expect_user_error([&] { load(folder); }, says);
  };
  const std::string gate = "model.layers.1.mlp.gate_proj.weight";
  refuses([&](Tensors& t) { t.erase(gate); }, {gate, "[36, 24]", "missing"});
  refuses([&](Tensors& t) { t.at(gate).shape = {24, 36}; },
          {"model.safetensors", gate, "[24, 36]", "[36, 24]"});
  refuses([&](Tensors& t) { t.at(gate).shape = {36 * 24}; }, {gate, "[864]"});
  refuses(
      [&](Tensors& t) {
        t.at(gate) = {FileType::u8, {36, 24}, {}};
        t.at(gate).shape = {0};
      },
      {gate, "[0]"});
  refuses([&](Tensors& t) { t.at(gate).type = FileType::i16; }, {gate, "I16", "BF16"});
  refuses([&](Tensors& t) { t["model.layers.2.mlp.up_proj.weight"] = t.at(gate); },
          {"model.layers.2.mlp.up_proj.weight", "no part of the model"});
  refuses(
      [&](Tensors& t) { t["model.layers.0.self_attn.q_proj.bias"] = {FileType::f32, {1}, {1}}; },
      {"q_proj.bias", "no part of the model"});
  refuses([&](Tensors& t) { t.at(gate).values[5] = NAN; }, {"model.safetensors", gate});
  refuses([&](Tensors& t) { t.at(gate).values[5] = INFINITY; }, {"model.safetensors", gate});
  // An error of one type leaves no doubt about the others: nothing was read before the checks.
  write_tensors(file, good);
  EXPECT_NO_THROW(load(folder));

  fs::remove(file);
  expect_user_error([&] { load(folder); }, {"neither", "index.json"});
  put_file(folder / "pytorch_model.bin", "");
  expect_user_error([&] { load(folder); }, {"pickled"});
  fs::remove(folder / "config.json");
  expect_user_error([&] { load(folder); }, {"no config.json"});
  expect_user_error([&] { load(folder_ / "absent"); }, {"absent", "no config.json"});
}

TEST_F(HfModel, BadIndicesAreRefusedByName) {
  const fs::path folder = folder_ / "llama";
  write_model(small_config("llama", false),
              {.folder = folder, .type = DType::f32, .shard_bytes = 20'000});
  const fs::path path = folder / "model.safetensors.index.json";
  const std::string good = get_file(path);
  const std::string first = "model-00001-of-";
  const std::string name = good.substr(good.find(first), first.size() + 5 + 12);
  const auto refuses = [&](const std::string& from, const std::string& to,
                           std::initializer_list<std::string_view> says) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    put_file(path, text);
    expect_user_error([&] { load(folder); }, says);
  };
  for (const char* bad :
       {"../model.safetensors", "/etc/passwd", "a/b", "..", "", "a\\\\b", "a\\u0000b"})
    refuses("\"" + name + "\"", "\"" + std::string(bad) + "\"", {"index.json", "plain file name"});
  refuses("\"" + name + "\"", "\"absent.safetensors\"", {"'absent.safetensors'", "missing"});
  refuses("\"" + name + "\"", "3", {"must be a string"});
  refuses("\"weight_map\"", "\"map\"", {"weight_map"});
  refuses("\"lm_head.weight\"", "\"lm_head.other\"", {"'lm_head.other'", "but is not"});
  put_file(path, good.substr(0, good.size() / 2));
  expect_user_error([&] { load(folder); }, {"index.json", "not valid JSON"});

  // A tensor in two shards, then a shard that is gone.
  put_file(path, good);
  EXPECT_NO_THROW(load(folder));
  Tensors shard = read_tensors(folder / name);
  const Tensors untouched = shard;
  shard["lm_head.weight"] = {FileType::f32, {1}, {1}};
  write_tensors(folder / name, shard);
  expect_user_error([&] { load(folder); }, {"'lm_head.weight'", "two files"});
  write_tensors(folder / name, untouched);
  fs::remove(folder / name);
  expect_user_error([&] { load(folder); }, {name, "missing"});
}

TEST_F(HfModel, AFullDiskLeavesNothing) {
  const ModelConfig config = small_config("llama", false);
  const Model model(config);
  const auto store = make_store(model);
  const fs::path target = folder_ / "run/model";
  {
    const FileSizeLimit limit(20'000);
    ThreadPool alone(1);
    expect_user_error(
        [&] { export_model(*store, preset_side_files(config, true), {.folder = target}, alone); },
        {"model.safetensors"});
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "run"));
}

TEST_F(HfModel, ProgressReachesTheEnd) {
  const ModelConfig config = small_config("llama", false);
  const Model model(config);
  const auto store = make_store(model);
  Index last = 0, total = 0;
  const Progress progress = [&](Index done, Index all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  export_model(*store, preset_side_files(config, true), {.folder = folder_ / "m"}, pool_, progress);
  EXPECT_EQ(total, model.parameter_count() * 2);
  EXPECT_EQ(last, total);
  last = 0;
  load_weights(folder_ / "m", *store, pool_, progress);
  EXPECT_EQ(last, total);
}

TEST_F(HfModel, HuggingFaceLibrariesReadTheSame) {
  const std::pair<const char*, const char*> cases[] = {{"llama", "LlamaForCausalLM"},
                                                       {"mistral", "MistralForCausalLM"},
                                                       {"qwen2", "Qwen2ForCausalLM"},
                                                       {"qwen3", "Qwen3ForCausalLM"},
                                                       {"gpt2", "GPT2LMHeadModel"}};
  std::string command = "python3 '" MEGATRAIN_IO_ORACLE "'";
  for (const auto& [type, architecture] : cases) {
    const ModelConfig config = small_config(type, true);
    const fs::path folder = folder_ / type;
    const Parameters written =
        write_model(config, {.folder = folder, .type = DType::f32, .shard_bytes = 20'000});
    JsonWriter json;
    json.begin_object().member("architecture", architecture).key("config").begin_object();
    json.member("vocab_size", config.vocabulary).member("hidden_size", config.hidden);
    json.member("num_hidden_layers", config.layers).member("tie_word_embeddings", true);
    json.member("num_attention_heads", config.heads).member("bos_token_id", kBeginToken);
    if (config.rope.kind != RopeKind::none) {
      json.member("num_key_value_heads", config.kv_heads).member("head_dim", config.head_dim);
      json.member("rms_norm_eps", config.norm_eps).member("hidden_act", "silu");
    }
    if (!config.windows.empty()) json.member("sliding_window", config.windows[0]);
    json.end_object().key("sums").begin_object();
    for (const auto& [name, values] : written) {
      double sum = 0;
      for (const float value : values) sum += value;
      json.member(name, sum);
    }
    json.end_object().end_object();
    const fs::path expected = put_file(folder_ / (std::string(type) + ".json"), json.text());
    command += " '" + folder.string() + "' '" + expected.string() + "'";
  }
  command += " > '" + (folder_ / "log").string() + "' 2>&1";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)
    GTEST_SKIP() << "python3 with numpy, safetensors and transformers is not there";
  EXPECT_EQ(WEXITSTATUS(status), 0) << get_file(folder_ / "log");
}

}  // namespace
}  // namespace megatrain::io
