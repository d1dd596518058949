// A plugin's codec as one of the core's.
#include <algorithm>

#include "identity_codec.h"
#include "plugin_makers.h"

namespace geomx {

namespace {

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
  explicit PluginCodec(std::shared_ptr<Library> library) : library_(std::move(library)) {}

  Status make(gx_make_codec maker, void* user, const Params& params) {
    const std::vector<gx_param> items = params_of(params);
    const gx_site site = library_->site();
    const Status status = table_.fill(offsetof(gx_codec, decode) + sizeof(void*), [&](gx_codec* out, gx_error* error) {
      return maker(user, library_->host(), &site, {items.data(), items.size()}, out, error);
    });
    return status.ok() ? check() : status;
  }

  uint32_t wire_id() const override { return table_->wire_id; }
  CodecScope scope() const override { return static_cast<CodecScope>(table_->scope); }
  bool can_merge() const override { return (table_->caps & GX_CAN_MERGE) != 0 && table_->merge != nullptr; }
  bool keeps_residual() const override { return (table_->caps & GX_KEEPS_RESIDUAL) != 0; }
  bool takes(DType dtype) const override { return (table_->dtypes & GX_DTYPE_BIT(int(dtype))) != 0; }
  bool carries(Content content) const override {
    constexpr uint32_t any = GX_CARRIES_GRADIENTS | GX_CARRIES_PARAMETERS | GX_CARRIES_DELTAS;
    return (table_->caps & any) == 0 || (table_->caps & (uint32_t(GX_CARRIES_GRADIENTS) << unsigned(content))) != 0;
  }

  std::unique_ptr<Slot> open_slot(const PartView& whole) override {
    auto made = std::make_unique<PluginSlot>(table_.get());
    if (table_->open_slot == nullptr) return made;
    const gx_slice slice = slice_of(whole);
    // A slot can't be refused by the caller's contract; what goes wrong here is told by the first use.
    if (const Status status = table_.call(&gx_codec::open_slot, &slice, &made->slot); !status.ok())
      open_error_ = status.message();
    return made;
  }

  Status prepare(Slot& slot, const PartView& whole, const Bytes& values) override {
    if (!open_error_.empty()) return Status::error(open_error_);
    if (table_->prepare == nullptr) return {};
    const gx_slice slice = slice_of(whole, values.data());
    return table_.call(&gx_codec::prepare, raw(slot), &slice);
  }

  uint64_t max_encoded_size(const PartView& view) const override {
    const gx_slice slice = slice_of(view);
    return table_->max_encoded_size(table_.get(), &slice);
  }

  Status encode(Slot& slot, const PartView& view, const Bytes& values, Bytes* encoded) override {
    Status status = check_use(view, values.size());
    if (!status.ok()) return status;
    const uint64_t capacity = max_encoded_size(view);
    Bytes to = encoded->size() >= capacity && encoded->is_unique() ? std::move(*encoded) : Bytes::allocate(capacity);
    gx_buffer buffer = {to.writable(), 0, capacity};
    const gx_slice slice = slice_of(view, values.data());
    status = table_.call(&gx_codec::encode, raw(slot), &slice, &buffer);
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
    Bytes to = Bytes::allocate(view.length * size_of(sum_type(view.dtype)));
    Status status = decode_into(view, encoded, to.writable(), false);
    if (status.ok()) *values = std::move(to);
    return status;
  }

  Status accumulate(const PartView& view, const Bytes& encoded, void* sum) override {
    return decode_into(view, encoded, sum, true);
  }

  Status give_back(Slot& slot, const PartView& view, const Bytes& encoded) override {
    if (table_->give_back == nullptr) {
      return Status::error("it keeps no residual: what is lost has to be kept by who sends it");
    }
    const gx_slice slice = slice_of(view);
    return table_.call(&gx_codec::give_back, raw(slot), &slice, bytes_of(encoded));
  }

