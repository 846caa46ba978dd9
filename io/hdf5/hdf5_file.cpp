#include "io/hdf5/hdf5_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "io/hdf5/attribute.h"
#include "io/hdf5/handle.h"
#include "io/hdf5/superblock.h"
#include "io/hdf5/type.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

using hdf5::Handle;

struct Link {
  std::string name;
  H5L_type_t type;
  haddr_t address;
};

struct LinkList {
  std::vector<Link> links;
  Index left;  ///< how many more may come
};

herr_t add_link(hid_t, const char* name, const H5L_info_t* info, void* data) {
  auto& list = *static_cast<LinkList*>(data);
  try {
    if (list.left-- == 0) return 1;  // stops
    list.links.push_back({name, info->type, info->u.address});
    return 0;
  } catch (...) {  // no memory; nothing may be thrown through the library
    return -1;
  }
}

/// Finds the datasets of an open file.
class Walk {
 public:
  Walk(const hdf5::Session& session, const InputFile& input, hid_t file)
      : session_(session), input_(input), file_(file), budget_(session) {}

  std::vector<Hdf5Attribute> root(std::vector<Hdf5Dataset>& datasets) {
    const Handle root =
        session_.own(H5Gopen2(file_, "/", H5P_DEFAULT), H5Gclose, "open the root group of");
    H5O_info_t info;
    session_.check(H5Oget_info1(root.get(), &info), "open the root group of");
    groups_.insert(info.addr);
    std::vector<Hdf5Attribute> attributes = hdf5::read_attributes(session_, root.get(), budget_);
    group(root.get(), "/", 1, datasets);
    return attributes;
  }

