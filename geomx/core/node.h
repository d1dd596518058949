// One node: its role, the domains that it is in, and the rooms that the role has in each. Puts them together when the
// domains are complete, sends every frame to its room, and ends in one place: done, or failed with one sentence.
// Several nodes may live in one process. Everything happens in turns of the reactor.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "membership.h"
#include "registry.h"
#include "root.h"
#include "trace.h"
#include "uplink.h"
#include "worker.h"

namespace geomx {

enum class NodeRole { scheduler, local_server, global_server, worker };

struct DomainOptions {
  bool is_given = false;
  std::string scheduler_host;
  uint16_t scheduler_port = 0;
  uint32_t num_servers = 0, num_members = 0;
};

struct NodeOptions {
  NodeRole role = NodeRole::worker;
  std::string party;
  int32_t party_rank = -1, rank = -1;
  bool is_master = false, is_central = false, central_trains = false;
  bool is_reachable = true;  // by members of other parties, and not only by those that it connects to
  DomainOptions lan, wan;
  std::string host;  // that others reach this node by; empty: by the route to the scheduler
  uint16_t port = 0;
  std::map<std::string, std::string> settings;
  uint64_t join_us = 60'000'000, death_us = 12'000'000, slow_us = 10'000'000;
};

struct CodecChoice {
  std::string name = "identity";
  Params params;
};

// Empty name: the plain one, where everything is reliable.
struct TransportChoice {
  std::string name;
  Params params;
};

// Empty name: none, the star.
struct OverlayChoice {
  std::string name;
  Params params;
};

// Not ranked: parts leave as pushes ask, then as they came.
struct SchedulerChoice {
  bool is_ranked = false;
  CreditRule credit;
};

// What a node asks of whoever configures it; called in its turns.
struct Hooks {
  Worker::Planner plan;
  std::function<Status(const std::string& name, uint64_t length, DType, Tier, Direction, CodecChoice*)> choose;
  std::function<Status(const std::string& value, std::unique_ptr<Updater>*)> make_updater;  // null: no server optimizer
  std::function<Status(const Settings&, SyncPolicy*)> sync;
  std::function<Status(TransportChoice*)> transport;  // between parties
  std::function<Status(Tier, OverlayChoice*)> overlay;
  std::function<Status(Tier, SchedulerChoice*)> scheduler;
  // Of a key's parts among those with the same priority; order: of declaration.
  std::function<Status(const std::string& name, uint32_t order, uint64_t length, Tier, int32_t*)> rank;
  std::function<void(const std::string& what, const std::string& value)> on_configured;
  std::function<void(int level, const std::string& line)> log = [](int, const std::string&) {};
  // The deployment is up, or this node was not let in.
  std::function<void(const Status&)> on_ready = [](const Status&) {};
  // The job is over for this node.
  std::function<void(const Status&)> on_done = [](const Status&) {};
};

class Node {
 public:
  using TransportMaker = std::function<std::unique_ptr<Transport>(Tier)>;
  Node(Reactor& reactor, TransportMaker make_transport, NodeOptions options, Hooks hooks);
  ~Node();

  CodecRegistry& codecs() { return codecs_; }
  void start();
  // From any room or the user: ends the run everywhere with this sentence.
  void fail(const std::string& message);
  void close();

  Worker* worker() { return worker_.get(); }
  Status configure(const std::string& what, const std::string& value, const TicketPtr& ticket);
  void barrier(bool world, const TicketPtr& ticket);
  void leave(const TicketPtr& ticket);
  // A figure for whoever decides by it: the policies of those that send for this node.
  void report(const std::string& what, double value);

  const Counters& counters() const { return counters_; }
  // What was sent, item by item: adds up to what the counters say at the same moment.
  struct Item {
    Tier tier;
    std::string to;   // the receiver's name as in sentences; "" where it wasn't known yet
    std::string key;  // "": of no key
    Flow flow;
  };
  std::vector<Item> items() const;
  std::string key_name(uint32_t index) const;  // "" for kNoKey and unknown ones
  // As in sentences; "" for kNobody, and on schedulers, which send nothing that counts.
  std::string peer_name(Tier tier, uint32_t node) const;
  Trace& trace() { return trace_; }
  std::map<std::string, double> metrics() const;  // what plugins count, by their names
  std::map<std::string, double> figures() const;  // what transports count
  const std::string& name() const { return name_; }
  const Agreement& agreement() const { return agreement_; }
  std::string address(Tier tier) const;
  uint32_t rank() const;
  uint32_t num_workers() const;
  uint32_t global_rank() const;
  std::string party() const;
  bool trains() const;  // a worker whose pushes count
  // "; what a call waits for", as far as it is known here; else "".
  std::string reason(const Ticket& ticket) const;
  // Nobody waits for this call any more.
  void cancel(const TicketPtr& ticket, const std::string& why);
  const std::string& failure() const { return failure_; }
  Fault fault() const { return fault_; }

