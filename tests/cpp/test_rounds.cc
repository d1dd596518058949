// The design's invariants over random schedules: the real link, lane, client, relay and aggregator of a two-tier
// cluster, with a sparse whole-tensor codec in both directions, lossy parts, a relay overlay and a priority scheduler
// with a credit of one part all on at once, while messages are lost, reordered and doubled and workers leave early.
// Gradients are integers, so every sum is exact. GEOMX_SEEDS sets how many schedules run, GEOMX_SEED replays one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "core/dispatch.h"
#include "core/identity_codec.h"
#include "core/reduce.h"
#include "core/root.h"
#include "core/sim.h"
#include "core/sums.h"
#include "core/uplink.h"

using namespace geomx;

namespace {

uint64_t mix(std::initializer_list<uint64_t> values) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (uint64_t v : values) h = (h ^ v) * 0xff51afd7ed558ccdu, h ^= h >> 29;
  return h;
}

using Entry = std::pair<uint32_t, float>;

// Encoded parts lie at any address.
std::vector<Entry> entries(const Bytes& encoded) {
  std::vector<Entry> out(encoded.size() / sizeof(Entry));
  if (!out.empty()) std::memcpy(static_cast<void*>(out.data()), encoded.data(), out.size() * sizeof(Entry));
  return out;
}

// The largest quarter of what has gathered goes out, the rest stays: (index, value) pairs. Of differences nothing
// stays.
class SparseCodec : public Codec {
 public:
  struct Residual : Slot {
    std::vector<float> values;
    std::vector<bool> chosen;
  };
  explicit SparseCodec(CodecScope scope, bool keeps = true) : scope_(scope), keeps_(keeps) {}
  uint32_t wire_id() const override { return fourcc('T', 'O', 'P', 'K'); }
  CodecScope scope() const override { return scope_; }
  bool can_merge() const override { return true; }
  bool keeps_residual() const override { return true; }
  std::unique_ptr<Slot> open_slot(const PartView& whole) override {
    auto slot = std::make_unique<Residual>();
    slot->values.resize(whole.tensor_length);
    slot->chosen.resize(whole.tensor_length);
    return slot;
  }
  Status prepare(Slot& slot, const PartView& whole, const Bytes& values) override {
    auto& r = static_cast<Residual&>(slot);
    std::vector<uint64_t> order;
    for (uint64_t i = 0; i < whole.length; ++i) {
      float& value = r.values[whole.offset + i];
      value = (keeps_ ? value : 0) + values.as<float>()[i];
      order.push_back(whole.offset + i);
      r.chosen[whole.offset + i] = false;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](uint64_t a, uint64_t b) { return std::abs(r.values[a]) > std::abs(r.values[b]); });
    for (size_t i = 0; i < (order.size() + 3) / 4; ++i) r.chosen[order[i]] = true;
    return {};
  }
  Status encode(Slot& slot, const PartView& view, const Bytes&, Bytes* out) override {
    auto& r = static_cast<Residual&>(slot);
    std::vector<Entry> pairs;
    for (uint64_t i = view.offset; i < view.offset + view.length; ++i) {
      if (!r.chosen[i]) continue;
      pairs.push_back({uint32_t(i - view.offset), r.values[i]});
      r.values[i] = 0;
    }
    *out = Bytes::copy(pairs.data(), pairs.size() * 8);
    return {};
  }
  Status decode(const PartView& view, const Bytes& in, Bytes* values) override {
    *values = zeros(view.length * 4);
    return accumulate(view, in, values->writable());
  }
  Status accumulate(const PartView& view, const Bytes& in, void* sum) override {
    for (const auto& [index, value] : entries(in)) {
      if (index >= view.length) return Status::error("index out of range");
      static_cast<float*>(sum)[index] += value;
    }
    return {};
  }
  Status give_back(Slot& slot, const PartView& view, const Bytes& lost) override {
    return accumulate(view, lost, static_cast<Residual&>(slot).values.data() + view.offset);
  }
  Status merge(const PartView&, const std::vector<Bytes>& parts, Bytes* merged) override {
    std::map<uint32_t, float> sums;
    for (const Bytes& part : parts)
      for (const auto& [index, value] : entries(part)) sums[index] += value;
    const std::vector<Entry> pairs(sums.begin(), sums.end());
    *merged = Bytes::copy(pairs.data(), pairs.size() * 8);
    return {};
  }
  Status score(const PartView&, const Bytes& in, double* contribution) override {
    *contribution = 0;
    for (const auto& [index, value] : entries(in)) *contribution += std::abs(value);
    return {};
  }
  Status save_slot(const Slot&, Bytes*) const override { return {}; }
  Status load_slot(Slot&, const Bytes&) override { return {}; }

 private:
  CodecScope scope_;
  bool keeps_;
};

