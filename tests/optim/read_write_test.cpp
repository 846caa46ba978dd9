#include "core/optim/read_write.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>

namespace megatrain {
namespace {

constexpr Index kElements = 2 * kUpdatePiece;
enum Array : std::size_t { weights, remainder, first_moment, second_moment, gradient, arrays };

struct Formats {
  MasterFormat master;
  DType moments;
};

/// Arrays on pages of their own, so that each can be protected by itself.
class ReadAndWrite : public ::testing::TestWithParam<Formats> {
 protected:
  ReadAndWrite() {
    const auto [master, moments] = GetParam();
    const DType wire = weight_type(master);
    sizes_ = {size_of(wire), remainder_bytes(master), size_of(moments), size_of(moments),
              size_of(wire)};
    for (std::size_t a = 0; a < arrays; ++a) {
      if (sizes_[a] == 0) continue;
      void* const data =
          mmap(nullptr, bytes(a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      EXPECT_NE(data, MAP_FAILED);
      data_[a] = static_cast<std::byte*>(data);
      std::memset(data, static_cast<int>(a) + 0x11, bytes(a));
    }
    slice_ = {kElements,
              data_[weights],
              reinterpret_cast<std::int16_t*>(data_[remainder]),
              data_[first_moment],
              data_[second_moment],
              data_[gradient],
              wire,
              moments,
              master};
  }
  ~ReadAndWrite() override {
    for (std::size_t a = 0; a < arrays; ++a)
      if (data_[a] != nullptr) munmap(data_[a], bytes(a));
  }
  [[nodiscard]] std::size_t bytes(std::size_t array) const {
    return static_cast<std::size_t>(kElements * sizes_[array]);
  }
  /// Runs with the last page of an array protected.
  void run_with(std::size_t array, int protection) {
    constexpr std::size_t kPage = 4096;
    mprotect(data_[array] + bytes(array) - kPage, kPage, protection);
    ThreadPool pool(1);
    read_and_write(slice_, pool);
  }

  std::array<Index, arrays> sizes_{};
  std::array<std::byte*, arrays> data_{};
  AdamWSlice slice_;
};

TEST_P(ReadAndWrite, ChangesNothing) {
  ThreadPool pool(2);
  read_and_write(slice_, pool);
  for (std::size_t a = 0; a < arrays; ++a)
    for (std::size_t i = 0; i < (data_[a] == nullptr ? 0 : bytes(a)); ++i)
      ASSERT_EQ(data_[a][i], static_cast<std::byte>(a + 0x11)) << a << " at " << i;
}

TEST_P(ReadAndWrite, ReachesTheLastPageOfEveryArray) {
  GTEST_FLAG_SET(death_test_style, "fast");
  for (std::size_t a = 0; a < gradient; ++a) {
    if (data_[a] == nullptr) continue;
    EXPECT_DEATH(run_with(a, PROT_READ), "") << a << " is not written";
  }
  EXPECT_DEATH(run_with(gradient, PROT_NONE), "") << "gradients are not read";
  run_with(gradient, PROT_READ);
}

TEST(ReadAndWritePieces, AreWhole) {
  ThreadPool pool(1);
  EXPECT_THROW(read_and_write({.count = kUpdatePiece + 1}, pool), LogicError);
}

INSTANTIATE_TEST_SUITE_P(Formats, ReadAndWrite,
                         ::testing::Values(Formats{MasterFormat::split, DType::f32},
                                           Formats{MasterFormat::fp32, DType::f32},
                                           Formats{MasterFormat::bf16, DType::f32},
                                           Formats{MasterFormat::split, DType::bf16},
                                           Formats{MasterFormat::fp32, DType::bf16},
                                           Formats{MasterFormat::bf16, DType::bf16}),
                         [](const auto& test) {
                           const bool split = test.param.master == MasterFormat::split;
                           return (split ? "split_" : "") + std::string(name(test.param.master)) +
                                  "_masters_" + std::string(name(test.param.moments)) + "_moments";
                         });

}  // namespace
}  // namespace megatrain
