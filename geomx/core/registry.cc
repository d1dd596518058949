// Registry: see registry.h.
#include "registry.h"

#include <algorithm>
#include <tuple>

namespace geomx {
namespace {

constexpr uint64_t kRollCallUs = 5'000'000;
constexpr uint64_t kLateUs = 1'000'000;
constexpr uint64_t kPartiesFirstUs = 1'000'000;  // a party that isn't complete says more than the WAN that waits for it
constexpr int kInfo = 20, kWarning = 30, kError = 40;  // as in Python's logging

std::string seconds_text(uint64_t us) { return std::to_string(us / 1'000'000) + " s"; }

}  // namespace

Registry::Registry(Reactor& reactor, Link& link, RegistryOptions options,
                   std::function<void(int, const std::string&)> log)
    : reactor_(reactor), link_(link), options_(std::move(options)), log_(std::move(log)) {
  for (auto& [name, setting] : options_.settings) setting.origin = "the scheduler of " + options_.domain;
}

void Registry::start() {
  reactor_.after(kRollCallUs, [this] { call_roll(false); });
  const uint64_t grace_us = options_.tier == Tier::wan ? kPartiesFirstUs : 0;
  reactor_.after(options_.join_us + grace_us, [this] { call_roll(true); });
  watch();
}

void Registry::take(NodeId, PeerId peer, const Frame& frame) {
  Node* node = find(peer);
  if (is_over_) {
    if (node == nullptr) link_.send_to_peer(peer, last_word_);
    return;
  }
  if (frame.kind == FrameKind::join) return take_join(peer, frame);
  if (node == nullptr) return take_visit(peer, frame);
  node->last_heard_us = reactor_.now_us();
  switch (frame.kind) {
    case FrameKind::heartbeat:
      return link_.send_to_peer(peer, Frame(FrameKind::heartbeat));
    case FrameKind::settled: {
      Frame ready(FrameKind::ready);
      ready.body = frame.body;
      return broadcast(ready);
    }
    case FrameKind::fail:
      return fail(Reader(frame.body).text());
    case FrameKind::bye:
      node->has_left = true;
      link_.send_to_peer(peer, Frame(FrameKind::bye));
      if (std::all_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.has_left; }) && is_ready_) {
        is_over_ = true;
        done_({});
      }
      return;
    default:
      return;
  }
}

void Registry::take_visit(PeerId peer, const Frame& frame) {
  Reader in(frame.body);
  const std::string text = in.text();
  if (!in.done()) return;
  if (frame.kind == FrameKind::heartbeat) {
    if (!is_ready_ && !visitors_.count(peer)) log_(kInfo, text + " is about to join " + options_.domain);
    if (!is_ready_) visitors_[peer] = {text, reactor_.now_us()};
    link_.send_to_peer(peer, Frame(FrameKind::heartbeat));
  } else if (frame.kind == FrameKind::fail && visitors_.count(peer)) {
    fail(text);
  }
}

void Registry::take_join(PeerId peer, const Frame& frame) {
  JoinRequest request;
  if (find(peer) != nullptr) return;  // asked twice
  visitors_.erase(peer);
  auto refuse = [&](const std::string& why) {
    Frame answer(FrameKind::refuse);
    answer.body = Writer().text(why).finish();
    link_.send_to_peer(peer, std::move(answer));
    log_(kWarning, "refused " + describe(request) + ": " + why);
  };
  if (!JoinRequest::read(frame.body, &request)) return refuse("its request to join is malformed");
  if (const auto why = reason_to_refuse(request)) return refuse(*why);
  if (const Status status = adopt_counts(request, describe(request)); !status.ok()) {
    refuse(status.message());
    return refuse_all(status.message());
  }
  Node node;
  node.request = std::move(request);
  node.peer = peer;
  node.last_heard_us = reactor_.now_us();
  log_(kInfo, describe(node.request) + " has joined " + options_.domain);
  nodes_.push_back(std::move(node));
  if (is_complete()) complete();
}

std::optional<std::string> Registry::reason_to_refuse(const JoinRequest& request) const {
  const uint32_t limit = request.role == Role::server ? options_.num_servers : options_.num_members;
  const std::string role = title_of(request.role) + "s";
  if (is_ready_ || (limit != 0 && count(request.role) >= limit))
    return options_.domain + " is complete: " + std::to_string(count(request.role)) + " " + role +
           " have joined; is an older process of this job still running, or a count too small?";
  for (const Node& node : nodes_)
    if (request.wanted_rank >= 0 && node.request.role == request.role &&
        node.request.wanted_rank == request.wanted_rank)
      return "rank " + std::to_string(request.wanted_rank) + " of " + options_.domain + " is taken by " +
             describe(node.request);
  return std::nullopt;
}

