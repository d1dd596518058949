// See plugin_host.h. Every text that a plugin gives is treated as possibly missing or unterminated, and every size that
// it returns is checked against what it was given.
#include "plugin_host.h"

#include <dlfcn.h>
#include <geomx/plugin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "identity_codec.h"
#include "policies.h"
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

// What a codec's table must reach: its last mandatory function.
constexpr size_t min_codec_size = offsetof(gx_codec, decode) + sizeof(void*);
constexpr size_t room_for_growth = 1024;

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

Status status_of(gx_status code, const gx_error& error) {
  return code == GX_OK ? Status() : Status::error(text_of(error, code));
}

// ---- what the host offers ------------------------------------------------------------------------------------------

const gx_kernels kernels = {
    sizeof(gx_kernels),
    [](const float* values, void* halves, uint64_t n, int overflow) -> uint64_t {
      return f32_to_f16(values, halves, n, overflow == GX_TO_INFINITY ? Overflow::infinity : Overflow::saturate);
    },
    [](const float* values, void* halves, uint64_t n, int overflow) -> uint64_t {
      return f32_to_bf16(values, halves, n, overflow == GX_TO_INFINITY ? Overflow::infinity : Overflow::saturate);
    },
    [](const void* halves, float* values, uint64_t n) { f16_to_f32(halves, values, n); },
    [](const void* halves, float* values, uint64_t n) { bf16_to_f32(halves, values, n); },
    [](float* sum, const void* halves, uint64_t n) { add_f16_to_f32(sum, halves, n); },
    [](float* sum, const void* halves, uint64_t n) { add_bf16_to_f32(sum, halves, n); },
    [](float* sum, const void* values, uint64_t n) { add_f32(sum, values, n); },
    [](const void* values, uint64_t n) { return abs_sum_f32(values, n); },
};

// A loaded library and its view of us. Makers and codecs share it.
struct Library {
  std::string path;
  void* handle = nullptr;
  gx_host host = {};
  std::shared_ptr<PluginHooks> hooks;

  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }
  static const PluginHooks& hooks_of(const gx_host* host) {
    return *static_cast<const Library*>(host->private_data)->hooks;
  }
  void offer() {
    host.struct_size = sizeof(gx_host);
    host.abi_version = GX_ABI_VERSION;
    host.kernels = &kernels;
    host.private_data = this;
    host.log = [](const gx_host* self, int level, const char* message) {
      if (hooks_of(self).log && message != nullptr) hooks_of(self).log(level, message);
    };
    host.metric = [](const gx_host* self, const char* name, double value) {
      if (hooks_of(self).metric && name != nullptr) hooks_of(self).metric(name, value);
    };
    host.now_ns = [](const gx_host* self) -> uint64_t {
      return hooks_of(self).now_us ? hooks_of(self).now_us() * 1000 : 0;
    };
  }
};

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

// ---- one codec -----------------------------------------------------------------------------------------------------

struct PluginSlot : Slot {
  gx_codec* table;
  void* slot = nullptr;
  explicit PluginSlot(gx_codec* owner) : table(owner) {}
  ~PluginSlot() override {
    if (slot != nullptr && table->close_slot != nullptr) table->close_slot(table, slot);
  }
};

class PluginCodec : public Codec {
 public:
  explicit PluginCodec(std::shared_ptr<Library> library) : library_(std::move(library)) {
    table().struct_size = sizeof(gx_codec);
  }
  ~PluginCodec() override {
    if (table().release != nullptr) table().release(&table());
  }

  gx_codec& table() { return room_.table; }
  const gx_codec& table() const { return room_.table; }
  // A newer plugin may have written fields that we don't know, into room that is left for them; an older one hasn't
  // written the last ones, which stay null.
  Status check() const {
    if (table().struct_size < min_codec_size) {
      return Status::error("its table has " + std::to_string(table().struct_size) +
                           " bytes, version 1 needs at least " + std::to_string(min_codec_size));
    }
    if (table().max_encoded_size == nullptr || table().encode == nullptr || table().decode == nullptr) {
      return Status::error("it has no max_encoded_size, encode or decode");
    }
    if (table().scope > GX_SCOPE_TENSOR) return Status::error("its scope is none of part, shard, tensor");
    if (keeps_residual() && table().give_back == nullptr)
      return Status::error("it keeps a residual but has no give_back");
    return {};
  }

