#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "io/json.h"
#include "io/text.h"

namespace megatrain::io {

namespace {

constexpr Index kLengthField = 8;

/// Takes a header's JSON event by event. Anything but the exact form ends the parse at once, so a
/// hostile header costs no more memory than its own size.
class HeaderReader : public JsonEvents {
 public:
  HeaderReader(std::string_view source, SafetensorsHeader& header)
      : source_(source), header_(header) {}

  void null() override { refuse_value("null"); }
  void boolean(bool) override { refuse_value("a boolean"); }
  void real(double) override { refuse_value("a number that is no 63-bit integer"); }

  void begin_object() override {
    if (place_ == Place::start)
      place_ = Place::top;
    else if (place_ == Place::top && key_ == "__metadata__")
      place_ = Place::metadata;
    else if (place_ == Place::top)
      begin_tensor();
    else
      refuse_value("an object");
  }

  void end_object() override {
    if (place_ == Place::tensor) end_tensor();
    place_ = place_ == Place::top ? Place::done : Place::top;
  }

  void key(std::string name) override {
    if (place_ == Place::top && name.find('\0') != std::string::npos)
      throw refusal(fmt::format("the tensor name {} holds a NUL", quote(name)));
    key_ = std::move(name);
  }

  void string(std::string value) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace_back(key_, std::move(value));
    } else if (place_ == Place::tensor && key_ == "dtype") {
      type_ = file_type(value);
      if (!type_) throw refusal(fmt::format("unknown dtype {}", quote(value)));
    } else {
      refuse_value("a string");
    }
  }

  void begin_array() override {
    if (place_ != Place::tensor || (key_ != "shape" && key_ != "data_offsets"))
      refuse_value("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
  }

  void end_array() override {
    (place_ == Place::shape ? have_shape_ : have_offsets_) = true;
    place_ = Place::tensor;
  }

  void integer(std::int64_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) refuse_value("a number");
    const bool shape = place_ == Place::shape;
    auto& list = shape ? tensor().shape : offsets_;
    if (value < 0)
      throw refusal(fmt::format("a negative {}: {}", shape ? "dimension" : "offset", value));
    const Index longest = shape ? kMaxSafetensorsRank : 2;
    if (static_cast<Index>(list.size()) == longest)
      throw refusal(fmt::format("{} holds more than {} numbers", quote(key_), longest));
    list.push_back(value);
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets, done };

  TensorInfo& tensor() { return header_.tensors.back(); }

  UserError refusal(const std::string& what) {
    const bool inside =
        place_ == Place::tensor || place_ == Place::shape || place_ == Place::offsets;
    return UserError(fmt::format("{}: not a valid safetensors file: {}{}", source_,
                                 inside ? "tensor " + quote(tensor().name) + ": " : "", what));
  }

  [[noreturn]] void refuse_value(std::string_view kind) {
    if (place_ == Place::start) throw refusal(fmt::format("the header is {}", kind));
    throw refusal(fmt::format("{} is {}", quote(key_), kind));
  }

  void begin_tensor() {
    if (static_cast<Index>(header_.tensors.size()) == kMaxSafetensorsTensors)
      throw refusal(fmt::format("more than {} tensors", kMaxSafetensorsTensors));
    header_.tensors.emplace_back();
    tensor().name = key_;
    place_ = Place::tensor;
    type_.reset();
    offsets_.clear();
    have_shape_ = have_offsets_ = false;
  }

  void end_tensor() {
    if (!type_) throw refusal("'dtype' is missing");
    if (!have_shape_) throw refusal("'shape' is missing");
    if (!have_offsets_ || offsets_.size() != 2) throw refusal("'data_offsets' must be two numbers");
    tensor().type = *type_;
    tensor().begin = offsets_[0];
    tensor().end = offsets_[1];
    if (tensor().begin > tensor().end)
      throw refusal(
          fmt::format("its data ends at {}, before it begins at {}", tensor().end, tensor().begin));
    Index bits = bits_of(*type_);
    for (const Index dimension : tensor().shape)
      if (__builtin_mul_overflow(bits, dimension, &bits))
        throw refusal(fmt::format("the shape {} overflows", shape_text(tensor().shape)));
    if (bits % 8 != 0)
      throw refusal(fmt::format("{} of shape {} fill no whole number of bytes", name(*type_),
                                shape_text(tensor().shape)));
    if (bits / 8 != tensor().end - tensor().begin)
      throw refusal(fmt::format("{} of shape {} need {} bytes, its data_offsets span {}",
                                name(*type_), shape_text(tensor().shape), bits / 8,
                                tensor().end - tensor().begin));
  }