// All nodes of a domain must agree on how many there are.
Status Registry::adopt_counts(const JoinRequest& request, const std::string& who) {
  auto compare = [&](uint32_t* ours, uint32_t theirs, const std::string& what) -> Status {
    if (theirs == 0 || *ours == theirs) return {};
    if (*ours != 0)
      return Status::error(who + " says that " + options_.domain + " has " + std::to_string(theirs) + " " + what +
                           ", others say " + std::to_string(*ours) + "; give all its nodes the same number");
    *ours = theirs;
    return {};
  };
  if (Status status = compare(&options_.num_servers, request.num_servers, title_of(Role::server) + "s"); !status.ok())
    return status;
  return compare(&options_.num_members, request.num_members, title_of(Role::member) + "s");
}

uint32_t Registry::count(Role role) const {
  return uint32_t(std::count_if(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.request.role == role; }));
}

bool Registry::is_complete() const {
  return options_.num_servers != 0 && count(Role::server) == options_.num_servers &&
         count(Role::member) == options_.num_members && (options_.num_members != 0 || options_.tier == Tier::lan);
}

// Explicit ranks first, the rest in an order that doesn't depend on who came first.
Status Registry::give_ranks(Role role) {
  std::vector<Node*> nodes;
  for (Node& node : nodes_)
    if (node.request.role == role) nodes.push_back(&node);
  std::set<uint32_t> taken;
  for (Node* node : nodes) {
    if (node->request.wanted_rank < 0) continue;
    if (uint32_t(node->request.wanted_rank) >= nodes.size())
      return Status::error(describe(node->request) + " asks for rank " + std::to_string(node->request.wanted_rank) +
                           ", but ranks go from 0 to " + std::to_string(nodes.size() - 1));
    taken.insert(uint32_t(node->request.wanted_rank));
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) {
    const JoinRequest &x = a->request, &y = b->request;
    return std::tie(x.party, x.host, x.pid, x.address) < std::tie(y.party, y.host, y.pid, y.address);
  });
  uint32_t next = 0;
  for (Node* node : nodes) {
    if (node->request.wanted_rank < 0)
      while (taken.count(next)) ++next;
    const uint32_t rank = node->request.wanted_rank < 0 ? next++ : uint32_t(node->request.wanted_rank);
    node->id = NodeId{role, rank};
    const std::string& title = node->request.title;
    const bool is_numbered = title == "worker" || title == "global server";
    node->name = title + (is_numbered ? " " + std::to_string(rank) : "") +
                 (node->request.party.empty() || title == "global server" ? "" : " of party " + node->request.party);
  }
  return {};
}

// Whether the central party trains is its servers' word: by hand only they are told.
Status Registry::judge_central_party() {
  const Node* first = nullptr;
  for (const Node& node : nodes_) {
    if (options_.tier != Tier::lan || node.request.title != "global server") continue;
    if (first && first->request.central_trains != node.request.central_trains)
      return Status::error(first->name + " and " + node.name + " differ in whether central workers train");
    first = &node;
  }
  if (!first) return {};
  for (Node& node : nodes_) {
    if (node.request.role != Role::member) continue;
    if (node.request.central_trains && !first->request.central_trains)
      return Status::error(node.name + " says that central workers train, " + first->name + " doesn't; tell it too");
    node.request.is_observer = !first->request.central_trains;
    node.request.num_workers = first->request.central_trains;
  }
  return {};
}

Status Registry::unite_settings(Settings* all) const {
  *all = options_.settings;
  for (const Node& node : nodes_) {
    Settings theirs = node.request.settings;
    for (auto& [name, setting] : theirs)
      if (setting.origin.empty()) setting.origin = node.name;
    if (Status status = unite(all, theirs); !status.ok()) return status;
  }
  return {};
}

void Registry::complete() {
  is_ready_ = true;
  visitors_.clear();  // too many: they are refused when they ask
  Settings settings;
  for (Role role : {Role::server, Role::member})
    if (Status status = give_ranks(role); !status.ok()) return refuse_all(status.message());
  if (Status status = judge_central_party(); !status.ok()) return refuse_all(status.message());
  if (Status status = unite_settings(&settings); !status.ok()) return refuse_all(status.message());
  Roster roster = make_roster(settings);
  for (const Node& node : nodes_) {
    link_.set_peer(node.id, node.peer);
    roster.self = node.id;
    Frame frame(FrameKind::roster);
    frame.body = roster.finish();
    link_.send(node.id, std::move(frame));
  }
  log_(kInfo, options_.domain + " is complete: " + std::to_string(options_.num_servers) + " servers, " +
                  std::to_string(options_.num_members) + " " + title_of(Role::member) + "s");
}

