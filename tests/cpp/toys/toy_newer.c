/* A plugin of a later version of the header. */
#include <geomx/plugin.h>

GX_EXPORT gx_status geomx_plugin_v2(void);
gx_status geomx_plugin_v2(void) { return GX_OK; }
