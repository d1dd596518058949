// The seams besides the codec, one occupant a tier: what goes first and how much may be in flight (scheduler), which
// class of service a part gets (transport), who is the next hop (overlay). The defaults are the plain ones: in order,
// without limit, reliable, straight to the server.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "codec.h"
#include "credit.h"
#include "per_key.h"
#include "transport.h"
#include "wire.h"

namespace geomx {

class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;
  // Larger goes first; equal ranks leave in order. `priority` is what the caller of push asked for.
  virtual int64_t rank(const PartView&, int priority) const { return priority; }
  // Does what a push asked for count on all ways that its parts go? Then it travels with them.
  virtual bool spreads_priorities() const { return false; }
  // Bytes that may be in flight to a peer; one message always may.
  virtual CreditRule credit() const { return {}; }
  // The round of a part that we contributed to is over. Members of a server hear of ends in the same order.
  virtual void on_answer(const PartView&) {}
};

// First in, first out: of the parts whose pushes asked for the same priority those leave first that came first. Which
// of them are ready first is chance, of threads in each worker, when a round takes longer to send than to compute; and
// a server answers a part when all members have sent it. So what waits goes in one order on all members: the one in
// which the parts' last rounds ended.
class TurnScheduler : public SchedulerPolicy {
 public:
  explicit TurnScheduler(CreditRule credit) : credit_(credit) {}
  int64_t rank(const PartView& part, int priority) const override {
    return int64_t(priority) * (int64_t(1) << 32) - (part.direction == Direction::up ? turn_of(part) : 0);
  }
  CreditRule credit() const override { return credit_; }
  void on_answer(const PartView& part) override {
    std::vector<uint32_t>& turns = turns_[part.key];
    turns.resize(part.num_parts);
    turns[part.part] = ++last_turn_;
  }

 private:
  int64_t turn_of(const PartView& part) const {
    const std::vector<uint32_t>* turns = turns_.find(part.key);
    return turns == nullptr ? 0 : int64_t((*turns)[part.part]);
  }

  CreditRule credit_;
  PerKey<std::vector<uint32_t>> turns_;  // of each part; 0: no round of it is over
  uint32_t last_turn_ = 0;
};

// Parts whose pushes asked for the same priority leave by what `rank_of` says about their keys. It is asked once a key.
class KeyedScheduler : public SchedulerPolicy {
 public:
  using RankOf = std::function<int32_t(uint32_t key)>;
  KeyedScheduler(CreditRule credit, RankOf rank_of) : credit_(credit), rank_of_(std::move(rank_of)) {}
  int64_t rank(const PartView& part, int priority) const override {
    auto known = ranks_.find(part.key);
    if (known == ranks_.end()) known = ranks_.emplace(part.key, std::clamp(rank_of_(part.key), -kMost, kMost)).first;
    return int64_t(priority) * (int64_t(1) << 31) + known->second;
  }
  bool spreads_priorities() const override { return true; }
  CreditRule credit() const override { return credit_; }

 private:
  static constexpr int32_t kMost = int32_t(1) << 30;
  CreditRule credit_;
  RankOf rank_of_;
  mutable std::unordered_map<uint32_t, int32_t> ranks_;
};

struct PartClass {
  uint8_t channel = 0;  // 0: reliable
  bool is_droppable = false;
  bool is_withheld = false;  // droppable, and not sent at all
  bool is_coarse = false;    // travels in the policy's coarse codec; what that loses stays behind
};

class TransportPolicy {
 public:
  virtual ~TransportPolicy() = default;
  // Does it class parts against each other? Then classify() sees all parts of one shard in one round together, with the
  // sums of their magnitudes.
  virtual bool classifies() const { return is_lossy(); }
  virtual std::vector<PartClass> classify(const std::vector<PartView>& parts, const std::vector<double>&) {
    return std::vector<PartClass>(parts.size());
  }
  // May parts be missing when a round closes? Then senders mark the end of their rounds.
  virtual bool is_lossy() const { return false; }
  // How long a droppable part may wait to leave, once nothing reliable is before it. 0: for ever.
  virtual uint64_t wait_us() const { return 0; }
  // How long a round waits for a sender's droppable parts after its end mark.
  virtual uint64_t deadline_us() const { return 0; }
  // Lossy channels that it wants of the transport below; without them droppable parts take the reliable way.
  virtual LossyChannels channels() const { return {}; }
  virtual Codec* coarse() const { return nullptr; }
  // A figure that somebody reported: the workers' loss.
  virtual void on_metric(const std::string&, double) {}
};

struct Hop {
  bool waits = false;  // ask again at `until_us`, or when more has arrived
  uint64_t until_us = 0;
  NodeId to;  // where to send otherwise
};

// What is merged at a node and not handed on yet.
struct Held {
  MemberSet have;
  uint64_t bytes = 0;     // encoded
  uint64_t since_us = 0;  // when the first of it came
};

class OverlayPolicy {
 public:
  virtual ~OverlayPolicy() = default;
  virtual Hop up(const PartView&, NodeId self, NodeId root, const Held& held, uint64_t now_us) = 0;
  // A closed part of so many bytes is owed to `owed`: who gets it here, and passes it on to whom.
  virtual Route down(const PartView&, const MemberSet& owed, uint64_t bytes) = 0;
  // Without an answer for so long, a contributor goes straight to the root.
  virtual uint64_t bypass_us() const = 0;

  // What it may want to know; it decides as well without.
  virtual void on_control(NodeId, const Bytes&) {}  // another node's words
  virtual void on_delivered(NodeId, uint64_t /*bytes*/, uint64_t /*sent_us*/, uint64_t /*now_us*/) {}
  virtual void on_received(NodeId, uint64_t /*bytes*/, uint64_t /*now_us*/) {}
  virtual void on_answer(const PartView&) {}            // the round of a part that we contributed to is over
  virtual void on_bypass(const PartView&, NodeId) {}    // our contribution went straight to the root
  virtual void on_missed(const PartView&, uint32_t) {}  // a server: this member did not get what is on its way to it
  virtual void on_left(uint32_t) {}                     // this member contributes no more
};

// Where an overlay lives, and what it may ask of its node.
struct OverlaySite {
  Tier tier = Tier::wan;
  NodeId self;
  uint32_t num_members = 0, num_servers = 0;
  MemberSet contributors;  // of the members: who contributes
  MemberSet reachable;     // whom other members can connect to
  std::function<uint64_t()> now_us;
  std::function<void(NodeId to, Bytes words)> send;
  std::function<void(uint32_t key, uint32_t part)> wake;  // ask again about what is held of this part
};

struct Policies {
  std::unique_ptr<SchedulerPolicy> scheduler = std::make_unique<SchedulerPolicy>();
  std::unique_ptr<TransportPolicy> transport = std::make_unique<TransportPolicy>();
  std::unique_ptr<OverlayPolicy> overlay;  // none: the star
};

}  // namespace geomx
