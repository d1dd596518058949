// Node at work: the calls that it serves, the frames that it takes, and what it tells of itself.
#include <cmath>

#include "dispatch.h"
#include "node.h"

namespace geomx {
namespace {

constexpr uint64_t kTickUs = 1'000'000;
constexpr int kWarning = 30;

}  // namespace

Status Node::configure(const std::string& what, const std::string& value, const TicketPtr& ticket) {
  ticket->expect();
  configuring_[{what, value}].push_back(ticket);
  directory_->request(Directory::configure(what, value, name_));
  return {};
}

void Node::barrier(bool world, const TicketPtr& ticket) {
  ticket->expect();
  if (!end_of(Tier::lan)) world = true;  // flat: everybody is one party
  const uint32_t number = ++num_barriers_[world];
  barriers_[{world, number}].push_back(ticket);
  directory_->request(Directory::barrier(world, number));
}

// In a flat topology a worker sends for itself; else its party's server does.
void Node::report(const std::string& what, double value) {
  if (is_over_ || !is_ready_) return;
  End& end = first_end();
  if (end.tier == Tier::wan) return end.policies.transport->on_metric(what, value);
  Frame frame(FrameKind::report);
  frame.body = Writer().text(what).f64(value).finish();
  for (const RosterEntry& entry : end.membership->roster().servers) end.link->send(entry.id, frame);
}

void Node::leave(const TicketPtr& ticket) {
  auto left = std::make_shared<Ticket>(ticket->text(), [this, ticket](const std::string& error) {
    if (!error.empty()) return ticket->fail(error);
    first_end().membership->say_bye([this, ticket] {
      is_over_ = true;
      ticket->complete_one();
      hooks_.on_done({});
    });
  });
  ticket->expect();
  worker_->leave(left);
  leaving_ = left;
}

// A server is done when those below have left, and the WAN knows it.
void Node::end_if_over() {
  const End* lan = end_of(Tier::lan);
  if (!wan_is_left_ || is_leaving_ || is_over_) return;
  if (lan && lan->aggregator && lan->aggregator->left().count() < lan->membership->roster().members.size()) return;
  is_leaving_ = true;
  for (auto& end : ends_) {
    if (!end) continue;
    ++byes_owed_;
    end->membership->say_bye([this] {
      if (--byes_owed_ != 0 || is_over_) return;
      is_over_ = true;
      hooks_.on_done({});
    });
  }
}

void Node::on_frame(End& end, NodeId from, PeerId peer, Frame& frame) {
  if (end.registry) return end.registry->take(from, peer, frame);
  if (is_over_ && frame.kind != FrameKind::bye) return;
  if (from == geomx::scheduler()) return end.membership->take(peer, frame);
  if (frame.kind == FrameKind::heartbeat) return;
  if (frame.kind == FrameKind::waiting && take_notice_of_wait(end, frame)) return;
  if (!is_ready_) {
    // Somebody heard that all is up a moment before us.
    reactor_.after(1000, [this, &end, from, peer, frame]() mutable { on_frame(end, from, peer, frame); });
    return;
  }
  if (!is_known(end, from)) {
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  if (frame.kind == FrameKind::report) return take_report(end, from, frame);
  if (frame.kind == FrameKind::overlay) {
    if (end.policies.overlay) return end.policies.overlay->on_control(from, frame.body);
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  const bool is_leave = frame.kind == FrameKind::leave;
  if (directory_->take(end.tier, from, frame)) return;
  if (!dispatch(from, frame, end.client.get(), end.aggregator.get())) {
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  if (is_leave) {
    directory_->member_left(end.tier, end.side->contributor_of(from));
    if (end.policies.overlay) end.policies.overlay->on_left(end.side->contributor_of(from));
    end_if_over();
  }
}

bool Node::is_known(const End& end, NodeId from) const {
  const Roster& roster = end.membership->roster();
  if (from.role == Role::server) return from.rank < roster.servers.size();
  return from.role == Role::member && from.rank < roster.members.size();
}

// A server above tells whom it waits for: kept for our own messages, and passed on to who waits for us.
bool Node::take_notice_of_wait(const End& end, const Frame& frame) {
  waited_for_ = Reader(frame.body).text();
  waited_for_us_ = reactor_.now_us();
  const End* lan = end_of(Tier::lan);
  if (end.tier == Tier::wan && lan && options_.role == NodeRole::local_server)
    for (const RosterEntry& entry : lan->membership->roster().members) lan->link->send(entry.id, frame);
  return true;
}

// The mean over the party's workers of what each said last.
void Node::take_report(const End& end, NodeId from, const Frame& frame) {
  Reader in(frame.body);
  const std::string what = in.text(256);
  const double value = in.f64();
  const End* wan = end_of(Tier::wan);
  if (!in.done() || !std::isfinite(value) || end.tier != Tier::lan || from.role != Role::member || wan == nullptr ||
      (reported_.size() >= 64 && reported_.count(what) == 0)) {
    ++counters_.of(end.tier).refused_frames;
    return;
  }
  std::map<uint32_t, double>& values = reported_[what];
  values[from.rank] = value;
  double sum = 0;
  for (const auto& [rank, newest] : values) sum += newest;
  wan->policies.transport->on_metric(what, sum / double(values.size()));
}

void Node::tick() {
  if (is_over_) return;
  for (auto& end : ends_)
    if (end && end->aggregator) tell_stalls(*end);
  directory_->tell_who_is_missing();
  if (worker_)
    worker_->expire(reactor_.now_us(), [this](const Ticket& ticket) {
      return name_ + ": " + ticket.text() + " was not done in time" + reason(ticket);
    });
  reactor_.after(kTickUs, [this] { tick(); });
}

// Whoever waits in a round hears whom for; a round that waits for long is a warning in our log.
void Node::tell_stalls(End& end) {
  const auto stall = end.aggregator->oldest_stall();
  const uint64_t now_us = reactor_.now_us();
  if (!stall || now_us - stall->since_us < kTickUs) return;
  const Key& key = *keys_.find(stall->key);
  const std::string text = "round " + std::to_string(stall->round) + " of key \"" + key.spec.name + "\" has waited " +
                           std::to_string((now_us - stall->since_us) / 1'000'000) + " s for " +
                           names(end, stall->missing);
  Frame frame(FrameKind::waiting);
  frame.body = Writer().text(text).finish();
  for (const RosterEntry& entry : end.membership->roster().members)
    if (!stall->missing.contains(entry.id.rank) && !end.aggregator->left().contains(entry.id.rank))
      end.link->send(entry.id, frame);
  if (now_us - stall->since_us < options_.slow_us || now_us - end.warned_us < options_.slow_us) return;
  end.warned_us = now_us;
  hooks_.log(kWarning, name_ + ": " + text);
}

std::string Node::names(const End& end, const MemberSet& contributors) const {
  std::string text;
  contributors.for_each([&](uint32_t rank) {
    const bool is_central = rank >= end.membership->roster().members.size();
    text += (text.empty() ? "" : ", ") +
            (is_central ? "the central party" : end.membership->roster().name_of(member(rank)));
  });
  return text;
}

std::vector<Node::Item> Node::items() const {
  std::vector<Item> out;
  for (const auto& end : ends_) {
    if (!end) continue;
    end->link->for_each_flow([&](uint32_t node, const Flow& flow) {
      out.push_back({end->tier, peer_name(end->tier, node), key_name(flow.key), flow});
    });
  }
  return out;
}

std::string Node::peer_name(Tier tier, uint32_t node) const {
  const End* end = end_of(tier);
  if (node == kNobody || end == nullptr || !end->membership) return "";
  return end->membership->roster().name_of({Role(node & 3), node >> 2});
}

std::string Node::key_name(uint32_t index) const {
  const Key* key = index == kNoKey ? nullptr : keys_.find(index);
  return key == nullptr ? "" : key->spec.name;
}

std::map<std::string, double> Node::metrics() const {
  const std::lock_guard<std::mutex> lock(metrics_mutex_);
  return metrics_;
}

std::map<std::string, double> Node::figures() const {
  std::map<std::string, double> all;
  for (const auto& end : ends_)
    if (end)
      for (const auto& [name, value] : end->transport->figures()) all[name] += value;
  return all;
}

}  // namespace geomx