// Weights are the sum of all that was ever applied.
class Adder : public Updater {
 public:
  Status step(const PartView& view, uint32_t, const void* sum, void* weights) override {
    add_f32(static_cast<float*>(weights), sum, view.length);
    return {};
  }
};

class RandomRank : public SchedulerPolicy {
 public:
  int64_t rank(const PartView& v, int) const override { return int64_t(mix({v.key, v.part, v.round}) % 5); }
  CreditRule credit() const override { return {1, false}; }  // one message, whatever its size
};

class LossyHalf : public TransportPolicy {
 public:
  bool is_lossy() const override { return true; }
  std::vector<PartClass> classify(const std::vector<PartView>& parts, const std::vector<double>& scores) override {
    std::vector<double> sorted = scores;
    std::sort(sorted.begin(), sorted.end());
    std::vector<PartClass> out(parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (scores[i] <= sorted[parts.size() / 2]) out[i] = {1, true};
    return out;
  }
  uint64_t deadline_us() const override { return 3000; }
};

// A tree drawn anew for each part and round: towards members of a higher draw, or the root.
class RandomTree : public OverlayPolicy {
 public:
  RandomTree(uint64_t seed, uint32_t members) : seed_(seed), members_(members) {}
  Hop up(const PartView& v, NodeId self, NodeId root, const Held& held, uint64_t now_us) override {
    const uint64_t hold_us = mix({seed_, v.key, v.part, v.round, self.rank, 1}) % 4000;
    if (now_us < held.since_us + hold_us && held.have.count() < members_) return {true, held.since_us + hold_us, {}};
    std::vector<uint32_t> higher;
    for (uint32_t m = 0; m < members_; ++m)
      if (draw(v, m) > draw(v, self.rank)) higher.push_back(m);
    const uint64_t pick = mix({seed_, v.key, v.part, v.round, self.rank, 2}) % (higher.size() + 1);
    return {false, 0, pick == higher.size() ? root : member(higher[pick])};
  }
  // Trees and chains; the central party is the server itself and passes nothing on.
  Route down(const PartView& v, const MemberSet& owed, uint64_t) override {
    const std::vector<uint32_t> ranks = owed.ranks();
    Route route(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) route[i] = {ranks[ranks.size() - 1 - i], 0};
    for (size_t i = 0; i < route.size(); ++i) {
      if (route[i].rank >= members_) continue;
      size_t end = route.size();  // of the tree that it is in
      for (size_t j = 0; j < i; ++j)
        if (j + route[j].below >= i) end = j + 1 + route[j].below;
      route[i].below = uint32_t(draw(v, route[i].rank) % (end - i));
    }
    return route;
  }
  uint64_t bypass_us() const override { return 6000; }

