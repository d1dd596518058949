// What the module's files share: sentences as exceptions, arrays as tensors, words for enums.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/handle.h"

namespace geomx {

// Raises geomx._core.Refused, Timeout or Error.
[[noreturn]] void raise(const Handle::Result& result);
void check(const Handle::Result& result);
[[noreturn]] void refuse(const std::string& why);
void look_at_signals();  // Ctrl-C must end a call that waits

// A Python function's own exception, as a sentence that begins with `who`. Takes the GIL.
template <typename Call>
Status guarded(const std::string& who, Call&& call) {
  namespace nb = nanobind;
  const nb::gil_scoped_acquire gil;
  const std::string begin = who.empty() ? "" : who + ": ";
  try {
    call();
    return {};
  } catch (nb::python_error& e) {
    return Status::error(begin + nb::cast<std::string>(nb::str(e.type().attr("__name__"))) + ": " +
                         nb::cast<std::string>(nb::str(e.value())));
  } catch (const std::exception& e) {
    return Status::error(begin + e.what());
  }
}

DType dtype_named(const std::string& name);
// A numpy array in place; anything else that has no C-contiguous memory is refused with a sentence.
Tensor tensor_of(const std::string& name, nanobind::handle array, int priority, bool is_written);
std::vector<Tensor> tensors_of(const std::vector<std::string>& names, nanobind::sequence arrays,
                               const std::vector<int>& priorities, bool is_written);
Params params_of(nanobind::handle mapping);
nanobind::object from_json(const std::string& text);

std::string dtype_word(DType dtype);
std::string tier_word(Tier tier);
std::string direction_word(Direction direction);
std::string codec_word(uint32_t wire_id);  // four letters without what fills them up: "BSC1", "RAW"
uint64_t microseconds(double seconds);

// What each file adds to the module.
void bind_errors(nanobind::module_& m);
void bind_wan(nanobind::module_& m);
void bind_node(nanobind::module_& m);
void bind_codec(nanobind::module_& m);

}  // namespace geomx
