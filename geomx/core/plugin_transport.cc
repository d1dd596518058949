// A plugin's transport as one of the core's.
#include <algorithm>

#include "plugin_makers.h"
#include "policies.h"

namespace geomx {

namespace {

class PluginTransport : public TransportPolicy {
 public:
  explicit PluginTransport(std::shared_ptr<Library> library) : library_(std::move(library)) {}

  Status make(gx_make_transport maker, void* user, const Params& params, const CodecRegistry& codecs) {
    const std::vector<gx_param> items = params_of(params);
    const gx_site site = library_->site();
    constexpr size_t least = offsetof(gx_transport, classify) + sizeof(void*);
    Status status = table_.fill(least, [&](gx_transport* out, gx_error* error) {
      return maker(user, library_->host(), &site, {items.data(), items.size()}, out, error);
    });
    if (status.ok()) status = check();
    if (!status.ok() || table_->coarse_codec == nullptr) return status;
    return codecs.make(table_->coarse_codec, {}, &coarse_);
  }

  bool classifies() const override { return true; }
  bool is_lossy() const override { return (table_->caps & GX_MAY_DROP) != 0; }
  uint64_t wait_us() const override { return table_->wait_us; }
  uint64_t deadline_us() const override { return table_->deadline_us; }
  LossyChannels channels() const override {
    LossyChannels wanted;
    wanted.are_streams = (table_->caps & GX_WANTS_STREAMS) != 0;
    if (wanted.are_streams || (table_->caps & GX_WANTS_DATAGRAMS) != 0)
      wanted.count = static_cast<uint8_t>(table_->num_channels);
    return wanted;
  }
  Codec* coarse() const override { return coarse_.get(); }
  void on_metric(const std::string& name, double value) override {
    if (table_->on_metric != nullptr) table_->on_metric(table_.get(), name.c_str(), value);
  }

  // What a plugin says is taken as far as it makes sense; where it fails, everything is reliable.
  std::vector<PartClass> classify(const std::vector<PartView>& parts, const std::vector<double>& scores) override {
    std::vector<gx_slice> slices;
    for (const PartView& view : parts) slices.push_back(slice_of(view));
    std::vector<gx_class> classes(parts.size(), gx_class{});
    const Status status =
        table_.call(&gx_transport::classify, slices.data(), scores.data(), parts.size(), classes.data());
    std::vector<PartClass> out(parts.size());
    if (!status.ok()) {
      complain(status.message());
      return out;
    }
    std::transform(classes.begin(), classes.end(), out.begin(), [this](const gx_class& one) { return class_of(one); });
    return out;
  }

 private:
  static constexpr uint8_t kMaxChannels = 8;

  Status check() const {
    if (table_->classify == nullptr) return Status::error("it has no classify");
    if (table_->num_channels <= kMaxChannels) return {};
    return Status::error("it wants " + std::to_string(table_->num_channels) + " channels, at most " +
                         std::to_string(kMaxChannels) + " are there");
  }

  PartClass class_of(const gx_class& said) const {
    PartClass out;
    out.is_droppable = is_lossy() && said.droppable != 0;
    // Only what may be missing may take a way on which it can get lost.
    if (out.is_droppable) out.channel = std::clamp<uint8_t>(said.channel, 1, kMaxChannels);
    out.is_withheld = out.is_droppable && said.withheld != 0;
    out.is_coarse = said.coarse != 0 && coarse_ != nullptr;
    return out;
  }

  // It may fail in every round; nobody reads more than a few of its sentences.
  void complain(const std::string& why) {
    if (num_complaints_++ < 10) library_->warn("the transport can't class parts: " + why);
  }

  std::shared_ptr<Library> library_;
  std::unique_ptr<Codec> coarse_;
  int num_complaints_ = 0;
  Table<gx_transport> table_;  // released first
};

}  // namespace

TransportMaker maker_of(std::shared_ptr<Library> library, gx_make_transport make, void* user) {
  return [library = std::move(library), make, user](const Params& params, const CodecRegistry& codecs,
                                                    std::unique_ptr<TransportPolicy>* out) {
    auto transport = std::make_unique<PluginTransport>(library);
    Status status = transport->make(make, user, params, codecs);
    if (status.ok()) *out = std::move(transport);
    return status;
  };
}

}  // namespace geomx
