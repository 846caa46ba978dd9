#include "io/hdf5/hdf5_writer.h"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string_view>

#include "io/hdf5/handle.h"
#include "io/hdf5/library_type.h"
#include "io/hdf5/memory_file.h"
#include "io/hdf5/superblock.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

using hdf5::Handle;

constexpr std::string_view kBf16Path = "/types/bfloat16";
constexpr hsize_t kMetadataBlock = hsize_t{1} << 20;

/// Strings have a fixed length: nothing of them lies outside the object and its attribute heap.
void write_attribute(const hdf5::Session& session, hid_t object, const Hdf5Attribute& attribute) {
  const std::string doing = fmt::format("write the attribute {} to", attribute.name);
  Handle type;
  const void* data = nullptr;
  std::string text;
  if (const auto* value = std::get_if<std::string>(&attribute.value)) {
    require(value->find('\0') == std::string::npos, "an HDF5 attribute with NUL in it");
    text = *value;
    if (text.empty()) text.push_back('\0');  // a length of 0 does not exist
    data = text.data();
    type = session.own(H5Tcopy(H5T_C_S1), H5Tclose, doing);
    session.check(H5Tset_size(type.get(), text.size()), doing);
    session.check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), doing);
    session.check(H5Tset_cset(type.get(), H5T_CSET_UTF8), doing);
  } else if (const auto* integer = std::get_if<Index>(&attribute.value)) {
    data = integer;
    type = session.own(H5Tcopy(H5T_STD_I64LE), H5Tclose, doing);
  } else {
    data = &std::get<double>(attribute.value);
    type = session.own(H5Tcopy(H5T_IEEE_F64LE), H5Tclose, doing);
  }
  const Handle space = session.own(H5Screate(H5S_SCALAR), H5Sclose, doing);
  const Handle options = session.own(H5Pcreate(H5P_ATTRIBUTE_CREATE), H5Pclose, doing);
  session.check(H5Pset_char_encoding(options.get(), H5T_CSET_UTF8), doing);
  const Handle made = session.own(H5Acreate2(object, attribute.name.c_str(), type.get(),
                                             space.get(), options.get(), H5P_DEFAULT),
                                  H5Aclose, doing);
  session.check(H5Awrite(made.get(), type.get(), data), doing);
}

/// A new file whose bytes depend on what is put into it alone.
class NewFile {
 public:
  /// @param smallest  bytes of the smallest dataset: what is smaller is metadata and needs no page
  /// of its own
  NewFile(const hdf5::Session& session, Index smallest)
      : session_(session), links_(options(H5P_LINK_CREATE)), groups_(options(H5P_GROUP_CREATE)) {
    session_.check(H5Pset_char_encoding(links_.get(), H5T_CSET_UTF8), "create");
    keep_order(groups_.get());
    const Handle access = hdf5::file_access(session_);
    // Formats that HDF5 1.8 and later read and 1.10 can write, whatever is the newest here.
    session_.check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V110), "create");
    session_.check(H5Pset_alignment(access.get(), static_cast<hsize_t>(smallest), kDirectAlignment),
                   "create");
    session_.check(H5Pset_meta_block_size(access.get(), kMetadataBlock), "create");
    const Handle creation = options(H5P_FILE_CREATE);
    keep_order(creation.get());
    file_ = session_.own(
        H5Fcreate(hdf5::MemoryFile::kPlaceholder, H5F_ACC_TRUNC, creation.get(), access.get()),
        H5Fclose, "create");
    void* descriptor = nullptr;
    session_.check(H5Fget_vfd_handle(file_.get(), access.get(), &descriptor), "create");
    memory_.replace(*static_cast<const int*>(descriptor));
  }

  [[nodiscard]] hid_t id() const { return file_.get(); }
  [[nodiscard]] hid_t links() const { return links_.get(); }
  /// Options of a new object, without times.
  [[nodiscard]] Handle options(hid_t kind) const {
    Handle made = session_.own(H5Pcreate(kind), H5Pclose, "create");
    if (kind != H5P_LINK_CREATE)
      session_.check(H5Pset_obj_track_times(made.get(), false), "create");
    return made;
  }
  /// The group that an absolute path lies in, made where it is missing; *name: the rest of the
  /// path.
  hid_t group_of(std::string_view path, std::string* name) {
    require(!path.empty() && path.front() == '/', "HDF5 paths are absolute");
    const std::size_t slash = path.rfind('/');
    *name = path.substr(slash + 1);
    require(!name->empty() && *name != "." && name->find('\0') == std::string::npos,
            "a path in an HDF5 file with a name that is no name");
    return group(std::string(path.substr(0, slash)));
  }
  void write(std::span<const Hdf5Attribute> attributes) {
    for (const Hdf5Attribute& attribute : attributes)
      write_attribute(session_, file_.get(), attribute);
  }
  /// Ends the file and brings it to the disk. @returns its bytes
  Index publish(const std::filesystem::path& path) {
    open_.clear();
    if (!file_.release()) session_.fail("write");
    return memory_.publish(path);
  }

 private:
  /// Tools show groups in the order of their creation.
  void keep_order(hid_t group_options) const {
    session_.check(
        H5Pset_link_creation_order(group_options, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
        "create");
  }
  hid_t group(const std::string& path) {
    if (path.empty()) return file_.get();
    if (const auto found = open_.find(path); found != open_.end()) return found->second.get();
    std::string name;
    const hid_t parent = group_of(path, &name);
    Handle made =
        session_.own(H5Gcreate2(parent, name.c_str(), links_.get(), groups_.get(), H5P_DEFAULT),
                     H5Gclose, fmt::format("make the group {} in", quote(path)));
    return open_.emplace(path, std::move(made)).first->second.get();
  }

  const hdf5::Session& session_;
  hdf5::MemoryFile memory_;
  Handle links_, groups_, file_;
  std::map<std::string, Handle> open_;
};