  Status merge(const PartView& view, const std::vector<Bytes>& encoded, Bytes* merged) override {
    if (!can_merge()) return Status::error("it can't merge encoded parts");
    std::vector<gx_bytes> in;
    uint64_t capacity = 0;
    for (const Bytes& one : encoded) {
      in.push_back(bytes_of(one));
      capacity += one.size();
    }
    capacity = std::max(capacity, max_encoded_size(view));
    Bytes to = Bytes::allocate(capacity);
    gx_buffer buffer = {to.writable(), 0, capacity};
    gx_error error = {};
    const gx_slice slice = slice_of(view);
    const gx_status code = table_->merge(table_.get(), &slice, in.data(), in.size(), &buffer, &error);
    if (code == GX_EUNSUPPORTED) return {};  // these travel on one by one
    if (code != GX_OK) return status_of(code, error);
    if (buffer.size > capacity) return Status::error("it merged into more bytes than it had room for");
    *merged = to.slice(0, buffer.size);
    return {};
  }

  Status score(const PartView& view, const Bytes& encoded, double* contribution) override {
    if (table_->score == nullptr) return score_decoded(view, encoded, contribution);
    const gx_slice slice = slice_of(view);
    return table_.call(&gx_codec::score, &slice, bytes_of(encoded), contribution);
  }

  Status save_slot(const Slot& slot, Bytes* out) const override {
    *out = {};
    if (table_->save_slot == nullptr) return {};
    gx_buffer buffer = {nullptr, 0, 0};
    gx_error error = {};
    gx_status code = table_->save_slot(table_.get(), raw(slot), &buffer, &error);
    if (code == GX_ENOSPC && buffer.size > 0) {
      *out = Bytes::allocate(buffer.size);
      buffer = {out->writable(), 0, buffer.size};
      error = {};
      code = table_->save_slot(table_.get(), raw(slot), &buffer, &error);
      if (code == GX_ENOSPC) return Status::error("it needs ever more room to save a slot");
    }
    if (code != GX_OK) return status_of(code, error);
    if (buffer.size > buffer.capacity) return Status::error("it saved more than it had room for");
    *out = out->slice(0, buffer.size);
    return {};
  }

  Status load_slot(Slot& slot, const Bytes& in) override {
    if (table_->load_slot == nullptr) {
      return in.empty() ? Status() : Status::error("it keeps no state but got " + std::to_string(in.size()) + " bytes");
    }
    return table_.call(&gx_codec::load_slot, raw(slot), bytes_of(in));
  }

 private:
  static void* raw(const Slot& slot) { return static_cast<const PluginSlot&>(slot).slot; }

  Status check() const {
    if (table_->max_encoded_size == nullptr || table_->encode == nullptr || table_->decode == nullptr) {
      return Status::error("it has no max_encoded_size, encode or decode");
    }
    if (table_->scope > GX_SCOPE_TENSOR) return Status::error("its scope is none of part, shard, tensor");
    if (keeps_residual() && table_->give_back == nullptr)
      return Status::error("it keeps a residual but has no give_back");
    return {};
  }

  Status check_use(const PartView& view, size_t size) const {
    if (!open_error_.empty()) return Status::error(open_error_);
    if (Status status = check_type(view); !status.ok()) return status;
    const DType from = sum_type(view.dtype);
    if (size == view.length * size_of(from)) return {};
    return Status::error("expected " + std::to_string(view.length * size_of(from)) + " bytes for " +
                         std::to_string(view.length) + " elements of " + name_of(from) + " but got " +
                         std::to_string(size));
  }

  Status check_type(const PartView& view) const {
    return takes(view.dtype) ? Status() : Status::error(std::string("it takes no values of ") + name_of(view.dtype));
  }

  Status decode_into(const PartView& view, const Bytes& encoded, void* to, int is_added) {
    if (Status status = check_type(view); !status.ok()) return status;
    const gx_slice slice = slice_of(view, to);
    return table_.call(&gx_codec::decode, bytes_of(encoded), is_added, &slice);
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
  std::string open_error_;
  Table<gx_codec> table_;  // released first
};

}  // namespace

CodecMaker maker_of(std::shared_ptr<Library> library, gx_make_codec make, void* user) {
  return [library = std::move(library), make, user](const Params& params, std::unique_ptr<Codec>* out) {
    auto codec = std::make_unique<PluginCodec>(library);
    Status status = codec->make(make, user, params);
    if (status.ok()) *out = std::move(codec);
    return status;
  };
}

}  // namespace geomx
