// Node: its rooms, put together once everybody is known, and what keys and the seal mean to them.
#include "node.h"

namespace geomx {

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

}  // namespace geomx
