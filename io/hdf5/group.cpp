#include "io/hdf5/group.h"

#include <fmt/format.h>

#include "io/hdf5/hdf5_file.h"
#include "io/hdf5/heap.h"
#include "io/hdf5/tree.h"

namespace megatrain::io::hdf5 {

namespace {

/// Collects links up to a limit.
class Links {
 public:
  Links(const Source& source, std::size_t most) : source_(source), most_(most) {}
  void add(Link link) {
    if (links_.size() == most_)
      source_.refuse(fmt::format("more than {} objects", kMaxHdf5Objects));
    links_.push_back(std::move(link));
  }
  [[nodiscard]] std::size_t left() const { return most_ - links_.size(); }
  std::vector<Link> take() { return std::move(links_); }

 private:
  const Source& source_;
  std::size_t most_;
  std::vector<Link> links_;
};

Link decode_link(const Source& source, std::span<const std::byte> message) {
  Cursor cursor(source, message);
  if (cursor.byte() != 1) source.refuse("a link in an unknown version");
  const unsigned flags = cursor.byte();
  constexpr unsigned kSoft = 1, kExternal = 64;
  const unsigned type = (flags & 8) != 0 ? cursor.byte() : 0;
  if ((flags & 4) != 0) cursor.skip(8);   // order of creation
  if ((flags & 16) != 0) cursor.skip(1);  // ASCII or UTF-8
  const std::uint64_t length = cursor.number(std::size_t{1} << (flags & 3));
  const auto name = cursor.take(length);
  Link link;
  // With its NULs, if any: such a name is refused later.
  link.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  link.kind = type == 0           ? Link::Kind::hard
              : type == kSoft     ? Link::Kind::soft
              : type == kExternal ? Link::Kind::external
                                  : Link::Kind::user;
  if (link.kind == Link::Kind::hard) link.address = cursor.number(8);
  return link;
}

/// Few links are messages of the group, many lie in a heap.
void new_links(Source& source, const Messages& messages, const Message& info, Links& links) {
  for (const Message& message : messages)
    if (message.type == MessageType::link) links.add(decode_link(source, message.body));
  Cursor cursor(source, info.body);
  if (cursor.byte() != 0) source.refuse("a group in an unknown version");
  if ((cursor.byte() & 1) != 0) cursor.skip(8);  // the order of creation goes so far
  const std::uint64_t address = cursor.number(8);
  const std::uint64_t tree = cursor.number(8);
  if (address == kUndefined) return;
  FractalHeap heap(source, address);
  for (const Bytes& record : tree_records(source, tree, TreeType::link_names)) {
    Cursor fields(source, record);
    fields.skip(4);  // hash of the name
    links.add(decode_link(source, heap.object(fields.take(fields.left()))));
  }
}

/// Leaves of a tree hold entries, whose names lie in a heap of the group.
void old_links(Source& source, const Message& table, Links& links) {
  constexpr std::uint64_t kPrefix = 8, kEntry = 40;
  constexpr unsigned kSymbolic = 2;
  Cursor cursor(source, table.body);
  const std::uint64_t tree = cursor.number(8);
  const LocalHeap heap(source, cursor.number(8));
  for (const std::uint64_t leaf : old_group_leaves(source, tree, links.left() + 1)) {
    const Bytes prefix = source.fetch(leaf, kPrefix);
    if (!has_signature(prefix, "SNOD")) source.refuse(fmt::format("no SNOD at byte {}", leaf));
    Cursor head(source, prefix);
    head.skip(6);
    const std::uint64_t count = head.number(2);
    const Bytes entries = source.fetch(leaf + kPrefix, count * kEntry);
    Cursor fields(source, entries);
    for (std::uint64_t i = 0; i < count; ++i) {
      Link link{.kind = Link::Kind::hard, .name = heap.text(fields.number(8))};
      link.address = fields.number(8);
      if (fields.number(4) == kSymbolic) link.kind = Link::Kind::soft;
      fields.skip(4 + 16);
      // Names may share the heap's bytes.
      source.keep(link.name.size());
      links.add(std::move(link));
    }
  }
}

}  // namespace

bool is_group(const Messages& messages) {
  return find(messages, MessageType::symbol_table) != nullptr ||
         find(messages, MessageType::link_info) != nullptr;
}

std::vector<Link> read_links(Source& source, const Messages& messages, std::size_t most) {
  Links links(source, most);
  if (const Message* info = find(messages, MessageType::link_info))
    new_links(source, messages, *info, links);
  else if (const Message* table = find(messages, MessageType::symbol_table))
    old_links(source, *table, links);
  return links.take();
}

}  // namespace megatrain::io::hdf5
