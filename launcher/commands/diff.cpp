#include "launcher/commands/diff.h"

#include <fmt/format.h>

#include <exception>

#include "io/tensors/comparison.h"
#include "io/text.h"
#include "launcher/console.h"

namespace megatrain::launcher {

namespace {

constexpr int kSame = 0;
constexpr int kDifferent = 1;

bool is_hdf5(const io::TensorSet& set) {
  return set.kind == io::TensorSet::Kind::checkpoint || set.kind == io::TensorSet::Kind::hdf5;
}

void print_only(Console& console, const std::vector<const io::NamedTensor*>& tensors,
                const std::string& where) {
  for (const io::NamedTensor* tensor : tensors)
    console.line(fmt::format("{} {} {} is only in {}", io::quote(tensor->name),
                             io::name(tensor->type), io::shape_text(tensor->shape), where));
}

void print_difference(Console& console, const io::TensorDifference& difference) {
  const io::NamedTensor& a = *difference.a;
  const io::NamedTensor& b = *difference.b;
  const std::string name = io::quote(a.name);
  if (a.shape != b.shape || a.type != b.type)
    console.line(fmt::format(
        "{} is {} {} in A, {} {} in B{}", name, io::name(a.type), io::shape_text(a.shape),
        io::name(b.type), io::shape_text(b.shape),
        difference.compared && !difference.values ? "; its values are the same numbers" : ""));
  if (!difference.values) return;
  const io::ValueDifference& values = *difference.values;
  console.line(
      fmt::format("{} differs at {}: {} in A, {} in B", name, values.place, values.a, values.b));
  console.line(
      fmt::format("  {} of {} elements differ, by at most {:.6g}, relatively by at most {:.6g}",
                  values.differing, values.elements, values.max_absolute, values.max_relative));
}

int compare(const DiffOptions& options) {
  Console console;
  io::TensorSet a = io::open_tensors(options.a);
  io::TensorSet b = io::open_tensors(options.b);
  const bool mixed = is_hdf5(a) != is_hdf5(b);
  if (mixed || options.weights) {
    a.tensors = io::weights_of(a);
    b.tensors = io::weights_of(b);
  }
  console.line(fmt::format("A: {} {}", io::name(a.kind), a.path.string()));
  console.line(fmt::format("B: {} {}", io::name(b.kind), b.path.string()));
  if (mixed)
    console.line(fmt::format("weights alone: a {} holds nothing else",
                             io::name(is_hdf5(a) ? b.kind : a.kind)));
  ThreadPool pool(thread_count(options.threads));
  const io::SetComparison result = io::compare_tensors(a.tensors, b.tensors, options.all, pool,
                                                       console.bytes_progress("comparing"));
  for (const io::TensorDifference& difference : result.differences)
    print_difference(console, difference);
  print_only(console, result.only_a, "A");
  print_only(console, result.only_b, "B");
  if (result.same()) {
    console.line(fmt::format("equal: {} tensors", result.equal));
    return kSame;
  }
  console.line(fmt::format(
      "different: {} tensors equal, {} differ, {} only in A, {} only in B{}", result.equal,
      result.differences.size(), result.only_a.size(), result.only_b.size(),
      options.all || result.differences.empty()
          ? ""
          : "; tensors behind the first difference are not compared without --all"));
  return kDifferent;
}

}  // namespace

int diff(const DiffOptions& options) {
  // "Cannot compare", and "cannot say", must not look like "different", whatever the reason is.
  try {
    const int result = compare(options);
    finish_output();
    return result;
  } catch (const std::exception& error) {
    throw UserError(error.what());
  }
}

}  // namespace megatrain::launcher