 private:
  uint64_t draw(const PartView& v, uint32_t m) const { return mix({seed_, v.key, v.part, v.round, m, 3}); }
  uint64_t seed_;
  uint32_t members_;
};

// What a mutation switches off; each must be noticed.
struct Mutation {
  bool gives_back = true, checks_contributors = true, waits_for_ends = true, acknowledges = true;
};

struct Shape {
  uint32_t parties = 3, servers = 2, keys = 3;
  bool sparse = true, lossy = true, overlay = true, mixed = false;
  bool central = false;   // the servers' own party has workers too
  bool datagrams = true;  // else droppable parts take the stream
  std::string plugin;     // which transport of the library decides, by its name; empty: LossyHalf
  bool deltas = false;    // weights come down, as differences
  std::string relays;     // which overlay of the library decides, by its name; empty: RandomTree
  bool faults = false;    // members freeze for a while, a link between two is broken, some can't be reached
};

constexpr uint32_t kStaleness = 2;

// One domain's end of one node.
struct End {
  End(sim::World& world, sim::SimReactor& reactor, std::string name, Tier tier, NodeId self, uint32_t num_servers,
      uint32_t num_members, KeyTable& keys, std::vector<std::string>& failures, size_t max_datagram = 1 << 16)
      : transport(world, reactor, name, max_datagram),
        link(reactor, transport, tier, counters),
        side{reactor,
             link,
             keys,
             policies,
             counters,
             tier,
             self,
             num_servers,
             num_members,
             self.role == Role::member ? self.rank : num_members,
             [&failures](const std::string& why) { failures.push_back(why); }} {
    REQUIRE(transport.bind("", 0).ok());
    link.set_self(self);
    link.on_frame([this](NodeId from, PeerId, Frame frame) { take(from, frame); });
  }
  void take(NodeId from, Frame& frame) {
    OverlayPolicy* const overlay = policies.overlay.get();
    if (frame.kind == FrameKind::overlay) return overlay->on_control(from, frame.body);
    const bool is_leave = frame.kind == FrameKind::leave;
    dispatch(from, frame, client.get(), aggregator.get());
    if (is_leave && overlay) overlay->on_left(side.contributor_of(from));
  }
  void use(std::unique_ptr<OverlayPolicy> overlay) {
    policies.overlay = std::move(overlay);
    link.on_traffic(
        [this](NodeId to, uint64_t bytes, uint64_t sent_us) {
          policies.overlay->on_delivered(to, bytes, sent_us, side.reactor.now_us());
        },
        [this](NodeId from, uint64_t bytes) { policies.overlay->on_received(from, bytes, side.reactor.now_us()); });
  }
  void connect(NodeId to, const std::string& name) {
    PeerId peer;
    REQUIRE(transport.connect(name, &peer).ok());
    link.set_peer(to, peer);
  }
  Policies policies;
  Counters counters;
  sim::SimTransport transport;
  Link link;
  Side side;
  std::unique_ptr<Client> client;
  std::unique_ptr<Aggregator> aggregator;
};

struct Worker {
  std::unique_ptr<sim::SimReactor> reactor;
  KeyTable keys;
  std::unique_ptr<End> lan;
  std::string party;
  uint32_t rounds = 0;
  std::vector<uint32_t> round_of_key, parts_waiting;
  uint32_t keys_running = 0;
  bool has_left = false;
};

struct LocalServer {
  std::unique_ptr<sim::SimReactor> reactor;
  KeyTable keys;
  std::unique_ptr<End> lan, wan;
  std::unique_ptr<Uplink> uplink;
  bool has_left = false;
};

struct GlobalServer {
  std::unique_ptr<sim::SimReactor> reactor;
  KeyTable keys;
  std::unique_ptr<End> wan, lan;
  std::unique_ptr<Root> root;
  std::unique_ptr<Uplink> uplink;
  bool has_left = true;
};

class Cluster {
 public:
  Cluster(uint64_t seed, Shape shape, Mutation mutation)
      : seed_(seed), shape_(shape), mutation_(mutation), world_(seed, {50, 4000, 0.3, 0.15}) {
    for (uint32_t k = 0; k < shape.keys; ++k) specs_.push_back(draw_spec(k));
    for (uint32_t s = 0; s < shape.servers; ++s) make_global_server(s);
    if (shape.central) make_central_party();
    for (uint32_t p = 0; p < shape.parties; ++p) make_party(p);
    connect_wan();
    if (shape.faults) make_faults();
  }

  // Empty if all invariants hold.
  std::string run() {
    for (auto& worker : workers_) {
      Worker* w = worker.get();
      w->reactor->post([this, w] { begin(*w); });
    }
    world_.run(60'000'000);
    if (!failures_.empty()) return failures_.front();
    for (auto& worker : workers_)
      if (!worker->has_left) return "deadlock: a worker is not done; " + stalls();
    for (auto& party : parties_)
      if (!party->has_left) return "deadlock: a local server is not done";
    for (auto& server : servers_)
      if (server->wan->aggregator->has_open_rounds() || !server->has_left) return "deadlock: a round is open";
    return check_mass();
  }

  // A party's own server stands still now and then, and one way between two parties leads nowhere for very long.
  void make_faults() {
    for (uint32_t party = 0; party < shape_.parties; ++party)
      for (uint64_t turn = 0; turn < 3; ++turn) {
        sim::SimReactor* const reactor = parties_[party]->reactor.get();
        const uint64_t at_us = mix({seed_, party, turn, 37}) % 200'000, for_us = mix({seed_, party, turn, 41}) % 90'000;
        world_.schedule(at_us, [=] { reactor->freeze(at_us + for_us); });
      }
    const uint64_t from = mix({seed_, 43}) % shape_.parties, to = (from + 1) % shape_.parties;
    world_.set_delay("ls" + std::to_string(from) + ".wan", "ls" + std::to_string(to) + ".wan", 10'000'000);
  }

