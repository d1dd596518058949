// The transport of real nodes: ZeroMQ over TCP; with peers of the same host, memory that is shared for what is large
// and a pipe of our own for the rest (local_pipe.h), while the connection of ZeroMQ tells whether they are still there.
//
// One ROUTER listens; each connection that we open has a DEALER; peers that connected to us are answered on the
// connection that they opened, so a node behind NAT is a full peer. Nobody's message reaches the node before its
// connection has said hello with the right token (handshake.h). Lives on its loop's thread, like its callbacks.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "handshake.h"
#include "local_pipe.h"
#include "loop.h"
#include "shared_memory.h"
#include "transport.h"

namespace geomx {

struct ZmqOptions {
  std::string token;             // empty: only peers on this host are let in
  bool is_memory_shared = true;  // with peers that can open our memory
  int send_buffer_bytes = 0;     // of the kernel, for each connection; 0: its own choice
  int linger_ms = 2000;          // how long close() waits at most for peers to have read what was sent
  int connect_timeout_ms = 5000;
};

class ZmqTransport : public Transport, private Loop::Source {
 public:
  // Made, like everything, on the loop's thread, or before the loop is started.
  ZmqTransport(Loop& loop, ZmqOptions options);
  ~ZmqTransport() override;  // closes; not from within a callback of its own

  Status bind(const std::string& host, uint16_t port) override;
  std::string address() const override { return address_; }
  // Nobody needs to listen there yet: it is tried until it succeeds, and what is sent meanwhile waits. The first failed
  // try is told through on_lost with why; is_lost() says that there will be no other.
  Status connect(const std::string& address, PeerId* peer) override;
  void send(PeerId peer, uint8_t channel, Message message) override;
  Bytes allocate(PeerId peer, size_t size) override;
  void receive(Receiver receiver, OnRefused on_refused, OnLost on_lost) override;
  size_t overhead(const Message& message) const override;
  // Nothing is called back any more. Waits, for linger_ms at most, until peers have read all that was sent.
  void close() override;

  bool is_lost(PeerId peer) const override { return peers_[peer]->state == Peer::State::lost; }
  bool shares_memory_with(PeerId peer) const { return peers_[peer]->can_read_ours; }
  bool has_pipe_to(PeerId peer) const { return peers_[peer]->pipe != nullptr && peers_[peer]->is_pipe_read; }
  // Of this node's shared memory, by who allocated it here and by peers that hold it.
  size_t shared_bytes() const { return arena_ == nullptr ? 0 : arena_->used_bytes(); }
  // 0: what waits to leave is dropped.
  void set_linger_ms(int linger_ms) override { options_.linger_ms = linger_ms; }

 private:
  // A socket and the monitor that tells what happens to its connections. Asking ZeroMQ what there is costs system
  // calls, so a socket is read when its descriptor tells of something, or when it was used since: using it can swallow
  // that.
  struct Socket {
    void* socket = nullptr;
    void* monitor = nullptr;
    int socket_fd = -1, monitor_fd = -1;
    size_t place = SIZE_MAX;  // of the two among those that were last waited for
    bool is_used = true;      // since it was last read to its end
    bool append_descriptors(std::vector<pollfd>* descriptors);
    // Whether there may be something to read, events included.
    bool is_told(const std::vector<pollfd>& descriptors, bool* has_events) const;
  };
  // Loans that the node has dropped, on any thread, until they are sent back to who lent them.
  struct ReturnQueue;
  struct Frame;
  using Frames = std::vector<std::shared_ptr<Frame>>;

