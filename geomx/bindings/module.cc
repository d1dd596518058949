// The Python module geomx._core: see geomx/_core.pyi for what each call means. Its files only translate: arguments in,
// sentences out as exceptions, the GIL released around whatever waits and taken where the node asks Python something.
#include "values.h"

NB_MODULE(_core, m) {
  nanobind::set_leak_warnings(false);
  m.attr("ABI_VERSION") = 1;
  geomx::bind_errors(m);
  geomx::bind_wan(m);
  geomx::bind_node(m);
  geomx::bind_codec(m);
}
