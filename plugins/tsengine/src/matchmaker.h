// A server's half of TSEngine: who merges with whom, and who passes values on to whom, part by part, while they come.
//
// The plan is by list scheduling. Each member has an uplink and a downlink, of a measured rate, and the time at which
// each is done with what it was given already; a transfer goes where it ends first. So members with slow links send
// once and receive once, which they have to, and those with fast ones do the rest.
//
// Pure: time and chance come in, decisions go out.
#pragma once
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "gauge.h"

namespace tsengine {

using PartId = std::tuple<uint64_t, uint32_t>;  // key, part

// Send what you hold of this part to `to`.
struct Order {
  PartId part;
  uint32_t round, member, to;  // to: kRoot or a member
};
constexpr uint32_t kRoot = 0xffffffff;

struct Step {
  uint32_t member, below;
};

class Matchmaker {
 public:
  Matchmaker(uint32_t num_members, std::vector<uint8_t> contributes, std::vector<uint8_t> reachable,
             double max_greed_rate, uint64_t seed);

  // `member` holds the contributions of `have`; whoever can be told something now is in the answer.
  std::vector<Order> ask(PartId part, uint32_t round, uint32_t member, const std::vector<uint32_t>& have,
                         uint64_t bytes, double now_s);
  // It went to the server by itself: nothing more comes from it.
  std::vector<Order> gone(PartId part, uint32_t round, uint32_t member, double now_s);
  // All contributions are in: the value goes to `owed`, of whom there may be others than members.
  std::vector<Step> route(PartId part, const std::vector<uint32_t>& owed, uint64_t bytes, double now_s);
  // A value didn't get there: the way that it should have taken isn't used for a while.
  void missed(PartId part, uint32_t member, double now_s);
  void broken(uint32_t from, uint32_t to, double now_s);
  std::vector<Order> left(uint32_t member, double now_s);

  // What a member measured: its uplink's rate is what it says; its downlink's is at least so much.
  void rate_up(uint32_t member, double bytes_per_s) { up_[member].bytes_per_s = bytes_per_s; }
  void rate_down(uint32_t member, double bytes_per_s) { down_[member].peak.add(bytes_per_s); }
  void full_down(uint32_t member) { down_[member].peak.mark_full(); }  // somebody waited for it
  void own_rate_up(double bytes_per_s) { root_up_.bytes_per_s = bytes_per_s; }
  double up(uint32_t member) const { return known(up_[member]); }
  double down(uint32_t member) const { return known(down_[member]); }

 private:
  struct Pipe {
    double bytes_per_s = 0;  // where it is known, else by the peak
    Peak peak;
    double busy_s = 0;  // until when
  };
  struct Open {
    uint32_t round = 0;
    uint64_t bytes = 0;
    std::set<uint32_t> asking, retired;
    std::map<uint32_t, uint32_t> incoming;  // transfers that are on their way to a member
    std::map<uint32_t, uint32_t> sent_to;   // who was told to send to whom, and is not there yet
  };
  Open& open(PartId part, uint32_t round, uint64_t bytes, double now_s);
  std::vector<Order> match(PartId part, Open& open, double now_s);
  double known(const Pipe& pipe) const;
  double done(const Pipe& pipe, double bytes, double now_s) const;
  bool may(uint32_t from, uint32_t to, double now_s) const;
  bool explores();
  void use(Pipe& pipe, double bytes, double now_s);
  void turn(uint32_t round);

  uint32_t num_members_;
  std::vector<uint8_t> contributes_, reachable_;
  double max_greed_rate_;
  std::mt19937_64 random_;
  std::vector<Pipe> up_, down_;
  Pipe root_up_;
  std::map<PartId, Open> open_;
  std::set<PartId> collecting_;  // parts that are asked about and not routed yet
  std::map<std::pair<uint32_t, uint32_t>, double> broken_until_s_;
  std::map<PartId, std::map<uint32_t, uint32_t>> parents_;  // of the last route
  uint32_t newest_round_ = 0;
};

}  // namespace tsengine
