// Whole nodes under virtual time: joining in any order, what is refused while joining, who notices that a node is gone,
// and training through two tiers as the last word.
#include "core/node.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "core/sim.h"

using namespace geomx;

namespace {

constexpr uint64_t kSecond = 1'000'000;

struct Sim;

// A node, its turns and its transports, with what it has told its user.
struct Site {
  Site(Sim& sim, std::string id, NodeOptions options);
  void start() {
    is_started = true;
    reactor.post([this] { node.start(); });
  }
  void vanish() {
    node.close();
    reactor.stop();
  }

  std::string id;
  NodeOptions options;
  sim::SimReactor reactor;
  bool is_started = false;
  std::vector<Status> ready, done;
  std::vector<std::string> log;
  Node node;
};

DomainOptions domain(const std::string& scheduler, uint32_t servers, uint32_t members) {
  DomainOptions out;
  out.is_given = true;
  out.scheduler_host = scheduler;
  out.scheduler_port = 1;
  out.num_servers = servers;
  out.num_members = members;
  return out;
}

struct Sim {
  explicit Sim(uint64_t seed = 1) : world(seed, {200, 200, 0, 0}) {}

  Site& add(std::string id, NodeOptions options) {
    options.host = "127.0.0.1";  // names would be looked up
    options.join_us = 20 * kSecond;
    options.death_us = 8 * kSecond;
    sites.push_back(std::make_unique<Site>(*this, std::move(id), std::move(options)));
    return *sites.back();
  }
  // `parties` with so many workers; more global servers; a central worker that observes or trains.
  void deploy(std::vector<uint32_t> workers, uint32_t servers, bool has_master, bool central_trains = false) {
    const uint32_t parties = uint32_t(workers.size());
    NodeOptions common;
    common.central_trains = central_trains;
    NodeOptions o = common;
    o.role = NodeRole::scheduler;
    o.wan = domain("gs", servers, parties);
    add("gs", o);
    if (has_master) {
      o = common;
      o.role = NodeRole::scheduler;
      o.party = "central";
      o.lan = domain("central", servers, 1);
      add("central.scheduler", o);
      o.role = NodeRole::worker;
      o.is_master = o.is_central = true;
      add("master", o);
    }
    for (uint32_t s = 0; s < servers; ++s) {
      o = common;
      o.role = NodeRole::global_server;
      o.party = "central";
      o.is_central = true;
      o.rank = int32_t(s);
      o.wan = domain("gs", servers, parties);
      if (has_master) o.lan = domain("central", servers, 1);
      add("server" + std::to_string(s), o);
    }
    for (uint32_t p = 0; p < parties; ++p) {
      o = common;
      o.party = std::string(1, char('a' + p));
      o.lan = domain(o.party, 1, workers[p]);
      o.role = NodeRole::scheduler;
      add(o.party + ".scheduler", o);
      o.role = NodeRole::worker;
      for (uint32_t w = 0; w < workers[p]; ++w) {
        o.rank = int32_t(w);
        add(o.party + ".worker" + std::to_string(w), o);
      }
      o.role = NodeRole::local_server;
      o.rank = -1;
      o.party_rank = int32_t(p);
      o.wan = domain("gs", servers, parties);
      add(o.party + ".server", o);
    }
  }
  Site& operator[](const std::string& id) {
    for (auto& site : sites)
      if (site->id == id) return *site;
    throw std::out_of_range(id);
  }
  std::vector<Site*> workers() {
    std::vector<Site*> out;
    for (auto& site : sites)
      if (site->options.role == NodeRole::worker) out.push_back(site.get());
    return out;
  }
  void start_all() {
    for (auto& site : sites)
      if (!site->is_started) site->start();
  }
  template <typename Condition>
  bool run_until(Condition is_met, uint64_t limit_us) {
    const uint64_t end = world.now_us() + limit_us;
    while (!is_met()) {
      if (world.now_us() > end || !world.step()) return false;
    }
    return true;
  }
  void pass(uint64_t time_us) {
    const uint64_t end = world.now_us() + time_us;
    world.schedule(end, [] {});
    world.run(end);
  }
  bool all_ready() {
    return std::all_of(sites.begin(), sites.end(), [](auto& s) { return s->ready.size() == 1 && s->ready[0].ok(); });
  }
  // Everybody who was started has heard of an end.
  bool all_ended() {
    return std::all_of(sites.begin(), sites.end(), [](auto& s) { return !s->is_started || !s->done.empty(); });
  }
  TicketPtr call(Site& site, const std::function<void(Node&, const TicketPtr&)>& operation) {
    auto ticket = std::make_shared<Ticket>("call");
    site.reactor.post([&site, ticket, operation] { operation(site.node, ticket); });
    return ticket;
  }
  bool wait(const std::vector<TicketPtr>& tickets, uint64_t limit_us = 30 * kSecond) {
    return run_until([&] { return std::all_of(tickets.begin(), tickets.end(), [](auto& t) { return t->done(); }); },
                     limit_us);
  }

