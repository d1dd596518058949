// Membership: see membership.h.
#include "membership.h"

namespace geomx {

Membership::Membership(Reactor& reactor, Link& link, Transport& transport, std::string scheduler_address,
                       std::string domain, uint64_t join_us, uint64_t death_us, Events events)
    : reactor_(reactor),
      link_(link),
      transport_(transport),
      scheduler_address_(std::move(scheduler_address)),
      domain_(std::move(domain)),
      join_us_(join_us),
      death_us_(death_us),
      events_(std::move(events)) {}

void Membership::meet(const std::string& who) {
  who_ = who;
  if (Status status = transport_.connect(scheduler_address_, &scheduler_); !status.ok()) {
    is_over_ = true;
    return events_.on_failed(Fault::refused, "can't reach the scheduler of " + domain_ + ": " + status.message());
  }
  link_.set_peer(geomx::scheduler(), scheduler_);
  beat();
}

void Membership::join(const JoinRequest& request) {
  if (is_over_) return;
  who_.clear();
  Frame frame(FrameKind::join);
  frame.body = request.finish();
  link_.send_to_peer(scheduler_, std::move(frame));
  // The scheduler's own deadline comes first and says who is missing; this one is for a scheduler that isn't there.
  reactor_.after(join_us_ + 2'000'000, [this] {
    if (is_joined_ || is_over_) return;
    is_over_ = true;
    events_.on_failed(Fault::timeout, "the scheduler of " + domain_ + " at " + scheduler_address_ +
                                          " did not answer for " + std::to_string((join_us_ + 2'000'000) / 1'000'000) +
                                          " s; is it running, and is the address right?");
  });
}

void Membership::take(PeerId peer, const Frame& frame) {
  if (peer != scheduler_ || is_over_) return;
  last_heard_us_ = reactor_.now_us();
  switch (frame.kind) {
    case FrameKind::roster:
      return take_roster(frame);
    case FrameKind::ready: {
      Agreement agreement;
      if (Agreement::read(frame.body, &agreement)) events_.on_ready(agreement);
      return;
    }
    case FrameKind::refuse:
    case FrameKind::fail:
      is_over_ = true;
      return events_.on_failed(frame.kind == FrameKind::fail ? Fault::failed
                               : frame.key                   ? Fault::timeout
                                                             : Fault::refused,
                               Reader(frame.body).text());
    case FrameKind::bye:
      is_over_ = true;
      if (gone_) gone_();
      return;
    default:
      return;
  }
}

void Membership::take_roster(const Frame& frame) {
  if (is_joined_ || !Roster::read(frame.body, &roster_)) return;
  is_joined_ = true;
  link_.set_self(roster_.self);
  for (const auto* entries : {&roster_.servers, &roster_.members}) {
    for (const RosterEntry& entry : *entries) {
      // Members reach servers by connecting; servers answer on the same connection.
      const bool must_connect = entry.id.role == Role::server || roster_.self.role == Role::member;
      if (entry.id == roster_.self || link_.knows(entry.id)) continue;
      if (!must_connect) {
        link_.expect(entry.id);
        continue;
      }
      if (entry.id.role == Role::member) continue;
      PeerId peer;
      if (Status status = transport_.connect(entry.address, &peer); !status.ok())
        return events_.on_failed(Fault::refused, "can't reach " + entry.name + ": " + status.message());
      link_.set_peer(entry.id, peer);
      link_.send(entry.id, Frame(FrameKind::heartbeat));  // so that it learns which connection is ours
    }
  }
  events_.on_roster(roster_);
}

void Membership::connect(NodeId to) {
  const RosterEntry* entry = roster_.find(to);
  PeerId peer;
  if (entry == nullptr || !entry->is_reachable || !transport_.connect(entry->address, &peer).ok()) return;
  link_.set_peer(to, peer);
  link_.send(to, Frame(FrameKind::heartbeat));  // so that it learns which connection is ours
}

void Membership::settle(const Agreement& agreement) {
  Frame frame(FrameKind::settled);
  frame.body = agreement.finish();
  link_.send(geomx::scheduler(), std::move(frame));
}

void Membership::report_failure(const std::string& message) {
  if (is_over_) return;
  is_over_ = true;
  Frame frame(FrameKind::fail);
  frame.body = Writer().text(message).finish();
  link_.send_to_peer(scheduler_, std::move(frame));
}

void Membership::say_bye(std::function<void()> done) {
  gone_ = std::move(done);
  link_.send(geomx::scheduler(), Frame(FrameKind::bye));
}

void Membership::lose_scheduler(const std::string& why) {
  if (is_over_) return;
  is_over_ = true;
  if (last_heard_us_ == 0)
    return events_.on_failed(Fault::refused, "the scheduler of " + domain_ + " can't be joined: " + why);
  events_.on_failed(Fault::failed, "the scheduler of " + domain_ + " at " + scheduler_address_ +
                                       " ended before this node: its connection was closed; its own log says more");
}

// We live; and does the scheduler? It answers every beat, also while others are still missing.
void Membership::beat() {
  if (is_over_) return;
  if (last_heard_us_ != 0 && reactor_.now_us() - last_heard_us_ > death_us_) {
    is_over_ = true;
    return events_.on_failed(Fault::failed, "the scheduler of " + domain_ + " at " + scheduler_address_ +
                                                " was not heard of for " + std::to_string(death_us_ / 1'000'000) +
                                                " s; its own log says more");
  }
  Frame frame(FrameKind::heartbeat);
  if (!who_.empty()) frame.body = Writer().text(who_).finish();
  link_.send(geomx::scheduler(), std::move(frame));
  reactor_.after(death_us_ / 8, [this] { beat(); });
}

}  // namespace geomx
