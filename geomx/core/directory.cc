// Directory: see directory.h.
#include "directory.h"

#include <algorithm>

namespace geomx {

Directory::Directory(Place place, Settings settings, Events events)
    : place_(std::move(place)), settings_(std::move(settings)), events_(std::move(events)) {}

Frame Directory::declare(const KeySpec& spec, bool is_authority, const std::string& who) {
  Writer body;
  body.u8(is_authority).text(who);
  spec.write(body);
  Frame frame(FrameKind::declare);
  frame.body = body.finish();
  return frame;
}

Frame Directory::configure(const std::string& what, const std::string& value, const std::string& who) {
  Frame frame(FrameKind::configure);
  frame.body = Writer().text(what).text(value).text(who).finish();
  return frame;
}

Frame Directory::barrier(bool world, uint32_t number) {
  Frame frame(FrameKind::barrier);
  frame.key = world;
  frame.round = number;
  return frame;
}

bool Directory::take(Tier tier, NodeId from, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::declare:
    case FrameKind::configure:
    case FrameKind::seal:
      if (place_.is_root)
        decide(tier, from, frame);
      else if (place_.above)
        place_.above->send(server(0), frame);
      return true;
    case FrameKind::spec:
    case FrameKind::configured:
    case FrameKind::sealed:
      take_notice(tier, from, frame);
      return true;
    case FrameKind::taken: {
      auto found = pending_.find(frame.round);
      if (found == pending_.end()) return true;
      found->second.owed.erase(from);
      if (!found->second.owed.empty()) return true;
      const Frame notice = std::move(found->second.frame);
      pending_.erase(found);
      deliver(notice);
      return true;
    }
    case FrameKind::refuse: {
      Reader in(frame.body);
      const std::string what = in.text(), value = in.text(), why = in.text();
      if (!in.done()) return true;
      tell_party(frame);
      events_.on_refused(what, value, why);
      return true;
    }
    case FrameKind::barrier:
      take_barrier(tier, from, frame);
      return true;
    case FrameKind::barrier_done:
      finish_barrier(frame.key != 0, frame.round);
      return true;
    default:
      return false;
  }
}

void Directory::request(Frame frame) {
  if (place_.above) place_.above->send(server(0), std::move(frame));
}

void Directory::decide(Tier tier, NodeId from, const Frame& request) {
  if (request.kind == FrameKind::declare) return decide_key(tier, from, request);
  if (request.kind == FrameKind::configure) return decide_configuration(tier, from, request);
  if (is_sealed_) return;
  is_sealed_ = true;
  publish(Frame(FrameKind::sealed));
}

// A key is decided by the authority's declaration; what others say is compared with it.
void Directory::decide_key(Tier tier, NodeId from, const Frame& request) {
  Reader in(request.body);
  const bool is_authority = in.u8() != 0;
  const std::string who = in.text();
  KeySpec spec;
  if (!KeySpec::read(in, &spec) || !in.done()) return;
  Entry& entry = entries_[spec.id];
  for (const auto& [claimed, by] : entry.claims) {
    if (claimed.name != spec.name)
      return events_.fail("keys \"" + claimed.name + "\" and \"" + spec.name +
                          "\" have the same 64-bit identity; rename one");
    if (!claimed.same_tensor(spec))
      return events_.fail("key \"" + spec.name + "\": " + by + " has " + claimed.tensor_text() + ", " + who + " has " +
                          spec.tensor_text() + "; all workers must declare the same shape and type");
  }
  if (entry.is_sealed) {
    // While a server doesn't know the key, nobody may use it: the notice that is under way is the answer.
    if (pending_.count(entry.notice.round) == 0) reply(tier, from, entry.notice);
    return;
  }
  entry.claims.emplace_back(spec, who);
  if (!is_authority) return;
  if (Status status = spec.check(place_.num_servers); !status.ok()) return events_.fail(status.message());
  spec.index = next_index_++;
  entry.is_sealed = true;
  entry.notice = Frame(FrameKind::spec);
  Writer body;
  spec.write(body);
  entry.notice.body = body.finish();
  entry.notice.round = publish(entry.notice);
}

void Directory::decide_configuration(Tier tier, NodeId from, const Frame& request) {
  Reader in(request.body);
  const std::string what = in.text(), value = in.text(), who = in.text();
  if (!in.done()) return;
  auto found = settings_.find(what);
  if (found != settings_.end() && found->second.value == value) {
    const auto number = configured_by_.find(what);
    if (number != configured_by_.end() && pending_.count(number->second)) return;  // heard of with everybody else
    Frame notice(FrameKind::configured);
    notice.body = request.body;
    return reply(tier, from, notice);
  }
  if (found != settings_.end())
    return refuse(tier, from, what, value,
                  what + ": " + found->second.origin + " has set " + found->second.value + ", " + who + " asks for " +
                      value + "; set it the same, or once only");
  if (is_sealed_)
    return refuse(
        tier, from, what, value,
        what + ": " + who + " sets " + value + " too late: the first push has ended configuring; set it before");
  settings_[what] = {value, who};
  Frame notice(FrameKind::configured);
  notice.body = request.body;
  configured_by_[what] = publish(std::move(notice));
}

void Directory::refuse(Tier tier, NodeId to, const std::string& what, const std::string& value,
                       const std::string& why) {
  Frame frame(FrameKind::refuse);
  frame.body = Writer().text(what).text(value).text(why).finish();
  reply(tier, to, frame);
}

void Directory::reply(Tier tier, NodeId to, const Frame& frame) {
  Link* link = tier == Tier::lan ? place_.party : place_.wan;
  if (link) link->send(to, frame);
}