  sim::World world;
  SyncPolicy sync;
  std::vector<std::unique_ptr<Site>> sites;
};

Hooks hooks_of(Sim& sim, Site& site) {
  Hooks hooks;
  hooks.plan = [](const KeySpec& spec, uint32_t servers, Plan* plan) {
    for (uint32_t s = 0; s < servers; ++s) {
      const uint64_t from = spec.length() * s / servers, to = spec.length() * (s + 1) / servers;
      plan->shards.push_back({s, from, to - from});
    }
    plan->part_length = 3;
    return Status();
  };
  hooks.sync = [&sim](const Settings&, SyncPolicy* sync) {
    *sync = sim.sync;
    return Status();
  };
  hooks.log = [&site](int, const std::string& line) { site.log.push_back(line); };
  hooks.on_ready = [&site](const Status& status) { site.ready.push_back(status); };
  hooks.on_done = [&site](const Status& status) { site.done.push_back(status); };
  return hooks;
}

// A scheduler listens where others look for it, everybody else at an address of its own.
std::string address_of(const Site& site, Tier tier) {
  const DomainOptions& options = tier == Tier::lan ? site.options.lan : site.options.wan;
  return site.options.role == NodeRole::scheduler ? options.scheduler_host + ":1"
                                                  : site.id + (tier == Tier::lan ? ".lan" : ".wan");
}

Site::Site(Sim& sim, std::string name, NodeOptions given)
    : id(std::move(name)),
      options(given),
      reactor(sim.world),
      node(
          reactor,
          [this, &sim](Tier tier) {
            return std::make_unique<sim::SimTransport>(sim.world, reactor, address_of(*this, tier));
          },
          std::move(given), hooks_of(sim, *this)) {}

Tensor tensor(const std::string& name, std::vector<float>& values) {
  Tensor out;
  out.name = name;
  out.shape = {values.size()};
  out.data = values.data();
  return out;
}

// All workers push 1, 2, ... and pull the sum; then they leave and everybody ends well.
void train(Sim& sim, uint32_t rounds, const std::string& key = "k") {
  std::vector<Site*> workers = sim.workers();
  std::vector<std::vector<float>> values(workers.size(), std::vector<float>(10)), outs = values;
  std::vector<TicketPtr> tickets;
  for (size_t i = 0; i < workers.size(); ++i)
    tickets.push_back(
        sim.call(*workers[i], [&, i](Node& n, const TicketPtr& t) { n.worker()->init({tensor(key, values[i])}, t); }));
  REQUIRE(sim.wait(tickets));
  float expected = 0;
  for (size_t i = 0; i < workers.size(); ++i)
    if (workers[i]->id != "master" || workers[i]->options.central_trains) expected += float(i + 1);
  for (uint32_t round = 0; round < rounds; ++round) {
    tickets.clear();
    for (size_t i = 0; i < workers.size(); ++i) {
      std::fill(values[i].begin(), values[i].end(), float(i + 1));
      tickets.push_back(sim.call(*workers[i], [&, i](Node& n, const TicketPtr& t) {
        t->expect();
        n.worker()->push({tensor(key, values[i])}, t);
        n.worker()->pull({tensor(key, outs[i])}, t);
        t->complete_one();
      }));
    }
    REQUIRE(sim.wait(tickets));
    for (size_t i = 0; i < workers.size(); ++i) {
      CHECK(tickets[i]->error() == "");
      const bool observes = workers[i]->id == "master" && !workers[i]->options.central_trains;
      if (!observes) CHECK(outs[i] == std::vector<float>(10, expected));
    }
  }
}

void leave(Sim& sim) {
  std::vector<TicketPtr> tickets;
  for (Site* worker : sim.workers())
    tickets.push_back(sim.call(*worker, [](Node& n, const TicketPtr& t) { n.leave(t); }));
  REQUIRE(sim.wait(tickets));
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 30 * kSecond));
  for (auto& site : sim.sites) {
    CAPTURE(site->id);
    CHECK(site->done[0].message() == "");
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_all_failed_with(Sim& sim, const std::string& part, const std::string& but = "") {
  for (auto& site : sim.sites) {
    if (site->id == but || !site->is_started) continue;
    CAPTURE(site->id);
    REQUIRE(!site->done.empty());
    INFO(site->done[0].message());
    CHECK(contains(site->done[0].message(), part));
  }
}

}  // namespace