Roster Registry::make_roster(const Settings& settings) const {
  Roster roster;
  roster.settings = settings;
  for (const Node& node : nodes_) {
    RosterEntry entry;
    entry.id = node.id;
    entry.name = node.name;
    entry.party = node.request.party;
    entry.address = node.request.address;
    entry.is_observer = node.request.is_observer;
    entry.has_master = node.request.has_master;
    entry.is_reachable = node.request.is_reachable;
    entry.num_workers = node.request.num_workers;
    (node.id.role == Role::server ? roster.servers : roster.members).push_back(std::move(entry));
  }
  auto by_rank = [](const RosterEntry& a, const RosterEntry& b) { return a.id.rank < b.id.rank; };
  std::sort(roster.servers.begin(), roster.servers.end(), by_rank);
  std::sort(roster.members.begin(), roster.members.end(), by_rank);
  return roster;
}

void Registry::broadcast(const Frame& frame) {
  for (const Node& node : nodes_)
    if (!node.has_left) link_.send_to_peer(node.peer, frame);
  for (const auto& [peer, visitor] : visitors_) link_.send_to_peer(peer, frame);
}

void Registry::refuse_all(const std::string& why, bool is_timeout) {
  Frame frame(FrameKind::refuse);
  frame.key = is_timeout;
  if (!is_over_) log_(kError, why);
  end(std::move(frame), why);
}

void Registry::fail(const std::string& message) { end(Frame(FrameKind::fail), message); }

// Where not all have come, latecomers hear it too, for a moment: else they would look for us until their own deadline.
void Registry::end(Frame last_word, const std::string& why) {
  if (is_over_) return;
  is_over_ = true;
  last_word.body = Writer().text(why).finish();
  last_word_ = std::move(last_word);
  broadcast(last_word_);
  if (is_ready_) return done_(Status::error(why));
  reactor_.after(kLateUs, [this, why] { done_(Status::error(why)); });
}

std::string Registry::missing_text() const {
  auto lack = [&](Role role, uint32_t wanted, const std::string& name) -> std::string {
    if (wanted == 0) return count(role) == 0 ? "any " + name : "";
    const uint32_t here = count(role);
    if (here >= wanted) return "";
    return std::to_string(wanted - here) + " of " + std::to_string(wanted) + " " + name + "s";
  };
  const std::string servers = lack(Role::server, options_.num_servers, title_of(Role::server));
  const std::string members = lack(Role::member, options_.num_members, title_of(Role::member));
  return servers + (servers.empty() || members.empty() ? "" : " and ") + members;
}

// Who is still missing, now and then; at the end of the wait everybody who came is sent home with the same sentence.
void Registry::call_roll(bool is_last) {
  if (is_ready_ || is_over_) return;
  std::string here;
  for (const Node& node : nodes_) here += (here.empty() ? "" : ", ") + describe(node.request);
  const std::string roll =
      options_.domain + " still lacks " + missing_text() + "; here: " + (here.empty() ? "nobody" : here);
  if (is_last)
    return refuse_all(options_.domain + " was not complete after " + seconds_text(options_.join_us) + ": it lacks " +
                          missing_text() + "; here: " + (here.empty() ? "nobody" : here),
                      true);
  log_(kWarning, roll);
  reactor_.after(kRollCallUs, [this] { call_roll(false); });
}

void Registry::watch() {
  if (is_over_) return;
  for (const Node& node : nodes_) {
    if (node.has_left || reactor_.now_us() - node.last_heard_us <= options_.death_us) continue;
    return fail(name_of(node) + " was not heard of for " + seconds_text(options_.death_us) + "; its own log says more");
  }
  for (const auto& [peer, visitor] : visitors_)
    if (reactor_.now_us() - visitor.last_heard_us > options_.death_us)
      return fail(visitor.who + " was not heard of for " + seconds_text(options_.death_us) + "; its own log says more");
  reactor_.after(options_.death_us / 8, [this] { watch(); });
}

void Registry::lose(PeerId peer) {
  const Node* node = find(peer);
  const auto visitor = visitors_.find(peer);
  if (is_over_ || (node == nullptr && visitor == visitors_.end()) || (node != nullptr && node->has_left)) return;
  fail((node ? name_of(*node) : visitor->second.who) +
       " ended without a good-bye: its connection was closed; its own log says more");
}

// Before all are there a node has no number yet.
std::string Registry::name_of(const Node& node) const {
  if (node.name.empty()) return describe(node.request);
  return node.name + " (pid " + std::to_string(node.request.pid) + " on " + node.request.host + ")";
}

// As the nodes call themselves, else what one would expect of the tier.
std::string Registry::title_of(Role role) const {
  for (const Node& node : nodes_)
    if (node.request.role == role && node.request.title != "master worker") return node.request.title;
  const bool is_wan = options_.tier == Tier::wan;
  return role == Role::server ? (is_wan ? "global server" : "server") : (is_wan ? "local server" : "worker");
}

std::string Registry::describe(const JoinRequest& request) const {
  return "a " + request.title + (request.party.empty() ? "" : " of party " + request.party) + " (pid " +
         std::to_string(request.pid) + " on " + request.host + ")";
}

Registry::Node* Registry::find(PeerId peer) {
  for (Node& node : nodes_)
    if (node.peer == peer) return &node;
  return nullptr;
}

}  // namespace geomx
