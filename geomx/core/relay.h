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
  void take(Frame frame, uint32_t tries = 0);                // another member's push
  void pass_on(const Frame& value);                          // as value.forward says
  void forget(uint32_t key, uint32_t part, uint32_t round);  // the round is answered
  void wake(uint32_t key, uint32_t part);                    // the overlay may decide now
  // We contribute no more: whatever is held, or still comes, goes straight to the server.
  void retire();
  // Nothing is held, and what was passed on has arrived or had its time.
  bool is_idle() const;
  // For tests only: a contributor may be merged twice.
  void stop_checking_contributors() { checks_contributors_ = false; }

 private:
  using Id = std::tuple<uint32_t, uint32_t>;  // key, part
  struct Pending {
    uint32_t round = 0;
    std::vector<Frame> held;
    MemberSet have, handed_on;
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
  bool merge_held(const Key& key, uint32_t part, Pending& pending);
  void send(NodeId to, Frame frame, const Pending& pending);

  Side& side_;
  std::function<void()> on_idle_;
  std::map<Id, Pending> pending_;
  size_t num_holding_ = 0;
  bool is_retired_ = false;
  uint64_t passed_us_ = 0;  // when a value was passed on last; 0: never
  bool checks_contributors_ = true;
};

}  // namespace geomx