 private:
  // This node's end of one domain.
  struct End {
    Tier tier;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Link> link;
    Policies policies;
    std::unique_ptr<Membership> membership;
    std::unique_ptr<Registry> registry;
    std::unique_ptr<Side> side;
    std::unique_ptr<Client> client;
    std::unique_ptr<Aggregator> aggregator;
    uint64_t warned_us = 0;
  };
  End& open(Tier tier);
  Status listen(End& end, const DomainOptions& options);
  void start_scheduler(Tier tier, const DomainOptions& options);
  void meet(Tier tier);
  std::string description() const;
  JoinRequest request(Tier tier) const;
  std::string title() const;
  std::string domain_name(Tier tier) const;
  void on_roster(Tier tier, const Roster& roster);
  void on_ready(const Agreement& agreement);
  Agreement agree() const;
  void make_side(End& end);
  Status make_scheduler_policy(End& end);
  Status make_transport_policy(End& end);
  Status make_overlay_policy(End& end);
  void take_report(const End& end, NodeId from, const Frame& frame);
  void make_directory();
  void make_worker();
  void make_local_server();
  void make_global_server();
  void make_aggregator(End& end, Upstream& upstream, uint32_t num_contributors);
  void on_frame(End& end, NodeId from, PeerId peer, Frame& frame);
  bool is_known(const End& end, NodeId from) const;
  bool take_notice_of_wait(const End& end, const Frame& frame);
  void on_trouble(End& end, NodeId node, PeerId peer, const std::string& why, bool is_over);
  void on_spec(KeySpec spec);
  void on_sealed();
  Status choose_codecs(Key& key);
  Status choose_content(Key& key, Tier tier);
  void offer_to_plugins();
  // Known once configuring is over.
  Content answer() const { return optimizer_.empty() || optimizer_ == "none" ? Content::gradient : Content::parameter; }
  std::shared_ptr<Codec> codec(const CodecChoice& choice, Status* status);
  void tick();
  void tell_stalls(End& end);
  std::string names(const End& end, const MemberSet& contributors) const;
  void end_if_over();
  void fail_here(const std::string& message);
  void end_with(const std::string& message);
  void refuse_here(const std::string& message);
  MemberSet observers(const Roster& roster) const;
  End& first_end();
  const End* end_of(Tier tier) const { return ends_[size_t(tier)].get(); }

  Reactor& reactor_;
  TransportMaker make_transport_;
  NodeOptions options_;
  Hooks hooks_;
  mutable std::mutex metrics_mutex_;
  std::map<std::string, double> metrics_;
  CodecRegistry codecs_;
  Counters counters_;
  Trace trace_;
  KeyTable keys_;
  std::string name_;
  Agreement agreement_;
  SyncPolicy sync_;  // of the WAN
  std::unique_ptr<End> ends_[2];
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Uplink> uplink_;
  std::unique_ptr<Root> root_;
  std::unique_ptr<Worker> worker_;
  std::map<std::string, std::shared_ptr<Codec>> made_codecs_;
  std::map<std::pair<std::string, std::string>, std::vector<TicketPtr>> configuring_;
  std::map<std::pair<bool, uint32_t>, std::vector<TicketPtr>> barriers_;
  uint32_t num_barriers_[2] = {0, 0};
  std::string optimizer_;
  std::map<std::string, std::map<uint32_t, double>> reported_;  // what -> worker -> newest
  bool is_ready_ = false, is_sealed_ = false, is_over_ = false, is_leaving_ = false, wan_is_left_ = false;
  int byes_owed_ = 0;
  std::string failure_, waited_for_;
  Fault fault_ = Fault::failed;
  uint64_t waited_for_us_ = 0;
  TicketPtr leaving_;
};

}  // namespace geomx