// Servers first; when all of them have it, everybody else.
uint32_t Directory::publish(Frame frame) {
  frame.round = next_notice_++;
  apply(frame);
  if (place_.num_servers <= 1) {
    deliver(frame);
    return frame.round;
  }
  Notice& notice = pending_[frame.round];
  notice.frame = frame;
  for (uint32_t rank = 1; rank < place_.num_servers; ++rank) {
    notice.owed.insert(server(rank));
    place_.wan->send(server(rank), frame);
  }
  return frame.round;
}

void Directory::deliver(const Frame& frame) {
  for (uint32_t rank = 0; rank < place_.num_members; ++rank) place_.wan->send(member(rank), frame);
  tell_party(frame);
}

void Directory::take_notice(Tier tier, NodeId from, const Frame& frame) {
  apply(frame);
  if (place_.is_first_server) tell_party(frame);
  if (tier == Tier::wan && place_.wan && !place_.is_root && place_.num_servers > 1) {
    Frame taken(FrameKind::taken);
    taken.round = frame.round;
    place_.wan->send(from, std::move(taken));
  }
}

void Directory::tell_party(const Frame& frame) {
  if (!place_.party || !place_.is_first_server) return;
  for (uint32_t rank = 0; rank < place_.num_party_members; ++rank)
    if (!party_left_.contains(rank)) place_.party->send(member(rank), frame);
}

void Directory::apply(const Frame& frame) {
  Reader in(frame.body);
  if (frame.kind == FrameKind::spec) {
    KeySpec spec;
    if (KeySpec::read(in, &spec)) events_.on_spec(std::move(spec));
  } else if (frame.kind == FrameKind::configured) {
    const std::string what = in.text(), value = in.text();
    events_.on_configured(what, value);
  } else {
    events_.on_sealed();
  }
}

// --- barriers: counted by member, so that one that comes twice counts once -------------------------------------------

void Directory::take_barrier(Tier tier, NodeId from, const Frame& frame) {
  if (frame.key != 0 && frame.round <= world_done_) {  // an observer, who isn't waited for, comes late
    Frame done(FrameKind::barrier_done);
    done.key = 1;
    done.round = frame.round;
    return reply(tier, from, done);
  }
  if (tier == Tier::lan)
    party_barriers_[frame.key != 0].in[frame.round].insert(from.rank);
  else if (place_.is_root && from.role == Role::member)
    world_barriers_.in[frame.round].insert(from.rank);
  judge_barriers();
}

MemberSet Directory::party_expected(bool world) const {
  MemberSet all = MemberSet::first(place_.num_party_members) - party_left_;
  return world ? all - place_.party_observers : all;
}

MemberSet Directory::world_expected() const {
  MemberSet all = MemberSet::first(place_.num_members) - place_.wan_observers;
  if (place_.central_contributes) all.insert(place_.num_members);
  return all - wan_left_;
}

void Directory::judge_barriers() {
  if (place_.party) {
    judge_party(false);
    judge_party(true);
  }
  if (place_.is_root) judge_world();
}

void Directory::judge_party(bool world) {
  std::vector<uint32_t> complete;
  for (const auto& [number, in] : party_barriers_[world].in)
    if (in.contains(party_expected(world))) complete.push_back(number);
  for (uint32_t number : complete) {
    if (!world) {
      finish_barrier(false, number);
    } else if (passed_up_.insert(number).second) {
      if (place_.is_root)
        world_barriers_.in[number].insert(place_.num_members);
      else if (place_.above)
        place_.above->send(server(0), barrier(true, number));
    }
  }
}

void Directory::judge_world() {
  std::vector<uint32_t> complete;
  for (const auto& [number, in] : world_barriers_.in)
    if (in.contains(world_expected())) complete.push_back(number);
  for (uint32_t number : complete) {
    world_barriers_.in.erase(number);
    world_done_ = std::max(world_done_, number);
    Frame done(FrameKind::barrier_done);
    done.key = 1;
    done.round = number;
    for (uint32_t rank = 0; rank < place_.num_members; ++rank)
      if (!wan_left_.contains(rank)) place_.wan->send(member(rank), done);
    finish_barrier(true, number);
  }
}

void Directory::finish_barrier(bool world, uint32_t number) {
  party_barriers_[world].in.erase(number);
  Frame done(FrameKind::barrier_done);
  done.key = world;
  done.round = number;
  tell_party(done);
  events_.on_barrier_done(world, number);
}

void Directory::member_left(Tier tier, uint32_t contributor) {
  (tier == Tier::lan ? party_left_ : wan_left_).insert(contributor);
  judge_barriers();
}

void Directory::tell_who_is_missing() {
  auto text_of = [&](Tier tier, const MemberSet& missing) {
    std::string text;
    missing.for_each([&](uint32_t rank) { text += (text.empty() ? "" : ", ") + events_.name_of(tier, member(rank)); });
    return text;
  };
  auto tell = [](Link* link, const MemberSet& who, const std::string& text) {
    Frame frame(FrameKind::waiting);
    frame.body = Writer().text("a barrier waits for " + text).finish();
    who.for_each([&](uint32_t rank) { link->send(member(rank), frame); });
  };
  for (int world = 0; place_.party && world < 2; ++world)
    for (const auto& [number, in] : party_barriers_[world].in)
      if (!in.contains(party_expected(world != 0)))
        tell(place_.party, in - party_left_, text_of(Tier::lan, party_expected(world != 0) - in));
  for (const auto& [number, in] : world_barriers_.in)
    if (place_.is_root && !in.contains(world_expected()))
      tell(place_.wan, (in - wan_left_) - MemberSet::of(place_.num_members), text_of(Tier::wan, world_expected() - in));
}

}  // namespace geomx
