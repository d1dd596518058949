// What a library registered, as makers of the core's own kinds; each is in the file of its kind (plugin_codec.cc, ...).
// `user` is the plugin's own word, given back to it.
#pragma once
#include "plugin_library.h"

namespace geomx {

CodecMaker maker_of(std::shared_ptr<Library> library, gx_make_codec make, void* user);
TransportMaker maker_of(std::shared_ptr<Library> library, gx_make_transport make, void* user);
OverlayMaker maker_of(std::shared_ptr<Library> library, gx_make_overlay make, void* user);

}  // namespace geomx
