#include "matchmaker.h"

#include <algorithm>

namespace tsengine {
namespace {

constexpr double kUnknown = 125e6;  // bytes/s of a link that nothing is known of: worth a try
constexpr double kBrokenS = 30;

}  // namespace

Matchmaker::Matchmaker(uint32_t num_members, std::vector<uint8_t> contributes, std::vector<uint8_t> reachable,
                       double max_greed_rate, uint64_t seed)
    : num_members_(num_members),
      contributes_(std::move(contributes)),
      reachable_(std::move(reachable)),
      max_greed_rate_(max_greed_rate),
      random_(seed),
      up_(num_members),
      down_(num_members) {}

double Matchmaker::known(const Pipe& pipe) const {
  const double rate = pipe.bytes_per_s > 0 ? pipe.bytes_per_s : pipe.peak.rate();
  return rate > 0 ? rate : kUnknown;
}

double Matchmaker::done(const Pipe& pipe, double bytes, double now_s) const {
  return std::max(pipe.busy_s, now_s) + bytes / known(pipe);
}

void Matchmaker::use(Pipe& pipe, double bytes, double now_s) { pipe.busy_s = done(pipe, bytes, now_s); }

bool Matchmaker::may(uint32_t from, uint32_t to, double now_s) const {
  if (from == to || !reachable_[to]) return false;
  const auto found = broken_until_s_.find({from, to});
  return found == broken_until_s_.end() || found->second < now_s;
}

bool Matchmaker::explores() { return std::uniform_real_distribution<double>(0, 1)(random_) >= max_greed_rate_; }

void Matchmaker::turn(uint32_t round) {
  if (round < newest_round_ + kRoundsOfAPeak) return;
  newest_round_ = round;
  for (Pipe& pipe : down_) pipe.peak.turn();
}

// What every member has to carry in any case, once up and once down, is on its links' account from the start.
Matchmaker::Open& Matchmaker::open(PartId part, uint32_t round, uint64_t bytes, double now_s) {
  if (collecting_.empty()) {  // whatever was planned is over, however well it was planned
    root_up_.busy_s = std::min(root_up_.busy_s, now_s);
    for (auto* pipes : {&up_, &down_})
      for (Pipe& pipe : *pipes) pipe.busy_s = std::min(pipe.busy_s, now_s);
  }
  Open& found = open_[part];
  if (found.round == round) return found;
  turn(round);
  found = Open();
  found.round = round;
  found.bytes = bytes;
  collecting_.insert(part);
  for (uint32_t m = 0; m < num_members_; ++m) {
    if (!contributes_[m]) continue;
    use(up_[m], double(bytes), now_s);
    use(down_[m], double(bytes), now_s);
  }
  return found;
}

std::vector<Order> Matchmaker::ask(PartId part, uint32_t round, uint32_t member, const std::vector<uint32_t>& have,
                                   uint64_t bytes, double now_s) {
  const auto before = open_.find(part);
  if (member >= num_members_ || (before != open_.end() && round < before->second.round)) return {};
  Open& o = open(part, round, bytes, now_s);
  o.bytes = std::max(o.bytes, bytes);
  const std::set<uint32_t> has(have.begin(), have.end());
  // What was on its way to it and is there now.
  for (auto sent = o.sent_to.begin(); sent != o.sent_to.end();) {
    if (sent->second == member && has.count(sent->first)) {
      if (o.incoming[member] > 0) --o.incoming[member];
      sent = o.sent_to.erase(sent);
    } else {
      ++sent;
    }
  }
  // What it will contribute itself is still to come: it couldn't be told from what was lost.
  if (!has.count(member)) return {};
  if (o.retired.count(member)) return {{part, round, member, kRoot}};  // came after it had sent: straight on
  o.asking.insert(member);
  return match(part, o, now_s);
}

std::vector<Order> Matchmaker::gone(PartId part, uint32_t round, uint32_t member, double now_s) {
  const auto found = open_.find(part);
  if (found == open_.end() || found->second.round != round) {
    if (found != open_.end() && round < found->second.round) return {};
    if (member < num_members_) open(part, round, 0, now_s).retired.insert(member);
    return {};
  }
  found->second.asking.erase(member);
  found->second.retired.insert(member);
  return match(part, found->second, now_s);
}

std::vector<Order> Matchmaker::left(uint32_t member, double now_s) {
  if (member >= num_members_) return {};
  contributes_[member] = reachable_[member] = 0;
  std::vector<Order> orders;
  for (const PartId& part : std::set<PartId>(collecting_)) {
    Open& o = open_[part];
    o.asking.erase(member);
    const std::vector<Order> more = match(part, o, now_s);
    orders.insert(orders.end(), more.begin(), more.end());
  }
  return orders;
}

// Everybody who asks sends to the one that is best to merge at, whether that is ready or not; it goes to the server
// when it is the last. Nobody sends while something is on its way to it.
std::vector<Order> Matchmaker::match(PartId part, Open& o, double now_s) {
  std::vector<Order> orders;
  const double bytes = double(o.bytes);
  std::vector<uint32_t> active;
  for (uint32_t m = 0; m < num_members_; ++m)
    if (contributes_[m] && !o.retired.count(m)) active.push_back(m);
  uint32_t best = kRoot;
  for (uint32_t m : active)
    if (reachable_[m] && (best == kRoot || done(down_[m], bytes, now_s) < done(down_[best], bytes, now_s))) best = m;
  for (uint32_t m : std::set<uint32_t>(o.asking)) {
    if (o.incoming[m] > 0) continue;
    const bool is_last = active.size() == 1 && active[0] == m;
    if (m == best && !is_last) continue;
    uint32_t to = is_last ? kRoot : best;
    if (!is_last && explores()) {
      const uint32_t pick = active[random_() % active.size()];
      if (may(m, pick, now_s)) to = pick;
    }
    if (to != kRoot && !may(m, to, now_s)) to = kRoot;
    if (to != kRoot) {
      ++o.incoming[to];
      o.sent_to[m] = to;
      use(down_[to], bytes, now_s);
    }
    o.asking.erase(m);
    o.retired.insert(m);
    active.erase(std::find(active.begin(), active.end(), m));
    orders.push_back({part, o.round, m, to});
  }
  // Whoever is left alone by this is the last.
  if (!orders.empty() && active.size() == 1 && o.asking.count(active[0]) && o.incoming[active[0]] == 0) {
    const std::vector<Order> more = match(part, o, now_s);
    orders.insert(orders.end(), more.begin(), more.end());
  }
  return orders;
}

std::vector<Step> Matchmaker::route(PartId part, const std::vector<uint32_t>& owed, uint64_t bytes, double now_s) {
  collecting_.erase(part);
  std::vector<uint32_t> members, others;
  for (uint32_t m : owed) (m < num_members_ ? members : others).push_back(m);
  // Whoever can carry the value on gets it first.
  std::sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) {
    if (reachable_[a] != reachable_[b]) return reachable_[a] > reachable_[b];
    const double first = done(up_[a], double(bytes), now_s), second = done(up_[b], double(bytes), now_s);
    return first != second ? first < second : a < b;
  });
  std::vector<uint32_t> has;
  std::map<uint32_t, std::vector<uint32_t>> children;
  std::map<uint32_t, uint32_t>& parents = parents_[part];
  parents.clear();
  for (uint32_t child : members) {
    // By when its link is done with it, not by when it has the value: other parts fill the time until then. The server
    // has to send each part that is still being collected, too.
    const auto free_s = [&](uint32_t parent) {
      if (parent != kRoot) return done(up_[parent], double(bytes), now_s);
      return done(root_up_, double(bytes) * double(1 + collecting_.size()), now_s);
    };
    std::vector<uint32_t> able{kRoot};
    for (uint32_t parent : has)
      if (may(parent, child, now_s)) able.push_back(parent);
    uint32_t parent = kRoot;
    for (uint32_t other : able)
      if (free_s(other) < free_s(parent)) parent = other;
    if (able.size() > 1 && explores()) parent = able[1 + random_() % (able.size() - 1)];
    has.push_back(child);
    use(parent == kRoot ? root_up_ : up_[parent], double(bytes), now_s);
    children[parent].push_back(child);
    parents[child] = parent;
  }
  std::vector<Step> steps;
  for (uint32_t other : others) steps.push_back({other, 0});
  const auto write = [&](uint32_t member, const auto& self) -> void {
    const size_t at = steps.size();
    steps.push_back({member, 0});
    for (uint32_t child : children[member]) self(child, self);
    steps[at].below = uint32_t(steps.size() - at - 1);
  };
  for (uint32_t child : children[kRoot]) write(child, write);
  return steps;
}

void Matchmaker::missed(PartId part, uint32_t member, double now_s) {
  const auto found = parents_.find(part);
  if (found == parents_.end() || !found->second.count(member)) return;
  const uint32_t parent = found->second[member];
  if (parent != kRoot) broken(parent, member, now_s);
}

void Matchmaker::broken(uint32_t from, uint32_t to, double now_s) {
  if (from < num_members_ && to < num_members_) broken_until_s_[{from, to}] = now_s + kBrokenS;
}

}  // namespace tsengine
