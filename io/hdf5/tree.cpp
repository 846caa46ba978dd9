#include "io/hdf5/tree.h"

#include <fmt/format.h>

#include <bit>

#include "io/hdf5/hdf5_file.h"

namespace megatrain::io::hdf5 {

namespace {

constexpr std::uint64_t kMaxRecords = kMaxHdf5Objects;
constexpr unsigned kMaxDepth = 16;

/// Bytes that a count of up to `most` takes.
std::size_t count_bytes(std::uint64_t most) {
  return (most == 0 ? 0 : static_cast<std::size_t>(std::bit_width(most) - 1) / 8) + 1;
}

/// A tree of the second version.
class Tree {
 public:
  Tree(Source& source, std::uint64_t address, TreeType type) : source_(source) {
    const Bytes header = source_.fetch_checked(address, 38, "BTHD");
    Cursor cursor(source_, header);
    cursor.skip(4);
    if (cursor.byte() != 0 || cursor.byte() != static_cast<unsigned>(type))
      source_.refuse("a tree of another kind");
    const std::uint64_t node_bytes = cursor.number(4);
    record_bytes_ = cursor.number(2);
    const auto depth = static_cast<unsigned>(cursor.number(2));
    cursor.skip(2);
    const std::uint64_t root = cursor.number(8);
    const std::uint64_t root_records = cursor.number(2);
    if (depth > kMaxDepth || record_bytes_ == 0 || node_bytes < kOverhead + record_bytes_)
      source_.refuse("a tree of impossible sizes");
    measure(node_bytes, depth);
    if (root != kUndefined) node(root, root_records, depth);
  }

  std::vector<Bytes> take() { return std::move(records_); }

 private:
  static constexpr std::uint64_t kOverhead = 10;  ///< of a node: signature, version, type, checksum

  /// How much room the counts of a pointer take, from how much its child can hold.
  void measure(std::uint64_t node_bytes, unsigned depth) {
    std::uint64_t below = (node_bytes - kOverhead) / record_bytes_;  // records under a child
    count_bytes_ = count_bytes(below);
    total_bytes_ = {0};
    for (unsigned level = 1; level <= depth; ++level) {
      const std::uint64_t pointer = pointer_bytes(level);
      if (node_bytes < kOverhead + pointer + record_bytes_)
        source_.refuse("a tree of impossible sizes");
      const std::uint64_t most = (node_bytes - kOverhead - pointer) / (record_bytes_ + pointer);
      if (__builtin_mul_overflow(below, most + 1, &below) ||
          __builtin_add_overflow(below, most, &below))
        source_.refuse("a tree of impossible sizes");
      total_bytes_.push_back(count_bytes(below));
    }
  }

  [[nodiscard]] std::uint64_t pointer_bytes(unsigned level) const {
    return 8 + count_bytes_ + total_bytes_[level - 1];
  }

  void node(std::uint64_t address, std::uint64_t count, unsigned level) {
    const std::uint64_t pointers = level == 0 ? 0 : (count + 1) * pointer_bytes(level);
    const Bytes bytes = source_.fetch_checked(address, kOverhead + count * record_bytes_ + pointers,
                                              level == 0 ? "BTLF" : "BTIN");
    Cursor cursor(source_, bytes);
    cursor.skip(6);
    const auto own = cursor.take(count * record_bytes_);
    for (std::uint64_t i = 0; i <= count; ++i) {
      if (level > 0) {
        const std::uint64_t child = cursor.number(8);
        const std::uint64_t records = cursor.number(count_bytes_);
        cursor.skip(total_bytes_[level - 1]);
        node(child, records, level - 1);
      }
      if (i == count) break;
      if (records_.size() == kMaxRecords) source_.refuse("a tree with too many records");
      const auto record = own.subspan(i * record_bytes_, record_bytes_);
      records_.emplace_back(record.begin(), record.end());
    }
  }

  Source& source_;
  std::uint64_t record_bytes_ = 0;
  std::size_t count_bytes_ = 0;           ///< of a pointer's count of records in the child
  std::vector<std::size_t> total_bytes_;  ///< and of all below, by the child's level
  std::vector<Bytes> records_;
};

/// @param level  of the node, as its parent wants it; -1: the root, which may have any
void old_node(Source& source, std::uint64_t address, int level, std::size_t most,
              std::vector<std::uint64_t>& leaves) {
  constexpr std::uint64_t kPrefix = 24;
  const Bytes prefix = source.fetch(address, kPrefix);
  if (!has_signature(prefix, "TREE")) source.refuse(fmt::format("no TREE at byte {}", address));
  Cursor head(source, prefix);
  head.skip(4);
  if (head.byte() != 0) source.refuse("a tree of another kind");
  const auto found = static_cast<int>(head.byte());
  const std::uint64_t entries = head.number(2);
  if (level >= 0 ? found != level : found > static_cast<int>(kMaxDepth))
    source.refuse("a tree of impossible depth");
  const Bytes pairs = source.fetch(address + kPrefix, entries * 16);
  Cursor cursor(source, pairs);
  for (std::uint64_t i = 0; i < entries; ++i) {
    cursor.skip(8);  // key
    const std::uint64_t child = cursor.number(8);
    if (found > 0) {
      old_node(source, child, found - 1, most, leaves);
      continue;
    }
    if (leaves.size() == most) source.refuse("a tree with too many leaves");
    leaves.push_back(child);
  }
}

}  // namespace

std::vector<Bytes> tree_records(Source& source, std::uint64_t address, TreeType type) {
  return Tree(source, address, type).take();
}

std::vector<std::uint64_t> old_group_leaves(Source& source, std::uint64_t address,
                                            std::size_t most) {
  std::vector<std::uint64_t> leaves;
  old_node(source, address, -1, most, leaves);
  return leaves;
}

}  // namespace megatrain::io::hdf5