TEST_CASE("nodes come up in any order, train and end") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Sim sim(seed);
    std::mt19937_64 random(seed);
    const bool has_master = seed % 2, trains = seed % 4 == 1;
    sim.deploy({2, 1, 3}, 1 + seed % 3, has_master, trains);
    for (auto& site : sim.sites) {
      Site* raw = site.get();
      raw->is_started = true;
      sim.world.schedule(random() % (5 * kSecond), [raw] { raw->start(); });
    }
    CAPTURE(seed);
    REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
    train(sim, 3);
    leave(sim);
  }
}

TEST_CASE("ranks don't depend on who comes first") {
  std::vector<std::string> names[2];
  for (int turn = 0; turn < 2; ++turn) {
    Sim sim;
    sim.deploy({2, 2}, 2, false);
    for (size_t i = 0; i < sim.sites.size(); ++i) sim.sites[turn ? sim.sites.size() - 1 - i : i]->start();
    REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
    for (auto& site : sim.sites) names[turn].push_back(site->node.name() + std::to_string(site->node.global_rank()));
  }
  CHECK(names[0] == names[1]);
}

TEST_CASE("a role that never comes is named when the wait is over") {
  std::string missing, sentence;
  SUBCASE("a worker") { missing = "a.worker1", sentence = "it lacks 1 of 2 workers; here: "; }
  SUBCASE("a local server") { missing = "b.server", sentence = "it lacks 1 of 1 "; }
  SUBCASE("a global server") { missing = "server1", sentence = "it lacks 1 of 2 global servers; here: "; }
  Sim sim;
  sim.deploy({2, 1}, 2, false);
  for (auto& site : sim.sites)
    if (site->id != missing) site->start();
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 60 * kSecond));
  bool is_named = false;
  std::string messages;
  for (auto& site : sim.sites) {
    if (site->id == missing) continue;
    CAPTURE(site->id);
    CHECK_FALSE(site->done[0].ok());
    is_named = is_named || contains(site->done[0].message(), sentence);
    messages += site->id + ": " + site->done[0].message() + "\n";
  }
  INFO(messages);
  CHECK(is_named);
}