  uint32_t wire_id() const override { return table().wire_id; }
  CodecScope scope() const override { return static_cast<CodecScope>(table().scope); }
  bool can_merge() const override { return (table().caps & GX_CAN_MERGE) != 0 && table().merge != nullptr; }
  bool keeps_residual() const override { return (table().caps & GX_KEEPS_RESIDUAL) != 0; }
  bool takes(DType dtype) const override { return (table().dtypes & GX_DTYPE_BIT(int(dtype))) != 0; }
  bool carries(Content content) const override {
    constexpr uint32_t any = GX_CARRIES_GRADIENTS | GX_CARRIES_PARAMETERS | GX_CARRIES_DELTAS;
    return (table().caps & any) == 0 || (table().caps & (uint32_t(GX_CARRIES_GRADIENTS) << unsigned(content))) != 0;
  }

  std::unique_ptr<Slot> open_slot(const PartView& whole) override {
    auto made = std::make_unique<PluginSlot>(&table());
    if (table().open_slot == nullptr) return made;
    gx_error error = {};
    const gx_slice slice = slice_of(whole, nullptr);
    const gx_status code = table().open_slot(&table(), &slice, &made->slot, &error);
    // A slot can't be refused by the caller's contract; what goes wrong here is told by the first use.
    if (code != GX_OK) open_error_ = text_of(error, code);
    return made;
  }

  Status prepare(Slot& slot, const PartView& whole, const Bytes& values) override {
    if (!open_error_.empty()) return Status::error(open_error_);
    if (table().prepare == nullptr) return {};
    gx_error error = {};
    const gx_slice slice = slice_of(whole, values.data());
    return status_of(table().prepare(&table(), raw(slot), &slice, &error), error);
  }

  uint64_t max_encoded_size(const PartView& view) const override {
    gx_codec* self = const_cast<gx_codec*>(&table());
    const gx_slice slice = slice_of(view, nullptr);
    return self->max_encoded_size(self, &slice);
  }

  Status encode(Slot& slot, const PartView& view, const Bytes& values, Bytes* encoded) override {
    Status status = check_use(view, values.size());
    if (!status.ok()) return status;
    const uint64_t capacity = max_encoded_size(view);
    Bytes to = encoded->size() >= capacity && encoded->is_unique() ? std::move(*encoded) : Bytes::allocate(capacity);
    gx_buffer buffer = {to.writable(), 0, capacity};
    gx_error error = {};
    const gx_slice slice = slice_of(view, values.data());
    status = status_of(table().encode(&table(), raw(slot), &slice, &buffer, &error), error);
    if (!status.ok()) return status;
    if (buffer.size > capacity) {
      return Status::error("it wrote " + std::to_string(buffer.size) + " bytes where it said " +
                           std::to_string(capacity) + " at most");
    }
    // What is much smaller than it might have been doesn't hold on to all that room while it waits to be sent.
    *encoded = buffer.size < capacity / 4 ? Bytes::copy(to.data(), buffer.size) : to.slice(0, buffer.size);
    return {};
  }

  Status decode(const PartView& view, const Bytes& encoded, Bytes* values) override {
    const size_t size = view.length * size_of(sum_type(view.dtype));
    Bytes to = Bytes::allocate(size);
    Status status = decode_into(view, encoded, to.writable(), false);
    if (status.ok()) *values = std::move(to);
    return status;
  }

  Status accumulate(const PartView& view, const Bytes& encoded, void* sum) override {
    return decode_into(view, encoded, sum, true);
  }

  Status give_back(Slot& slot, const PartView& view, const Bytes& encoded) override {
    if (table().give_back == nullptr) {
      return Status::error("it keeps no residual: what is lost has to be kept by who sends it");
    }
    gx_error error = {};
    const gx_slice slice = slice_of(view, nullptr);
    return status_of(table().give_back(&table(), raw(slot), &slice, {encoded.data(), encoded.size()}, &error), error);
  }

