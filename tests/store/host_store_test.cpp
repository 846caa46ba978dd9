#include "core/store/host_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/base/split_master.h"
#include "tests/memory_map.h"

namespace megatrain {
namespace {

ModelConfig odd_config() {
  ModelConfig config = preset("qwen2-tiny");
  config.vocabulary = 131;
  config.intermediate = 83;
  return config;
}

class HostStoreTest : public ::testing::TestWithParam<MasterFormat> {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  ThreadPool pool_{2};
  HostStore make(const ModelConfig& config, Index gradient_bytes = 2) {
    return HostStore(Model(config), {.master = GetParam(), .gradient_bytes = gradient_bytes},
                     *device_, pool_);
  }
};
INSTANTIATE_TEST_SUITE_P(Masters, HostStoreTest,
                         ::testing::Values(MasterFormat::split, MasterFormat::fp32,
                                           MasterFormat::bf16),
                         [](const auto& test) {
                           return test.param == MasterFormat::split ? std::string("split")
                                                                    : std::string(name(test.param));
                         });

/// What a master that was given this value holds.
float held_of(MasterFormat format, float value) {
  return format == MasterFormat::bf16 ? to_float(split_master(value).high) : value;
}

TEST_P(HostStoreTest, MapsWhatStoreBytesSaysAndNoMore) {
  ModelConfig config = preset("qwen2-tiny");
  config.vocabulary = 100'003;  // large enough that one percent is more than noise
  for (const Index gradient_bytes : {2, 4}) {
    const Model model(config);
    const StoreBytes bytes = store_bytes(model, GetParam(), gradient_bytes);
    Index elements = 0;
    for (const Unit& unit : model.units()) elements += unit.slab_elements;
    EXPECT_EQ(bytes.total(), elements * (master_bytes(GetParam()) + 8 + gradient_bytes));

    const Index before = resident_bytes();
    const HostStore store = make(config, gradient_bytes);
    const auto grown = static_cast<double>(resident_bytes() - before);
    if (kProcessIsOurs) {
      EXPECT_NEAR(grown / static_cast<double>(bytes.total()), 1.0, 0.01);
    }
    EXPECT_EQ(store.bytes().total(), bytes.total());
    EXPECT_EQ(resident_bytes(store.weights(0), bytes.weights), bytes.weights);
    EXPECT_EQ(resident_bytes(store.gradient(0), bytes.gradient), bytes.gradient);
    EXPECT_EQ(resident_bytes(store.exp_avg(0), bytes.exp_avg), bytes.exp_avg);
    EXPECT_EQ(resident_bytes(store.exp_avg_sq(0), bytes.exp_avg_sq), bytes.exp_avg_sq);
    if (GetParam() == MasterFormat::split) {
      EXPECT_EQ(resident_bytes(store.remainder(0), bytes.remainder), bytes.remainder);
    } else {
      EXPECT_EQ(store.remainder(0), nullptr);
      EXPECT_EQ(bytes.remainder, 0);
    }
  }
}

TEST_P(HostStoreTest, WeightsAloneAreAllThatIsMapped) {
  ModelConfig config = preset("qwen2-tiny");
  config.vocabulary = 100'003;
  const Model model(config);
  const StoreBytes bytes = store_bytes(model, GetParam(), 2, StoreContents::weights);
  EXPECT_EQ(bytes.total(), bytes.weights);
  EXPECT_EQ(bytes.weights, store_bytes(model, GetParam(), 2).weights);
  const Index before = resident_bytes();
  const HostStore store(model, {.contents = StoreContents::weights, .master = GetParam()}, *device_,
                        pool_);
  const auto grown = static_cast<double>(resident_bytes() - before);
  if (kProcessIsOurs) {
    EXPECT_NEAR(grown / static_cast<double>(bytes.total()), 1.0, 0.02);
  }
  EXPECT_EQ(store.contents(), StoreContents::weights);
  EXPECT_EQ(store.bytes().total(), bytes.total());
  EXPECT_EQ(store.gradient_bytes(), 0);
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    EXPECT_NE(store.weights(unit), nullptr);
    EXPECT_EQ(store.remainder(unit), nullptr);
    EXPECT_EQ(store.gradient(unit), nullptr);
    EXPECT_EQ(store.exp_avg(unit), nullptr);
    EXPECT_EQ(store.exp_avg_sq(unit), nullptr);
  }
}

TEST_P(HostStoreTest, WeightsAloneAreThoseThatATrainingStoreStreams) {
  const Model model(odd_config());
  HostStore whole = make(odd_config());
  HostStore alone(model, {.contents = StoreContents::weights, .master = GetParam()}, *device_,
                  pool_);
  initialize(whole, 17, pool_);
  initialize(alone, 17, pool_);
  // A tie: up, away from zero, where rounding to even would go down.
  const float tie = std::bit_cast<float>(0x3f808000U);
  for (HostStore* store : {&whole, &alone})
    store->write_master(1, model.unit(1).params.front(), 0, std::span(&tie, 1));
  const Index width = size_of(weight_type(GetParam()));
  for (Index unit = 0; unit < model.unit_count(); ++unit) {
    const auto bytes = static_cast<std::size_t>(model.unit(unit).slab_elements * width);
    EXPECT_EQ(std::memcmp(whole.weights(unit), alone.weights(unit), bytes), 0) << unit;
    for (const ParamDesc& param : model.unit(unit).params) {
      std::vector<float> read(static_cast<std::size_t>(param.elements()));
      alone.read_master(unit, param, 0, read);
      for (std::size_t i = 0; i < read.size(); ++i) {
        const Index at = param.offset + static_cast<Index>(i);
        const float streamed =
            weight_type(GetParam()) == DType::bf16
                ? to_float(reinterpret_cast<const bfloat16*>(alone.weights(unit))[at])
                : reinterpret_cast<const float*>(alone.weights(unit))[at];
        ASSERT_EQ(read[i], streamed) << param.name << " " << i;
      }
    }
  }
  const float bad = std::nanf("");
  EXPECT_THROW(alone.write_master(1, model.unit(1).params.front(), 0, std::span(&bad, 1)),
               UserError);
}

TEST_P(HostStoreTest, SlabsFollowOneAnother) {
  const HostStore store = make(odd_config());
  const Model& model = store.model();
  const Index width = size_of(weight_type(GetParam()));
  for (Index unit = 0; unit + 1 < model.unit_count(); ++unit) {
    const Index n = model.unit(unit).slab_elements;
    EXPECT_EQ(store.weights(unit + 1) - store.weights(unit), n * width);
    EXPECT_EQ(store.gradient(unit + 1) - store.gradient(unit), n * 2);
    EXPECT_EQ(store.exp_avg(unit + 1) - store.exp_avg(unit), 4 * n);
    EXPECT_EQ(store.exp_avg_sq(unit + 1) - store.exp_avg_sq(unit), 4 * n);
  }
  EXPECT_THROW((void)store.weights(model.unit_count()), LogicError);
  EXPECT_THROW((void)store.weights(-1), LogicError);
}

TEST_P(HostStoreTest, WhatIsWrittenIsReadAnyWay) {
  HostStore store = make(odd_config());
  std::mt19937 random(3);
  for (Index unit = 0; unit < store.model().unit_count(); ++unit) {
    for (const ParamDesc& param : store.model().unit(unit).params) {
      std::vector<float> values(static_cast<std::size_t>(param.elements()));
      for (float& value : values) do
          value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        while (!is_master(value));
      // In two pieces, read in three.
      const auto span = std::span<const float>(values);
      const std::size_t cut = values.size() / 3;
      store.write_master(unit, param, 0, span.first(cut));
      store.write_master(unit, param, static_cast<Index>(cut), span.subspan(cut));
      std::vector<float> back(values.size());
      const auto into = std::span(back);
      const std::size_t half = values.size() / 2;
      store.read_master(unit, param, 0, into.first(1));
      store.read_master(unit, param, 1, into.subspan(1, half));
      store.read_master(unit, param, static_cast<Index>(half) + 1, into.subspan(half + 1));
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(held_of(GetParam(), values[i])),
                  std::bit_cast<std::uint32_t>(back[i]))
            << param.name << " " << i;
    }
  }
}