  struct Peer {
    enum class State { greeting, open, lost };
    PeerId id = 0;
    State state = State::greeting;
    std::string name;  // "to 127.0.0.1:9092", "from 10.0.0.2", for sentences
    // Connections that we opened.
    Socket dealer;
    std::string endpoint;
    std::vector<std::vector<Bytes>> unconfirmed;  // sent before the welcome: sent again when the connection breaks
    uint64_t opened_us = 0;
    std::string trouble;  // why it isn't open yet, when that was told
    // Connections that others opened.
    std::string routing_id;
    bool is_known = false;  // to the node: something of it was delivered
    // Both.
    bool is_leaving = false;  // we said goodbye and wait for the answer
    bool is_ending = false;   // closed by the other side; judged once all that it sent has been read
    bool can_read_ours = false;
    std::unique_ptr<ForeignMemory> memory;  // theirs, where we can read it
    std::unordered_map<uint64_t, Bytes> loans;
    // What is sent goes through the pipe once there is one, what comes in once the other side has said so.
    std::unique_ptr<LocalPipe> pipe;
    PipeOffer pipe_offer;  // ours to them
    bool is_pipe_read = false;
    size_t pipe_place = SIZE_MAX;  // as a Socket's
    std::shared_ptr<ReturnQueue> returns;
  };
  // A connection that somebody opened to us and that isn't closed.
  struct Accepted {
    bool is_peer = false, is_refused = false;
    PeerId peer = 0;
  };
  struct Event {
    uint16_t kind;
    int32_t value;
  };

  bool append_descriptors(std::vector<pollfd>* descriptors) override;
  void read(const std::vector<pollfd>& descriptors) override;
  void read_router(const std::vector<pollfd>& descriptors);
  void read_dealer(Peer& peer, const std::vector<pollfd>& descriptors);
  bool read_pipe(Peer& peer);

  Socket open_socket(int type, int events);
  void close_socket(Socket* socket, int linger_ms);
  Peer& add_peer();

  bool read_event(void* monitor, Event* event);
  void read_router_events();
  void on_disconnected(int fd);
  void read_dealer_events(Peer& peer);
  bool read_messages(Socket& from, Peer* dealer_of);
  bool receive_frames(void* socket, Frames* frames);
  void take_zmq(Peer& peer, const Frames& frames, size_t first);

  void open_connection(Peer& peer);
  void reopen_later(Peer& peer);
  void tell_trouble(Peer& peer, const std::string& why);
  Socket& socket_of(Peer& peer) { return peer.routing_id.empty() ? peer.dealer : router_; }
  void end(Peer& peer);
  void finish_ended(Peer& peer);
  void lose(Peer& peer, const std::string& why, int linger_ms = 0);
  void say_goodbye();
  bool is_awaited(const Peer& peer) const;
  void refuse(const std::string& why);

  void on_stranger(const Frames& frames);
  std::string why_not(const Hello& hello, const std::string& host) const;
  void greet(const Frames& frames, const Hello& hello, const std::string& host);
  void watch(Peer& peer, int fd);
  void on_frames(Peer& peer, std::vector<Bytes> frames);
  void on_internal(Peer& peer, const std::vector<Bytes>& frames);
  void on_welcome(Peer& peer, const Welcome& welcome);
  bool on_control(Peer& peer, const Bytes& content);
  void on_bye(Peer& peer);
  void offer_pipe(Peer& peer);
  void open_pipe(Peer& peer, const PipeOffer& offer);
  void on_pipe_follows(Peer& peer);
  void on_blocks(Peer& peer, const std::vector<Bytes>& frames);
  void deliver(Peer& peer, Message message);

  void send_frames(Peer& peer, std::vector<Bytes> frames);
  void send_internal(Peer& peer, Bytes content);
  bool write_frames(Peer& peer, const std::vector<Bytes>& frames);
  Bytes shared_copy(const Bytes& bytes);
  void lend_attachments(Peer& peer, Message* message, std::vector<Bytes>* frames);
  void flush_returns(PeerId peer);

  Loop& loop_;
  ZmqOptions options_;
  Receiver receiver_;
  OnRefused on_refused_;
  OnLost on_lost_;
  std::string address_;
  Socket router_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unordered_map<std::string, PeerId> by_routing_id_;
  std::unordered_map<int, Accepted> accepted_;  // by file descriptor
  bool is_failure_told_ = false;                // of the connection whose end is the next event
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<MappedPages> mapped_pages_;
  std::unique_ptr<PipeListener> pipe_listener_;
  uint64_t last_loan_ = 0;
  std::vector<std::pair<Bytes, Bytes>> copies_;  // of this turn: what goes to many peers is copied once
  std::shared_ptr<bool> is_alive_;               // for timers
  bool is_closing_ = false, is_closed_ = false;
};

}  // namespace geomx
