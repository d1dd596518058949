// Codecs and kernels on their own, for tests and benchmarks.
#include "core/identity_codec.h"
#include "core/reduce.h"
#include "core/sums.h"
#include "python_codec.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

// A codec outside a node, with the slots that a lane would keep. Tensors are one part unless a length of parts is
// given.
class PyCodec {
 public:
  PyCodec(const std::string& name, nb::object params, const std::string& plugin, nb::object make,
          const std::string& answer) {
    PluginHooks hooks;
    hooks.metric = [counted = metrics_](const std::string& metric, double value) { (*counted)[metric] += value; };
    if (answer != "gradients" && answer != "parameters" && answer != "deltas")
      refuse("answer " + answer + " is not one of gradients, parameters, deltas");
    hooks.answer = answer == "gradients" ? Content::gradient : Content::parameter;
    down_ = answer == "deltas" ? Content::delta : hooks.answer;
    registry_.set_hooks(hooks);
    Status status = plugin.empty() ? Status() : registry_.load(plugin);
    is_python_ = !make.is_none();
    if (is_python_)
      status = make_python_codec(make, params_of(params), &codec_);
    else if (status.ok())
      status = registry_.make(name, params_of(params), &codec_);
    if (!status.ok()) refuse(status.message());
  }
  std::string wire_id() const {
    const uint32_t id = codec_->wire_id();
    return std::string(reinterpret_cast<const char*>(&id), 4);
  }
  bool keeps_residual() const { return codec_->keeps_residual(); }
  bool can_merge() const { return codec_->can_merge(); }
  bool carries(const std::string& content) const {
    const std::vector<std::string> words = {"gradient", "parameter", "delta"};
    const auto found = std::find(words.begin(), words.end(), content);
    if (found == words.end()) refuse("content " + content + " is not one of gradient, parameter, delta");
    return codec_->carries(Content(found - words.begin()));
  }
  bool takes(const std::string& dtype) const { return codec_->takes(dtype_named(dtype)); }
  std::map<std::string, double> metrics() const { return *metrics_; }

