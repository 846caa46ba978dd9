#include "core/device/cuda/device_info.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#if MEGATRAIN_HAS_CUDNN
#include <cudnn.h>
#endif

namespace megatrain {

namespace {

struct KnownGpu {
  std::string_view words;  ///< all of them must be in the name; more specific entries come first
  double flops;
};

constexpr std::array kKnownGpus{
    KnownGpu{"B200", 2250e12},    KnownGpu{"GB200", 2500e12},   KnownGpu{"GH200", 989e12},
    KnownGpu{"H200 NVL", 835e12}, KnownGpu{"H200", 989e12},     KnownGpu{"H100 PCIe", 756e12},
    KnownGpu{"H100 NVL", 835e12}, KnownGpu{"H100", 989e12},     KnownGpu{"H800 PCIe", 756e12},
    KnownGpu{"H800", 989e12},     KnownGpu{"H20", 148e12},      KnownGpu{"A100", 312e12},
    KnownGpu{"A800", 312e12},     KnownGpu{"A30", 165e12},      KnownGpu{"A40", 150e12},
    KnownGpu{"A10", 125e12},      KnownGpu{"L40S", 362e12},     KnownGpu{"L40", 181e12},
    KnownGpu{"L4", 121e12},       KnownGpu{"RTX 5090", 209e12}, KnownGpu{"RTX 4090", 165e12},
    KnownGpu{"RTX 3090", 71e12},
};

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_character(text[at - 1]);
    const bool ends = end == text.size() || !is_word_character(text[end]);
    if (begins && ends) return true;
  }
  return false;
}

bool has_words(std::string_view text, std::string_view words) {
  while (!words.empty()) {
    const std::size_t space = std::min(words.find(' '), words.size());
    if (!has_word(text, words.substr(0, space))) return false;
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return true;
}

}  // namespace

double peak_bf16_flops(std::string_view name) {
  // The laptop parts share the desktop parts' numbers but not their rates.
  if (has_word(name, "Laptop")) return 0;
  const auto* known = std::find_if(kKnownGpus.begin(), kKnownGpus.end(),
                                   [&](const KnownGpu& gpu) { return has_words(name, gpu.words); });
  return known == kKnownGpus.end() ? 0 : known->flops;
}

std::string cuda_numerics(const CudaProperties& properties) {
  std::string text =
      fmt::format("cuda sm_{}{} x{}, cublasLt {}", properties.major, properties.minor,
                  properties.multiprocessors, cublasLtGetVersion());
#if MEGATRAIN_HAS_CUDNN
  text += fmt::format(", cudnn {}", cudnnGetVersion());
#endif
  return text;
}

std::string_view built_architectures() { return MEGATRAIN_CUDA_ARCHITECTURES; }

}  // namespace megatrain