  Status merge(const PartView& view, const std::vector<Bytes>& encoded, Bytes* merged) override {
    if (!can_merge()) return Status::error("it can't merge encoded parts");
    std::vector<gx_bytes> in;
    uint64_t capacity = 0;
    for (const Bytes& one : encoded) {
      in.push_back({one.data(), one.size()});
      capacity += one.size();
    }
    capacity = std::max(capacity, max_encoded_size(view));
    Bytes to = Bytes::allocate(capacity);
    gx_buffer buffer = {to.writable(), 0, capacity};
    gx_error error = {};
    const gx_slice slice = slice_of(view, nullptr);
    const gx_status code = table().merge(&table(), &slice, in.data(), in.size(), &buffer, &error);
    if (code == GX_EUNSUPPORTED) return {};
    if (Status status = status_of(code, error); !status.ok()) return status;
    if (buffer.size > capacity) return Status::error("it merged into more bytes than it had room for");
    *merged = to.slice(0, buffer.size);
    return {};
  }

  Status score(const PartView& view, const Bytes& encoded, double* contribution) override {
    if (table().score == nullptr) return score_decoded(view, encoded, contribution);
    gx_error error = {};
    const gx_slice slice = slice_of(view, nullptr);
    return status_of(table().score(&table(), &slice, {encoded.data(), encoded.size()}, contribution, &error), error);
  }

  Status save_slot(const Slot& slot, Bytes* out) const override {
    *out = {};
    gx_codec* self = const_cast<gx_codec*>(&table());
    if (self->save_slot == nullptr) return {};
    gx_buffer buffer = {nullptr, 0, 0};
    for (int attempt = 0; attempt < 2; ++attempt) {
      gx_error error = {};
      const gx_status code = self->save_slot(self, raw(slot), &buffer, &error);
      if (code == GX_ENOSPC && attempt == 0 && buffer.size > buffer.capacity) {
        *out = Bytes::allocate(buffer.size);
        buffer = {out->writable(), 0, buffer.size};
        continue;
      }
      if (code != GX_OK) return status_of(code, error);
      if (buffer.size > buffer.capacity) return Status::error("it saved more than it had room for");
      *out = out->slice(0, buffer.size);
      return {};
    }
    return Status::error("it needs ever more room to save a slot");
  }

  Status load_slot(Slot& slot, const Bytes& in) override {
    if (table().load_slot == nullptr) {
      return in.empty() ? Status() : Status::error("it keeps no state but got " + std::to_string(in.size()) + " bytes");
    }
    gx_error error = {};
    return status_of(table().load_slot(&table(), raw(slot), {in.data(), in.size()}, &error), error);
  }

 private:
  static void* raw(const Slot& slot) { return static_cast<const PluginSlot&>(slot).slot; }

  Status check_use(const PartView& view, size_t size) const {
    if (!open_error_.empty()) return Status::error(open_error_);
    if (!takes(view.dtype)) return Status::error(std::string("it takes no values of ") + name_of(view.dtype));
    const DType from = sum_type(view.dtype);
    if (size == view.length * size_of(from)) return {};
    return Status::error("expected " + std::to_string(view.length * size_of(from)) + " bytes for " +
                         std::to_string(view.length) + " elements of " + name_of(from) + " but got " +
                         std::to_string(size));
  }

  Status decode_into(const PartView& view, const Bytes& encoded, void* to, bool is_added) {
    if (!takes(view.dtype)) return Status::error(std::string("it takes no values of ") + name_of(view.dtype));
    gx_error error = {};
    const gx_slice slice = slice_of(view, to);
    return status_of(table().decode(&table(), {encoded.data(), encoded.size()}, is_added, &slice, &error), error);
  }

  Status score_decoded(const PartView& view, const Bytes& encoded, double* contribution) {
    Bytes values;
    Status status = decode(view, encoded, &values);
    if (!status.ok()) return status;
    PartView sums = view;
    sums.dtype = sum_type(view.dtype);
    return identity_codec().score(sums, values, contribution);
  }

