// Names of codecs and what makes them, of one node. Holds "identity" from the start; plugin_host.cc and the Python
// bindings add others.
#include "identity_codec.h"
#include "plugin_host.h"
#include "policies.h"

namespace geomx {

CodecRegistry::CodecRegistry(PluginHooks hooks) : hooks_(std::make_shared<PluginHooks>(std::move(hooks))) {
  makers_["identity"] = [](const Params& params, std::unique_ptr<Codec>* out) {
    if (!params.empty()) return Status::error("takes no parameters but was given " + params.begin()->first);
    *out = make_identity_codec();
    return Status();
  };
}

Status CodecRegistry::add(const std::string& name, CodecMaker maker) {
  if (!makers_.emplace(name, std::move(maker)).second) {
    return Status::error("a codec named " + name + " is there already: two plugins offer it; keep one");
  }
  return {};
}

Status CodecRegistry::load(const std::string& path) {
  Offers found;
  Status status = load_plugin(path, hooks_, &found);
  for (auto& [name, maker] : found.codecs) {
    if (status.ok()) status = add(name, std::move(maker));
  }
  for (auto& [name, maker] : found.transports) {
    if (status.ok() && !transports_.emplace(name, std::move(maker)).second)
      status = Status::error("a transport named " + name + " is there already: two plugins offer it; keep one");
  }
  for (auto& [name, maker] : found.overlays) {
    if (status.ok() && !overlays_.emplace(name, std::move(maker)).second)
      status = Status::error("an overlay named " + name + " is there already: two plugins offer it; keep one");
  }
  return status;
}

Status CodecRegistry::make(const std::string& name, const Params& params, std::unique_ptr<Codec>* out) const {
  const auto found = makers_.find(name);
  if (found == makers_.end()) {
    std::string names;
    for (const auto& [known, maker] : makers_) names += (names.empty() ? "" : ", ") + known;
    return Status::error("no codec named " + name + "; there are: " + names);
  }
  const Status status = found->second(params, out);
  return status.ok() ? status : Status::error("codec " + name + ": " + status.message());
}

Status CodecRegistry::make_transport(const std::string& name, const Params& params,
                                     std::unique_ptr<TransportPolicy>* out) const {
  const auto found = transports_.find(name);
  if (found == transports_.end()) return Status::error("no transport named " + name + " was loaded");
  const Status status = found->second(params, *this, out);
  return status.ok() ? status : Status::error("transport " + name + ": " + status.message());
}

Status CodecRegistry::make_overlay(const std::string& name, const Params& params, OverlaySite site,
                                   std::unique_ptr<OverlayPolicy>* out) const {
  const auto found = overlays_.find(name);
  if (found == overlays_.end()) return Status::error("no overlay named " + name + " was loaded");
  const Status status = found->second(params, std::move(site), out);
  return status.ok() ? status : Status::error("overlay " + name + ": " + status.message());
}

CodecRegistry::~CodecRegistry() = default;

}  // namespace geomx