  nb::bytes encode(nb::object array, int slot, const std::string& direction) {
    return nb::cast<nb::bytes>(nb::object(encode_parts(array, 0, slot, direction)[0]));
  }
  nb::list encode_parts(nb::object array, uint64_t part_length, int slot, const std::string& direction) {
    const Tensor tensor = tensor_of("values", array, 0, false);
    Used& used = slot_of(slot, direction, tensor.length(), tensor.dtype);
    const Bytes values = from_raw(tensor.dtype, Bytes::wrap(tensor.data, tensor.num_bytes(), {}));
    std::vector<Bytes> parts;
    Status status;
    {
      const nb::gil_scoped_release nogil;
      PartView view = used.whole;
      view.round = ++used.rounds;
      if (codec_->scope() != CodecScope::part) status = codec_->prepare(*used.slot, view, values);
      const size_t width = size_of(sum_type(tensor.dtype));
      const uint64_t step = part_length == 0 ? std::max<uint64_t>(tensor.length(), 1) : part_length;
      view.num_parts = uint32_t(std::max<uint64_t>((tensor.length() + step - 1) / step, 1));
      for (view.part = 0; status.ok() && view.part < view.num_parts; ++view.part) {
        view.offset = view.part * step;
        view.length = std::min(step, tensor.length() - view.offset);
        parts.emplace_back();
        status =
            codec_->encode(*used.slot, view, values.slice(view.offset * width, view.length * width), &parts.back());
      }
    }
    throw_if(status);
    nb::list out;
    for (const Bytes& part : parts) out.append(nb::bytes(reinterpret_cast<const char*>(part.data()), part.size()));
    return out;
  }
  void accumulate(nb::bytes data, nb::object into, int, const std::string& direction) {
    const Tensor tensor = tensor_of("sum", into, 0, true);
    if (tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) refuse("sum: halves are summed in float32");
    const PartView view = whole(tensor.length(), tensor.dtype, direction);
    const Bytes in = Bytes::wrap(data.data(), data.size(), {});
    Status status;
    {
      const nb::gil_scoped_release nogil;
      status = codec_->accumulate(view, in, tensor.data);
    }
    throw_if(status);
  }
  nb::object decode(nb::bytes data, uint64_t length, const std::string& dtype, int, const std::string& direction) {
    Bytes values;
    const DType type = dtype_named(dtype);
    throw_if(codec_->decode(whole(length, type, direction), Bytes::wrap(data.data(), data.size(), {}), &values));
    const Bytes raw = to_raw(type, values);
    nb::object numpy = nb::module_::import_("numpy");
    return numpy.attr("frombuffer")(nb::bytes(reinterpret_cast<const char*>(raw.data()), raw.size()), dtype)
        .attr("copy")();
  }
  void give_back(nb::bytes data, int slot, uint64_t part_length, uint32_t part, const std::string& direction) {
    Used& used = known_slot(slot, direction);
    PartView view = used.whole;
    view.round = used.rounds;
    if (part_length != 0) {
      view.part = part;
      view.offset = std::min(part * part_length, view.tensor_length);
      view.length = std::min(part_length, view.tensor_length - view.offset);
    }
    throw_if(codec_->give_back(*used.slot, view, Bytes::wrap(data.data(), data.size(), {})));
  }
  nb::bytes merge(nb::sequence pieces, uint64_t length, const std::string& dtype) {
    std::vector<Bytes> in;
    for (nb::handle piece : pieces) {
      const nb::bytes bytes = nb::cast<nb::bytes>(piece);
      in.push_back(Bytes::copy(bytes.data(), bytes.size()));
    }
    Bytes out;
    throw_if(codec_->merge(whole(length, dtype_named(dtype), "up"), in, &out));
    return nb::bytes(reinterpret_cast<const char*>(out.data()), out.size());
  }
  double score(nb::bytes data, uint64_t length, const std::string& dtype) {
    double contribution = 0;
    throw_if(codec_->score(whole(length, dtype_named(dtype), "up"), Bytes::wrap(data.data(), data.size(), {}),
                           &contribution));
    return contribution;
  }
  uint64_t max_encoded_size(uint64_t length, const std::string& dtype) {
    return is_python_ ? UINT64_MAX : codec_->max_encoded_size(whole(length, dtype_named(dtype), "up"));
  }
  nb::bytes save(int slot, const std::string& direction) {
    Bytes out;
    throw_if(codec_->save_slot(*known_slot(slot, direction).slot, &out));
    return nb::bytes(reinterpret_cast<const char*>(out.data()), out.size());
  }
  void load(nb::bytes data, uint64_t length, const std::string& dtype, int slot, const std::string& direction) {
    Used& used = slot_of(slot, direction, length, dtype_named(dtype));
    throw_if(codec_->load_slot(*used.slot, Bytes::copy(data.data(), data.size())));
  }

 private:
  struct Used {
    PartView whole;
    uint32_t rounds = 0;
    std::unique_ptr<Slot> slot;
  };
  static void throw_if(const Status& status) {
    if (!status.ok()) raise({false, Fault::failed, status.message()});
  }
  PartView whole(uint64_t length, DType dtype, const std::string& direction) const {
    PartView view;
    view.length = view.tensor_length = length;
    view.dtype = dtype;
    view.tier = Tier::wan;
    if (direction != "up" && direction != "down") refuse("direction " + direction + " is not one of up, down");
    view.direction = direction == "down" ? Direction::down : Direction::up;
    view.content = direction == "down" ? down_ : Content::gradient;
    return view;
  }
  Used& slot_of(int number, const std::string& direction, uint64_t length, DType dtype) {
    Used& used = slots_[{number, direction}];
    const PartView view = whole(length, dtype, direction);
    if (used.slot && (used.whole.length != length || used.whole.dtype != dtype))
      refuse("slot " + std::to_string(number) + " holds another tensor");
    if (used.slot) return used;
    used.whole = view;
    used.whole.key = uint32_t(number);
    used.slot = codec_->open_slot(used.whole);
    return used;
  }
  Used& known_slot(int number, const std::string& direction) {
    auto found = slots_.find({number, direction});
    if (found == slots_.end()) refuse("slot " + std::to_string(number) + " has not been used");
    return found->second;
  }
  std::shared_ptr<std::map<std::string, double>> metrics_ = std::make_shared<std::map<std::string, double>>();
  CodecRegistry registry_;
  Content down_ = Content::gradient;
  bool is_python_ = false;  // then what it returns has no bound
  std::unique_ptr<Codec> codec_;
  std::map<std::pair<int, std::string>, Used> slots_;
};