  std::shared_ptr<Library> library_;
  union Room {
    gx_codec table;
    uint8_t growth[sizeof(gx_codec) + room_for_growth];
    Room() : growth{} {}
  } room_;
  std::string open_error_;
};

// ---- loading -------------------------------------------------------------------------------------------------------

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

gx_site site_of(const PluginHooks& hooks) {
  return {sizeof(gx_site),
          0,
          hooks.is_server,
          hooks.rank,
          hooks.num_members,
          hooks.num_servers,
          static_cast<gx_content>(hooks.answer)};
}

CodecMaker maker_of(const std::shared_ptr<Library>& library, gx_make_codec make, void* user) {
  return [library, make, user](const Params& params, std::unique_ptr<Codec>* out) {
    auto codec = std::make_unique<PluginCodec>(library);
    const std::vector<gx_param> items = params_of(params);
    const gx_site site = site_of(*library->hooks);
    gx_error error = {};
    const gx_status code = make(user, &library->host, &site, {items.data(), items.size()}, &codec->table(), &error);
    if (code != GX_OK) {
      codec->table() = {};  // nothing was made, so nothing is released
      return status_of(code, error);
    }
    Status status = codec->check();
    if (status.ok()) *out = std::move(codec);
    return status;
  };
}

// ---- one transport --------------------------------------------------------------------------------------------------

class PluginTransport : public TransportPolicy {
 public:
  explicit PluginTransport(std::shared_ptr<Library> library) : library_(std::move(library)) {
    table().struct_size = sizeof(gx_transport);
  }
  ~PluginTransport() override {
    if (table().release != nullptr) table().release(&table());
  }
  gx_transport& table() { return room_.table; }
  const gx_transport& table() const { return room_.table; }
  void set_coarse(std::unique_ptr<Codec> codec) { coarse_ = std::move(codec); }

  Status check() const {
    constexpr size_t least = offsetof(gx_transport, classify) + sizeof(void*);
    if (table().struct_size < least) {
      return Status::error("its table has " + std::to_string(table().struct_size) +
                           " bytes, version 1 needs at least " + std::to_string(least));
    }
    if (table().classify == nullptr) return Status::error("it has no classify");
    if (table().num_channels > kMaxChannels)
      return Status::error("it wants " + std::to_string(table().num_channels) + " channels, at most " +
                           std::to_string(kMaxChannels) + " are there");
    return {};
  }

  bool classifies() const override { return true; }
  bool is_lossy() const override { return (table().caps & GX_MAY_DROP) != 0; }
  uint64_t wait_us() const override { return table().wait_us; }
  uint64_t deadline_us() const override { return table().deadline_us; }
  LossyChannels channels() const override {
    LossyChannels wanted;
    wanted.are_streams = (table().caps & GX_WANTS_STREAMS) != 0;
    if (wanted.are_streams || (table().caps & GX_WANTS_DATAGRAMS) != 0)
      wanted.count = static_cast<uint8_t>(table().num_channels);
    return wanted;
  }
  Codec* coarse() const override { return coarse_.get(); }
  void on_metric(const std::string& name, double value) override {
    if (table().on_metric != nullptr) table().on_metric(&table(), name.c_str(), value);
  }

  // What a plugin says is taken as far as it makes sense; where it fails, everything is reliable.
  std::vector<PartClass> classify(const std::vector<PartView>& parts, const std::vector<double>& scores) override {
    std::vector<gx_slice> slices;
    for (const PartView& view : parts) slices.push_back(slice_of(view, nullptr));
    std::vector<gx_class> classes(parts.size(), gx_class{});
    gx_error error = {};
    const gx_status code =
        table().classify(&table(), slices.data(), scores.data(), parts.size(), classes.data(), &error);
    std::vector<PartClass> out(parts.size());
    if (code != GX_OK) {
      if (library_->hooks->log) library_->hooks->log(30, "the transport can't class parts: " + text_of(error, code));
      return out;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      out[i].is_droppable = is_lossy() && classes[i].droppable != 0;
      // Only what may be missing may take a way on which it can get lost.
      if (out[i].is_droppable) out[i].channel = std::clamp<uint8_t>(classes[i].channel, 1, kMaxChannels);
      out[i].is_withheld = out[i].is_droppable && classes[i].withheld != 0;
      out[i].is_coarse = classes[i].coarse != 0 && coarse_ != nullptr;
    }
    return out;
  }