 private:
  void group(hid_t group, const std::string& path, Index depth, std::vector<Hdf5Dataset>& out) {
    LinkList list{.links = {}, .left = kMaxHdf5Objects - objects_};
    const herr_t result =
        session_.check(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add_link, &list),
                       fmt::format("list the group {} of", quote(path)));
    if (result > 0) session_.refuse(fmt::format("more than {} objects", kMaxHdf5Objects));
    objects_ += static_cast<Index>(list.links.size());
    for (const Link& link : list.links) {
      budget_.charge(sizeof(Hdf5Dataset) + path.size() + link.name.size());
      object(link, path + link.name, depth, out);
    }
  }

  void object(const Link& link, const std::string& path, Index depth,
              std::vector<Hdf5Dataset>& out) {
    const auto refuse = [&](std::string_view what) {
      session_.refuse(fmt::format("{} {}", quote(path), what));
    };
    if (link.type == H5L_TYPE_SOFT) refuse("is a soft link; only hard links are followed");
    if (link.type == H5L_TYPE_EXTERNAL)
      refuse("is a link to another file; only hard links are followed");
    if (link.type != H5L_TYPE_HARD) refuse("is a user-defined link; only hard links are followed");
    if (link.name.empty() || link.name == "." || link.name.find('/') != std::string::npos)
      refuse("has a name that is no name");

    // By address: a name might be looked up through links once more.
    const Handle object = session_.own(H5Oopen_by_addr(file_, link.address), H5Oclose,
                                       fmt::format("open {} of", quote(path)));
    switch (H5Iget_type(object.get())) {
      case H5I_GROUP:
        if (depth == kMaxHdf5Depth) refuse(fmt::format("lies more than {} groups deep", depth));
        if (!groups_.insert(link.address).second)
          refuse("is a group that has another name already: groups may not form cycles");
        group(object.get(), path + "/", depth + 1, out);
        break;
      case H5I_DATASET:
        out.push_back(dataset(object.get(), path));
        break;
      case H5I_DATATYPE:
        break;
      default:
        refuse("is neither group, dataset nor type");
    }
  }

  Hdf5Dataset dataset(hid_t id, const std::string& path) {
    Hdf5Dataset dataset{.path = path, .shape = {}};
    dataset.attributes = hdf5::read_attributes(session_, id, budget_);
    const std::string doing = fmt::format("examine {} of", quote(path));
    const Handle options = session_.own(H5Dget_create_plist(id), H5Pclose, doing);
    const H5D_layout_t layout = session_.check(H5Pget_layout(options.get()), doing);
    const Handle type = session_.own(H5Dget_type(id), H5Tclose, doing);

    dataset.refusal = storage_refusal(options.get(), layout, doing);
    // Asking a virtual dataset for its shape would open the files that it names.
    if (layout != H5D_VIRTUAL) read_shape(id, doing, dataset);
    const hdf5::StoredType stored = hdf5::recognise(session_, type.get());
    if (dataset.refusal.empty()) dataset.refusal = stored.refusal;
    if (!dataset.refusal.empty()) return dataset;

    Index bytes = bits_of(stored.type) / 8;
    for (const Index dimension : dataset.shape)
      if (__builtin_mul_overflow(bytes, dimension, &bytes))
        session_.refuse(fmt::format("{} of shape {} is larger than any file", quote(path),
                                    shape_text(dataset.shape)));
    place(id, layout, type.get(), bytes, doing, dataset);
    dataset.type = stored.type;
    for (const Hdf5Attribute& attribute : dataset.attributes)
      if (const auto* text = std::get_if<std::string>(&attribute.value);
          text != nullptr && attribute.name == "dtype")
        dataset.type = hdf5::named_type(stored.type, *text);
    return dataset;
  }

  std::string storage_refusal(hid_t options, H5D_layout_t layout, const std::string& doing) const {
    if (layout == H5D_CHUNKED) return "chunked layout";
    if (layout == H5D_VIRTUAL) return "virtual layout";
    if (layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) return "unknown layout";
    if (session_.check(H5Pget_external_count(options), doing) > 0) return "values in another file";
    if (session_.check(H5Pget_nfilters(options), doing) > 0) return "filtered";
    return {};
  }

  void read_shape(hid_t id, const std::string& doing, Hdf5Dataset& dataset) const {
    const Handle space = session_.own(H5Dget_space(id), H5Sclose, doing);
    const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
    if (kind == H5S_SCALAR) return;
    if (kind != H5S_SIMPLE) {
      if (dataset.refusal.empty()) dataset.refusal = "no values at all";
      return;
    }
    const int rank = session_.check(H5Sget_simple_extent_ndims(space.get()), doing);
    if (rank > kMaxHdf5Rank) {
      if (dataset.refusal.empty())
        dataset.refusal = fmt::format("{} dimensions; at most {} are read", rank, kMaxHdf5Rank);
      return;
    }
    std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
    session_.check(H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr), doing);
    for (const hsize_t size : sizes) {
      if (!std::in_range<Index>(size))
        session_.refuse(fmt::format("{} has a dimension of {}", quote(dataset.path), size));
      dataset.shape.push_back(static_cast<Index>(size));
    }
  }

  /// Sets where the values are, or what they are, or that there are none.
  void place(hid_t id, H5D_layout_t layout, hid_t type, Index bytes, const std::string& doing,
             Hdf5Dataset& dataset) {
    if (bytes == 0) return;
    const haddr_t offset = layout == H5D_CONTIGUOUS ? H5Dget_offset(id) : 0;
    if (offset == HADDR_UNDEF) {
      dataset.refusal = "values that were never written";
      return;
    }
    const hsize_t stored = H5Dget_storage_size(id);
    if (stored != static_cast<hsize_t>(bytes))
      session_.refuse(fmt::format("{} of shape {} takes {} bytes, but {} are stored",
                                  quote(dataset.path), shape_text(dataset.shape), bytes, stored));
    if (layout == H5D_COMPACT) {
      budget_.charge(stored);
      dataset.compact.resize(stored);
      // With the type as it is stored: nothing is converted.
      session_.check(H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, dataset.compact.data()),
                     doing);
    } else {
      const auto end = static_cast<hsize_t>(input_.bytes());
      if (offset > end || stored > end - offset)
        session_.refuse(fmt::format("{} takes {} bytes at byte {}, but the file ends at byte {}",
                                    quote(dataset.path), bytes, offset, end));
      dataset.offset = static_cast<Index>(offset);
    }
    dataset.bytes = bytes;
  }

  const hdf5::Session& session_;
  const InputFile& input_;
  hid_t file_;
  hdf5::Budget budget_;
  std::unordered_set<haddr_t> groups_;
  Index objects_ = 0;
};

}  // namespace

Hdf5File::Hdf5File(const std::filesystem::path& path) : file_(path) {
  hdf5::check_superblock(file_);
  const hdf5::Session session(path);
  const Handle access = hdf5::file_access(session);
  const Handle file =
      session.own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "open");
  attributes_ = Walk(session, file_, file.get()).root(datasets_);
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