void kernel(const std::string& name, nb::args arrays) {
  std::vector<Tensor> t;
  for (nb::handle array : arrays) t.push_back(tensor_of(name, array, 0, false));
  if (t.size() < 2 || t[0].length() != t[1].length())
    refuse("kernel " + name + ": two arrays of the same length are needed");
  const size_t n = size_t(t[0].length());
  const nb::gil_scoped_release nogil;
  if (name == "add_f32")
    add_f32(static_cast<float*>(t[0].data), t[1].data, n);
  else if (name == "f32_to_f16")
    f32_to_f16(static_cast<const float*>(t[0].data), t[1].data, n);
  else if (name == "f16_to_f32")
    f16_to_f32(t[0].data, static_cast<float*>(t[1].data), n);
  else if (name == "f32_to_bf16")
    f32_to_bf16(static_cast<const float*>(t[0].data), t[1].data, n);
  else if (name == "bf16_to_f32")
    bf16_to_f32(t[0].data, static_cast<float*>(t[1].data), n);
  else {
    const nb::gil_scoped_acquire gil;
    refuse("there is no kernel " + name + "; there are: add_f32, f32_to_f16, f16_to_f32, f32_to_bf16, bf16_to_f32");
  }
}

std::string parse_message(nb::bytes data) {
  Message message;
  message.head = Bytes::copy(data.data(), data.size());
  Header header;
  std::vector<Frame> frames;
  const Status status = parse(message, &header, &frames);
  if (!status.ok()) return status.message();
  std::string text = std::to_string(frames.size()) + " frames:";
  for (const Frame& frame : frames) text += std::string(" ") + name_of(frame.kind);
  return text;
}

}  // namespace

void bind_codec(nb::module_& m) {
  nb::class_<PyCodec>(m, "Codec")
      .def(nb::init<const std::string&, nb::object, const std::string&, nb::object, const std::string&>(), "name"_a,
           "params"_a = nb::dict(), "plugin"_a = "", "make"_a = nb::none(), "answer"_a = "gradients")
      .def_prop_ro("wire_id", &PyCodec::wire_id)
      .def_prop_ro("keeps_residual", &PyCodec::keeps_residual)
      .def_prop_ro("can_merge", &PyCodec::can_merge)
      .def_prop_ro("metrics", &PyCodec::metrics)
      .def("takes", &PyCodec::takes, "dtype"_a)
      .def("carries", &PyCodec::carries, "content"_a)
      .def("encode", &PyCodec::encode, "values"_a, "slot"_a = 0, "direction"_a = "up")
      .def("encode_parts", &PyCodec::encode_parts, "values"_a, "part_length"_a, "slot"_a = 0, "direction"_a = "up")
      .def("decode", &PyCodec::decode, "data"_a, "length"_a, "dtype"_a, "slot"_a = 0, "direction"_a = "up")
      .def("accumulate", &PyCodec::accumulate, "data"_a, "into"_a, "slot"_a = 0, "direction"_a = "up")
      .def("give_back", &PyCodec::give_back, "data"_a, "slot"_a = 0, "part_length"_a = 0, "part"_a = 0,
           "direction"_a = "up")
      .def("merge", &PyCodec::merge, "pieces"_a, "length"_a, "dtype"_a)
      .def("score", &PyCodec::score, "data"_a, "length"_a, "dtype"_a)
      .def("max_encoded_size", &PyCodec::max_encoded_size, "length"_a, "dtype"_a)
      .def("save", &PyCodec::save, "slot"_a = 0, "direction"_a = "up")
      .def("load", &PyCodec::load, "data"_a, "length"_a, "dtype"_a, "slot"_a = 0, "direction"_a = "up");
  m.def("kernel", &kernel);
  m.def("parse_message", &parse_message, "data"_a);
  m.def("np_dtype", [](const std::string& name) -> nb::object {
    if (dtype_named(name) == DType::bf16) return nb::module_::import_("ml_dtypes").attr("bfloat16");
    return nb::module_::import_("numpy").attr("dtype")(name);
  });
}

}  // namespace geomx
