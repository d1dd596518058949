// Loads shared libraries that speak geomx/plugin.h, and makes their codecs look like the core's own.
//
// Knows no node: what plugins ask for goes to the hooks. A library stays loaded as long as anything of it is in use.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "codec.h"

namespace geomx {

// The codecs that the library adds, by name. Nothing of it stays when it is refused.
Status load_plugin(const std::string& path, const std::shared_ptr<PluginHooks>& hooks,
                   std::map<std::string, CodecMaker>* codecs);

}  // namespace geomx