  std::string stalls() {
    std::string text;
    auto tell = [&](const std::string& who, Aggregator& aggregator) {
      const auto stall = aggregator.oldest_stall();
      if (!stall) return;
      text += who + " waits in key " + std::to_string(stall->key) + " part " + std::to_string(stall->part) + " round " +
              std::to_string(stall->round) + " for";
      stall->missing.for_each([&](uint32_t rank) { text += " " + std::to_string(rank); });
      text += "; ";
    };
    for (size_t i = 0; i < servers_.size(); ++i) tell("gs" + std::to_string(i), *servers_[i]->wan->aggregator);
    for (size_t i = 0; i < parties_.size(); ++i) tell("ls" + std::to_string(i), *parties_[i]->lan->aggregator);
    return text;
  }

 private:
  KeySpec draw_spec(uint32_t index) {
    KeySpec spec;
    spec.index = index;
    spec.name = "key" + std::to_string(index);
    spec.id = key_id(spec.name);
    const uint64_t length = mix({seed_, index, 7}) % 40;
    spec.shape = {length};
    spec.part_length = 7;
    uint64_t at = 0;
    for (uint32_t s = 0; s < shape_.servers; ++s) {
      const uint64_t share = s + 1 == shape_.servers ? length - at : length / shape_.servers;
      spec.shards.push_back({s, at, share});
      at += share;
    }
    REQUIRE(spec.check(shape_.servers).ok());
    return spec;
  }

  void seal(KeyTable& keys) {
    for (const KeySpec& spec : specs_) {
      Key& key = keys.add(spec);
      const std::shared_ptr<Codec> identity(&identity_codec(), [](Codec*) {});
      for (auto& tier : key.codec)
        for (auto& codec : tier) codec = identity;
      if (!shape_.sparse) continue;
      key.codec[size_t(Tier::wan)][size_t(Direction::up)] = std::make_shared<SparseCodec>(CodecScope::tensor);
      if (shape_.deltas) {
        key.codec[size_t(Tier::wan)][size_t(Direction::down)] = std::make_shared<SparseCodec>(CodecScope::shard, false);
        key.content[size_t(Tier::wan)][size_t(Direction::down)] = Content::delta;
      } else if (!shape_.mixed)
        key.codec[size_t(Tier::wan)][size_t(Direction::down)] = std::make_shared<SparseCodec>(CodecScope::shard);
    }
  }

  void set_policies(End& end) {
    end.policies.scheduler = std::make_unique<RandomRank>();
    end.link.set_credit(end.policies.scheduler->credit());
    if (!mutation_.acknowledges) end.link.stop_acknowledging();
    if (end.side.tier == Tier::lan) return;
    if (shape_.lossy) end.policies.transport = make_policy();
    if (shape_.overlay) end.use(make_overlay(end));
  }

  std::unique_ptr<OverlayPolicy> make_overlay(End& end) {
    if (shape_.relays.empty()) return std::make_unique<RandomTree>(seed_, shape_.parties);
    static CodecRegistry registry = [] {
      CodecRegistry made;
      PluginHooks hooks;
      hooks.metric = [](const std::string&, double) {};
      made.set_hooks(std::move(hooks));
      REQUIRE(made.load(OVERLAY_LIBRARY).message() == "");
      return made;
    }();
    OverlaySite site;
    site.self = end.side.self;
    site.num_members = shape_.parties;
    site.num_servers = shape_.servers;
    for (uint32_t rank = 0; rank < shape_.parties; ++rank) {
      site.contributors.insert(rank);
      if (!shape_.faults || mix({seed_, rank, 31}) % 3) site.reachable.insert(rank);
    }
    site.now_us = [&end] { return end.side.reactor.now_us(); };
    site.send = [&end](NodeId to, Bytes words) {
      Frame frame(FrameKind::overlay);
      frame.body = std::move(words);
      end.link.send(to, std::move(frame));
    };
    site.wake = [&end](uint32_t key, uint32_t part) {
      if (end.client && end.client->relay()) end.client->relay()->wake(key, part);
    };
    const Params params{{"max_greed_rate", 0.7}, {"hold_ms", 9.0}, {"bypass_ms", 30.0}, {"seed", int64_t(seed_)}};
    std::unique_ptr<OverlayPolicy> policy;
    REQUIRE(registry.make_overlay(shape_.relays, params, std::move(site), &policy).message() == "");
    return policy;
  }

