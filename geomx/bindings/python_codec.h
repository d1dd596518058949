// Codecs written in Python (geomx.api.Codec), as the core sees them. Part of the Python module, not of the library.
#pragma once
#include <nanobind/nanobind.h>

#include "core/codec.h"

namespace geomx {

// `make(params)` gives the codec; an exception in any of its methods becomes a sentence.
Status make_python_codec(nanobind::object make, const Params& params, std::unique_ptr<Codec>* out);

}  // namespace geomx
