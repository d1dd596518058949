// Node: its rooms, once everybody is known, and which frame goes to which.
#include <cmath>

#include "dispatch.h"
#include "identity_codec.h"
#include "node.h"

namespace geomx {
namespace {

constexpr uint64_t kTickUs = 1'000'000;
constexpr int kWarning = 30;

}  // namespace

MemberSet Node::observers(const Roster& roster) const {
  MemberSet out;
  for (const RosterEntry& entry : roster.members)
    if (entry.is_observer) out.insert(entry.id.rank);
  return out;
}

void Node::make_side(End& end) {
  const Roster& roster = end.membership->roster();
  const uint32_t num_members = uint32_t(roster.members.size());
  const uint32_t contributor = roster.self.role == Role::member ? roster.self.rank : num_members;
  end.side.reset(new Side{reactor_, *end.link, keys_, end.policies, counters_, end.tier, roster.self,
                          uint32_t(roster.servers.size()), num_members, contributor,
                          [this](const std::string& why) { fail(name_ + ": " + why); }, &trace_});
  if (Status status = make_scheduler_policy(end); !status.ok()) fail(name_ + ": " + status.message());
  end.link->set_credit(end.policies.scheduler->credit());
  if (Status status = make_overlay_policy(end); !status.ok()) fail(name_ + ": " + status.message());
  if (end.tier != Tier::wan) return;
  if (Status status = make_transport_policy(end); !status.ok()) fail(name_ + ": " + status.message());
}

Status Node::make_scheduler_policy(End& end) {
  SchedulerChoice choice;
  Status status;
  if (hooks_.scheduler) status = hooks_.scheduler(end.tier, &choice);
  if (!status.ok() || !choice.is_ranked) return status;
  const auto rank_of = [this, tier = end.tier](uint32_t index) {
    const KeySpec& key = keys_.find(index)->spec;
    int32_t rank = 0;
    if (Status asked = hooks_.rank(key.name, index, key.length(), tier, &rank); !asked.ok())
      fail(name_ + ": key \"" + key.name + "\": " + asked.message());
    return rank;
  };
  end.policies.scheduler = std::make_unique<KeyedScheduler>(choice.credit, rank_of);
  return {};
}

Status Node::make_transport_policy(End& end) {
  TransportChoice choice;
  Status status;
  if (hooks_.transport) status = hooks_.transport(&choice);
  if (!status.ok() || choice.name.empty()) return status;
  status = codecs_.make_transport(choice.name, choice.params, &end.policies.transport);
  if (!status.ok() || end.policies.transport->channels().count == 0) return status;
  const Status opened = end.transport->open_channels(end.policies.transport->channels());
  if (!opened.ok())
    hooks_.log(kWarning, name_ + ": no lossy channels, so droppable parts take the stream: " + opened.message());
  return {};
}

// Members connect to each other when the overlay first sends one to another.
Status Node::make_overlay_policy(End& end) {
  OverlayChoice choice;
  Status status;
  if (hooks_.overlay) status = hooks_.overlay(end.tier, &choice);
  if (!status.ok() || choice.name.empty()) return status;
  const Roster& roster = end.membership->roster();
  OverlaySite site;
  site.tier = end.tier;
  site.self = roster.self;
  site.num_members = end.side->num_members;
  site.num_servers = end.side->num_servers;
  for (const RosterEntry& entry : roster.members) {
    if (!entry.is_observer) site.contributors.insert(entry.id.rank);
    if (entry.is_reachable) site.reachable.insert(entry.id.rank);
  }
  End* const raw = &end;
  site.now_us = [this] { return reactor_.now_us(); };
  site.send = [raw](NodeId to, Bytes words) {
    Frame frame(FrameKind::overlay);
    frame.body = std::move(words);
    raw->link->send(to, std::move(frame));
  };
  site.wake = [raw](uint32_t key, uint32_t part) {
    if (raw->client && raw->client->relay()) raw->client->relay()->wake(key, part);
  };
  status = codecs_.make_overlay(choice.name, choice.params, std::move(site), &end.policies.overlay);
  if (!status.ok()) return status;
  OverlayPolicy* const overlay = end.policies.overlay.get();
  end.link->on_unknown([raw](NodeId to) {
    if (to.role == Role::member) raw->membership->connect(to);
  });
  end.link->on_traffic(
      [this, overlay](NodeId to, uint64_t bytes, uint64_t sent_us) {
        overlay->on_delivered(to, bytes, sent_us, reactor_.now_us());
      },
      [this, overlay](NodeId from, uint64_t bytes) { overlay->on_received(from, bytes, reactor_.now_us()); });
  return {};
}

// In a flat topology a worker sends for itself; else its party's server does.
void Node::report(const std::string& what, double value) {
  if (is_over_ || !is_ready_) return;
  End& end = first_end();
  if (end.tier == Tier::wan) return end.policies.transport->on_metric(what, value);
  Frame frame(FrameKind::report);
  frame.body = Writer().text(what).f64(value).finish();
  for (const RosterEntry& entry : end.membership->roster().servers) end.link->send(entry.id, frame);
}

// The mean over the party's workers of what each said last.
void Node::take_report(const End& end, NodeId from, const Frame& frame) {
  Reader in(frame.body);
  const std::string what = in.text(256);
  const double value = in.f64();
  const End* wan = end_of(Tier::wan);
  if (!in.done() || !std::isfinite(value) || end.tier != Tier::lan || from.role != Role::member || wan == nullptr ||
      (reported_.size() >= 64 && reported_.count(what) == 0)) {
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  std::map<uint32_t, double>& values = reported_[what];
  values[from.rank] = value;
  double sum = 0;
  for (const auto& [rank, newest] : values) sum += newest;
  wan->policies.transport->on_metric(what, sum / double(values.size()));
}

void Node::make_directory() {
  Directory::Place place;
  End* lan = ends_[size_t(Tier::lan)].get();
  End* wan = ends_[size_t(Tier::wan)].get();
  const bool is_worker = options_.role == NodeRole::worker;
  if (wan) {
    const Roster& roster = wan->membership->roster();
    place.wan = wan->link.get();
    place.num_servers = uint32_t(roster.servers.size());
    place.num_members = uint32_t(roster.members.size());
    place.wan_observers = observers(roster);
    place.is_root = roster.self == server(0);
  }
  if (!place.is_root) place.above = wan ? wan->link.get() : lan->link.get();
  if (lan && !is_worker) {
    const Roster& roster = lan->membership->roster();
    place.party = lan->link.get();
    place.num_party_members = uint32_t(roster.members.size());
    place.is_first_server = roster.self == server(0);
    place.party_observers = observers(roster);
    place.central_contributes = place.is_root && options_.central_trains;
  }
  Directory::Events events;
  events.on_spec = [this](KeySpec spec) { on_spec(std::move(spec)); };
  events.on_configured = [this](const std::string& what, const std::string& value) {
    if (what == "optimizer") optimizer_ = value;
    if (hooks_.on_configured) hooks_.on_configured(what, value);
    for (const TicketPtr& ticket : configuring_[{what, value}]) ticket->complete_one();
    configuring_.erase({what, value});
  };
  events.on_sealed = [this] { on_sealed(); };
  events.on_refused = [this](const std::string& what, const std::string& value, const std::string& why) {
    for (const TicketPtr& ticket : configuring_[{what, value}]) ticket->fail(why);
    configuring_.erase({what, value});
  };
  events.on_barrier_done = [this](bool world, uint32_t number) {
    for (const TicketPtr& ticket : barriers_[{world, number}]) ticket->complete_one();
    barriers_.erase({world, number});
  };
  events.fail = [this](const std::string& why) { fail(why); };
  events.name_of = [this](Tier tier, NodeId id) { return names(*ends_[size_t(tier)], MemberSet::of(id.rank)); };
  directory_ = std::make_unique<Directory>(std::move(place), agreement_.settings, std::move(events));
}

void Node::make_aggregator(End& end, Upstream& upstream, uint32_t num_contributors) {
  SyncPolicy sync;
  if (hooks_.sync)
    if (Status status = hooks_.sync(agreement_.settings, &sync); !status.ok()) return fail(status.message());
  sync_ = sync;
  if (end.tier == Tier::lan) sync.is_mixed = false;  // a party is always synchronous inside
  const Roster& roster = end.membership->roster();
  end.aggregator =
      std::make_unique<Aggregator>(*end.side, num_contributors, observers(roster), roster.self.rank, sync, upstream);
}

void Node::make_worker() {
  End& end = first_end();
  end.client = std::make_unique<Client>(*end.side);
  Worker::Options options;
  options.name = name_;
  options.is_observer = !trains();
  options.authority = agreement_.authority;
  options.num_global_servers = agreement_.num_global_servers;
  const bool is_first = agreement_.party_rank == 0 && rank() == 0;
  options.is_authority = agreement_.has_master ? options_.is_master : is_first;
  worker_ = std::make_unique<Worker>(*end.side, *end.client, *directory_, options, hooks_.plan);
}

void Node::make_local_server() {
  End &lan = *ends_[size_t(Tier::lan)], &wan = *ends_[size_t(Tier::wan)];
  wan.client = std::make_unique<Client>(*wan.side);
  uplink_ = std::make_unique<Uplink>(*wan.side, *wan.client, [this, &wan] {
    wan.client->leave([this] {
      wan_is_left_ = true;
      end_if_over();
    });
  });
  make_aggregator(lan, *uplink_, uint32_t(lan.membership->roster().members.size()));
  uplink_->serve(lan.aggregator.get());
}

// The central party's workers, if there are any, come in through the servers' own contribution to the WAN's rounds.
void Node::make_global_server() {
  End& wan = *ends_[size_t(Tier::wan)];
  End* lan = ends_[size_t(Tier::lan)].get();
  root_ = std::make_unique<Root>(*wan.side, [this] {
    wan_is_left_ = true;
    end_if_over();
  });
  make_aggregator(wan, *root_,
                  uint32_t(wan.membership->roster().members.size()) + (options_.central_trains && lan ? 1 : 0));
  root_->serve(wan.aggregator.get());
  if (!lan) return;
  wan.client = std::make_unique<Client>(*wan.side);
  uplink_ = std::make_unique<Uplink>(*wan.side, *wan.client, [&wan] { wan.client->leave([] {}); });
  make_aggregator(*lan, *uplink_, uint32_t(lan->membership->roster().members.size()));
  uplink_->serve(lan->aggregator.get());
}

void Node::on_frame(End& end, NodeId from, PeerId peer, Frame& frame) {
  if (end.registry) return end.registry->take(from, peer, frame);
  if (is_over_ && frame.kind != FrameKind::bye) return;
  if (from == geomx::scheduler()) return end.membership->take(peer, frame);
  if (frame.kind == FrameKind::heartbeat) return;
  if (frame.kind == FrameKind::waiting && take_notice_of_wait(end, frame)) return;
  if (!is_ready_) {
    // Somebody heard that all is up a moment before us.
    reactor_.after(1000, [this, &end, from, peer, frame]() mutable { on_frame(end, from, peer, frame); });
    return;
  }
  if (!is_known(end, from)) {
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  if (frame.kind == FrameKind::report) return take_report(end, from, frame);
  if (frame.kind == FrameKind::overlay) {
    if (end.policies.overlay) return end.policies.overlay->on_control(from, frame.body);
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  const bool is_leave = frame.kind == FrameKind::leave;
  if (directory_->take(end.tier, from, frame)) return;
  if (!dispatch(from, frame, end.client.get(), end.aggregator.get())) {
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  if (is_leave) {
    directory_->member_left(end.tier, end.side->contributor_of(from));
    if (end.policies.overlay) end.policies.overlay->on_left(end.side->contributor_of(from));
    end_if_over();
  }
}

bool Node::is_known(const End& end, NodeId from) const {
  const Roster& roster = end.membership->roster();
  if (from.role == Role::server) return from.rank < roster.servers.size();
  return from.role == Role::member && from.rank < roster.members.size();
}

// A server above tells whom it waits for: kept for our own messages, and passed on to who waits for us.
bool Node::take_notice_of_wait(const End& end, const Frame& frame) {
  waited_for_ = Reader(frame.body).text();
  waited_for_us_ = reactor_.now_us();
  const End* lan = end_of(Tier::lan);
  if (end.tier == Tier::wan && lan && options_.role == NodeRole::local_server)
    for (const RosterEntry& entry : lan->membership->roster().members) lan->link->send(entry.id, frame);
  return true;
}

void Node::on_spec(KeySpec spec) {
  if (keys_.find(spec.index) != nullptr) {
    if (worker_) worker_->on_spec(*keys_.find(spec.index));
    return;
  }
  Key& key = keys_.add(std::move(spec));
  if (is_sealed_)
    if (Status status = choose_codecs(key); !status.ok()) return fail(name_ + ": " + status.message());
  if (worker_) worker_->on_spec(key);
}

void Node::on_sealed() {
  if (is_sealed_) return;
  is_sealed_ = true;
  offer_to_plugins();
  if (root_) {
    std::unique_ptr<Updater> updater;
    if (!optimizer_.empty() && hooks_.make_updater)
      if (Status status = hooks_.make_updater(optimizer_, &updater); !status.ok())
        return fail(name_ + ": " + status.message());
    if (!updater && sync_.is_mixed)
      return fail(
          "sync=mixed needs an optimizer on the servers: parties that don't wait for each other share weights, "
          "not sums; set one before the first push");
    root_->seal(std::move(updater));
  }
  keys_.for_each([&](Key& key) {
    if (Status status = choose_codecs(key); !status.ok()) fail(name_ + ": " + status.message());
  });
  if (worker_ && !is_over_) worker_->on_sealed();
}

void Node::offer_to_plugins() {
  PluginHooks hooks;
  hooks.log = [this](int level, const std::string& line) { hooks_.log(level, line); };
  hooks.metric = [this](const std::string& name, double value) {
    const std::lock_guard<std::mutex> lock(metrics_mutex_);
    metrics_[name] += value;
  };
  hooks.now_us = [this] { return reactor_.now_us(); };
  const End* wan = end_of(Tier::wan);
  hooks.is_server = options_.role != NodeRole::worker;
  if (wan && wan->side) {
    hooks.rank = wan->side->self.rank;
    hooks.num_members = wan->side->num_members;
    hooks.num_servers = wan->side->num_servers;
  }
  hooks.answer = answer();
  codecs_.set_hooks(std::move(hooks));
}

std::vector<Node::Item> Node::items() const {
  std::vector<Item> out;
  for (const auto& end : ends_) {
    if (!end) continue;
    end->link->for_each_flow([&](uint32_t node, const Flow& flow) {
      out.push_back({end->tier, peer_name(end->tier, node), key_name(flow.key), flow});
    });
  }
  return out;
}

std::string Node::peer_name(Tier tier, uint32_t node) const {
  const End* end = end_of(tier);
  if (node == kNobody || end == nullptr || !end->membership) return "";
  return end->membership->roster().name_of({Role(node & 3), node >> 2});
}

std::string Node::key_name(uint32_t index) const {
  const Key* key = index == kNoKey ? nullptr : keys_.find(index);
  return key == nullptr ? "" : key->spec.name;
}

std::map<std::string, double> Node::metrics() const {
  const std::lock_guard<std::mutex> lock(metrics_mutex_);
  return metrics_;
}

std::map<std::string, double> Node::figures() const {
  std::map<std::string, double> all;
  for (const auto& end : ends_)
    if (end)
      for (const auto& [name, value] : end->transport->figures()) all[name] += value;
  return all;
}

Status Node::choose_codecs(Key& key) {
  for (Tier tier : {Tier::lan, Tier::wan}) {
    for (Direction direction : {Direction::up, Direction::down}) {
      CodecChoice choice;
      Status status;
      if (hooks_.choose)
        status = hooks_.choose(key.spec.name, key.spec.length(), key.spec.dtype, tier, direction, &choice);
      if (status.ok()) key.codec[size_t(tier)][size_t(direction)] = codec(choice, &status);
      if (status.ok() && direction == Direction::down) status = choose_content(key, tier);
      if (status.ok() && !key.codec_of(tier, direction).takes(key.spec.dtype))
        status = Status::error("codec " + choice.name + " does not take " + name_of(key.spec.dtype));
      if (!status.ok()) return Status::error("key \"" + key.spec.name + "\": " + status.message());
    }
  }
  return {};
}

// Parameters come down where the servers have an optimizer: as they are, or as differences to what their receivers
// have. What carries gradients alone is not used there.
Status Node::choose_content(Key& key, Tier tier) {
  Content& content = key.content[size_t(tier)][size_t(Direction::down)];
  std::shared_ptr<Codec>& codec_down = key.codec[size_t(tier)][size_t(Direction::down)];
  Status status;
  content = answer();
  if (codec_down->carries(content)) return status;
  if (content == Content::parameter && codec_down->carries(Content::delta))
    content = Content::delta;
  else
    codec_down = codec(CodecChoice(), &status);
  return status;
}

// One instance for each name and parameters; what differs between keys is in the slots.
std::shared_ptr<Codec> Node::codec(const CodecChoice& choice, Status* status) {
  std::string id = choice.name;
  for (const auto& [name, value] : choice.params) {
    id += ";" + name + "=";
    std::visit(
        [&](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>)
            id += v;
          else
            id += std::to_string(v);
        },
        value);
  }
  std::shared_ptr<Codec>& made = made_codecs_[id];
  if (!made) {
    std::unique_ptr<Codec> codec;
    *status = codecs_.make(choice.name, choice.params, &codec);
    made = std::move(codec);
  }
  return made;
}

Status Node::configure(const std::string& what, const std::string& value, const TicketPtr& ticket) {
  ticket->expect();
  configuring_[{what, value}].push_back(ticket);
  directory_->request(Directory::configure(what, value, name_));
  return {};
}

void Node::barrier(bool world, const TicketPtr& ticket) {
  ticket->expect();
  if (!end_of(Tier::lan)) world = true;  // flat: everybody is one party
  const uint32_t number = ++num_barriers_[world];
  barriers_[{world, number}].push_back(ticket);
  directory_->request(Directory::barrier(world, number));
}

void Node::leave(const TicketPtr& ticket) {
  auto left = std::make_shared<Ticket>(ticket->text(), [this, ticket](const std::string& error) {
    if (!error.empty()) return ticket->fail(error);
    first_end().membership->say_bye([this, ticket] {
      is_over_ = true;
      ticket->complete_one();
      hooks_.on_done({});
    });
  });
  ticket->expect();
  worker_->leave(left);
  leaving_ = left;
}

// A server is done when those below have left, and the WAN knows it.
void Node::end_if_over() {
  const End* lan = end_of(Tier::lan);
  if (!wan_is_left_ || is_leaving_ || is_over_) return;
  if (lan && lan->aggregator && lan->aggregator->left().count() < lan->membership->roster().members.size()) return;
  is_leaving_ = true;
  for (auto& end : ends_) {
    if (!end) continue;
    ++byes_owed_;
    end->membership->say_bye([this] {
      if (--byes_owed_ != 0 || is_over_) return;
      is_over_ = true;
      hooks_.on_done({});
    });
  }
}

void Node::tick() {
  if (is_over_) return;
  for (auto& end : ends_)
    if (end && end->aggregator) tell_stalls(*end);
  directory_->tell_who_is_missing();
  if (worker_)
    worker_->expire(reactor_.now_us(), [this](const Ticket& ticket) {
      return name_ + ": " + ticket.text() + " was not done in time" + reason(ticket);
    });
  reactor_.after(kTickUs, [this] { tick(); });
}

// Whoever waits in a round hears whom for; a round that waits for long is a warning in our log.
void Node::tell_stalls(End& end) {
  const auto stall = end.aggregator->oldest_stall();
  const uint64_t now_us = reactor_.now_us();
  if (!stall || now_us - stall->since_us < kTickUs) return;
  const Key& key = *keys_.find(stall->key);
  const std::string text = "round " + std::to_string(stall->round) + " of key \"" + key.spec.name + "\" has waited " +
                           std::to_string((now_us - stall->since_us) / 1'000'000) + " s for " +
                           names(end, stall->missing);
  Frame frame(FrameKind::waiting);
  frame.body = Writer().text(text).finish();
  for (const RosterEntry& entry : end.membership->roster().members)
    if (!stall->missing.contains(entry.id.rank) && !end.aggregator->left().contains(entry.id.rank))
      end.link->send(entry.id, frame);
  if (now_us - stall->since_us < options_.slow_us || now_us - end.warned_us < options_.slow_us) return;
  end.warned_us = now_us;
  hooks_.log(kWarning, name_ + ": " + text);
}

std::string Node::names(const End& end, const MemberSet& contributors) const {
  std::string text;
  contributors.for_each([&](uint32_t rank) {
    const bool is_central = rank >= end.membership->roster().members.size();
    text += (text.empty() ? "" : ", ") +
            (is_central ? "the central party" : end.membership->roster().name_of(member(rank)));
  });
  return text;
}

}  // namespace geomx