TEST_CASE("a scheduler that isn't there is named with its address") {
  Sim sim;
  sim.deploy({1}, 1, false);
  for (auto& site : sim.sites)
    if (site->id != "a.scheduler") site->start();
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 60 * kSecond));
  CHECK(contains(sim["a.worker0"].done[0].message(), "the scheduler of party a at a:1 did not answer for 22 s"));
  CHECK(sim["a.worker0"].node.fault() == Fault::timeout);
}

TEST_CASE("counts that differ are refused in a sentence that says who says what") {
  Sim sim;
  sim.deploy({2, 1}, 1, false);
  NodeOptions odd = sim["a.worker1"].options;
  odd.lan.num_members = 3;
  sim.sites.erase(std::find_if(sim.sites.begin(), sim.sites.end(), [](auto& s) { return s->id == "a.worker1"; }));
  sim.add("a.worker1", odd);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return !sim["a.worker1"].done.empty(); }, 60 * kSecond));
  CHECK(contains(sim["a.worker1"].ready[0].message(),
                 "says that party a has 3 workers, others say 2; give all its nodes the same number"));
  CHECK(sim["a.worker1"].node.fault() == Fault::refused);
}

TEST_CASE("one node too many is refused, and the others don't notice") {
  Sim sim;
  sim.deploy({2, 1}, 1, false);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
  NodeOptions more = sim["a.worker1"].options;
  more.rank = -1;
  Site& extra = sim.add("a.extra", more);
  extra.start();
  REQUIRE(sim.run_until([&] { return !extra.done.empty(); }, 15 * kSecond));
  CHECK(contains(extra.ready[0].message(), "party a is complete: 2 workers have joined"));
  sim.sites.pop_back();
  train(sim, 2);
  leave(sim);
}

TEST_CASE("two nodes that want one rank: the second is refused") {
  Sim sim;
  sim.deploy({2}, 1, false);
  NodeOptions twin = sim["a.worker0"].options;
  sim["a.scheduler"].start();
  sim["a.worker0"].start();
  sim.pass(kSecond);
  Site& second = sim.add("a.twin", twin);
  second.start();
  REQUIRE(sim.run_until([&] { return !second.done.empty(); }, 15 * kSecond));
  CHECK(contains(second.ready[0].message(), "rank 0 of party a is taken by a worker of party a"));
}

TEST_CASE("explicit settings that differ between parties end the join for all") {
  Sim sim;
  sim.deploy({1, 1}, 1, false);
  for (const auto& [id, value] :
       std::vector<std::pair<std::string, std::string>>{{"a.worker0", "8"}, {"b.worker0", "16"}}) {
    NodeOptions options = sim[id].options;
    options.settings["bound"] = value;
    sim.sites.erase(std::find_if(sim.sites.begin(), sim.sites.end(), [&, id = id](auto& s) { return s->id == id; }));
    sim.add(id, options);
  }
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 60 * kSecond));
  check_all_failed_with(sim, "bound: worker 0 of party a has 8, worker 0 of party b has 16");
}

TEST_CASE("a node that vanishes ends the run for everybody, who hear its name") {
  std::string gone, name;
  SUBCASE("a worker") { gone = "a.worker1", name = "worker 1 of party a (pid "; }
  SUBCASE("a local server") { gone = "b.server", name = "local server of party b (pid "; }
  SUBCASE("a global server") { gone = "server1", name = "global server 1 (pid "; }
  SUBCASE("the master worker") { gone = "master", name = "master worker of party central (pid "; }
  SUBCASE("a party's scheduler") {
    gone = "a.scheduler", name = "the scheduler of party a at a:1 was not heard of for 8 s";
  }
  SUBCASE("the global scheduler") { gone = "gs", name = "the scheduler of the WAN at gs:1 was not heard of for 8 s"; }
  Sim sim;
  sim.deploy({2, 1}, 2, true);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
  train(sim, 1);
  const uint64_t began = sim.world.now_us();
  sim[gone].vanish();
  sim[gone].done.push_back({});
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 60 * kSecond));
  CHECK(sim.world.now_us() - began < 15 * kSecond);
  check_all_failed_with(sim, name, gone);
}