 private:
  static constexpr uint8_t kMaxChannels = 8;
  std::shared_ptr<Library> library_;
  std::unique_ptr<Codec> coarse_;
  union Room {
    gx_transport table;
    uint8_t growth[sizeof(gx_transport) + room_for_growth];
    Room() : growth{} {}
  } room_;
};

// ---- one overlay ----------------------------------------------------------------------------------------------------

class PluginOverlay : public OverlayPolicy {
 public:
  PluginOverlay(std::shared_ptr<Library> library, OverlaySite site)
      : library_(std::move(library)), site_(std::move(site)) {
    table().struct_size = sizeof(gx_overlay);
    host_ = library_->host;
    host_.private_data = this;
    host_.log = [](const gx_host* self, int level, const char* message) {
      of(self).library_->host.log(&of(self).library_->host, level, message);
    };
    host_.metric = [](const gx_host* self, const char* name, double value) {
      of(self).library_->host.metric(&of(self).library_->host, name, value);
    };
    host_.now_ns = [](const gx_host* self) -> uint64_t { return of(self).site_.now_us() * 1000; };
    host_.wake = [](const gx_host* self, uint64_t key, uint32_t part) { of(self).site_.wake(uint32_t(key), part); };
    host_.send_control = [](const gx_host* self, uint32_t node, gx_bytes words) {
      of(self).site_.send(node_of(node), Bytes::copy(words.data, words.size));
    };
  }
  ~PluginOverlay() override {
    if (table().release != nullptr) table().release(&table());
  }
  gx_overlay& table() { return room_.table; }
  const gx_overlay& table() const { return room_.table; }

  Status make(gx_make_overlay maker, void* user, const Params& params) {
    std::vector<uint8_t> contributes, reachable;
    for (uint32_t rank = 0; rank < site_.num_members; ++rank) {
      contributes.push_back(site_.contributors.contains(rank));
      reachable.push_back(site_.reachable.contains(rank));
    }
    const gx_overlay_site site = {
        sizeof(gx_overlay_site),          number_of(site_.self), site_.num_members, site_.num_servers,
        static_cast<gx_tier>(site_.tier), contributes.data(),    reachable.data()};
    const std::vector<gx_param> items = params_of(params);
    gx_error error = {};
    const gx_status code = maker(user, &host_, &site, {items.data(), items.size()}, &table(), &error);
    if (code != GX_OK) {
      table() = {};  // nothing was made, so nothing is released
      return status_of(code, error);
    }
    if (table().struct_size < offsetof(gx_overlay, bypass_ns) + sizeof(void*) || table().next_hop == nullptr ||
        table().route == nullptr || table().bypass_ns == nullptr)
      return Status::error("it has no next_hop, route or bypass_ns");
    return {};
  }

  // Where it fails, the star's way is taken.
  Hop up(const PartView& view, NodeId, NodeId root, const Held& held, uint64_t now_us) override {
    const std::vector<uint32_t> ranks = held.have.ranks();
    const gx_slice slice = slice_of(view, nullptr);
    const gx_held given = {sizeof(gx_held), number_of(root), ranks.data(),
                           ranks.size(),    held.bytes,      held.since_us * 1000};
    gx_hop hop = {GX_HOP_SEND, number_of(root), 0};
    gx_error error = {};
    if (const gx_status code = table().next_hop(&table(), &slice, &given, &hop, &error); code != GX_OK) {
      complain(text_of(error, code));
      return {false, 0, root};
    }
    if (hop.kind == GX_HOP_WAIT) return {true, std::max(hop.until_ns / 1000, now_us + 1), {}};
    const NodeId to = node_of(hop.node);
    const bool is_member = to.role == Role::member && to.rank < site_.num_members && to != site_.self;
    return {false, 0, is_member && site_.reachable.contains(to.rank) ? to : root};
  }

