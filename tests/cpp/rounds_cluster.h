// A two-tier cluster of the real link, lane, client, relay and aggregator under virtual time, as a recipe says, while
// messages are lost, reordered and doubled and workers leave early.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/root.h"
#include "core/sim.h"
#include "core/uplink.h"
#include "rounds_ledger.h"
#include "rounds_recipe.h"

namespace geomx::rounds {

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
  Cluster(uint64_t seed, Shape shape, Mutation mutation);
  // Empty if all invariants hold.
  std::string run();

 private:
  void make_global_server(uint32_t rank);
  void make_central_party();
  void make_party(uint32_t rank);
  void make_worker(const std::vector<End*>& servers, const std::string& party, uint32_t rank, uint32_t num_workers);
  void connect_wan();
  void make_faults();

  void begin(Worker& w);
  void next_round(Worker& w, uint32_t index);
  void take(Worker& w, const Frame& frame);
  void pull_now_and_then(LocalServer& party, uint64_t turn);

  std::string stalls();
  std::string check_mass();
  std::string check_part(const KeySpec& spec, uint32_t part, uint64_t length);
  std::string check_bases(uint32_t key, uint32_t part);
  void add_residual(Sum& total, Lane& lane, uint32_t key, uint32_t part);

  Recipe recipe_;
  const Shape shape_;
  sim::World world_;
  Ledger ledger_;
  std::vector<std::unique_ptr<GlobalServer>> servers_;
  std::vector<std::unique_ptr<LocalServer>> parties_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace geomx::rounds
