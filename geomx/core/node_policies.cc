// Node: what it asks plugins for, and what it offers them. Once for a tier, or once for a key.
#include "node.h"

#include "relay.h"

namespace geomx {
namespace {

constexpr int kWarning = 30;

}  // namespace

Status Node::make_scheduler_policy(End& end) {
  SchedulerChoice choice;
  Status status;
  if (hooks_.scheduler) status = hooks_.scheduler(end.tier, &choice);
  if (!status.ok()) return status;
  if (!choice.is_ranked) {
    end.policies.scheduler = std::make_unique<TurnScheduler>(choice.credit);
    return status;
  }
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

}  // namespace geomx
