// See plugin_host.h.
#include "plugin_host.h"

#include "plugin_makers.h"

namespace geomx {

namespace {

struct Registration {
  std::shared_ptr<Library> library;
  Offers offers;
};

gx_status refuse(gx_error* error, const std::string& message) {
  if (error != nullptr) snprintf(error->message, sizeof(error->message), "%s", message.c_str());
  return GX_EUNSUPPORTED;
}

// `a`: the kind, as in "a codec".
template <class Maker, class Make>
gx_status add(std::map<std::string, Maker> Offers::*kind, const std::string& a, gx_registrar* self, const char* name,
              Make make, void* user, gx_error* error) {
  if (name == nullptr || *name == '\0' || make == nullptr) return refuse(error, a + " needs a name and a maker");
  Registration& into = *static_cast<Registration*>(self->private_data);
  if (!(into.offers.*kind).emplace(name, maker_of(into.library, make, user)).second)
    return refuse(error, "it adds " + a + " named " + name + " twice");
  return GX_OK;
}

gx_registrar registrar_for(Registration* registration) {
  gx_registrar registrar = {};
  registrar.struct_size = sizeof(registrar);
  registrar.private_data = registration;
  registrar.add_codec = [](gx_registrar* self, const char* name, gx_make_codec make, void* user, gx_error* error) {
    return add(&Offers::codecs, "a codec", self, name, make, user, error);
  };
  registrar.add_transport = [](gx_registrar* self, const char* name, gx_make_transport make, void* user,
                               gx_error* error) {
    return add(&Offers::transports, "a transport", self, name, make, user, error);
  };
  registrar.add_scheduler = [](gx_registrar*, const char*, gx_make_scheduler, void*, gx_error* error) {
    return refuse(error,
                  "this version takes no native schedulers; write it in Python: python -m geomx.plugin new "
                  "scheduler NAME");
  };
  registrar.add_overlay = [](gx_registrar* self, const char* name, gx_make_overlay make, void* user, gx_error* error) {
    return add(&Offers::overlays, "an overlay", self, name, make, user, error);
  };
  return registrar;
}

}  // namespace

Status load_plugin(const std::string& path, const std::shared_ptr<PluginHooks>& hooks, Offers* offers) {
  const auto named = [&](const Status& status) {
    return status.ok() ? status : Status::error("plugin " + path + ": " + status.message());
  };
  Registration registration = {std::make_shared<Library>(hooks), {}};
  Library& library = *registration.library;
  if (Status status = library.open(path); !status.ok()) return named(status);

  gx_registrar registrar = registrar_for(&registration);
  gx_error error = {};
  const Status status = status_of(library.entry()(library.host(), &registrar, &error), error);
  if (status.ok()) *offers = std::move(registration.offers);
  return named(status);
}

}  // namespace geomx