Index bytes_of(const Hdf5DatasetSpec& dataset) {
  Index bytes = bits_of(dataset.type) / 8;
  for (const Index dimension : dataset.shape) bytes = checked_mul(bytes, dimension);
  return bytes;
}

/// Smallest of the datasets that have bytes, but at most a page.
Index smallest_of(std::span<const Hdf5DatasetSpec> datasets) {
  Index smallest = kDirectAlignment;
  for (const Hdf5DatasetSpec& dataset : datasets)
    if (const Index bytes = bytes_of(dataset); bytes > 0) smallest = std::min(smallest, bytes);
  return smallest;
}

/// A limit on the size of files counts for the file in memory too, where the library would meet it
/// (see MemoryFile): with generous room for the metadata, it is met here.
void require_room(const std::filesystem::path& path, std::span<const Hdf5DatasetSpec> datasets) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  Index bytes = 4 * static_cast<Index>(kMetadataBlock);
  for (const Hdf5DatasetSpec& dataset : datasets)
    bytes =
        checked_add(bytes, round_up(bytes_of(dataset), kDirectAlignment) + 4 * kDirectAlignment);
  if (static_cast<rlim_t>(bytes) > limit.rlim_cur) throw_system_error("create", path, EFBIG);
}

/// @param names  those that are taken already
void require_distinct(std::span<const Hdf5Attribute> attributes,
                      std::set<std::string_view> names = {}) {
  for (const Hdf5Attribute& attribute : attributes)
    require(names.insert(attribute.name).second, "two HDF5 attributes of one name");
}

void require_distinct(std::span<const Hdf5DatasetSpec> datasets) {
  std::set<std::string_view> paths;
  for (const Hdf5DatasetSpec& dataset : datasets) {
    require(paths.insert(dataset.path).second && dataset.path != kBf16Path,
            "two HDF5 datasets of one path");
    require_distinct(dataset.attributes, {"dtype"});
  }
}

/// Makes the datasets of one file.
class DatasetMaker {
 public:
  DatasetMaker(const hdf5::Session& session, NewFile& file, Hdf5Bf16 bf16)
      : session_(session), file_(file), bf16_(bf16), options_(file.options(H5P_DATASET_CREATE)) {
    session_.check(H5Pset_layout(options_.get(), H5D_CONTIGUOUS), "create");
    session_.check(H5Pset_alloc_time(options_.get(), H5D_ALLOC_TIME_EARLY), "create");
    session_.check(H5Pset_fill_time(options_.get(), H5D_FILL_TIME_NEVER), "create");
  }