  size_t max_datagram() const { return shape_.datagrams ? 1 << 16 : 0; }

  std::unique_ptr<TransportPolicy> make_policy() {
    if (shape_.plugin.empty()) return std::make_unique<LossyHalf>();
    static CodecRegistry registry = [] {
      CodecRegistry made;
      PluginHooks hooks;
      hooks.metric = [](const std::string&, double) {};
      made.set_hooks(std::move(hooks));
      REQUIRE(made.load(TRANSPORT_LIBRARY).message() == "");
      return made;
    }();
    std::unique_ptr<TransportPolicy> policy;
    const Params params{{"k", 0.4}, {"channels", int64_t(2)}, {"deadline_ms", 3.0}, {"wait_ms", 2.0}};
    REQUIRE(registry.make_transport(shape_.plugin, params, &policy).message() == "");
    return policy;
  }

  void set_mutations(End& end) {
    if (end.client && !mutation_.gives_back) end.client->stop_giving_back();
    if (!mutation_.checks_contributors) {
      if (end.client && end.client->relay()) end.client->relay()->stop_checking_contributors();
      if (end.aggregator) end.aggregator->stop_checking_contributors();
    }
    if (end.aggregator && !mutation_.waits_for_ends) end.aggregator->stop_waiting_for_ends();
  }

  void make_global_server(uint32_t rank) {
    auto gs = std::make_unique<GlobalServer>();
    gs->reactor = std::make_unique<sim::SimReactor>(world_);
    seal(gs->keys);
    gs->wan = std::make_unique<End>(world_, *gs->reactor, "gs" + std::to_string(rank), Tier::wan, server(rank),
                                    shape_.servers, shape_.parties, gs->keys, failures_, max_datagram());
    set_policies(*gs->wan);
    gs->root = std::make_unique<Root>(gs->wan->side, [] {});
    SyncPolicy sync;
    sync.is_mixed = shape_.mixed;
    sync.staleness = kStaleness;
    gs->wan->aggregator = std::make_unique<Aggregator>(gs->wan->side, shape_.parties + shape_.central, MemberSet(),
                                                       rank, sync, *gs->root);
    gs->root->serve(gs->wan->aggregator.get());
    Aggregator* aggregator = gs->wan->aggregator.get();
    aggregator->on_close(
        [this, aggregator](uint32_t key, uint32_t part, uint32_t line, uint32_t round, const Bytes& sum) {
          add_to(applied_[{key, part}], sum);
          if (shape_.mixed) check_staleness(*aggregator, key, part, line, round);
        });
    set_mutations(*gs->wan);
    if (shape_.deltas) {
      gs->root->seal(std::make_unique<Adder>());
      for (const KeySpec& spec : specs_)
        for (uint32_t part = 0; part < spec.parts().size(); ++part)
          if (spec.parts()[part].server == rank)
            gs->root->initial(spec.index, part, zeros(spec.parts()[part].length * 4));
    }
    servers_.push_back(std::move(gs));
  }

  // Nobody who trains is more than the bound behind the round that closes.
  void check_staleness(const Aggregator& aggregator, uint32_t key, uint32_t part, uint32_t line, uint32_t round) {
    std::vector<uint32_t>& closed = closed_[{key, part}];
    closed.resize(shape_.parties + shape_.central);
    closed[line] = round;
    for (uint32_t other = 0; other < closed.size(); ++other)
      if (!aggregator.left().contains(other) && round > closed[other] + kStaleness)
        failures_.push_back("a party is further ahead than the bound");
  }

  // Each global server is a server of the central party's LAN, and a member of the WAN through itself.
  void make_central_party() {
    const uint32_t num_workers = 1 + uint32_t(mix({seed_, 19}) % 2);
    std::vector<End*> lans;
    for (uint32_t rank = 0; rank < shape_.servers; ++rank) {
      GlobalServer* gs = servers_[rank].get();
      gs->lan = std::make_unique<End>(world_, *gs->reactor, "gs" + std::to_string(rank) + ".lan", Tier::lan,
                                      server(rank), shape_.servers, num_workers, gs->keys, failures_);
      set_policies(*gs->lan);
      gs->has_left = false;
      gs->wan->client = std::make_unique<Client>(gs->wan->side);
      gs->uplink = std::make_unique<Uplink>(gs->wan->side, *gs->wan->client,
                                            [gs] { gs->wan->client->leave([gs] { gs->has_left = true; }); });
      gs->lan->aggregator =
          std::make_unique<Aggregator>(gs->lan->side, num_workers, MemberSet(), rank, SyncPolicy{}, *gs->uplink);
      gs->uplink->serve(gs->lan->aggregator.get());
      set_mutations(*gs->lan);
      set_mutations(*gs->wan);
      lans.push_back(gs->lan.get());
    }
    for (uint32_t w = 0; w < num_workers; ++w) make_worker(lans, "central", w, num_workers);
  }

