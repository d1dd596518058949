// Room 2: the member's side of rounds. For each part: at most one round is out; the next one's values wait until its
// answer is here, so that what was not applied can go into them. Gives every closed value to whoever listens: where
// differences come, the value that they make (lane.h), bit for bit the servers' base. A difference that doesn't follow
// on what is here is not used; the whole value is asked for instead.
// Used by workers (LAN, or WAN in a flat topology) and by local servers (WAN). Knows no sockets and no frameworks.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>

#include "lane.h"
#include "per_key.h"
#include "side.h"

namespace geomx {

class Relay;

class Client {
 public:
  // A closed value, encoded as it came. `answers`: it is that of the round we contributed to last; else somebody
  // pulled.
  using OnValue = std::function<void(const Frame& frame, bool answers)>;

  explicit Client(Side& side);
  ~Client();
  void on_value(OnValue handler) { on_value_ = std::move(handler); }

  // The values of the part's next round, in sum_type.
  void push(uint32_t key, uint32_t part, Bytes values, int priority);
  // Asks for a value of at least this round; the answer comes through on_value.
  void pull(uint32_t key, uint32_t part, uint32_t min_round);
  void send_initial(uint32_t key, uint32_t part, Bytes raw);
  // Tells the servers that no more comes, once everything pushed is answered; `done` when they know.
  void leave(std::function<void()> done);

  void take_value(Frame frame);
  void take_overlap(const Frame& frame);
  void take_leave_taken(NodeId from);
  // Decodes what on_value gave, into values of sum_type.
  Status decode(const Frame& frame, Bytes* values);

  Lane& lane() { return lane_; }
  Relay* relay() { return relay_.get(); }
  uint32_t rounds_of(uint32_t key) const;  // rounds that this member has contributed to
  bool is_idle() const { return num_out_ == 0; }
  // For tests only: what was not applied is forgotten.
  void stop_giving_back() { gives_back_ = false; }

 private:
  struct Pending {
    Bytes values;
    int priority;
  };
  struct Part {
    uint32_t sent = 0, answered = 0;  // rounds
    std::deque<Pending> pending;
    Frame kept;  // our own contribution, until the answer says whether it was applied
    int64_t rank = 0;
    TimerId bypass = 0;
    uint64_t bypass_us = 0;
    uint32_t alone = 0;  // the last round whose contribution also went straight to the root
    Bytes base;          // where differences come, or may: the value of base_round, in sum_type
    uint32_t base_round = 0;
  };
  struct State {
    std::vector<Part> parts;
    std::unordered_map<uint32_t, uint32_t> unsent;                  // server -> parts of the round that have not left
    std::unordered_map<uint32_t, std::vector<uint32_t>> droppable;  // server -> parts of the round that may be missing
  };
  State& state_of(uint32_t key);
  void start(uint32_t key, uint32_t part);
  void send(const Encoded& encoded);
  void send_by_overlay(const Encoded& encoded, Frame frame, uint32_t to);
  void note_sent(const Encoded& encoded, uint32_t server);
  bool merges(const Encoded& encoded) const;
  void tell_bypass(uint32_t key, uint32_t part, uint32_t round);
  void send_alone(uint32_t key, uint32_t part, uint32_t round);
  void watch(uint32_t key, uint32_t part, uint32_t round);
  bool complete(const Key& key, Part& part, Frame* frame);
  void finish_leaving();
  bool keeps() const { return side_.policies.overlay || side_.policies.transport->is_lossy(); }

  Side& side_;
  Lane lane_;
  std::unique_ptr<Relay> relay_;
  OnValue on_value_;
  PerKey<State> states_;
  size_t num_out_ = 0;  // parts whose round is not answered, or that have values waiting
  std::function<void()> left_;
  bool has_left_ = false, gives_back_ = true, is_looking_ = false;
  std::set<NodeId> leave_owed_;
};

}  // namespace geomx
