// In C++17: a plugin that finds its host wanting.
#include <geomx/plugin.h>

#include <cstdio>

extern "C" gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* err) {
  const auto make = [](void*, const gx_host*, const gx_site*, gx_params, gx_scheduler*, gx_error*) -> gx_status {
    return GX_OK;
  };
  if (registrar->add_scheduler(registrar, "toy", make, nullptr, err) != GX_OK) return GX_EUNSUPPORTED;
  std::snprintf(err->message, sizeof(err->message), "unreachable with version %u", host->abi_version);
  return GX_EINTERNAL;
}