TEST_P(HostStoreTest, WeightsThatStreamAreTheNearestBf16) {
  HostStore store = make(odd_config());
  const ParamDesc& param = store.model().unit(1).params.front();
  const float value = 0.1F;
  store.write_master(1, param, 0, std::span(&value, 1));
  if (GetParam() != MasterFormat::fp32) {
    const auto* const weights = reinterpret_cast<const bfloat16*>(store.weights(1));
    EXPECT_EQ(weights[param.offset].bits, to_bfloat16(value).bits);
  } else {
    EXPECT_EQ(reinterpret_cast<const float*>(store.weights(1))[param.offset], value);
  }
}

TEST_P(HostStoreTest, BadValuesAreRefusedByNameAndNothingIsWritten) {
  HostStore store = make(odd_config());
  const ParamDesc& param = store.model().unit(1).params.back();
  const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()};
  for (const float value : bad) {
    const float values[] = {1, 2, value, 4};
    try {
      store.write_master(1, param, 1, values);
      FAIL() << value;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("element 3 of '" + param.name + "'"),
                std::string::npos)
          << error.what();
    }
    float back[5];
    store.read_master(1, param, 0, back);
    for (const float b : back) EXPECT_EQ(b, 0.0F);
  }
}

TEST_P(HostStoreTest, RangesOutsideTheParameterAreBugs) {
  HostStore store = make(odd_config());
  const ParamDesc& param = store.model().unit(1).params.front();
  std::vector<float> two(2);
  EXPECT_THROW(store.read_master(1, param, -1, two), LogicError);
  EXPECT_THROW(store.read_master(1, param, param.elements() - 1, two), LogicError);
  EXPECT_THROW(store.write_master(1, param, param.elements(), two), LogicError);
  EXPECT_THROW(store.write_master(99, param, 0, two), LogicError);
  EXPECT_NO_THROW(store.read_master(1, param, param.elements() - 2, two));
}

