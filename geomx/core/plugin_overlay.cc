// A plugin's overlay as one of the core's. What it decides is checked: where it fails or makes no sense, the star's way
// is taken.
#include <algorithm>

#include "plugin_makers.h"
#include "policies.h"

namespace geomx {

namespace {

uint32_t number_of(NodeId node) { return node.role == Role::server ? node.rank | GX_SERVER : node.rank; }
NodeId node_of(uint32_t number) { return number & GX_SERVER ? server(number & ~GX_SERVER) : member(number); }

// Preorder: who is below a step lies within what its own upper step covers.
bool is_whole(const Route& route) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < route.size(); ++i) {
    while (!ends.empty() && ends.back() <= i) ends.pop_back();
    const size_t end = i + 1 + route[i].below;
    if (end > (ends.empty() ? route.size() : ends.back())) return false;
    ends.push_back(end);
  }
  return true;
}

Route star(const std::vector<uint32_t>& ranks) {
  Route route;
  for (uint32_t rank : ranks) route.push_back({rank, 0});
  return route;
}

class PluginOverlay : public OverlayPolicy {
 public:
  PluginOverlay(std::shared_ptr<Library> library, OverlaySite site)
      : library_(std::move(library)), site_(std::move(site)), host_(*library_->host()) {
    host_.private_data = this;
    host_.log = [](const gx_host* self, int level, const char* message) {
      const gx_host* library = of(self).library_->host();
      library->log(library, level, message);
    };
    host_.metric = [](const gx_host* self, const char* name, double value) {
      const gx_host* library = of(self).library_->host();
      library->metric(library, name, value);
    };
    host_.now_ns = [](const gx_host* self) -> uint64_t { return of(self).site_.now_us() * 1000; };
    host_.wake = [](const gx_host* self, uint64_t key, uint32_t part) { of(self).site_.wake(uint32_t(key), part); };
    host_.send_control = [](const gx_host* self, uint32_t node, gx_bytes words) {
      of(self).site_.send(node_of(node), Bytes::copy(words.data, words.size));
    };
  }

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
    constexpr size_t least = offsetof(gx_overlay, bypass_ns) + sizeof(void*);
    const Status status = table_.fill(least, [&](gx_overlay* out, gx_error* error) {
      return maker(user, &host_, &site, {items.data(), items.size()}, out, error);
    });
    if (!status.ok()) return status;
    if (table_->next_hop == nullptr || table_->route == nullptr || table_->bypass_ns == nullptr)
      return Status::error("it has no next_hop, route or bypass_ns");
    return {};
  }

  Hop up(const PartView& view, NodeId, NodeId root, const Held& held, uint64_t now_us) override {
    const std::vector<uint32_t> ranks = held.have.ranks();
    const gx_slice slice = slice_of(view);
    const gx_held given = {sizeof(gx_held), number_of(root), ranks.data(),
                           ranks.size(),    held.bytes,      held.since_us * 1000};
    gx_hop hop = {GX_HOP_SEND, number_of(root), 0};
    if (const Status status = table_.call(&gx_overlay::next_hop, &slice, &given, &hop); !status.ok()) {
      complain(status.message());
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
    const gx_slice slice = slice_of(view);
    const Status status = table_.call(&gx_overlay::route, &slice, bytes, ranks.data(), ranks.size(), steps.data());
    Route route;
    MemberSet routed;
    for (const gx_step& step : steps) {
      route.push_back({step.member, step.below});
      routed.insert(std::min(step.member, site_.num_members));
    }
    if (status.ok() && routed == owed && is_whole(route)) return route;
    complain(status.ok() ? "its route is no tree of those who are owed a value" : status.message());
    return star(ranks);
  }

  uint64_t bypass_us() const override {
    return std::clamp<uint64_t>(table_->bypass_ns(table_.get()) / 1000, 1000, 3'600'000'000);
  }

  void on_control(NodeId from, const Bytes& words) override {
    tell(table_->on_control, number_of(from), bytes_of(words));
  }
  void on_delivered(NodeId to, uint64_t bytes, uint64_t sent_us, uint64_t) override {
    tell(table_->on_delivered, number_of(to), bytes, sent_us * 1000);
  }
  void on_received(NodeId from, uint64_t bytes, uint64_t) override {
    tell(table_->on_received, number_of(from), bytes);
  }
  void on_answer(const PartView& view) override {
    const gx_slice slice = slice_of(view);
    tell(table_->on_answer, &slice);
  }
  void on_bypass(const PartView& view, NodeId root) override {
    const gx_slice slice = slice_of(view);
    tell(table_->on_bypass, &slice, number_of(root));
  }
  void on_missed(const PartView& view, uint32_t member) override {
    const gx_slice slice = slice_of(view);
    tell(table_->on_missed, &slice, member);
  }
  void on_left(uint32_t member) override { tell(table_->on_left, member); }

 private:
  static const PluginOverlay& of(const gx_host* host) { return *static_cast<const PluginOverlay*>(host->private_data); }

  // Of the functions that it may lack.
  template <class Function, class... Arguments>
  void tell(Function function, const Arguments&... arguments) {
    if (function != nullptr) function(table_.get(), arguments...);
  }
  void complain(const std::string& why) {
    if (num_complaints_++ < 10) library_->warn("the overlay can't decide: " + why);
  }

  std::shared_ptr<Library> library_;
  OverlaySite site_;
  gx_host host_;
  int num_complaints_ = 0;
  Table<gx_overlay> table_;  // released first
};

}  // namespace

OverlayMaker maker_of(std::shared_ptr<Library> library, gx_make_overlay make, void* user) {
  return [library = std::move(library), make, user](const Params& params, OverlaySite site,
                                                    std::unique_ptr<OverlayPolicy>* out) {
    auto overlay = std::make_unique<PluginOverlay>(library, std::move(site));
    Status status = overlay->make(make, user, params);
    if (status.ok()) *out = std::move(overlay);
    return status;
  };
}

}  // namespace geomx