  void make_party(uint32_t rank) {
    auto ls = std::make_unique<LocalServer>();
    const uint32_t num_workers = 1 + uint32_t(mix({seed_, rank, 11}) % 3);
    ls->reactor = std::make_unique<sim::SimReactor>(world_);
    seal(ls->keys);
    const std::string name = "ls" + std::to_string(rank);
    ls->lan = std::make_unique<End>(world_, *ls->reactor, name + ".lan", Tier::lan, server(0), 1, num_workers, ls->keys,
                                    failures_);
    ls->wan = std::make_unique<End>(world_, *ls->reactor, name + ".wan", Tier::wan, member(rank), shape_.servers,
                                    shape_.parties, ls->keys, failures_, max_datagram());
    set_policies(*ls->lan);
    set_policies(*ls->wan);
    ls->wan->client = std::make_unique<Client>(ls->wan->side);
    LocalServer* raw = ls.get();
    ls->uplink = std::make_unique<Uplink>(ls->wan->side, *ls->wan->client, [this, raw] {
      raw->wan->client->leave([this, raw] {
        raw->has_left = true;
        if (mix({seed_, raw->wan->side.self.rank, 13}) % 2) raw->wan->transport.close();  // gone; or lingers
      });
    });
    ls->lan->aggregator =
        std::make_unique<Aggregator>(ls->lan->side, num_workers, MemberSet(), 0, SyncPolicy{}, *ls->uplink);
    ls->uplink->serve(ls->lan->aggregator.get());
    set_mutations(*ls->lan);
    set_mutations(*ls->wan);
    for (uint32_t w = 0; w < num_workers; ++w) make_worker({ls->lan.get()}, name, w, num_workers);
    if (shape_.deltas) ls->reactor->post([this, raw] { pull_now_and_then(*raw, 0); });
    parties_.push_back(std::move(ls));
  }

  // Somebody asks for values at any time, before the first round too.
  void pull_now_and_then(LocalServer& party, uint64_t turn) {
    const uint64_t draw = mix({seed_, party.wan->side.self.rank, turn, 29});
    const KeySpec& spec = specs_[draw % specs_.size()];
    if (party.has_left || turn == 20) return;
    if (draw % 3 != 0) party.wan->client->pull(spec.index, uint32_t(draw / 7 % spec.parts().size()), 0);
    party.reactor->after(draw % 2000, [this, &party, turn] { pull_now_and_then(party, turn + 1); });
  }

  void make_worker(const std::vector<End*>& servers, const std::string& party, uint32_t rank, uint32_t num_workers) {
    auto worker = std::make_unique<Worker>();
    worker->reactor = std::make_unique<sim::SimReactor>(world_);
    seal(worker->keys);
    const std::string name = party + ".w" + std::to_string(rank);
    worker->lan = std::make_unique<End>(world_, *worker->reactor, name, Tier::lan, member(rank),
                                        uint32_t(servers.size()), num_workers, worker->keys, failures_);
    worker->party = party;
    set_policies(*worker->lan);
    worker->lan->client = std::make_unique<Client>(worker->lan->side);
    set_mutations(*worker->lan);
    for (End* end : servers) {
      worker->lan->connect(end->side.self, end->transport.address());
      end->connect(member(rank), name);
    }
    worker->rounds = 2 + uint32_t(mix({seed_, workers_.size(), 17}) % 6);
    Worker* w = worker.get();
    worker->lan->client->on_value([this, w](const Frame& frame, bool answers) {
      if (answers) take(*w, frame);
    });
    workers_.push_back(std::move(worker));
  }