  std::string_view source_;
  SafetensorsHeader& header_;
  Place place_ = Place::start;
  std::string key_;
  std::optional<FileType> type_;
  std::vector<Index> offsets_;
  bool have_shape_ = false, have_offsets_ = false;
};

/// Sorts by place, checks that tensors fill the data without gap or overlap, and turns offsets into
/// the data into offsets into the file.
void place_tensors(SafetensorsHeader& header, Index data_begin, Index file_bytes,
                   std::string_view source) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  const Index data_bytes = file_bytes - data_begin;
  Index expected = 0;
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.end > data_bytes)
      throw UserError(fmt::format(
          "{}: tensor {} ends at byte {} of the data, but the file holds {} bytes of data: it is "
          "cut short or damaged",
          source, quote(tensor.name), tensor.end, data_bytes));
    if (tensor.begin != expected)
      throw UserError(fmt::format(
          "{}: not a valid safetensors file: tensor {} begins at byte {} of the data, the one "
          "before ends at {}: {}",
          source, quote(tensor.name), tensor.begin, expected,
          tensor.begin > expected ? "a hole" : "an overlap"));
    expected = tensor.end;
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  if (expected != data_bytes)
    throw UserError(fmt::format("{}: not a valid safetensors file: {} bytes follow the last tensor",
                                source, data_bytes - expected));
}

}  // namespace

Index TensorInfo::elements() const { return (end - begin) * 8 / bits_of(type); }

Index safetensors_header_length(std::span<const std::byte> prefix, Index file_bytes,
                                std::string_view source) {
  if (static_cast<Index>(prefix.size()) < kLengthField || file_bytes < kLengthField)
    throw UserError(fmt::format("{}: not a safetensors file: it has {} bytes, fewer than {}",
                                source, file_bytes, kLengthField));
  std::uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof(length));
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader))
    throw UserError(
        fmt::format("{}: not a valid safetensors file: a header of {} bytes, at most "
                    "{} are allowed",
                    source, length, kMaxSafetensorsHeader));
  if (static_cast<Index>(length) > file_bytes - kLengthField)
    throw UserError(
        fmt::format("{}: not a valid safetensors file: a header of {} bytes in a file "
                    "of {} bytes",
                    source, length, file_bytes));
  return static_cast<Index>(length);
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> header, Index file_bytes,
                                           std::string_view source) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  const Index data_begin = kLengthField + static_cast<Index>(header.size());
  if (data_begin > file_bytes || !text.starts_with('{'))
    throw UserError(fmt::format(
        "{}: not a valid safetensors file: the header does not begin with '{{'", source));
  SafetensorsHeader parsed;
  HeaderReader reader(source, parsed);
  // The deepest valid place is an array inside a tensor inside the header.
  parse_json(text, source, reader, 3);
  place_tensors(parsed, data_begin, file_bytes, source);
  return parsed;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string source = path.string();
  std::array<std::byte, kLengthField> field{};
  const std::span<std::byte> prefix(
      field.data(), static_cast<std::size_t>(std::min<Index>(kLengthField, file_.bytes())));
  file_.read(0, prefix);
  const Index length = safetensors_header_length(prefix, file_.bytes(), source);
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  file_.read(kLengthField, bytes);
  header_ = parse_safetensors_header(bytes, file_.bytes(), source);
  for (std::size_t i = 0; i < header_.tensors.size(); ++i)
    by_name_.emplace(header_.tensors[i].name, i);
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, Index first, std::span<std::byte> out) const {
  require(first >= 0 && first + static_cast<Index>(out.size()) <= tensor.end - tensor.begin,
          "SafetensorsFile::read: range outside the tensor");
  file_.read(tensor.begin + first, out);
}

void SafetensorsFile::read_floats(const TensorInfo& tensor, Index first,
                                  std::span<float> values) const {
  if (!converts_to_float(tensor.type))
    throw UserError(fmt::format("{}: tensor {} is {}; weights are read from F32, BF16 or F16",
                                path().string(), quote(tensor.name), name(tensor.type)));
  const Index width = bits_of(tensor.type) / 8;
  if (tensor.type == FileType::f32) {
    read(tensor, first * width, std::as_writable_bytes(values));
    return;
  }
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(width));
  read(tensor, first * width, bytes);
  to_floats(tensor.type, bytes, values);
}

}  // namespace megatrain::io
