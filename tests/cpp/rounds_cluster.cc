// See rounds_cluster.h.
#include "rounds_cluster.h"

namespace geomx::rounds {

Cluster::Cluster(uint64_t seed, Shape shape, Mutation mutation)
    : recipe_(seed, shape, mutation), shape_(std::move(shape)), world_(seed, {50, 4000, 0.3, 0.15}) {
  for (uint32_t s = 0; s < shape_.servers; ++s) make_global_server(s);
  if (shape_.central) make_central_party();
  for (uint32_t p = 0; p < shape_.parties; ++p) make_party(p);
  connect_wan();
  if (shape_.faults) make_faults();
}

// ---- making --------------------------------------------------------------------------------------------------------

void Cluster::make_global_server(uint32_t rank) {
  auto gs = std::make_unique<GlobalServer>();
  gs->reactor = std::make_unique<sim::SimReactor>(world_);
  recipe_.seal(gs->keys);
  gs->wan = std::make_unique<End>(world_, *gs->reactor, "gs" + std::to_string(rank), Tier::wan, server(rank),
                                  shape_.servers, shape_.parties, gs->keys, ledger_.failures(), recipe_.max_datagram());
  recipe_.set_policies(*gs->wan);
  gs->root = std::make_unique<Root>(gs->wan->side, [] {});
  SyncPolicy sync;
  sync.is_mixed = shape_.mixed;
  sync.staleness = kStaleness;
  gs->wan->aggregator =
      std::make_unique<Aggregator>(gs->wan->side, shape_.parties + shape_.central, MemberSet(), rank, sync, *gs->root);
  gs->root->serve(gs->wan->aggregator.get());
  Aggregator* aggregator = gs->wan->aggregator.get();
  aggregator->on_close(
      [this, aggregator](uint32_t key, uint32_t part, uint32_t line, uint32_t round, const Bytes& sum) {
        ledger_.apply(key, part, sum);
        if (shape_.mixed) ledger_.close(*aggregator, key, part, line, round, shape_.parties + shape_.central);
      });
  recipe_.set_mutations(*gs->wan);
  if (shape_.deltas) {
    gs->root->seal(std::make_unique<Adder>());
    for (const KeySpec& spec : recipe_.specs())
      for (uint32_t part = 0; part < spec.parts().size(); ++part)
        if (spec.parts()[part].server == rank)
          gs->root->initial(spec.index, part, zeros(spec.parts()[part].length * 4));
  }
  servers_.push_back(std::move(gs));
}

// Each global server is a server of the central party's LAN, and a member of the WAN through itself.
void Cluster::make_central_party() {
  const uint32_t num_workers = 1 + uint32_t(recipe_.draw({19}) % 2);
  std::vector<End*> lans;
  for (uint32_t rank = 0; rank < shape_.servers; ++rank) {
    GlobalServer* gs = servers_[rank].get();
    gs->lan = std::make_unique<End>(world_, *gs->reactor, "gs" + std::to_string(rank) + ".lan", Tier::lan, server(rank),
                                    shape_.servers, num_workers, gs->keys, ledger_.failures());
    recipe_.set_policies(*gs->lan);
    gs->has_left = false;
    gs->wan->client = std::make_unique<Client>(gs->wan->side);
    gs->uplink = std::make_unique<Uplink>(gs->wan->side, *gs->wan->client,
                                          [gs] { gs->wan->client->leave([gs] { gs->has_left = true; }); });
    gs->lan->aggregator =
        std::make_unique<Aggregator>(gs->lan->side, num_workers, MemberSet(), rank, SyncPolicy{}, *gs->uplink);
    gs->uplink->serve(gs->lan->aggregator.get());
    recipe_.set_mutations(*gs->lan);
    recipe_.set_mutations(*gs->wan);
    lans.push_back(gs->lan.get());
  }
  for (uint32_t w = 0; w < num_workers; ++w) make_worker(lans, "central", w, num_workers);
}

void Cluster::make_party(uint32_t rank) {
  auto ls = std::make_unique<LocalServer>();
  const uint32_t num_workers = 1 + uint32_t(recipe_.draw({rank, 11}) % 3);
  ls->reactor = std::make_unique<sim::SimReactor>(world_);
  recipe_.seal(ls->keys);
  const std::string name = "ls" + std::to_string(rank);
  ls->lan = std::make_unique<End>(world_, *ls->reactor, name + ".lan", Tier::lan, server(0), 1, num_workers, ls->keys,
                                  ledger_.failures());
  ls->wan = std::make_unique<End>(world_, *ls->reactor, name + ".wan", Tier::wan, member(rank), shape_.servers,
                                  shape_.parties, ls->keys, ledger_.failures(), recipe_.max_datagram());
  recipe_.set_policies(*ls->lan);
  recipe_.set_policies(*ls->wan);
  ls->wan->client = std::make_unique<Client>(ls->wan->side);
  LocalServer* raw = ls.get();
  ls->uplink = std::make_unique<Uplink>(ls->wan->side, *ls->wan->client, [this, raw] {
    raw->wan->client->leave([this, raw] {
      raw->has_left = true;
      if (recipe_.draw({raw->wan->side.self.rank, 13}) % 2) raw->wan->transport.close();  // gone; or lingers
    });
  });
  ls->lan->aggregator =
      std::make_unique<Aggregator>(ls->lan->side, num_workers, MemberSet(), 0, SyncPolicy{}, *ls->uplink);
  ls->uplink->serve(ls->lan->aggregator.get());
  recipe_.set_mutations(*ls->lan);
  recipe_.set_mutations(*ls->wan);
  for (uint32_t w = 0; w < num_workers; ++w) make_worker({ls->lan.get()}, name, w, num_workers);
  if (shape_.deltas) ls->reactor->post([this, raw] { pull_now_and_then(*raw, 0); });
  parties_.push_back(std::move(ls));
}

void Cluster::make_worker(const std::vector<End*>& servers, const std::string& party, uint32_t rank,
                          uint32_t num_workers) {
  auto worker = std::make_unique<Worker>();
  worker->reactor = std::make_unique<sim::SimReactor>(world_);
  recipe_.seal(worker->keys);
  const std::string name = party + ".w" + std::to_string(rank);
  worker->lan = std::make_unique<End>(world_, *worker->reactor, name, Tier::lan, member(rank), uint32_t(servers.size()),
                                      num_workers, worker->keys, ledger_.failures());
  worker->party = party;
  recipe_.set_policies(*worker->lan);
  worker->lan->client = std::make_unique<Client>(worker->lan->side);
  recipe_.set_mutations(*worker->lan);
  for (End* end : servers) {
    worker->lan->connect(end->side.self, end->transport.address());
    end->connect(member(rank), name);
  }
  worker->rounds = 2 + uint32_t(recipe_.draw({workers_.size(), 17}) % 6);
  Worker* w = worker.get();
  worker->lan->client->on_value([this, w](const Frame& frame, bool answers) {
    if (answers) take(*w, frame);
  });
  workers_.push_back(std::move(worker));
}

void Cluster::connect_wan() {
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

// A party's own server stands still now and then, and one way between two parties leads nowhere for very long.
void Cluster::make_faults() {
  for (uint32_t party = 0; party < shape_.parties; ++party)
    for (uint64_t turn = 0; turn < 3; ++turn) {
      sim::SimReactor* const reactor = parties_[party]->reactor.get();
      const uint64_t at_us = recipe_.draw({party, turn, 37}) % 200'000,
                     for_us = recipe_.draw({party, turn, 41}) % 90'000;
      world_.schedule(at_us, [=] { reactor->freeze(at_us + for_us); });
    }
  const uint64_t from = recipe_.draw({43}) % shape_.parties, to = (from + 1) % shape_.parties;
  world_.set_delay("ls" + std::to_string(from) + ".wan", "ls" + std::to_string(to) + ".wan", 10'000'000);
}

// ---- running -------------------------------------------------------------------------------------------------------

std::string Cluster::run() {
  for (auto& worker : workers_) {
    Worker* w = worker.get();
    w->reactor->post([this, w] { begin(*w); });
  }
  world_.run(60'000'000);
  if (!ledger_.failures().empty()) return ledger_.failures().front();
  for (auto& worker : workers_)
    if (!worker->has_left) return "deadlock: a worker is not done; " + stalls();
  for (auto& party : parties_)
    if (!party->has_left) return "deadlock: a local server is not done";
  for (auto& server : servers_)
    if (server->wan->aggregator->has_open_rounds() || !server->has_left) return "deadlock: a round is open";
  return check_mass();
}

void Cluster::begin(Worker& w) {
  w.round_of_key.resize(recipe_.specs().size());
  w.parts_waiting.resize(recipe_.specs().size());
  w.keys_running = uint32_t(recipe_.specs().size());
  for (uint32_t key = 0; key < recipe_.specs().size(); ++key) next_round(w, key);
}

// Each key runs on by itself: push, wait for all its parts, push again.
void Cluster::next_round(Worker& w, uint32_t index) {
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
    ledger_.push(index, part, values);
    w.lan->client->push(index, part, std::move(values), 0);
  }
}

void Cluster::take(Worker& w, const Frame& frame) {
  Bytes values;
  const Status status = w.lan->client->decode(frame, &values);
  if (!status.ok()) ledger_.fail(status.message());
  const std::string whose = shape_.mixed ? w.party : "everybody's";
  ledger_.deliver(frame, whose, values);
  if (--w.parts_waiting[frame.key] == 0) {
    const uint32_t key = frame.key;
    w.reactor->post([this, &w, key] { next_round(w, key); });
  }
}

// Somebody asks for values at any time, before the first round too.
void Cluster::pull_now_and_then(LocalServer& party, uint64_t turn) {
  const uint64_t draw = recipe_.draw({party.wan->side.self.rank, turn, 29});
  const KeySpec& spec = recipe_.specs()[draw % recipe_.specs().size()];
  if (party.has_left || turn == 20) return;
  if (draw % 3 != 0) party.wan->client->pull(spec.index, uint32_t(draw / 7 % spec.parts().size()), 0);
  party.reactor->after(draw % 2000, [this, &party, turn] { pull_now_and_then(party, turn + 1); });
}

// ---- invariants ----------------------------------------------------------------------------------------------------

std::string Cluster::stalls() {
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

// Pushed = applied + what stayed on the way up; applied = delivered + what stayed on the way down.
std::string Cluster::check_mass() {
  for (const KeySpec& spec : recipe_.specs()) {
    const std::vector<PartSpec> parts = spec.parts();
    for (uint32_t part = 0; part < parts.size(); ++part)
      if (const std::string fault = check_part(spec, part, parts[part].length); !fault.empty()) return fault;
  }
  return "";
}

std::string Cluster::check_part(const KeySpec& spec, uint32_t part, uint64_t length) {
  const Sum applied = ledger_.applied(spec.index, part, length);
  Sum up = applied;
  for (auto& party : parties_) add_residual(up, party->wan->client->lane(), spec.index, part);
  for (auto& server : servers_)
    if (server->wan->client) add_residual(up, server->wan->client->lane(), spec.index, part);
  if (up != ledger_.pushed(spec.index, part, length)) return "mass was lost or made on the way up";
  if (shape_.deltas) return check_bases(spec.index, part);
  Sum down = ledger_.delivered(spec.index, part, length);
  add_residual(down, servers_[spec.parts()[part].server]->wan->aggregator->lane(), spec.index, part);
  return down == applied ? "" : "mass was lost or made on the way down";
}

// What was delivered last is, bit for bit, what the server takes for it.
std::string Cluster::check_bases(uint32_t key, uint32_t part) {
  Lane& lane = servers_[recipe_.specs()[key].parts()[part].server]->wan->aggregator->lane();
  for (const auto& [whose, value] : ledger_.newest(key, part)) {
    const bool is_party = whose.compare(0, 2, "ls") == 0;
    const uint32_t line = !shape_.mixed ? 0 : is_party ? uint32_t(std::stoul(whose.substr(2))) : shape_.parties;
    if (lane.base(key, part, line).text() != value.text()) return "a base is not what its receivers have";
  }
  return "";
}

void Cluster::add_residual(Sum& total, Lane& lane, uint32_t key, uint32_t part) {
  const PartSpec spec = parties_[0]->keys.find(key)->parts[part];
  if (auto* slot = dynamic_cast<SparseCodec::Residual*>(lane.slot(key)))
    for (uint64_t i = 0; i < spec.length; ++i) total[i] += double(slot->values[spec.offset + i]);
  const Bytes left = lane.residual(key, part);
  if (!left.empty()) add_to(total, left);
}

}  // namespace geomx::rounds
