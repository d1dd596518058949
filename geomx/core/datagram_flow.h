// Messages between two nodes over datagrams that get lost: one end of it. Reliable messages are acknowledged and sent
// again piece by piece (selective repeat); those of lossy channels are sent once. All of them share one pace and one
// window (congestion.h). Keeps no order. Knows neither sockets nor clocks: whoever owns it hands in packets and times,
// and asks when to be run again.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "congestion.h"
#include "datagram.h"
#include "datagram_inbox.h"
#include "ranges.h"

namespace geomx {

class DatagramFlow {
 public:
  using Transmit = std::function<void(uint8_t channel, const std::vector<uint8_t>& datagram)>;
  using Deliver = DatagramInbox::Deliver;
  struct Figures {
    uint64_t packets = 0, bytes = 0;  // sent, with acknowledgements
    uint64_t lost_packets = 0, lost_lossy_packets = 0;
    uint64_t repeated_bytes = 0;
    uint64_t doubles = 0, malformed = 0, crowded = 0;  // taken, as of the inbox
  };

  // `key`: to be shown to the other end.
  DatagramFlow(uint64_t key, size_t max_packet, Transmit transmit, Deliver deliver);

  // What a message of a lossy channel may take to travel in one datagram.
  size_t max_message() const { return max_packet_ - kDataHeader - kChunkHeader - 8; }
  void set_max_packet(size_t bytes);
  // What the other end's socket holds while its host has no time for it.
  void set_their_buffer(uint64_t bytes) { congestion_.set_host_bytes(bytes); }
  void note_rtt(uint64_t rtt_us, uint64_t now_us);  // measured by somebody else, before there was traffic

  void send(uint8_t channel, const Message& message, uint64_t now_us);
  // `arrived_us`: when the packet reached this host, which may have had no time for it until now.
  void take_data(const Packet& packet, uint64_t now_us, uint64_t arrived_us);
  void take_ack(const Packet& packet, uint64_t now_us, uint64_t arrived_us);
  // Sends what may leave now, acknowledges what is due, gives up what is overdue.
  void run(uint64_t now_us);
  uint64_t next_us() const;  // when run() has something to do; 0: never, until something is sent or taken

  // Bytes that may be given now; more would wait here, where nothing can overtake it.
  size_t room() const;
  bool is_idle() const { return queue_.empty() && again_.empty() && in_flight_.empty(); }
  // Nothing came back for so long that the path must be thought dead.
  bool is_stuck(uint64_t now_us) const;
  // Reliable messages that are not acknowledged, whole; the flow forgets them.
  std::vector<Message> take_unacknowledged();
  Figures figures() const;
  const Congestion& congestion() const { return congestion_; }

 private:
  struct Outgoing {  // reliable
    Bytes flat;
    Ranges acknowledged;
  };
  struct Queued {
    uint8_t channel;
    uint64_t message;
    Bytes flat;
    uint64_t sent = 0;  // bytes
  };
  struct Piece {
    uint64_t message, offset, size;
  };
  struct Sent {
    uint64_t sent_us;
    size_t size;
    uint8_t channel;
    bool is_app_limited;
    uint64_t delivered, delivered_us, first_sent_us;
    std::vector<Piece> pieces;  // reliable ones
  };

  bool may_send(uint64_t now_us) const;
  bool send_one(uint64_t now_us);
  void fill_again(Packet* packet, Sent* sent, size_t* room);
  void fill_new(Packet* packet, Sent* sent, size_t* room);
  void transmit_data(Packet packet, Sent sent, uint64_t now_us);
  void repeat_last(uint64_t now_us);
  void lose(std::map<uint64_t, Sent>::iterator packet);
  void detect_losses(uint64_t now_us);
  void acknowledge_pieces(const Sent& sent);
  void note_delivery(const Sent& newest, uint64_t rtt_us, uint64_t host_us, uint64_t now_us);
  void catch_up(uint64_t now_us);
  bool is_needed(const Sent& sent) const;
  void on_timeout(uint64_t now_us);
  uint64_t timeout_us() const;
  void update_rtt(uint64_t rtt_us);
  void send_ack(uint64_t now_us);

  uint64_t key_;
  size_t max_packet_;
  Transmit transmit_;
  DatagramInbox inbox_;
  Figures figures_;
  Congestion congestion_;

  std::deque<Queued> queue_;
  uint64_t queued_bytes_ = 0;
  std::deque<Piece> again_;
  std::vector<Bytes> sent_lossy_;  // of the packet that is being made
  std::map<uint64_t, Outgoing> outgoing_;
  std::map<uint64_t, Sent> in_flight_;  // by number
  std::vector<Piece> last_pieces_;      // of the newest reliable packet: sent twice when nothing follows it
  uint64_t in_flight_bytes_ = 0;
  uint64_t next_message_[2] = {1, 1}, next_number_ = 1;  // messages: lossy, reliable
  uint64_t burst_us_ = 0, burst_at_us_ = 0;
  uint64_t due_us_ = 0;  // when the next packet might have left, as it was after the last run; 0: it had to wait
  uint64_t next_send_us_ = 0, last_sent_us_ = 0, last_heard_us_ = 0;
  uint64_t lost_ = 0, delivered_ = 0, delivered_us_ = 0, first_sent_us_ = 0, app_limited_until_ = 0;
  uint64_t largest_acknowledged_ = 0, loss_timer_us_ = 0;
  uint64_t srtt_us_ = 0, rttvar_us_ = 0;
  int timeouts_ = 0;
};

}  // namespace geomx
