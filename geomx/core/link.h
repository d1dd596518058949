// A node's end of one domain: queues frames for each peer (send_queue.h), keeps the bytes in flight within the credit,
// packs what is ready for a peer into one message, takes in what arrives and returns its credit. Lives on the node's
// reactor. Doesn't know keys' values, rounds or membership: it moves frames between NodeIds.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "counters.h"
#include "credit.h"
#include "flows.h"
#include "policies.h"
#include "reactor.h"
#include "send_queue.h"
#include "trace.h"
#include "transport.h"
#include "wire.h"

namespace geomx {

class Link {
 public:
  using Handler = std::function<void(NodeId from, PeerId peer, Frame frame)>;

  Link(Reactor& reactor, Transport& transport, Tier tier, Counters& counters);

  void set_self(NodeId self) { self_ = self.packed(); }
  void on_frame(Handler handler) { handler_ = std::move(handler); }
  void on_refused(std::function<void(const std::string&)> handler) { refused_ = std::move(handler); }
  // Trouble with a connection; `node` is kNobody's where it isn't known yet. is_over: it won't come back.
  using OnTrouble = std::function<void(NodeId node, PeerId peer, const std::string& why, bool is_over)>;
  void on_trouble(OnTrouble handler) { trouble_ = std::move(handler); }
  // Somebody has all of a message that was sent at sent_us, or a message came.
  using OnDelivered = std::function<void(NodeId to, uint64_t bytes, uint64_t sent_us)>;
  using OnReceived = std::function<void(NodeId from, uint64_t bytes)>;
  void on_traffic(OnDelivered delivered, OnReceived received) {
    delivered_ = std::move(delivered);
    received_ = std::move(received);
  }
  // Asked when something is to be sent to a node that nothing is known of: connects to it and calls set_peer, or not.
  void on_unknown(std::function<void(NodeId)> handler) { unknown_ = std::move(handler); }
  void set_credit(const CreditRule& rule) { credit_rule_ = rule; }
  void set_trace(Trace* trace) { trace_ = trace; }

  // Frames to `node` go over this connection from now on; a node that connected to us is learnt by itself.
  void set_peer(NodeId node, PeerId peer);
  bool knows(NodeId node) const {
    auto found = peers_.find(node.packed());
    return found != peers_.end() && found->second.is_connected;
  }
  // This node will connect to us; what is sent to it before waits.
  void expect(NodeId node) { peers_[node.packed()]; }

  // Control: at once, beside the credit.
  void send(NodeId to, Frame frame);
  void send_to_peer(PeerId peer, Frame frame);  // before the other's NodeId is known
  // Data of one part: by rank, within the credit. On lossy channels it leaves behind everything reliable, and what has
  // then not left for wait_us is dropped here (0: it waits for ever).
  void send_ranked(NodeId to, Frame frame, int64_t rank, uint8_t channel, uint64_t wait_us = 0);
  // Reliable, and behind the lossy frames that were given before it.
  void send_trailing(NodeId to, Frame frame);

  // Memory for what is about to be sent to this node: where the transport shares memory with it, that memory.
  Bytes allocate(NodeId to, size_t size);
  bool is_idle() const;  // nothing queued, nothing unacknowledged
  uint64_t in_flight_bytes(NodeId to) const;
  // visit(NodeId::packed() or kNobody, Flow) for all that was sent.
  template <typename Visit>
  void for_each_flow(Visit visit) const {
    for (const auto& [node, peer] : peers_) peer.flows.for_each([&, n = node](const Flow& flow) { visit(n, flow); });
    strangers_.for_each([&](const Flow& flow) { visit(kNobody, flow); });
  }
  // For tests only: acknowledgements are not sent.
  void stop_acknowledging() { acknowledges_ = false; }

 private:
  struct Peer {
    PeerId id = 0;
    bool is_connected = false;  // else what is sent waits until it is
    SendQueue queue;
    uint64_t expiry_us = 0;  // when frames that wait are looked at again
    struct Sent {
      uint64_t bytes, at_us;
    };
    std::unordered_map<uint64_t, Sent> unacked;  // by message id
    uint64_t in_flight_bytes = 0;
    Credit credit;
    std::vector<uint64_t> to_ack;
    uint64_t to_ack_bytes = 0;
    bool is_ack_due = false;  // else it waits for something to ride along with
    bool is_dirty = false;
    Flows flows;
  };

  void take(PeerId from, uint8_t channel, Message message);
  void acknowledge(uint32_t node, const Header& header, size_t bytes);
  Frame take_due_acks(Peer& peer);
  void hasten_acks();
  void take_acks(Peer& peer, const Frame& frame);
  void mark(uint32_t node, Peer& peer);
  void pump();
  void pump_peer(Peer& peer);
  std::vector<Frame> pump_control(Peer& peer);
  void pump_ranked(Peer& peer, std::vector<Frame> bundle);
  bool is_behind_reliable(const Peer& peer) const;
  void pump_lossy(Peer& peer);
  void pump_datagram(Peer& peer, uint8_t channel, const SendQueue::Heap& frames, size_t max_bytes);
  void pump_trailing(Peer& peer);
  void drop_late(Peer& peer);
  void watch_expiry(uint32_t node, Peer& peer);
  void transmit(Peer& peer, uint8_t channel, std::vector<Frame> frames, bool acknowledged);
  Frame pop(Peer& peer, uint8_t channel);
  bool is_traced(const Frame& frame) const;
  TraceEvent event_of(TraceKind kind, const Frame& frame, uint32_t node) const;
  uint64_t count_frame(Peer& peer, const Frame& frame);
  void count(Peer& peer, const Flow& flow);
  void refuse(const std::string& why);
  Peer* peer_of(NodeId to);
  NodeId node_at(PeerId peer) const;

  Reactor& reactor_;
  Transport& transport_;
  Tier tier_;
  Counters& counters_;
  uint32_t self_ = kNobody;
  Handler handler_;
  std::function<void(const std::string&)> refused_;
  OnTrouble trouble_;
  OnDelivered delivered_;
  OnReceived received_;
  std::function<void(NodeId)> unknown_;
  CreditRule credit_rule_;
  uint64_t next_message_ = 1;
  bool acknowledges_ = true;
  bool is_ack_timer_set_ = false;
  std::unordered_map<uint32_t, Peer> peers_;      // NodeId -> queue
  std::unordered_map<PeerId, uint32_t> node_of_;  // connection -> NodeId
  std::vector<uint32_t> dirty_;
  Trace* trace_ = nullptr;
  Flows strangers_;  // to connections whose node wasn't known
};

}  // namespace geomx
