#include "core/optim/unit_update.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

#include "core/base/bfloat16.h"
#include "core/ops/cpu/adamw_kernels.h"

namespace {
// Counts every allocation of this program, so that a test can prove that there are none.
thread_local std::int64_t allocations = 0;
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace megatrain {
namespace {

/// Biases between matrices and odd sizes: several groups, a lot of padding.
ModelConfig odd_config() {
  ModelConfig config = preset("qwen2-tiny");
  config.vocabulary = 131;
  config.intermediate = 83;
  return config;
}

struct Fixture {
  std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
  ThreadPool pool;
  HostStore store;

  explicit Fixture(MasterFormat master, Index gradient_bytes = 2, int threads = 1,
                   DType moments = DType::f32)
      : pool(threads),
        store(Model(odd_config()),
              {.master = master, .moments = moments, .gradient_bytes = gradient_bytes}, *device,
              pool) {
    initialize(store, 42, pool);
  }

  [[nodiscard]] const Model& model() const { return store.model(); }

  /// Random values where there are elements, zeros in the padding; the same for any store.
  void fill_gradient(Index unit, std::uint64_t seed, DType wire) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (const ParamDesc& param : model().unit(unit).params)
      for (Index i = param.offset; i < param.offset + param.elements(); ++i)
        if (wire == DType::f32)
          reinterpret_cast<float*>(store.gradient(unit))[i] = 0.01F * normal(random);
        else
          reinterpret_cast<bfloat16*>(store.gradient(unit))[i] =
              to_bfloat16(0.01F * normal(random));
  }
  void step(std::int64_t t, DType wire) {
    for (Index unit = 0; unit < model().unit_count(); ++unit) {
      fill_gradient(unit, static_cast<std::uint64_t>(100 * t + unit), wire);
      update_unit(store, unit, {.options = {}, .lr = 1e-2, .clip = 0.5, .step = t}, wire, pool);
    }
  }
  [[nodiscard]] std::vector<std::byte> state(Index unit) const {
    const auto n = static_cast<std::size_t>(model().unit(unit).slab_elements);
    std::vector<std::byte> all;
    const auto append = [&](const void* from, std::size_t bytes) {
      const auto* const begin = static_cast<const std::byte*>(from);
      all.insert(all.end(), begin, begin + bytes);
    };
    const MasterFormat master = store.master_format();
    append(store.weights(unit), n * static_cast<std::size_t>(size_of(weight_type(master))));
    append(store.remainder(unit), n * static_cast<std::size_t>(remainder_bytes(master)));
    const auto moment = static_cast<std::size_t>(size_of(store.moment_type()));
    append(store.exp_avg(unit), n * moment);
    append(store.exp_avg_sq(unit), n * moment);
    return all;
  }
};

constexpr std::pair<MasterFormat, DType> kFormats[] = {
    {MasterFormat::split, DType::f32},  {MasterFormat::fp32, DType::f32},
    {MasterFormat::split, DType::bf16}, {MasterFormat::fp32, DType::bf16},
    {MasterFormat::bf16, DType::f32},   {MasterFormat::bf16, DType::bf16}};

TEST(UnitUpdate, EachParameterGetsItsOwnGroup) {
  for (const auto& [master, moments] : kFormats) {
    for (const DType wire : {DType::bf16, DType::f32}) {
      Fixture actual(master, size_of(wire), 1, moments);
      Fixture expected(master, size_of(wire), 1, moments);
      bool seen[2] = {};
      for (std::int64_t t = 1; t <= 3; ++t) {
        actual.step(t, wire);
        for (Index unit = 0; unit < expected.model().unit_count(); ++unit) {
          expected.fill_gradient(unit, static_cast<std::uint64_t>(100 * t + unit), wire);
          const HostStore& store = expected.store;
          for (const ParamDesc& param : expected.model().unit(unit).params) {
            const AdamWSlice slab{expected.model().unit(unit).slab_elements,
                                  store.weights(unit),
                                  store.remainder(unit),
                                  store.exp_avg(unit),
                                  store.exp_avg_sq(unit),
                                  store.gradient(unit),
                                  wire,
                                  moments,
                                  master};
            AdamWCoefficients c = adamw_coefficients({}, 1e-2, 0.5, t, param.decay);
            c.rounding_key = rounding_key(t, unit);
            ops::cpu::adamw_update_portable(slab.part(param.offset, param.elements()), c);
            seen[param.decay ? 1 : 0] = true;
          }
        }
      }
      EXPECT_TRUE(seen[0] && seen[1]) << "the model has one group only";
      for (Index unit = 0; unit < expected.model().unit_count(); ++unit)
        EXPECT_EQ(actual.state(unit), expected.state(unit)) << actual.model().unit(unit).name();
    }
  }
}

TEST(UnitUpdate, ThreadsDoNotMatter) {
  for (const DType moments : {DType::f32, DType::bf16}) {
    Fixture one(MasterFormat::split, 2, 1, moments);
    Fixture four(MasterFormat::split, 2, 4, moments);
    for (std::int64_t t = 1; t <= 3; ++t) {
      one.step(t, DType::bf16);
      four.step(t, DType::bf16);
    }
    for (Index unit = 0; unit < one.model().unit_count(); ++unit)
      EXPECT_EQ(one.state(unit), four.state(unit));
  }
}

/// Chance goes by an element's place in the whole slab, not in what a rank has of it.
TEST(UnitUpdate, SlicesDoNotMatter) {
  const auto device = make_cpu_device({.threads = 1});
  ThreadPool pool(1);
  Fixture whole(MasterFormat::bf16, 2, 1, DType::bf16);
  for (std::int64_t t = 1; t <= 2; ++t) whole.step(t, DType::bf16);
  for (Index rank = 0; rank < 3; ++rank) {
    const Slicing slicing{.count = 3, .index = rank};
    HostStore store(whole.model(),
                    {.master = MasterFormat::bf16, .moments = DType::bf16, .slicing = slicing},
                    *device, pool);
    initialize(store, 42, pool);
    for (Index unit = 0; unit < store.model().unit_count(); ++unit) {
      const Index slab = store.model().unit(unit).slab_elements;
      const auto bytes = static_cast<std::size_t>(
          2 * std::clamp<Index>(slab - slicing.begin(slab), 0, slicing.slice(slab)));
      for (std::int64_t t = 1; t <= 2; ++t) {
        whole.fill_gradient(unit, static_cast<std::uint64_t>(100 * t + unit), DType::bf16);
        std::memcpy(store.gradient(unit), whole.store.gradient(unit) + 2 * slicing.begin(slab),
                    bytes);
        update_unit(store, unit, {.options = {}, .lr = 1e-2, .clip = 0.5, .step = t}, DType::bf16,
                    pool);
      }
      const auto same = [&](const std::byte* slice, const std::byte* all) {
        return std::memcmp(slice, all + 2 * slicing.begin(slab), bytes) == 0;
      };
      EXPECT_TRUE(same(store.exp_avg(unit), whole.store.exp_avg(unit))) << unit;
      EXPECT_TRUE(same(store.exp_avg_sq(unit), whole.store.exp_avg_sq(unit))) << unit;
      EXPECT_TRUE(same(store.weights(unit), whole.store.weights(unit))) << unit;
    }
  }
}

TEST(UnitUpdate, ABf16WireInAWideSlabIsTheSameUpdate) {
  Fixture narrow(MasterFormat::split, 2);
  Fixture wide(MasterFormat::split, 4);
  narrow.step(1, DType::bf16);
  wide.step(1, DType::bf16);
  for (Index unit = 0; unit < narrow.model().unit_count(); ++unit)
    EXPECT_EQ(narrow.state(unit), wide.state(unit));
  EXPECT_THROW(update_unit(narrow.store, 0, {.options = {}, .lr = 1e-2, .clip = 1, .step = 2},
                           DType::f32, narrow.pool),
               LogicError);
}

TEST(UnitUpdate, PaddingStaysZero) {
  for (const auto& [master, moments] : kFormats) {
    Fixture fixture(master, 2, 1, moments);
    for (std::int64_t t = 1; t <= 5; ++t) fixture.step(t, DType::bf16);
    Index padding = 0;
    Index nonzero = 0;
    for (Index unit = 0; unit < fixture.model().unit_count(); ++unit) {
      const HostStore& store = fixture.store;
      for (const ParamDesc& param : fixture.model().unit(unit).params) {
        const Index end = param.offset + param.padded_elements();
        for (Index i = param.offset + param.elements(); i < end; ++i, ++padding) {
          const Index width = size_of(weight_type(master));
          for (Index byte = 0; byte < width; ++byte)
            if (store.weights(unit)[i * width + byte] != std::byte{0}) ++nonzero;
          if (store.remainder(unit) && store.remainder(unit)[i] != 0) ++nonzero;
          for (Index byte = i * size_of(moments); byte < (i + 1) * size_of(moments); ++byte)
            if (store.exp_avg(unit)[byte] != std::byte{0} ||
                store.exp_avg_sq(unit)[byte] != std::byte{0})
              ++nonzero;
        }
      }
    }
    EXPECT_GT(padding, 1000);
    EXPECT_EQ(nonzero, 0);
  }
}

TEST(UnitUpdate, AllocatesNothing) {
  Fixture fixture(MasterFormat::split);
  fixture.step(1, DType::bf16);
  const std::int64_t before = allocations;
  for (Index unit = 0; unit < fixture.model().unit_count(); ++unit)
    update_unit(fixture.store, unit, {.options = {}, .lr = 1e-2, .clip = 0.5, .step = 2},
                DType::bf16, fixture.pool);
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace megatrain
