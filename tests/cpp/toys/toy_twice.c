/* Two codecs by one name. */
#include <geomx/plugin.h>

static gx_status make(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                      gx_error* error) {
  (void)user, (void)host, (void)site, (void)params, (void)out, (void)error;
  return GX_EINTERNAL;
}

gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  (void)host;
  registrar->add_codec(registrar, "toy", make, NULL, error);
  return registrar->add_codec(registrar, "toy", make, NULL, error);
}