  Route down(const PartView& view, const MemberSet& owed, uint64_t bytes) override {
    const std::vector<uint32_t> ranks = owed.ranks();
    std::vector<gx_step> steps(ranks.size(), gx_step{});
    const gx_slice slice = slice_of(view, nullptr);
    gx_error error = {};
    const gx_status code = table().route(&table(), &slice, bytes, ranks.data(), ranks.size(), steps.data(), &error);
    Route route;
    MemberSet routed;
    for (const gx_step& step : steps) {
      route.push_back({step.member, step.below});
      routed.insert(std::min(step.member, site_.num_members));
    }
    if (code == GX_OK && routed == owed && is_whole(route)) return route;
    complain(code == GX_OK ? "its route is no tree of those who are owed a value" : text_of(error, code));
    route.clear();
    for (uint32_t rank : ranks) route.push_back({rank, 0});
    return route;
  }

  uint64_t bypass_us() const override {
    gx_overlay* self = const_cast<gx_overlay*>(&table());
    return std::clamp<uint64_t>(self->bypass_ns(self) / 1000, 1000, 3'600'000'000);
  }

  void on_control(NodeId from, const Bytes& words) override {
    if (table().on_control) table().on_control(&table(), number_of(from), {words.data(), words.size()});
  }
  void on_delivered(NodeId to, uint64_t bytes, uint64_t sent_us, uint64_t) override {
    if (table().on_delivered) table().on_delivered(&table(), number_of(to), bytes, sent_us * 1000);
  }
  void on_received(NodeId from, uint64_t bytes, uint64_t) override {
    if (table().on_received) table().on_received(&table(), number_of(from), bytes);
  }
  void on_answer(const PartView& view) override { tell(table().on_answer, view); }
  void on_bypass(const PartView& view, NodeId root) override {
    const gx_slice slice = slice_of(view, nullptr);
    if (table().on_bypass) table().on_bypass(&table(), &slice, number_of(root));
  }
  void on_missed(const PartView& view, uint32_t member) override {
    const gx_slice slice = slice_of(view, nullptr);
    if (table().on_missed) table().on_missed(&table(), &slice, member);
  }
  void on_left(uint32_t member) override {
    if (table().on_left) table().on_left(&table(), member);
  }

 private:
  static const PluginOverlay& of(const gx_host* host) { return *static_cast<const PluginOverlay*>(host->private_data); }
  static uint32_t number_of(NodeId node) { return node.role == Role::server ? node.rank | GX_SERVER : node.rank; }
  static NodeId node_of(uint32_t number) { return number & GX_SERVER ? server(number & ~GX_SERVER) : member(number); }
  void tell(void (*what)(gx_overlay*, const gx_slice*), const PartView& view) {
    const gx_slice slice = slice_of(view, nullptr);
    if (what != nullptr) what(&table(), &slice);
  }
  void complain(const std::string& why) {
    if (library_->hooks->log && num_complaints_++ < 10) library_->hooks->log(30, "the overlay can't decide: " + why);
  }
  static bool is_whole(const Route& route) {
    std::vector<size_t> ends;
    for (size_t i = 0; i < route.size(); ++i) {
      while (!ends.empty() && ends.back() <= i) ends.pop_back();
      const size_t end = i + 1 + route[i].below;
      if (end > (ends.empty() ? route.size() : ends.back())) return false;
      ends.push_back(end);
    }
    return true;
  }

  std::shared_ptr<Library> library_;
  OverlaySite site_;
  gx_host host_;
  int num_complaints_ = 0;
  union Room {
    gx_overlay table;
    uint8_t growth[sizeof(gx_overlay) + room_for_growth];
    Room() : growth{} {}
  } room_;
};

OverlayMaker maker_of(const std::shared_ptr<Library>& library, gx_make_overlay make, void* user) {
  return [library, make, user](const Params& params, OverlaySite site, std::unique_ptr<OverlayPolicy>* out) {
    auto overlay = std::make_unique<PluginOverlay>(library, std::move(site));
    const Status status = overlay->make(make, user, params);
    if (status.ok()) *out = std::move(overlay);
    return status;
  };
}

struct Registration {
  std::shared_ptr<Library> library;
  Offers offers;
};

TransportMaker maker_of(const std::shared_ptr<Library>& library, gx_make_transport make, void* user) {
  return [library, make, user](const Params& params, const CodecRegistry& codecs,
                               std::unique_ptr<TransportPolicy>* out) {
    auto transport = std::make_unique<PluginTransport>(library);
    const std::vector<gx_param> items = params_of(params);
    const gx_site site = site_of(*library->hooks);
    gx_error error = {};
    const gx_status code = make(user, &library->host, &site, {items.data(), items.size()}, &transport->table(), &error);
    if (code != GX_OK) {
      transport->table() = {};  // nothing was made, so nothing is released
      return status_of(code, error);
    }
    Status status = transport->check();
    if (status.ok() && transport->table().coarse_codec != nullptr) {
      std::unique_ptr<Codec> coarse;
      status = codecs.make(transport->table().coarse_codec, {}, &coarse);
      transport->set_coarse(std::move(coarse));
    }
    if (status.ok()) *out = std::move(transport);
    return status;
  };
}

gx_status refuse(gx_error* error, const char* message) {
  if (error != nullptr) snprintf(error->message, sizeof(error->message), "%s", message);
  return GX_EUNSUPPORTED;
}

gx_registrar registrar_for(Registration* registration) {
  gx_registrar registrar = {};
  registrar.struct_size = sizeof(registrar);
  registrar.private_data = registration;
  registrar.add_codec = [](gx_registrar* self, const char* name, gx_make_codec make, void* user,
                           gx_error* error) -> gx_status {
    if (name == nullptr || *name == '\0' || make == nullptr) return refuse(error, "a codec needs a name and a maker");
    Registration& into = *static_cast<Registration*>(self->private_data);
    into.offers.codecs[name] = maker_of(into.library, make, user);
    return GX_OK;
  };
  registrar.add_transport = [](gx_registrar* self, const char* name, gx_make_transport make, void* user,
                               gx_error* error) -> gx_status {
    if (name == nullptr || *name == '\0' || make == nullptr)
      return refuse(error, "a transport needs a name and a maker");
    Registration& into = *static_cast<Registration*>(self->private_data);
    into.offers.transports[name] = maker_of(into.library, make, user);
    return GX_OK;
  };
  registrar.add_scheduler = [](gx_registrar*, const char*, gx_make_scheduler, void*, gx_error* error) -> gx_status {
    return refuse(error, "this version takes no native schedulers yet");
  };
  registrar.add_overlay = [](gx_registrar* self, const char* name, gx_make_overlay make, void* user,
                             gx_error* error) -> gx_status {
    if (name == nullptr || *name == '\0' || make == nullptr)
      return refuse(error, "an overlay needs a name and a maker");
    Registration& into = *static_cast<Registration*>(self->private_data);
    into.offers.overlays[name] = maker_of(into.library, make, user);
    return GX_OK;
  };
  return registrar;
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

Status load_plugin(const std::string& path, const std::shared_ptr<PluginHooks>& hooks, Offers* offers) {
  const auto wrong = [&](const std::string& why) { return Status::error("plugin " + path + ": " + why); };
  auto library = std::make_shared<Library>();
  library->path = path;
  library->hooks = hooks;
  library->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) {
    const char* why = dlerror();
    return wrong(why == nullptr ? "it can't be loaded" : why);
  }
  library->offer();
  using Entry = gx_status (*)(const gx_host*, gx_registrar*, gx_error*);
  const auto entry = reinterpret_cast<Entry>(dlsym(library->handle, "geomx_plugin_v1"));
  if (entry == nullptr) return wrong(other_version(library->handle));

  Registration registration;
  registration.library = library;
  gx_registrar registrar = registrar_for(&registration);
  gx_error error = {};
  const gx_status code = entry(&library->host, &registrar, &error);
  if (code != GX_OK) return wrong(text_of(error, code));
  *offers = std::move(registration.offers);
  return {};
}

}  // namespace geomx
