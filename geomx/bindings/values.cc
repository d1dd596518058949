// See values.h.
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

nb::object error_type, refused_type, timeout_type;

}  // namespace

void raise(const Handle::Result& result) {
  const nb::object& type = result.fault == Fault::refused   ? refused_type
                           : result.fault == Fault::timeout ? timeout_type
                                                            : error_type;
  PyErr_SetString(type.ptr(), result.message.c_str());
  throw nb::python_error();
}

void check(const Handle::Result& result) {
  if (!result.ok) raise(result);
}

void refuse(const std::string& why) { raise({false, Fault::refused, why}); }

void look_at_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

DType dtype_named(const std::string& name) {
  DType dtype;
  if (!parse_dtype(name, &dtype))
    refuse("dtype " + name + " is not one of float32, float16, bfloat16, float64, int32, int64, uint8");
  return dtype;
}

Tensor tensor_of(const std::string& name, nb::handle array, int priority, bool is_written) {
  Tensor tensor;
  tensor.name = name;
  tensor.priority = priority;
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view,
                         is_written ? PyBUF_CONTIG | PyBUF_FORMAT : PyBUF_CONTIG_RO | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    nb::object as_bits;  // bfloat16 has no buffer format of its own
    try {
      as_bits = array.attr("view")("uint16");
    } catch (nb::python_error&) {
      refuse("key \"" + name + "\": a C-contiguous " + (is_written ? "writable " : "") + "array is needed");
    }
    tensor = tensor_of(name, as_bits, priority, is_written);
    tensor.dtype = dtype_named(nb::cast<std::string>(nb::str(array.attr("dtype").attr("name"))));
    return tensor;
  }
  tensor.data = view.buf;
  tensor.shape.assign(view.shape, view.shape + view.ndim);
  const std::string format = view.format ? view.format : "B";
  const Py_ssize_t size = view.itemsize;
  PyBuffer_Release(&view);  // whoever called keeps the array alive until the ticket is done
  const char kind = format.back();
  if (kind == 'f')
    tensor.dtype = DType::f32;
  else if (kind == 'e')
    tensor.dtype = DType::f16;
  else if (kind == 'd')
    tensor.dtype = DType::f64;
  else if (kind == 'B')
    tensor.dtype = DType::u8;
  else if ((kind == 'i' || kind == 'l' || kind == 'q') && size == 4)
    tensor.dtype = DType::i32;
  else if ((kind == 'l' || kind == 'q') && size == 8)
    tensor.dtype = DType::i64;
  else if (kind == 'H')
    tensor.dtype = DType::bf16;
  else
    refuse("key \"" + name + "\": dtype " + nb::cast<std::string>(nb::str(array.attr("dtype"))) +
           " is not one of float32, float16, bfloat16, float64, int32, int64, uint8");
  return tensor;
}

std::vector<Tensor> tensors_of(const std::vector<std::string>& names, nb::sequence arrays,
                               const std::vector<int>& priorities, bool is_written) {
  if (nb::len(arrays) != names.size() || (!priorities.empty() && priorities.size() != names.size()))
    refuse(std::to_string(names.size()) + " names but " + std::to_string(nb::len(arrays)) + " arrays and " +
           std::to_string(priorities.size()) + " priorities");
  std::vector<Tensor> out;
  out.reserve(names.size());
  size_t i = 0;
  for (nb::handle array : arrays) {
    out.push_back(tensor_of(names[i], array, priorities.empty() ? 0 : priorities[i], is_written));
    ++i;
  }
  return out;
}

Params params_of(nb::handle mapping) {
  Params params;
  for (auto [key, value] : nb::cast<nb::dict>(nb::module_::import_("builtins").attr("dict")(mapping))) {
    const std::string name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::bool_>(value))
      params[name] = int64_t(nb::cast<bool>(value));
    else if (nb::isinstance<nb::int_>(value))
      params[name] = nb::cast<int64_t>(value);
    else if (nb::isinstance<nb::float_>(value))
      params[name] = nb::cast<double>(value);
    else
      params[name] = nb::cast<std::string>(nb::str(value));
  }
  return params;
}

nb::object from_json(const std::string& text) {
  try {
    return nb::module_::import_("json").attr("loads")(text);
  } catch (nb::python_error&) {
    return nb::str(text.c_str());  // a word stands for itself
  }
}

std::string dtype_word(DType dtype) { return name_of(dtype); }
std::string tier_word(Tier tier) { return tier == Tier::wan ? "wan" : "lan"; }
std::string direction_word(Direction direction) { return direction == Direction::up ? "up" : "down"; }

std::string codec_word(uint32_t wire_id) {
  std::string word(reinterpret_cast<const char*>(&wire_id), 4);
  return word.substr(0, word.find_last_not_of(std::string(" \0", 2)) + 1);
}

uint64_t microseconds(double seconds) { return uint64_t(seconds * 1e6); }

void bind_errors(nb::module_& m) {
  error_type = nb::steal(PyErr_NewException("geomx._core.Error", nullptr, nullptr));
  refused_type = nb::steal(PyErr_NewException("geomx._core.Refused", error_type.ptr(), nullptr));
  timeout_type = nb::steal(PyErr_NewException("geomx._core.Timeout", error_type.ptr(), nullptr));
  m.attr("Error") = error_type;
  m.attr("Refused") = refused_type;
  m.attr("Timeout") = timeout_type;
}

}  // namespace geomx