TEST_CASE("a call that is under way fails when the run does") {
  Sim sim;
  sim.deploy({1, 1}, 1, false);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
  const TicketPtr barrier = sim.call(sim["a.worker0"], [](Node& n, const TicketPtr& t) { n.barrier(true, t); });
  const TicketPtr configure = sim.call(sim["b.worker0"], [](Node& n, const TicketPtr& t) { n.configure("x", "1", t); });
  REQUIRE(sim.wait({configure}));
  CHECK_FALSE(barrier->done());
  sim["b.worker0"].reactor.post([&] { sim["b.worker0"].node.fail("out of paper"); });
  REQUIRE(sim.wait({barrier}));
  CHECK(contains(barrier->error(), "out of paper"));
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 15 * kSecond));
  check_all_failed_with(sim, "out of paper");
}

TEST_CASE("nobody may use a key before all servers know it") {
  // The way between the servers is slow, all others are fast: party b asks for a key that is decided already, but not
  // known to server 1. An answer at once would send b's push there before the key.
  Sim sim;
  sim.deploy({1, 1}, 2, false);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
  train(sim, 1);  // ends configuring
  sim.world.set_delay("server0.wan", "server1.wan", kSecond / 2);
  std::vector<float> values(10, 1);
  std::vector<TicketPtr> tickets{
      sim.call(sim["a.worker0"], [&](Node& n, const TicketPtr& t) { n.worker()->push({tensor("late", values)}, t); })};
  sim.pass(kSecond / 4);
  std::vector<float> out(10);
  tickets.push_back(sim.call(sim["b.worker0"], [&](Node& n, const TicketPtr& t) {
    t->expect();
    n.worker()->push({tensor("late", values)}, t);
    n.worker()->pull({tensor("late", out)}, t);
    t->complete_one();
  }));
  REQUIRE(sim.wait(tickets, 10 * kSecond));
  CHECK(out == std::vector<float>(10, 2));
  leave(sim);
}

TEST_CASE("MixedSync without an optimizer on the servers is refused") {
  Sim sim;
  sim.sync.is_mixed = true;
  sim.deploy({1, 1}, 2, false);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
  std::vector<float> values(10, 1);
  sim.call(sim["a.worker0"], [&](Node& n, const TicketPtr& t) { n.worker()->push({tensor("k", values)}, t); });
  REQUIRE(sim.run_until([&] { return sim.all_ended(); }, 15 * kSecond));
  check_all_failed_with(sim, "sync=mixed needs an optimizer on the servers");
}

TEST_CASE("a slow round is a warning that names who is waited for") {
  Sim sim;
  sim.deploy({2, 1}, 1, false);
  sim.start_all();
  REQUIRE(sim.run_until([&] { return sim.all_ready(); }, 15 * kSecond));
  train(sim, 1);
  std::vector<float> values(10, 1);
  std::vector<TicketPtr> tickets;
  for (const char* id : {"a.worker0", "b.worker0"})
    tickets.push_back(
        sim.call(sim[id], [&](Node& n, const TicketPtr& t) { n.worker()->push({tensor("k", values)}, t); }));
  sim.pass(13 * kSecond);
  auto warned = [&](const std::string& id, const std::string& part) {
    const auto& log = sim[id].log;
    return std::any_of(log.begin(), log.end(), [&](const std::string& line) { return contains(line, part); });
  };
  CHECK(warned("a.server", "of key \"k\" has waited"));
  CHECK(warned("a.server", "s for worker 1 of party a"));
  CHECK(warned("server0", "s for local server of party a"));
  CHECK(contains(sim["a.worker0"].node.reason(*tickets[0]), "worker 1 of party a"));
  CHECK(contains(sim["b.worker0"].node.reason(*tickets[1]), "party a"));
}