  void connect_wan() {
    for (uint32_t s = 0; s < shape_.servers; ++s)
      for (uint32_t t = 0; t < shape_.servers; ++t)
        if (s != t) servers_[s]->wan->connect(server(t), "gs" + std::to_string(t));
    for (uint32_t p = 0; p < shape_.parties; ++p) {
      for (uint32_t s = 0; s < shape_.servers; ++s) {
        parties_[p]->wan->connect(server(s), "gs" + std::to_string(s));
        servers_[s]->wan->connect(member(p), "ls" + std::to_string(p) + ".wan");
      }
      for (uint32_t q = 0; q < shape_.parties; ++q)
        if (q != p) parties_[p]->wan->connect(member(q), "ls" + std::to_string(q) + ".wan");
    }
  }

  void begin(Worker& w) {
    w.round_of_key.resize(specs_.size());
    w.parts_waiting.resize(specs_.size());
    w.keys_running = uint32_t(specs_.size());
    for (uint32_t key = 0; key < specs_.size(); ++key) next_round(w, key);
  }

  // Each key runs on by itself: push, wait for all its parts, push again.
  void next_round(Worker& w, uint32_t index) {
    const Key& key = *w.keys.find(index);
    if (w.round_of_key[index]++ == w.rounds) {
      if (--w.keys_running == 0) w.lan->client->leave([&w] { w.has_left = true; });
      return;
    }
    w.parts_waiting[index] = uint32_t(key.parts.size());
    for (uint32_t part = 0; part < key.parts.size(); ++part) {
      Bytes values = Bytes::allocate(key.sum_bytes(part));
      for (uint64_t i = 0; i < key.parts[part].length; ++i) {
        const int64_t value = int64_t(mix({world_.random()(), i}) % 201) - 100;
        reinterpret_cast<float*>(values.writable())[i] = float(value);
      }
      add_to(pushed_[{index, part}], values);
      w.lan->client->push(index, part, std::move(values), 0);
    }
  }

  void take(Worker& w, const Frame& frame) {
    Bytes values;
    const Status status = w.lan->client->decode(frame, &values);
    if (!status.ok()) failures_.push_back(status.message());
    const std::string whose = shape_.mixed ? w.party : "everybody's";
    auto [seen, is_first] = delivered_.emplace(std::make_tuple(frame.key, frame.part, frame.round, whose), values);
    if (!is_first && seen->second.text() != values.text()) failures_.push_back("workers got different bytes");
    if (--w.parts_waiting[frame.key] == 0) {
      const uint32_t key = frame.key;
      w.reactor->post([this, &w, key] { next_round(w, key); });
    }
  }

  static void add_to(std::vector<double>& total, const Bytes& values) {
    total.resize(values.size() / 4);
    for (size_t i = 0; i < total.size(); ++i) total[i] += double(values.as<float>()[i]);
  }

  void add_residual(std::vector<double>& total, Lane& lane, uint32_t key, uint32_t part) {
    const PartSpec spec = parties_[0]->keys.find(key)->parts[part];
    if (auto* slot = dynamic_cast<SparseCodec::Residual*>(lane.slot(key)))
      for (uint64_t i = 0; i < spec.length; ++i) total[i] += double(slot->values[spec.offset + i]);
    const Bytes left = lane.residual(key, part);
    if (!left.empty()) add_to(total, left);
  }

  // Pushed = applied + what stayed on the way up; applied = delivered + what stayed on the way down.
  std::string check_mass() {
    for (const KeySpec& spec : specs_) {
      const std::vector<PartSpec> parts = spec.parts();
      for (uint32_t part = 0; part < parts.size(); ++part) {
        const std::pair<uint32_t, uint32_t> id{spec.index, part};
        std::vector<double> up = applied_[id], down(parts[part].length);
        up.resize(parts[part].length);
        for (auto& party : parties_) add_residual(up, party->wan->client->lane(), spec.index, part);
        for (auto& server : servers_)
          if (server->wan->client) add_residual(up, server->wan->client->lane(), spec.index, part);
        std::vector<double> pushed = pushed_[id];
        pushed.resize(parts[part].length);
        if (up != pushed) return "mass was lost or made on the way up";
        if (shape_.deltas) {
          if (const std::string fault = check_bases(spec.index, part); !fault.empty()) return fault;
          continue;
        }
        for (auto& [where, values] : delivered_)
          if (std::get<0>(where) == spec.index && std::get<1>(where) == part && !values.empty()) add_to(down, values);
        add_residual(down, servers_[parts[part].server]->wan->aggregator->lane(), spec.index, part);
        std::vector<double> applied = applied_[id];
        applied.resize(parts[part].length);
        if (down != applied) return "mass was lost or made on the way down";
      }
    }
    return "";
  }