  /// @returns where its bytes begin
  Index make(const Hdf5DatasetSpec& spec) {
    const std::string doing = fmt::format("make the dataset {} in", quote(spec.path));
    const std::vector<hsize_t> sizes(spec.shape.begin(), spec.shape.end());
    const Handle space = session_.own(
        sizes.empty() ? H5Screate(H5S_SCALAR)
                      : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
        H5Sclose, doing);
    std::string name;
    const hid_t group = file_.group_of(spec.path, &name);
    const Handle made = session_.own(H5Dcreate2(group, name.c_str(), type(spec.type), space.get(),
                                                file_.links(), options_.get(), H5P_DEFAULT),
                                     H5Dclose, doing);
    const std::string dtype(megatrain::io::name(spec.type));
    write_attribute(session_, made.get(), {.name = "dtype", .value = dtype});
    for (const Hdf5Attribute& attribute : spec.attributes)
      write_attribute(session_, made.get(), attribute);
    if (bytes_of(spec) == 0) return 0;
    const haddr_t offset = H5Dget_offset(made.get());
    require(offset != HADDR_UNDEF && offset % kDirectAlignment == 0,
            "HDF5 did not allocate a dataset at a whole page");
    return static_cast<Index>(offset);
  }
  /// Lets go of the file's types: it cannot be closed before.
  void finish() { types_.clear(); }

 private:
  /// The file's one type for all datasets of a type.
  hid_t type(FileType type) {
    if (const auto found = types_.find(type); found != types_.end()) return found->second.get();
    Handle made = hdf5::stored_type(session_, type, bf16_);
    // A type that is not predefined everywhere gets a name.
    if (type == FileType::bf16 && bf16_ == Hdf5Bf16::floating) {
      std::string name;
      const hid_t group = file_.group_of(kBf16Path, &name);
      const Handle options = file_.options(H5P_DATATYPE_CREATE);
      session_.check(
          H5Tcommit2(group, name.c_str(), made.get(), file_.links(), options.get(), H5P_DEFAULT),
          "write a type to");
    }
    return types_.emplace(type, std::move(made)).first->second.get();
  }

  const hdf5::Session& session_;
  NewFile& file_;
  Hdf5Bf16 bf16_;
  Handle options_;
  std::map<FileType, Handle> types_;
};

}  // namespace

Hdf5Layout create_hdf5(const std::filesystem::path& path, std::span<const Hdf5DatasetSpec> datasets,
                       std::span<const Hdf5Attribute> attributes, Hdf5Bf16 bf16) {
  require_distinct(datasets);
  require_distinct(attributes);
  require_room(path, datasets);
  Hdf5Layout layout;
  {
    const hdf5::Session session(path);
    NewFile file(session, smallest_of(datasets));
    file.write(attributes);
    DatasetMaker maker(session, file, bf16);
    for (const Hdf5DatasetSpec& dataset : datasets) layout.offsets.push_back(maker.make(dataset));
    maker.finish();
    layout.bytes = file.publish(path);
  }
  const InputFile written(path);
  hdf5::Source source(written);
  require(written.bytes() == layout.bytes &&
              hdf5::read_superblock(source).end == static_cast<std::uint64_t>(layout.bytes),
          "an HDF5 file does not have the size that it says");
  for (std::size_t i = 0; i < datasets.size(); ++i)
    require(layout.offsets[i] + bytes_of(datasets[i]) <= layout.bytes,
            "HDF5 allocated a dataset beyond the end of its file");
  return layout;
}

void create_hdf5_view(const std::filesystem::path& path, std::span<const Hdf5Link> links,
                      std::span<const Hdf5Attribute> attributes) {
  require_distinct(attributes);
  const hdf5::Session session(path);
  NewFile file(session, kDirectAlignment);
  file.write(attributes);
  for (const Hdf5Link& link : links) {
    require(!link.file.empty() && link.file.find('/') == std::string::npos,
            "an HDF5 view links to files of its own folder");
    std::string name;
    const hid_t group = file.group_of(link.path, &name);
    session.check(H5Lcreate_external(link.file.c_str(), link.path.c_str(), group, name.c_str(),
                                     file.links(), H5P_DEFAULT),
                  fmt::format("make the link {} in", quote(link.path)));
  }
  file.publish(path);
}

}  // namespace megatrain::io
