// Room 5 and 7: the server's side of rounds. Takes contributions, closes a part when everyone who is expected is in
// (or what is missing may be missing), gives the sum to what stands above (the WAN on a local server, the updater on
// a global one) and answers every member that is owed the value, by membership and not by frame.
// Lives on the node's reactor; knows no sockets.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lane.h"
#include "per_key.h"
#include "side.h"

namespace geomx {

// When a round closes, and in which order it adds.
struct SyncPolicy {
  bool is_mixed = false;          // every member's rounds close by themselves (MixedSync)
  uint32_t staleness = 0;         // mixed: rounds that a member may be ahead of the slowest; 0: no bound
  bool is_deterministic = false;  // add by rank, not by arrival
};

// What stands above an aggregator. Answers each offer by Aggregator::finish, at once or later.
class Upstream {
 public:
  virtual ~Upstream() = default;
  // A closed round's sum, in sum_type; `line` is 0, or the contributor in mixed mode.
  virtual void offer(uint32_t key, uint32_t part, uint32_t line, uint32_t round, Bytes sum, const MemberSet& in,
                     int priority) = 0;
  // Memory for a sum that will be offered: where it can leave from without being copied.
  virtual Bytes allocate(uint32_t key, uint32_t part, size_t size) = 0;
  // A value is asked for that has never been here, or (`newest`) that isn't kept current by rounds.
  virtual void want(uint32_t key, uint32_t part) = 0;
  // The authority's initial value, raw.
  virtual void initial(uint32_t key, uint32_t part, Bytes raw) = 0;
  // Every member that trains has left.
  virtual void all_left() = 0;
  // Nothing stands higher: the newest value is here, so nobody needs to be asked for it.
  virtual bool is_top() const { return false; }
  // What a line's member has is not what was answered to its last offer: the newest value, since it asked for that, or
  // `values`, in sum_type, which a lossy way down made of it.
  virtual void gave(uint32_t key, uint32_t part, uint32_t line, const void* values = nullptr) {
    (void)key, (void)part, (void)line, (void)values;
  }
};

class Aggregator {
 public:
  // `observers` never contribute. `own_server`: this server's rank in its domain.
  Aggregator(Side& side, uint32_t num_contributors, MemberSet observers, uint32_t own_server, SyncPolicy sync,
             Upstream& upstream);

  void take_push(NodeId from, Frame frame);
  void take_end(NodeId from, const Frame& frame);
  void take_pull(NodeId from, const Frame& frame);
  void take_initial(const Frame& frame);
  void take_leave(NodeId from, const Frame& frame);

  // The value of the round that was offered: `value` in sum_type.
  void finish(uint32_t key, uint32_t part, uint32_t line, Bytes value);
  // The initial value, or a newer one for observers: raw bytes of the key's type.
  void set_value(uint32_t key, uint32_t part, uint32_t round, Bytes raw);

  Lane& lane() { return lane_; }
  // Who is waited for, oldest round first; empty if nobody. For warnings and failures.
  struct Stall {
    uint32_t key = 0, part = 0, round = 0;
    MemberSet missing;
    uint64_t since_us = 0;
  };
  std::optional<Stall> oldest_stall() const;
  bool has_open_rounds() const;
  MemberSet left() const { return left_; }
  // For tests only.
  using OnClose = std::function<void(uint32_t key, uint32_t part, uint32_t line, uint32_t round, const Bytes& sum)>;
  void on_close(OnClose handler) { on_close_ = std::move(handler); }
  void stop_checking_contributors() { checks_contributors_ = false; }
  void stop_waiting_for_ends() { waits_for_ends_ = false; }

 private:
  // One row of rounds of a part: of all members together, or of one member in mixed mode.
  struct Line {
    uint32_t open = 1;               // the round that collects
    MemberSet in;                    // who is in it
    Bytes sum;                       // sum_type
    std::map<uint32_t, Bytes> held;  // first contributor -> encoded, where the order of adding is fixed
    bool is_closed = false;          // offered upwards, not answered
    uint64_t since_us = 0;
    int priority = 0;
    MemberSet last_in, owed;  // of the newest answered round; of the one that is closed
  };
  struct Waiter {
    NodeId who;
    uint32_t min_round;
    bool asks_above;  // an observer where no rounds keep the value current: only a fresh one will do
  };
  struct Part {
    bool is_here = false;  // this server's
    bool has_value = false, is_wanted = false;
    uint32_t codec = 0;
    Bytes value;  // the newest, encoded for the members; whole where they get differences
    std::vector<Line> lines;
    std::vector<Waiter> waiters;
  };
  struct Ended {
    MemberSet droppable_parts;  // part numbers, not members
    uint64_t deadline_us = 0;
  };
  struct State {
    std::vector<Part> parts;
    std::map<uint32_t, std::unordered_map<uint32_t, Ended>> ends;  // round -> contributor
    bool initial_is_set = false;
  };

  State& state_of(uint32_t key);
  Part* part_of(const Frame& frame);
  bool contributes(NodeId node) const {
    const uint32_t contributor = side_.contributor_of(node);
    return contributor < num_contributors_ && !observers_.contains(contributor);
  }
  uint32_t num_lines() const { return sync_.is_mixed ? std::max(num_contributors_, 1u) : 1; }
  static std::unordered_map<uint32_t, uint32_t> read_last_rounds(const Frame& leave);
  void judge_everything();
  uint32_t line_of(uint32_t contributor) const { return sync_.is_mixed ? contributor : 0; }
  MemberSet expected(uint32_t key, uint32_t line, uint32_t round) const;
  bool is_late(const Line& line, const Frame& frame) const { return line.is_closed || frame.round < line.open; }
  void refuse_overlap(const Frame& frame, const Line& line);
  void add_in(const Key& key, Line& line, const Frame& frame);
  bool add_bytes(const Key& key, Line& line, const Frame& frame);
  Codec* codec_of(const Key& key, uint32_t wire_id) const;
  Status accumulate(Codec& codec, Line& line, const PartView& view, const Frame& frame);
  void judge(uint32_t key, uint32_t part, uint32_t line);
  void judge_all(uint32_t key);
  void judge_droppable(uint32_t key, uint32_t line, uint32_t round);
  bool may_miss(const State& state, uint32_t round, uint32_t part, const MemberSet& missing) const;
  bool is_too_far(uint32_t key, uint32_t part, uint32_t line) const;
  void trace_open(uint32_t key, uint32_t part, const Line& line) const;
  void close(uint32_t key, uint32_t part, uint32_t line);
  void answer(uint32_t key, uint32_t part, uint32_t line, Encoded encoded);
  Bytes own(const Bytes& value, const MemberSet& receivers);
  void send_value(const Key& key, uint32_t part, const Line& line, NodeId to, const Route& forward,
                  const Encoded& encoded);
  Encoded whole_value(const Key& key, uint32_t part, uint32_t line, bool is_member);
  void serve_waiters(uint32_t key, uint32_t part);

  Side& side_;
  uint32_t num_contributors_;
  MemberSet observers_;
  uint32_t own_server_;
  SyncPolicy sync_;
  Upstream& upstream_;
  Lane lane_;
  PerKey<State> states_;
  std::vector<std::optional<std::unordered_map<uint32_t, uint32_t>>> last_rounds_;  // contributor -> key -> last round
  MemberSet left_;
  bool told_all_left_ = false;
  OnClose on_close_;
  bool checks_contributors_ = true, waits_for_ends_ = true;
};

}  // namespace geomx