TEST_P(HostStoreTest, InitializeFillsMastersAndLeavesPaddingZero) {
  HostStore store = make(odd_config());
  initialize(store, 17, pool_);
  for (Index unit = 0; unit < store.model().unit_count(); ++unit) {
    const Unit& desc = store.model().unit(unit);
    std::vector<bool> owned(static_cast<std::size_t>(desc.slab_elements));
    for (const ParamDesc& param : desc.params) {
      std::vector<float> expected(static_cast<std::size_t>(param.elements()));
      initial_values(param, 17, 0, expected);
      for (float& value : expected) value = held_of(GetParam(), value);
      std::vector<float> actual(expected.size());
      store.read_master(unit, param, 0, actual);
      EXPECT_EQ(actual, expected) << param.name;
      std::fill_n(owned.begin() + param.offset, param.elements(), true);
    }
    const auto* const bf16 = reinterpret_cast<const std::uint16_t*>(store.weights(unit));
    const auto* const fp32 = reinterpret_cast<const std::uint32_t*>(store.weights(unit));
    for (Index i = 0; i < desc.slab_elements; ++i) {
      if (owned[static_cast<std::size_t>(i)]) continue;
      const bool zero = GetParam() == MasterFormat::fp32 ? fp32[i] == 0 : bf16[i] == 0;
      ASSERT_TRUE(zero) << desc.name() << " padding at " << i;
    }
  }
}

TEST_P(HostStoreTest, InitializeDoesNotDependOnThreads) {
  HostStore one = make(odd_config());
  HostStore other = make(odd_config());
  ThreadPool single(1);
  ThreadPool three(3);
  initialize(one, 17, single);
  initialize(other, 17, three);
  for (Index unit = 0; unit < one.model().unit_count(); ++unit) {
    const Index bytes = one.model().unit(unit).slab_elements * size_of(weight_type(GetParam()));
    EXPECT_EQ(std::memcmp(one.weights(unit), other.weights(unit), static_cast<std::size_t>(bytes)),
              0);
  }
}

TEST_P(HostStoreTest, RefusesWhatDoesNotFitBeforeMapping) {
  ModelConfig config = preset("llama-3-70b");
  config.layers = 8000;  // about 100 TB of states
  const Model model(config);
  const Index before = virtual_bytes();
  try {
    const HostStore store(model, {.master = GetParam()}, *device_, pool_);
    FAIL() << "100 TB were granted";
  } catch (const UserError& error) {
    const std::string need = std::to_string(store_bytes(model, GetParam(), 2).total());
    EXPECT_NE(std::string(error.what()).find(need), std::string::npos) << error.what();
  }
  // The descriptions of 8000 layers take some MiB.
  EXPECT_LE(virtual_bytes(), before + (Index{1} << 30));
}

TEST_P(HostStoreTest, TellsProgressUpToTheTotal) {
  Index last = 0;
  Index calls = 0;
  const Model model(odd_config());
  const Index total = store_bytes(model, GetParam(), 2).total();
  const HostStore store(model,
                        {.master = GetParam(),
                         .progress =
                             [&](Index done, Index all) {
                               EXPECT_GT(done, last);
                               EXPECT_EQ(all, total);
                               last = done;
                               ++calls;
                             }},
                        *device_, pool_);
  EXPECT_EQ(last, total);
  EXPECT_GE(calls, 4);
}

TEST(StoreBytes, KnowsTheBigOnes) {
  // 14 bytes a parameter by default, beyond 2^31 elements in all.
  const Model model(preset("qwen2.5-7b"));
  const StoreBytes bytes = store_bytes(model, MasterFormat::split, 2);
  const double per_parameter =
      static_cast<double>(bytes.total()) / static_cast<double>(model.parameter_count());
  EXPECT_NEAR(per_parameter, 14.0, 0.01);
  EXPECT_THROW((void)store_bytes(model, MasterFormat::split, 3), LogicError);
}

}  // namespace
}  // namespace megatrain
