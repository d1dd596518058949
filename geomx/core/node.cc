// Node: joining, and how it ends. What a joined node is made of: node_rooms.cc; what it does: node_work.cc.
#include "node.h"

#include <unistd.h>

#include <algorithm>

#include "address.h"

namespace geomx {
namespace {

constexpr uint64_t kTickUs = 1'000'000;
constexpr uint64_t kGraceUs = 1'000'000;  // for the scheduler's word about a node that is gone: it knows more
constexpr int kLingerAfterFailureMs = 500;
constexpr int kInfo = 20;

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

Node::Node(Reactor& reactor, TransportMaker make_transport, NodeOptions options, Hooks hooks)
    : reactor_(reactor),
      make_transport_(std::move(make_transport)),
      options_(std::move(options)),
      hooks_(std::move(hooks)) {
  name_ = title() + (options_.party.empty() ? "" : " of party " + options_.party);
}

std::string Node::title() const {
  if (options_.is_master) return "master worker";
  const char* const roles[] = {"scheduler", "local server", "global server", "worker"};
  return options_.role == NodeRole::scheduler && !options_.lan.is_given ? "global scheduler"
                                                                        : roles[int(options_.role)];
}

Node::~Node() { close(); }

void Node::start() {
  if (options_.role == NodeRole::scheduler) {
    const Tier tier = options_.lan.is_given ? Tier::lan : Tier::wan;
    start_scheduler(tier, tier == Tier::lan ? options_.lan : options_.wan);
  } else {
    for (Tier tier : {Tier::lan, Tier::wan})
      if (!is_over_ && (tier == Tier::lan ? options_.lan : options_.wan).is_given) meet(tier);
    // Who is in both first joins its party, and tells the WAN then whom it stands for.
    if (!is_over_) first_end().membership->join(request(first_end().tier));
  }
}

std::string Node::domain_name(Tier tier) const {
  if (tier == Tier::wan) return "the WAN";
  if (!options_.party.empty()) return "party " + options_.party;
  return "the party of " + options_.lan.scheduler_host + ":" + std::to_string(options_.lan.scheduler_port);
}

Node::End& Node::open(Tier tier) {
  auto end = std::make_unique<End>();
  end->tier = tier;
  end->transport = make_transport_(tier);
  end->link = std::make_unique<Link>(reactor_, *end->transport, tier, counters_);
  end->link->set_trace(&trace_);
  End* raw = end.get();
  end->link->on_frame([this, raw](NodeId from, PeerId peer, Frame frame) { on_frame(*raw, from, peer, frame); });
  end->link->on_refused([this](const std::string& why) { hooks_.log(10, "a message was dropped: " + why); });
  end->link->on_trouble([this, raw](NodeId node, PeerId peer, const std::string& why, bool is_over) {
    on_trouble(*raw, node, peer, why, is_over);
  });
  ends_[size_t(tier)] = std::move(end);
  return *raw;
}

// Where this node listens: on the address that it is reached by.
Status Node::listen(End& end, const DomainOptions& options) {
  const bool is_first = !ends_[0] || !ends_[1];
  const bool is_scheduler = options_.role == NodeRole::scheduler;
  const uint16_t port = is_scheduler ? options.scheduler_port : is_first ? options_.port : uint16_t(0);
  std::string host = options_.host;
  if (is_scheduler && host.empty()) host = options.scheduler_host;
  if (host.empty()) {
    if (Status status = route_to(options.scheduler_host, options.scheduler_port, &host); !status.ok()) return status;
  }
  return end.transport->bind(host, port);
}

void Node::start_scheduler(Tier tier, const DomainOptions& options) {
  End& end = open(tier);
  if (Status status = listen(end, options); !status.ok()) return refuse_here(status.message());
  end.link->set_self(geomx::scheduler());
  RegistryOptions registry;
  registry.tier = tier;
  registry.domain = domain_name(tier);
  registry.num_servers = options.num_servers;
  registry.num_members = options.num_members;
  registry.join_us = options_.join_us;
  registry.death_us = options_.death_us;
  for (const auto& [key, value] : options_.settings) registry.settings[key] = {value, ""};
  end.registry = std::make_unique<Registry>(reactor_, *end.link, std::move(registry), hooks_.log);
  end.registry->on_done([this](const Status& status) {
    if (!status.ok()) return fail_here(status.message());
    is_over_ = true;
    hooks_.on_done({});
  });
  end.registry->start();
  is_ready_ = true;
  hooks_.on_ready({});
}

void Node::meet(Tier tier) {
  const DomainOptions& options = tier == Tier::lan ? options_.lan : options_.wan;
  End& end = open(tier);
  if (Status status = listen(end, options); !status.ok()) return refuse_here(status.message());
  Membership::Events events;
  events.on_roster = [this, tier](const Roster& roster) { on_roster(tier, roster); };
  events.on_ready = [this](const Agreement& agreement) {
    if (!is_ready_ && options_.role == NodeRole::worker) on_ready(agreement);
  };
  events.on_failed = [this](Fault fault, const std::string& why) {
    fault_ = fault;
    fail(why);
  };
  end.membership = std::make_unique<Membership>(
      reactor_, *end.link, *end.transport, to_address(options.scheduler_host, options.scheduler_port),
      domain_name(tier), options_.join_us, options_.death_us, std::move(events));
  end.membership->meet(description());
}

std::string Node::description() const {
  return "a " + title() + (party().empty() ? "" : " of party " + party()) + " (pid " + std::to_string(getpid()) +
         " on " + host_name() + ")";
}

JoinRequest Node::request(Tier tier) const {
  const DomainOptions& options = tier == Tier::lan ? options_.lan : options_.wan;
  JoinRequest request;
  const bool serves = tier == Tier::lan ? options_.role != NodeRole::worker : options_.role == NodeRole::global_server;
  request.role = serves ? Role::server : Role::member;
  request.title = title();
  request.party = party();
  request.wanted_rank =
      options_.role == NodeRole::local_server ? (tier == Tier::wan ? options_.party_rank : 0) : options_.rank;
  request.host = host_name();
  request.address = ends_[size_t(tier)]->transport->address();
  request.pid = uint32_t(getpid());
  request.num_servers = options.num_servers;
  request.num_members = options.num_members;
  request.is_observer = options_.role == NodeRole::worker && options_.is_central && !options_.central_trains;
  request.is_reachable = tier == Tier::lan || options_.is_reachable;
  request.has_master = options_.is_master;
  request.central_trains = options_.central_trains;
  request.num_workers = options_.role == NodeRole::worker && !request.is_observer;
  for (const auto& [key, value] : options_.settings) request.settings[key] = {value, ""};
  const End* lan = end_of(Tier::lan);
  if (tier == Tier::lan || lan == nullptr) return request;
  // Between the tiers: what the party has, goes up with the names of who has it.
  const Roster& party_roster = lan->membership->roster();
  request.settings = party_roster.settings;
  for (const RosterEntry& entry : party_roster.members) {
    request.num_workers += entry.num_workers;
    request.has_master = request.has_master || entry.has_master;
  }
  if (options_.role == NodeRole::global_server) request.wanted_rank = int32_t(party_roster.self.rank);
  return request;
}

void Node::on_roster(Tier tier, const Roster& roster) {
  const bool is_worker = options_.role == NodeRole::worker;
  name_ = roster.name_of(roster.self);
  if (tier == Tier::lan && is_worker) return;  // until the party's server says that all is up
  if (tier == Tier::lan) return ends_[size_t(Tier::wan)]->membership->join(request(Tier::wan));
  on_ready(agree());
}

// The same on every node of the WAN, since its roster is.
Agreement Node::agree() const {
  const Roster& wan = end_of(Tier::wan)->membership->roster();
  Agreement out;
  out.settings = wan.settings;
  out.num_parties = uint32_t(wan.members.size());
  out.num_global_servers = uint32_t(wan.servers.size());
  for (const RosterEntry& entry : wan.members) {
    if (entry.id == wan.self) out.first_global_rank = out.num_all_workers;
    out.num_all_workers += entry.num_workers;
    out.has_master = out.has_master || entry.has_master;
  }
  out.party_rank = wan.self.role == Role::member ? wan.self.rank : out.num_parties;
  for (const RosterEntry& entry : wan.servers) out.has_master = out.has_master || entry.has_master;
  if (wan.self.role == Role::server) out.first_global_rank = out.num_all_workers;
  if (!wan.servers.empty()) out.num_all_workers += wan.servers[0].num_workers;  // central workers, last
  if (out.has_master)
    out.authority = "the master worker";
  else if (!wan.members.empty())
    out.authority = "worker 0 of party " + wan.members[0].party;
  return out;
}

void Node::on_ready(const Agreement& agreement) {
  if (is_ready_ || is_over_) return;
  is_ready_ = true;
  agreement_ = agreement;
  for (const auto& [what, setting] : agreement_.settings) {
    if (what == "optimizer") optimizer_ = setting.value;
    if (hooks_.on_configured) hooks_.on_configured(what, setting.value);
  }
  offer_to_plugins();
  for (auto& end : ends_)
    if (end && !is_over_) make_side(*end);
  if (is_over_) return;
  make_directory();
  if (options_.role == NodeRole::worker)
    make_worker();
  else if (options_.role == NodeRole::local_server)
    make_local_server();
  else
    make_global_server();
  if (is_over_) return;
  End* lan = ends_[size_t(Tier::lan)].get();
  if (lan && options_.role != NodeRole::worker && lan->membership->roster().self.rank == 0)
    lan->membership->settle(agreement_);
  reactor_.after(kTickUs, [this] { tick(); });
  hooks_.log(kInfo, name_ + " is ready");
  hooks_.on_ready({});
}

void Node::fail(const std::string& message) {
  if (is_over_) return;
  for (auto& end : ends_) {
    if (!end) continue;
    if (end->membership) end->membership->report_failure(message);
    if (end->registry) return end->registry->fail(message);
  }
  fail_here(message);
}

void Node::fail_here(const std::string& message) {
  if (is_over_) return;
  failure_ = message;
  end_with(message);
}

// Whatever is still under way fails with this sentence.
void Node::end_with(const std::string& message) {
  is_over_ = true;
  if (worker_) worker_->fail(message);
  for (auto& [what, tickets] : configuring_)
    for (const TicketPtr& ticket : tickets) ticket->fail(message);
  for (auto& [which, tickets] : barriers_)
    for (const TicketPtr& ticket : tickets) ticket->fail(message);
  if (!is_ready_) hooks_.on_ready(Status::error(message));
  hooks_.on_done(Status::error(message));
}

void Node::refuse_here(const std::string& message) {
  fault_ = Fault::refused;
  fail(name_ + ": " + message);
}

void Node::close() {
  if (!is_over_) end_with(name_ + " was closed");
  for (auto& end : ends_) {
    if (!end) continue;
    if (!failure_.empty()) end->transport->set_linger_ms(kLingerAfterFailureMs);
    end->transport->close();
  }
}

// A scheduler judges its nodes, a node its scheduler. Servers are watched by their scheduler too; who loses one knows
// of it even where only the way between the two is broken.
void Node::on_trouble(End& end, NodeId node, PeerId peer, const std::string& why, bool is_over) {
  if (!is_over) return hooks_.log(kInfo, why);
  if (end.registry) return end.registry->lose(peer);
  if (is_over_) return;
  if (node == geomx::scheduler()) return end.membership->lose_scheduler(why);
  if (node.role != Role::server || leaving_ || wan_is_left_) return;
  reactor_.after(kGraceUs, [this, &end, node] {
    if (is_over_ || leaving_ || wan_is_left_) return;
    fail(name_ + ": the connection to " + end.membership->roster().name_of(node) + " is lost; its log says more");
  });
}

std::string Node::address(Tier tier) const { return end_of(tier) ? end_of(tier)->transport->address() : ""; }

Node::End& Node::first_end() { return ends_[0] ? *ends_[0] : *ends_[1]; }

uint32_t Node::rank() const {
  const End* end = end_of(Tier::lan) ? end_of(Tier::lan) : end_of(Tier::wan);
  return end && end->membership ? end->membership->roster().self.rank : 0;
}

uint32_t Node::num_workers() const {
  const End* end = end_of(Tier::lan) ? end_of(Tier::lan) : end_of(Tier::wan);
  return end && end->membership ? uint32_t(end->membership->roster().members.size()) : 0;
}

uint32_t Node::global_rank() const {
  const End* end = end_of(Tier::lan) ? end_of(Tier::lan) : end_of(Tier::wan);
  if (!end || !end->membership) return 0;
  if (end->tier == Tier::wan) return rank();
  uint32_t before = agreement_.first_global_rank;
  for (const RosterEntry& entry : end->membership->roster().members)
    if (entry.id.rank < rank()) before += entry.num_workers;
  return before;
}

bool Node::trains() const {
  const End* end = end_of(Tier::lan) ? end_of(Tier::lan) : end_of(Tier::wan);
  const RosterEntry* self =
      end && end->membership ? end->membership->roster().find(end->membership->roster().self) : nullptr;
  return self && self->id.role == Role::member && !self->is_observer && options_.role == NodeRole::worker;
}

std::string Node::party() const {
  if (!options_.party.empty() || !options_.lan.is_given) return options_.party;
  return options_.lan.scheduler_host + ":" + std::to_string(options_.lan.scheduler_port);
}

// Servers say every second whom they wait for.
std::string Node::reason(const Ticket& ticket) const {
  std::string why = worker_ ? worker_->blocked_by(ticket) : "";
  if (why.empty() && reactor_.now_us() - waited_for_us_ < 5 * kTickUs) why = waited_for_;
  return why.empty() ? "" : "; " + why;
}

void Node::cancel(const TicketPtr& ticket, const std::string& why) {
  if (worker_) worker_->cancel(ticket, why);
  ticket->fail(why);
}

}  // namespace geomx
