// See python_codec.h. Each call takes the GIL; arrays and memoryviews are views of the core's memory for the length of
// the call.
#include "python_codec.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "core/identity_codec.h"
#include "values.h"

namespace nb = nanobind;

namespace geomx {
namespace {

constexpr const char* content_words[] = {"gradient", "parameter", "delta"};

Content content_named(const std::string& word) {
  for (uint8_t i = 0; i < 3; ++i)
    if (word == content_words[i]) return Content(i);
  throw std::runtime_error("carries: gradient, parameter and delta are known, \"" + word + "\" given");
}

class PythonSlot : public Slot {
 public:
  explicit PythonSlot(nb::object value) : value(std::move(value)) {}
  ~PythonSlot() override {
    const nb::gil_scoped_acquire gil;
    value.reset();
  }
  nb::object value;
};

nb::object view_of(const Bytes& bytes) {
  static const char nothing = 0;
  char* data =
      bytes.empty() ? const_cast<char*>(&nothing) : reinterpret_cast<char*>(const_cast<uint8_t*>(bytes.data()));
  return nb::steal(PyMemoryView_FromMemory(data, Py_ssize_t(bytes.size()), PyBUF_READ));
}

nb::object array_of(void* data, uint64_t length, DType dtype) {
  const size_t shape[1] = {size_t(length)};
  const nb::dlpack::dtype type = dtype == DType::f64   ? nb::dtype<double>()
                                 : dtype == DType::i32 ? nb::dtype<int32_t>()
                                 : dtype == DType::i64 ? nb::dtype<int64_t>()
                                 : dtype == DType::u8  ? nb::dtype<uint8_t>()
                                                       : nb::dtype<float>();
  return nb::cast(nb::ndarray<nb::numpy>(data, 1, shape, nb::none(), nullptr, type), nb::rv_policy::reference);
}

Bytes bytes_of(nb::object value) {
  const nb::bytes bytes(value);
  return Bytes::copy(bytes.data(), bytes.size());
}

class PythonCodec : public Codec {
 public:
  explicit PythonCodec(nb::object self) : self_(std::move(self)) {
    const std::string id = nb::cast<std::string>(self_.attr("wire_id"));
    if (id.size() != 4) throw std::runtime_error("wire_id must be four ASCII letters, \"" + id + "\" given");
    std::memcpy(&wire_id_, id.data(), 4);
    if (wire_id_ == kRawWireId) throw std::runtime_error("wire_id \"RAW \" is the identity codec's");
    scope_ = nb::cast<std::string>(self_.attr("scope")) == "tensor" ? CodecScope::tensor : CodecScope::part;
    keeps_residual_ = takes_back();
    can_merge_ = nb::cast<bool>(self_.attr("mergeable"));
    for (nb::handle name : self_.attr("dtypes")) {
      DType dtype;
      if (parse_dtype(nb::cast<std::string>(name), &dtype)) dtypes_ |= 1u << unsigned(dtype);
    }
    for (nb::handle name : self_.attr("carries"))
      contents_ |= 1u << unsigned(content_named(nb::cast<std::string>(name)));
  }
  ~PythonCodec() override {
    const nb::gil_scoped_acquire gil;
    self_.reset();
  }
  uint32_t wire_id() const override { return wire_id_; }
  CodecScope scope() const override { return scope_; }
  bool can_merge() const override { return can_merge_; }
  bool keeps_residual() const override { return keeps_residual_; }
  bool takes(DType dtype) const override { return dtypes_ >> unsigned(dtype) & 1; }
  bool carries(Content content) const override { return contents_ >> unsigned(content) & 1; }

