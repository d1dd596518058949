// TSEngine as an overlay of GeoMX. A member that holds contributions of a part asks the part's server where to; the
// server matches those who ask (matchmaker.h). Values take a tree that the server plans part by part. Rates are
// measured by who sends, and travel with the questions.
#include <geomx/plugin.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gauge.h"
#include "matchmaker.h"

namespace tsengine {
namespace {

constexpr uint32_t kMaxMembers = 1u << 16;
constexpr double kGrowth = 2;       // of what is usual, in two rounds
constexpr double kIdleShare = 0.7;  // of our uplink: with so much of it in use it isn't what others wait for
enum News : uint32_t { kUplink, kDownlink, kWaitedFor };  // kWaitedFor + member

class Words {
 public:
  explicit Words(char kind) { out_.push_back(kind); }
  Words& number(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_.push_back(char(v | 0x80));
    out_.push_back(char(v));
    return *this;
  }
  gx_bytes bytes() const { return {reinterpret_cast<const uint8_t*>(out_.data()), out_.size()}; }

 private:
  std::string out_;
};

// Of what came from the network: ok() is false once it wasn't what it should be.
class Parsed {
 public:
  explicit Parsed(gx_bytes words) : at_(words.data), end_(words.data + words.size) {}
  char kind() { return at_ < end_ ? char(*at_++) : '\0'; }
  uint64_t number() {
    uint64_t v = 0;
    for (int shift = 0; at_ < end_ && shift < 63; shift += 7) {
      const uint8_t byte = *at_++;
      v |= uint64_t(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return v;
    }
    ok_ = false;
    return 0;
  }
  uint32_t small() {
    const uint64_t v = number();
    if (v > 0xffffffffu) ok_ = false;
    return ok_ ? uint32_t(v) : 0;
  }
  bool ok() const { return ok_; }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

struct Settings {
  double max_greed_rate = 0.9;
  uint64_t hold_ns = 0, bypass_ns = 0, seed = 1;
};

class Overlay {
 public:
  Overlay(const gx_host* host, const gx_overlay_site& site, const Settings& settings)
      : host_(host),
        site_(site),
        settings_(settings),
        tier_(site.tier == GX_WAN ? "wan" : "lan"),
        reachable_(site.reachable, site.reachable + site.num_members),
        num_contributors_(size_t(std::count(site.contributes, site.contributes + site.num_members, 1))),
        sent_(site.num_members + 1) {
    if (is_server())
      matchmaker_ = std::make_unique<Matchmaker>(
          site.num_members, std::vector<uint8_t>(site.contributes, site.contributes + site.num_members), reachable_,
          settings.max_greed_rate, settings.seed + site.self);
  }

  void next_hop(const gx_slice& part, const gx_held& held, gx_hop* out) {
    *out = {GX_HOP_SEND, held.root, 0};
    if (is_server() || num_contributors_ < 2 || held.num_contributors >= num_contributors_) return;
    State& state = state_of(part, held.since_ns);
    if (state.is_told) {
      state.is_told = false;
      state.num_asked = 0;
      if (state.to != kRoot) out->node = state.sent = state.to;
      return;
    }
    const uint64_t until_ns = held.since_ns + hold_ns();
    if (host_->now_ns(host_) >= until_ns) {
      state.num_asked = 0;
      count("unheard");
      return tell(held.root, Words('G').number(part.key).number(part.part).number(part.round));
    }
    if (state.num_asked != held.num_contributors) {
      state.num_asked = held.num_contributors;
      ask(part, held);
    }
    *out = {GX_HOP_WAIT, 0, until_ns};
  }

  void route(const gx_slice& part, uint64_t bytes, const uint32_t* owed, size_t count_owed, gx_step* out) {
    const std::vector<Step> steps =
        matchmaker_->route({part.key, part.part}, {owed, owed + count_owed}, bytes, now_s());
    size_t next_direct = 0, relayed = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      out[i] = {steps[i].member, steps[i].below};
      if (i == next_direct)
        next_direct = i + 1 + steps[i].below;
      else
        ++relayed;
    }
    if (relayed > 0) count("relayed", double(relayed));
  }

  uint64_t bypass_ns() const {
    const uint64_t usual_ns = uint64_t(usual_.rate());
    return usual_ns == 0 ? settings_.bypass_ns : std::max<uint64_t>(4 * usual_ns, settings_.hold_ns);
  }

  void on_control(uint32_t from, gx_bytes words) {
    Parsed in(words);
    const char kind = in.kind();
    const bool is_from_member = (from & GX_SERVER) == 0 && from < site_.num_members;
    if (kind == 'O' && !is_from_member && !is_server()) return take_order(in);
    if (!is_server() || !is_from_member) return;
    if (kind == 'A') return take_question(from, in);
    const PartId part = {in.number(), in.small()};
    const uint32_t number = in.small();  // a round, or a member
    if (!in.ok()) return;
    if (kind == 'G') give(matchmaker_->gone(part, number, from, now_s()));
    if (kind == 'B') matchmaker_->broken(from, number, now_s());
  }

  // The servers' downlinks are not planned with: they are one receiver.
  void on_delivered(uint32_t to, uint64_t bytes, uint64_t sent_ns) {
    const Delivered::Sample sample = sent_.add(std::min(to, site_.num_members), bytes, sent_ns, host_->now_ns(host_));
    if (sample.bytes_per_s <= 0) return;
    for (uint32_t member : sample.waited_for) {
      if (member >= site_.num_members || sample.bytes_per_s > kIdleShare * uplink_.rate()) continue;
      if (is_server())
        matchmaker_->full_down(member);
      else
        news_[kWaitedFor + member] = 0;
    }
    uplink_.add(sample.bytes_per_s);
    if (sample.is_full) uplink_.mark_full();
    if (is_server())
      matchmaker_->own_rate_up(uplink_.rate());
    else
      note_uplink();
  }

  void on_received(uint64_t bytes) {
    const double rate = received_.add(bytes, host_->now_ns(host_));
    if (is_server() || rate <= most_received_) return;
    most_received_ = rate;
    news_[kDownlink] = code_of(rate);
  }

  void on_answer(const gx_slice& part) {
    const auto found = states_.find({part.key, part.part});
    if (found == states_.end() || found->second.round != part.round || found->second.since_ns == 0) return;
    if (part.round >= turned_ + kRoundsOfAPeak) {
      turned_ = part.round;
      most_usual_ns_ = usual_.rate() > 0 ? kGrowth * usual_.rate() : double(settings_.bypass_ns);
      usual_.mark_full();
      usual_.turn();
      uplink_.turn();
      note_uplink();
      most_received_ = 0;  // the server forgets too
    }
    // What waited for a deadline, ours or another's, must not make the next deadline late as well.
    const double took_ns = double(host_->now_ns(host_) - found->second.since_ns);
    usual_.add(std::min(took_ns, most_usual_ns_));
  }

  // Where we were to send to somebody, the way there or from there didn't work.
  void on_bypass(const gx_slice& part, uint32_t root) {
    count("bypassed");
    tell(root, Words('G').number(part.key).number(part.part).number(part.round));
    const auto found = states_.find({part.key, part.part});
    if (found == states_.end() || found->second.round != part.round) return;
    if (found->second.sent == kRoot) return;
    tell(root, Words('B').number(part.key).number(part.part).number(found->second.sent));
  }

  void on_missed(const gx_slice& part, uint32_t member) {
    if (is_server()) matchmaker_->missed({part.key, part.part}, member, now_s());
  }

  void on_left(uint32_t member) {
    if (is_server()) give(matchmaker_->left(member, now_s()));
  }

 private:
  struct State {
    uint32_t round = 0, to = kRoot, sent = kRoot;
    bool is_told = false;
    size_t num_asked = 0;  // contributions that we asked about last
    uint64_t since_ns = 0;
  };

  bool is_server() const { return (site_.self & GX_SERVER) != 0; }
  double now_s() const { return double(host_->now_ns(host_)) / 1e9; }
  uint64_t hold_ns() const { return std::max<uint64_t>(settings_.hold_ns, uint64_t(2 * usual_.rate())); }
  void count(const char* what, double by = 1) const {
    host_->metric(host_, (std::string("tsengine.") + tier_ + "." + what).c_str(), by);
  }
  void tell(uint32_t node, const Words& words) const { host_->send_control(host_, node, words.bytes()); }

  State& state_of(const gx_slice& part, uint64_t since_ns) {
    State& state = states_[{part.key, part.part}];
    if (state.round != part.round) {
      state = State();
      state.round = part.round;
      state.since_ns = since_ns;
    }
    return state;
  }

  // What is new travels with questions.
  void note_uplink() {
    const uint8_t code = code_of(uplink_.rate());
    if (code == told_uplink_) return;
    told_uplink_ = code;
    news_[kUplink] = code;
  }

  void ask(const gx_slice& part, const gx_held& held) {
    Words words('A');
    words.number(part.key).number(part.part).number(part.round).number(held.bytes).number(held.num_contributors);
    for (size_t i = 0; i < held.num_contributors; ++i) words.number(held.contributors[i]);
    words.number(news_.size());
    for (const auto& [what, code] : news_) words.number(what).number(code);
    news_.clear();
    tell(held.root, words);
  }

  void take_question(uint32_t from, Parsed in) {
    const PartId part = {in.number(), in.small()};
    const uint32_t round = in.small();
    const uint64_t bytes = in.number();
    std::vector<uint32_t> have;
    for (uint64_t left = in.number(); left > 0 && in.ok() && have.size() < kMaxMembers; --left)
      have.push_back(in.small());
    for (uint64_t left = in.number(); left > 0 && in.ok(); --left) {
      const uint32_t what = in.small();
      const double rate = rate_of(uint8_t(in.small()));
      if (!in.ok() || what >= kWaitedFor + site_.num_members) return;
      if (what == kUplink) matchmaker_->rate_up(from, rate);
      if (what == kDownlink) matchmaker_->rate_down(from, rate);
      if (what >= kWaitedFor) matchmaker_->full_down(what - kWaitedFor);
    }
    if (in.ok()) give(matchmaker_->ask(part, round, from, have, std::min<uint64_t>(bytes, 1ull << 40), now_s()));
  }

  void give(const std::vector<Order>& orders) {
    for (const Order& order : orders) {
      const auto& [key, part] = order.part;
      count(order.to == kRoot ? "to_server" : "merged");
      tell(order.member,
           Words('O').number(key).number(part).number(order.round).number(order.to == kRoot ? 0 : order.to + 1));
    }
  }

  void take_order(Parsed in) {
    const PartId part = {in.number(), in.small()};
    const uint32_t round = in.small(), to = in.small();
    const auto found = states_.find(part);
    if (!in.ok() || found == states_.end() || found->second.round != round || to > site_.num_members) return;
    found->second.is_told = true;
    found->second.to = to == 0 ? kRoot : to - 1;
    host_->wake(host_, std::get<0>(part), std::get<1>(part));
  }

  const gx_host* host_;
  gx_overlay_site site_;
  Settings settings_;
  const char* tier_;
  std::vector<uint8_t> reachable_;
  size_t num_contributors_;
  std::unique_ptr<Matchmaker> matchmaker_;
  std::map<PartId, State> states_;
  Delivered sent_;
  Received received_;
  Peak uplink_;                       // bytes/s
  double most_received_ = 0;          // bytes/s, since it was last forgotten
  uint8_t told_uplink_ = 0;           // the server knows
  std::map<uint32_t, uint8_t> news_;  // of News: what it doesn't, rates as codes
  Peak usual_;                        // how long parts take, ns
  double most_usual_ns_ = double(settings_.bypass_ns);
  uint32_t turned_ = 0;
};

Overlay& of(gx_overlay* self) { return *static_cast<Overlay*>(self->private_data); }

// Nothing may be thrown through the host.
template <typename Call>
gx_status guarded(gx_error* error, Call call) {
  try {
    call();
    return GX_OK;
  } catch (const std::exception& e) {
    if (error != nullptr) std::snprintf(error->message, sizeof(error->message), "%s", e.what());
    return GX_EINTERNAL;
  }
}

Settings settings_of(gx_params params) {
  Settings settings;
  for (size_t i = 0; i < params.count; ++i) {
    const gx_param& item = params.items[i];
    const std::string name = item.name;
    if (name == "max_greed_rate") settings.max_greed_rate = item.f;
    if (name == "hold_ms") settings.hold_ns = uint64_t(item.f * 1e6);
    if (name == "bypass_ms") settings.bypass_ns = uint64_t(item.f * 1e6);
    if (name == "seed") settings.seed = uint64_t(item.i);
  }
  return settings;
}

gx_status make(void*, const gx_host* host, const gx_overlay_site* site, gx_params params, gx_overlay* out,
               gx_error* error) {
  return guarded(error, [&] {
    out->private_data = new Overlay(host, *site, settings_of(params));
    out->struct_size = sizeof(gx_overlay);
    out->next_hop = [](gx_overlay* self, const gx_slice* part, const gx_held* held, gx_hop* hop, gx_error* e) {
      return guarded(e, [&] { of(self).next_hop(*part, *held, hop); });
    };
    out->route = [](gx_overlay* self, const gx_slice* part, uint64_t bytes, const uint32_t* owed, size_t count,
                    gx_step* steps,
                    gx_error* e) { return guarded(e, [&] { of(self).route(*part, bytes, owed, count, steps); }); };
    out->bypass_ns = [](gx_overlay* self) { return of(self).bypass_ns(); };
    out->on_control = [](gx_overlay* self, uint32_t from, gx_bytes words) {
      guarded(nullptr, [&] { of(self).on_control(from, words); });
    };
    out->on_delivered = [](gx_overlay* self, uint32_t to, uint64_t bytes, uint64_t sent_ns) {
      guarded(nullptr, [&] { of(self).on_delivered(to, bytes, sent_ns); });
    };
    out->on_received = [](gx_overlay* self, uint32_t, uint64_t bytes) {
      guarded(nullptr, [&] { of(self).on_received(bytes); });
    };
    out->on_answer = [](gx_overlay* self, const gx_slice* part) {
      guarded(nullptr, [&] { of(self).on_answer(*part); });
    };
    out->on_bypass = [](gx_overlay* self, const gx_slice* part, uint32_t root) {
      guarded(nullptr, [&] { of(self).on_bypass(*part, root); });
    };
    out->on_missed = [](gx_overlay* self, const gx_slice* part, uint32_t member) {
      guarded(nullptr, [&] { of(self).on_missed(*part, member); });
    };
    out->on_left = [](gx_overlay* self, uint32_t member) { guarded(nullptr, [&] { of(self).on_left(member); }); };
    out->release = [](gx_overlay* self) { delete static_cast<Overlay*>(self->private_data); };
  });
}

}  // namespace
}  // namespace tsengine

extern "C" gx_status geomx_plugin_v1(const gx_host*, gx_registrar* registrar, gx_error* error) {
  return registrar->add_overlay(registrar, "tsengine", tsengine::make, nullptr, error);
}
