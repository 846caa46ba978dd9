#include "io/hdf5/hdf5_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "io/hdf5/attribute.h"
#include "io/hdf5/description.h"
#include "io/hdf5/group.h"
#include "io/hdf5/superblock.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

using hdf5::Layout;
using hdf5::Link;
using hdf5::Messages;
using hdf5::MessageType;

/// Finds the datasets of a file.
class Walk {
 public:
  explicit Walk(const InputFile& file) : source_(file) {}

  std::vector<Hdf5Attribute> root(std::vector<Hdf5Dataset>& datasets) {
    const std::uint64_t address = hdf5::read_superblock(source_).root;
    source_.now_at("/");
    const Messages messages = hdf5::read_object_header(source_, address);
    if (!hdf5::is_group(messages)) source_.refuse("is no group");
    groups_.insert(address);
    std::vector<Hdf5Attribute> attributes = hdf5::read_attributes(source_, messages);
    group(messages, "/", 1, datasets);
    return attributes;
  }

 private:
  void group(const Messages& messages, const std::string& path, Index depth,
             std::vector<Hdf5Dataset>& out) {
    const std::vector<Link> links =
        hdf5::read_links(source_, messages, static_cast<std::size_t>(kMaxHdf5Objects - objects_));
    objects_ += static_cast<Index>(links.size());
    for (const Link& link : links) {
      source_.keep(sizeof(Hdf5Dataset) + path.size() + link.name.size());
      object(link, path + link.name, depth, out);
    }
  }