  std::unique_ptr<Slot> open_slot(const PartView& whole) override {
    nb::object value = nb::none();
    const nb::gil_scoped_acquire gil;
    try {
      value = self_.attr("open_slot")(info(whole));
    } catch (nb::python_error&) {
    }
    return std::make_unique<PythonSlot>(value);
  }
  Status prepare(Slot& slot, const PartView& whole, const Bytes& values) override {
    return call("prepare", [&] { self_.attr("prepare")(of(slot), info(whole), values_of(whole, values)); });
  }
  Status encode(Slot& slot, const PartView& view, const Bytes& values, Bytes* encoded) override {
    return call("encode",
                [&] { *encoded = bytes_of(self_.attr("encode")(of(slot), info(view), values_of(view, values))); });
  }
  Status decode(const PartView& view, const Bytes& encoded, Bytes* values) override {
    *values = Bytes::allocate(view.length * size_of(sum_type(view.dtype)));
    return call("decode", [&] {
      self_.attr("decode")(info(view), view_of(encoded),
                           array_of(values->writable(), view.length, sum_type(view.dtype)));
    });
  }
  Status accumulate(const PartView& view, const Bytes& encoded, void* sum) override {
    return call("accumulate", [&] {
      self_.attr("accumulate")(info(view), view_of(encoded), array_of(sum, view.length, sum_type(view.dtype)));
    });
  }
  Status give_back(Slot& slot, const PartView& view, const Bytes& encoded) override {
    return call("give_back", [&] { self_.attr("give_back")(of(slot), info(view), view_of(encoded)); });
  }
  Status merge(const PartView& view, const std::vector<Bytes>& encoded, Bytes* merged) override {
    return call("merge", [&] {
      nb::list pieces;
      for (const Bytes& one : encoded) pieces.append(view_of(one));
      *merged = bytes_of(self_.attr("merge")(info(view), pieces));
    });
  }
  Status score(const PartView& view, const Bytes& encoded, double* contribution) override {
    return call("score", [&] { *contribution = nb::cast<double>(self_.attr("score")(info(view), view_of(encoded))); });
  }
  Status save_slot(const Slot& slot, Bytes* out) const override {
    return call("save_slot",
                [&] { *out = bytes_of(self_.attr("save_slot")(static_cast<const PythonSlot&>(slot).value)); });
  }
  Status load_slot(Slot& slot, const Bytes& in) override {
    return call("load_slot", [&] {
      self_.attr("load_slot")(of(slot), nb::bytes(reinterpret_cast<const char*>(in.data()), in.size()));
    });
  }

 private:
  // Only a codec that takes back what was lost keeps a residual; for others the lane does.
  bool takes_back() const {
    nb::object base = nb::module_::import_("geomx.api").attr("Codec").attr("give_back");
    return !nb::object(self_.attr("__class__").attr("give_back")).is(base);
  }
  static nb::object& of(Slot& slot) { return static_cast<PythonSlot&>(slot).value; }
  static nb::object values_of(const PartView& view, const Bytes& values) {
    return array_of(const_cast<uint8_t*>(values.data()), view.length, sum_type(view.dtype));
  }
  nb::object info(const PartView& view) const {
    nb::dict fields;
    fields["key"] = std::to_string(view.key);
    fields["part"] = view.part;
    fields["num_parts"] = view.num_parts;
    fields["round"] = view.round;
    fields["offset"] = view.offset;
    fields["length"] = view.length;
    fields["tensor_length"] = view.tensor_length;
    fields["dtype"] = name_of(view.dtype);
    fields["tier"] = view.tier == Tier::wan ? "wan" : "lan";
    fields["content"] = content_words[size_t(view.content)];
    fields["direction"] = view.direction == Direction::up ? "up" : "down";
    return nb::module_::import_("geomx.api").attr("PartInfo")(**fields);
  }
  template <typename Call>
  Status call(const char* method, Call&& body) const {
    const nb::gil_scoped_acquire gil;
    return guarded(nb::cast<std::string>(nb::str(self_.attr("__class__").attr("__name__"))) + "." + method, body);
  }

  nb::object self_;
  uint32_t wire_id_ = 0, dtypes_ = 0, contents_ = 0;
  CodecScope scope_ = CodecScope::part;
  bool keeps_residual_ = false, can_merge_ = false;
};

}  // namespace

Status make_python_codec(nb::object make, const Params& params, std::unique_ptr<Codec>* out) {
  return guarded("", [&] {
    nb::dict given;
    for (const auto& [name, value] : params) std::visit([&](const auto& v) { given[name.c_str()] = v; }, value);
    *out = std::make_unique<PythonCodec>(make(given));
  });
}

}  // namespace geomx
