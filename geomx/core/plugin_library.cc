#include "plugin_library.h"

#include <dlfcn.h>

#include <cstring>

#include "reduce.h"

namespace geomx {

namespace {

static_assert(GX_F32 == int(DType::f32) && GX_F16 == int(DType::f16) && GX_BF16 == int(DType::bf16) &&
                  GX_F64 == int(DType::f64) && GX_I32 == int(DType::i32) && GX_I64 == int(DType::i64) &&
                  GX_U8 == int(DType::u8),
              "the C names of element types are the core's");
static_assert(GX_GRADIENT == int(Content::gradient) && GX_PARAMETER == int(Content::parameter) &&
                  GX_DELTA == int(Content::delta),
              "so are those of contents");
static_assert(GX_UP == int(Direction::up) && GX_DOWN == int(Direction::down), "so are those of directions");
static_assert(GX_LAN == int(Tier::lan) && GX_WAN == int(Tier::wan), "and of tiers");

Overflow overflow_of(int overflow) { return overflow == GX_TO_INFINITY ? Overflow::infinity : Overflow::saturate; }

const gx_kernels kernels = {
    sizeof(gx_kernels),
    [](const float* values, void* halves, uint64_t n, int overflow) -> uint64_t {
      return f32_to_f16(values, halves, n, overflow_of(overflow));
    },
    [](const float* values, void* halves, uint64_t n, int overflow) -> uint64_t {
      return f32_to_bf16(values, halves, n, overflow_of(overflow));
    },
    [](const void* halves, float* values, uint64_t n) { f16_to_f32(halves, values, n); },
    [](const void* halves, float* values, uint64_t n) { bf16_to_f32(halves, values, n); },
    [](float* sum, const void* halves, uint64_t n) { add_f16_to_f32(sum, halves, n); },
    [](float* sum, const void* halves, uint64_t n) { add_bf16_to_f32(sum, halves, n); },
    [](float* sum, const void* values, uint64_t n) { add_f32(sum, values, n); },
    [](const void* values, uint64_t n) { return abs_sum_f32(values, n); },
};

const PluginHooks& hooks_of(const gx_host* host) { return *static_cast<const PluginHooks*>(host->private_data); }

gx_host host_of(PluginHooks* hooks) {
  gx_host host = {};
  host.struct_size = sizeof(gx_host);
  host.abi_version = GX_ABI_VERSION;
  host.kernels = &kernels;
  host.private_data = hooks;
  host.log = [](const gx_host* self, int level, const char* message) {
    if (hooks_of(self).log && message != nullptr) hooks_of(self).log(level, message);
  };
  host.metric = [](const gx_host* self, const char* name, double value) {
    if (hooks_of(self).metric && name != nullptr) hooks_of(self).metric(name, value);
  };
  host.now_ns = [](const gx_host* self) -> uint64_t {
    return hooks_of(self).now_us ? hooks_of(self).now_us() * 1000 : 0;
  };
  return host;
}

// Which version a library was built for, when it isn't ours.
std::string other_version(void* handle) {
  for (int version = 0; version < 100; ++version) {
    const std::string name = "geomx_plugin_v" + std::to_string(version);
    if (dlsym(handle, name.c_str()) != nullptr) {
      return "it was built for version " + std::to_string(version) + " of geomx/plugin.h, this GeoMX has version " +
             std::to_string(GX_ABI_VERSION) + "; install builds that belong together";
    }
  }
  return "it has no geomx_plugin_v1, so it is no GeoMX plugin (is the function declared by geomx/plugin.h and extern "
         "\"C\"?)";
}

}  // namespace

Library::Library(std::shared_ptr<PluginHooks> hooks) : hooks_(std::move(hooks)), host_(host_of(hooks_.get())) {}

Library::~Library() {
  if (handle_ != nullptr) dlclose(handle_);
}

Status Library::open(const std::string& path) {
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* why = dlerror();
    return Status::error(why == nullptr ? "it can't be loaded" : why);
  }
  entry_ = reinterpret_cast<Entry>(dlsym(handle_, "geomx_plugin_v1"));
  return entry_ == nullptr ? Status::error(other_version(handle_)) : Status();
}

gx_site Library::site() const {
  gx_site site = {};
  site.struct_size = sizeof(site);
  site.is_server = hooks_->is_server;
  site.rank = hooks_->rank;
  site.num_members = hooks_->num_members;
  site.num_servers = hooks_->num_servers;
  site.answer = static_cast<gx_content>(hooks_->answer);
  return site;
}

void Library::warn(const std::string& line) const {
  constexpr int warning = 30;  // Python's level
  if (hooks_->log) hooks_->log(warning, line);
}

std::string text_of(const gx_error& error, gx_status status) {
  const std::string text(error.message, strnlen(error.message, sizeof(error.message)));
  if (!text.empty()) return text;
  constexpr const char* names[] = {"",
                                   "it was asked for something that makes no sense to it",
                                   "its buffer was too small",
                                   "the bytes can't be its own",
                                   "it doesn't support this",
                                   "it failed"};
  return status > 0 && status <= GX_EINTERNAL ? names[status] : "it failed with status " + std::to_string(status);
}

Status status_of(gx_status status, const gx_error& error) {
  return status == GX_OK ? Status() : Status::error(text_of(error, status));
}

gx_slice slice_of(const PartView& view, const void* data) {
  gx_slice slice = {};
  slice.struct_size = sizeof(slice);
  slice.dtype = static_cast<gx_dtype>(view.dtype);
  slice.data_dtype = static_cast<gx_dtype>(sum_type(view.dtype));
  slice.direction = static_cast<gx_direction>(view.direction);
  slice.tier = static_cast<gx_tier>(view.tier);
  slice.content = static_cast<gx_content>(view.content);
  slice.key = view.key;
  slice.part = view.part;
  slice.num_parts = view.num_parts;
  slice.round = view.round;
  slice.offset = view.offset;
  slice.length = view.length;
  slice.tensor_length = view.tensor_length;
  slice.data = const_cast<void*>(data);
  return slice;
}

gx_bytes bytes_of(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

std::vector<gx_param> params_of(const Params& params) {
  std::vector<gx_param> items;
  for (const auto& [name, value] : params) {
    gx_param item = {name.c_str(), 'i', 0, 0.0, ""};
    if (const int64_t* number = std::get_if<int64_t>(&value)) {
      item.i = *number;
      item.f = static_cast<double>(*number);
    } else if (const double* real = std::get_if<double>(&value)) {
      item.kind = 'f';
      item.f = *real;
    } else {
      item.kind = 's';
      item.s = std::get<std::string>(value).c_str();
    }
    items.push_back(item);
  }
  return items;
}

}  // namespace geomx
