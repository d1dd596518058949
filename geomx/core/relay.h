// Where a contribution goes when the star is not the plan: a member's part of an overlay. Merges what others send here
// with our own, hands it on when the overlay says so, and passes closed values on. A merged value carries the set of
// its contributors; nobody's own encoding is given up before the root has answered (client.h), so a relay may fail.
#pragma once
#include <functional>
#include <map>
#include <tuple>

#include "side.h"

namespace geomx {

class Relay {
 public:
  Relay(Side& side, std::function<void()> on_idle) : side_(side), on_idle_(std::move(on_idle)) {}

  void contribute(Frame own, int64_t rank, uint8_t channel);
  void take(Frame frame);                                    // another member's push
  void pass_on(const Frame& value);                          // to the members in value.forward
  void forget(uint32_t key, uint32_t part, uint32_t round);  // the round is answered
  bool is_idle() const { return num_holding_ == 0; }
  // For tests only: a contributor may be merged twice.
  void stop_checking_contributors() { checks_contributors_ = false; }

 private:
  using Id = std::tuple<uint32_t, uint32_t>;  // key, part
  struct Pending {
    uint32_t round = 0;
    std::vector<Bytes> bytes;
    MemberSet have, handed_on;
    uint32_t codec = 0;
    uint64_t since_us = 0;
    int64_t rank = 0;
    int32_t priority = 0;
    uint8_t channel = 0;
    bool is_droppable = true;
    TimerId timer = 0;
  };
  void merge(Frame frame, int64_t rank, uint8_t channel);
  void decide(Id id);
  void hand_on(Id id, Pending& pending, NodeId to);

  Side& side_;
  std::function<void()> on_idle_;
  std::map<Id, Pending> pending_;
  size_t num_holding_ = 0;
  bool checks_contributors_ = true;
};

}  // namespace geomx
