// Loads shared libraries that speak geomx/plugin.h, and makes what they offer look like the core's own.
//
// Knows no node: what plugins ask for goes to the hooks. A library stays loaded as long as anything of it is in use.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "codec.h"

namespace geomx {

// What a library adds, by name.
struct Offers {
  std::map<std::string, CodecMaker> codecs;
  std::map<std::string, TransportMaker> transports;
  std::map<std::string, OverlayMaker> overlays;
};

// Nothing of the library stays when it is refused.
Status load_plugin(const std::string& path, const std::shared_ptr<PluginHooks>& hooks, Offers* offers);

}  // namespace geomx