  // What was delivered last is, bit for bit, what the server takes for it.
  std::string check_bases(uint32_t key, uint32_t part) {
    std::map<std::string, std::pair<uint32_t, Bytes>> newest;
    for (const auto& [where, values] : delivered_)
      if (std::get<0>(where) == key && std::get<1>(where) == part)
        newest[std::get<3>(where)] = {std::get<2>(where), values};  // rounds ascend
    Lane& lane = servers_[specs_[key].parts()[part].server]->wan->aggregator->lane();
    for (const auto& [whose, value] : newest) {
      const bool is_party = whose.compare(0, 2, "ls") == 0;
      const uint32_t line = !shape_.mixed ? 0 : is_party ? uint32_t(std::stoul(whose.substr(2))) : shape_.parties;
      if (lane.base(key, part, line).text() != value.second.text()) return "a base is not what its receivers have";
    }
    return "";
  }

  uint64_t seed_;
  Shape shape_;
  Mutation mutation_;
  sim::World world_;
  std::vector<KeySpec> specs_;
  std::vector<std::unique_ptr<GlobalServer>> servers_;
  std::vector<std::unique_ptr<LocalServer>> parties_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<double>> pushed_, applied_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> closed_;  // mixed: by party, its newest round
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, std::string>, Bytes> delivered_;
  std::vector<std::string> failures_;
};

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void check_seeds(Shape shape, uint64_t count) {
  const uint64_t only = number_from("GEOMX_SEED", 0);
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : count); ++seed) {
    const std::string fault = Cluster(seed, shape, {}).run();
    INFO("replay with GEOMX_SEED=", seed);
    REQUIRE(fault == "");
  }
}

bool is_noticed(Mutation mutation) {
  for (uint64_t seed = 1; seed <= 50; ++seed)
    if (!Cluster(seed, {}, mutation).run().empty()) return true;
  return false;
}

}  // namespace

TEST_CASE("invariants hold with a sparse codec, lossy parts, an overlay and priorities all on") {
  check_seeds({}, number_from("GEOMX_SEEDS", 2000));
}

TEST_CASE("invariants hold with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 10;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.sparse = !(off & 1);
    shape.lossy = !(off & 2);
    shape.overlay = !(off & 4);
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

TEST_CASE("invariants hold with a central party that trains, with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.central = true;
    shape.sparse = !(off & 1);
    shape.lossy = !(off & 2);
    shape.overlay = !(off & 4);
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

// There is nothing to merge on the way, and each party has values of its own.
TEST_CASE("invariants hold in mixed sync, and nobody is further ahead than the bound") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.mixed = true;
    shape.overlay = false;
    shape.sparse = !(off & 1);
    shape.lossy = !(off & 2);
    shape.central = off & 4;
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

TEST_CASE("what members make of differences is what servers take for it, with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 16; ++off) {
    Shape shape;
    shape.deltas = true;
    shape.mixed = off & 1;
    shape.lossy = !(off & 2);
    shape.overlay = !shape.mixed && !(off & 4);
    shape.central = off & 8;
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

TEST_CASE("invariants hold with a transport that is a plugin, over datagrams and over the stream, with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.plugin = "dgt";
    shape.sparse = !(off & 1);
    shape.overlay = !(off & 2);
    shape.datagrams = off & 4;
    CAPTURE(off);
    check_seeds(shape, count);
    shape.mixed = true;
    shape.overlay = false;
    check_seeds(shape, count / 2);
  }
}

TEST_CASE("invariants hold with an overlay that is a plugin, frozen relays and a broken link, while members leave") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 10;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.relays = "tsengine";
    shape.parties = 5;
    shape.faults = !(off & 1);
    shape.sparse = !(off & 2);
    shape.lossy = off & 4;
    CAPTURE(off);
    check_seeds(shape, count / 8);
    shape.central = true;
    check_seeds(shape, count / 8);
  }
}

TEST_CASE("turning off what keeps an invariant is noticed") {
  Mutation mutation;
  SUBCASE("give-back") { mutation.gives_back = false; }
  SUBCASE("contributor sets") { mutation.checks_contributors = false; }
  SUBCASE("end marks") { mutation.waits_for_ends = false; }
  SUBCASE("credit release") { mutation.acknowledges = false; }
  CHECK(is_noticed(mutation));
}