  void object(const Link& link, const std::string& path, Index depth,
              std::vector<Hdf5Dataset>& out) {
    source_.now_at(path);
    switch (link.kind) {
      case Link::Kind::hard:
        break;
      case Link::Kind::soft:
        source_.refuse("is a soft link; only hard links are followed");
      case Link::Kind::external:
        source_.refuse("is a link to another file; only hard links are followed");
      case Link::Kind::user:
        source_.refuse("is a user-defined link; only hard links are followed");
    }
    if (link.name.empty() || link.name == "." ||
        link.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      source_.refuse("has a name that is no name");

    const Messages messages = hdf5::read_object_header(source_, link.address);
    if (hdf5::is_group(messages)) {
      if (depth == kMaxHdf5Depth)
        source_.refuse(fmt::format("lies more than {} groups deep", depth));
      if (!groups_.insert(link.address).second)
        source_.refuse("is a group that has another name already: groups may not form cycles");
      group(messages, path + "/", depth + 1, out);
    } else if (hdf5::find(messages, MessageType::dataspace) != nullptr) {
      out.push_back(dataset(messages, path));
    } else if (hdf5::find(messages, MessageType::datatype) == nullptr) {
      source_.refuse("is neither group, dataset nor type");
    }
  }

  hdf5::Bytes body(const Messages& messages, MessageType type, std::string_view what) {
    const hdf5::Message* message = hdf5::find(messages, type);
    if (message == nullptr) source_.refuse(fmt::format("has no {}", what));
    return hdf5::resolve(source_, type, message->shared, message->body);
  }

  Hdf5Dataset dataset(const Messages& messages, const std::string& path) {
    Hdf5Dataset dataset{.path = path, .shape = {}};
    dataset.attributes = hdf5::read_attributes(source_, messages);
    const hdf5::StoredType stored = hdf5::recognise(
        source_, hdf5::decode_datatype(source_, body(messages, MessageType::datatype, "type")));
    const Layout layout =
        hdf5::decode_layout(source_, body(messages, MessageType::layout, "layout"));
    dataset.refusal = storage_refusal(messages, layout);
    read_shape(hdf5::decode_dataspace(source_, body(messages, MessageType::dataspace, "shape")),
               dataset);
    if (dataset.refusal.empty()) dataset.refusal = stored.refusal;
    if (!dataset.refusal.empty()) return dataset;

    Index bytes = bits_of(stored.type) / 8;
    for (const Index dimension : dataset.shape)
      if (__builtin_mul_overflow(bytes, dimension, &bytes))
        source_.refuse(
            fmt::format("its shape {} is larger than any file", shape_text(dataset.shape)));
    place(layout, bytes, dataset);
    dataset.type = stored.type;
    for (const Hdf5Attribute& attribute : dataset.attributes)
      if (const auto* text = std::get_if<std::string>(&attribute.value);
          text != nullptr && attribute.name == "dtype")
        dataset.type = hdf5::named_type(stored.type, *text);
    return dataset;
  }

  static std::string storage_refusal(const Messages& messages, const Layout& layout) {
    if (layout.kind == Layout::Kind::chunked) return "chunked layout";
    if (layout.kind == Layout::Kind::composed) return "virtual layout";
    if (layout.kind == Layout::Kind::old) return "layout of HDF5 before 1.6.3";
    if (layout.kind == Layout::Kind::unknown) return "unknown layout";
    if (hdf5::find(messages, MessageType::external_files) != nullptr)
      return "values in another file";
    if (hdf5::find(messages, MessageType::filters) != nullptr) return "filtered";
    return {};
  }

  void read_shape(const hdf5::Dataspace& space, Hdf5Dataset& dataset) const {
    const auto refuse_dataset = [&](std::string text) {
      if (dataset.refusal.empty()) dataset.refusal = std::move(text);
    };
    if (space.kind == hdf5::Dataspace::Kind::none) return refuse_dataset("no values at all");
    if (static_cast<Index>(space.sizes.size()) > kMaxHdf5Rank)
      return refuse_dataset(
          fmt::format("{} dimensions; at most {} are read", space.sizes.size(), kMaxHdf5Rank));
    for (const std::uint64_t size : space.sizes) {
      if (!std::in_range<Index>(size)) source_.refuse(fmt::format("has a dimension of {}", size));
      dataset.shape.push_back(static_cast<Index>(size));
    }
  }

  /// Sets where the values are, or what they are, or that there are none.
  void place(const Layout& layout, Index bytes, Hdf5Dataset& dataset) {
    if (bytes == 0) return;
    const bool compact = layout.kind == Layout::Kind::compact;
    if (!compact && layout.address == hdf5::kUndefined) {
      dataset.refusal = "values that were never written";
      return;
    }
    const auto wanted = static_cast<std::uint64_t>(bytes);
    if (layout.bytes != wanted)
      source_.refuse(fmt::format("its shape {} takes {} bytes, but {} are stored",
                                 shape_text(dataset.shape), bytes, layout.bytes));
    if (compact) {
      source_.keep(layout.bytes);
      dataset.compact = layout.compact;
    } else {
      const auto end = static_cast<std::uint64_t>(source_.file_bytes());
      if (layout.address > end || wanted > end - layout.address)
        source_.refuse(fmt::format("its {} bytes at byte {} lie outside the file of {}", bytes,
                                   layout.address, end));
      dataset.offset = static_cast<Index>(layout.address);
    }
    dataset.bytes = bytes;
  }

  hdf5::Source source_;
  std::unordered_set<std::uint64_t> groups_;
  Index objects_ = 0;
};

}  // namespace

Hdf5File::Hdf5File(const std::filesystem::path& path) : file_(path) {
  attributes_ = Walk(file_).root(datasets_);
  std::sort(datasets_.begin(), datasets_.end(),
            [](const Hdf5Dataset& a, const Hdf5Dataset& b) { return a.path < b.path; });
}

const Hdf5Dataset* Hdf5File::find(std::string_view path) const {
  const auto found = std::lower_bound(
      datasets_.begin(), datasets_.end(), path,
      [](const Hdf5Dataset& dataset, std::string_view wanted) { return dataset.path < wanted; });
  return found != datasets_.end() && found->path == path ? &*found : nullptr;
}

void Hdf5File::read(const Hdf5Dataset& dataset, Index first, std::span<std::byte> out) const {
  if (!dataset.refusal.empty())
    throw UserError(fmt::format("the values of {} in {} cannot be read: {}", quote(dataset.path),
                                quote(path().string()), dataset.refusal));
  const auto count = static_cast<Index>(out.size());
  require(first >= 0 && count <= dataset.bytes && first <= dataset.bytes - count,
          "Hdf5File::read: range outside the dataset");
  if (out.empty()) return;
  if (dataset.compact.empty())
    file_.read(dataset.offset + first, out);
  else
    std::memcpy(out.data(), dataset.compact.data() + first, out.size());
}

}  // namespace megatrain::io
